"""Products that are kept with recordings."""

from __future__ import annotations

import pytest

from triton_ops import GemmTiles, Work
from triton_ops.cost_model import Model, ProductTiles
from triton_ops.device import DeviceSpec, Machine
from triton_ops_lab.recording import work_json, work_of

pytestmark = pytest.mark.triton
H200 = Machine.of(DeviceSpec.named("NVIDIA H200"))


def test_products_are_kept_with_recordings():
    product = GemmTiles(
        64, 128, 256, dtype="bfloat16", out_dtype="bfloat16", tile_rows="BM", tile_columns="BN", tile_inner="BK"
    )
    work = Work(1.0, 2.0, ProductTiles(product))
    assert work_of(work_json(work)) == work
    assert Model(work, H200).bound_ms({}) > 0
