"""Cures of spills on a GPU: what helps is measured, and the fastest of it is the cure."""

from __future__ import annotations

import pytest

from triton_ops import cure_spills
from triton_ops.device import probe
from triton_ops_kernels import load

pytestmark = pytest.mark.gpu

SPILLS = {"BM": 128, "BN": 256, "BK": 64, "num_warps": 4, "num_stages": 3}


def test_what_cures_a_large_accumulator_is_faster_as_measured():
    if probe("cuda").arch != "sm_90":
        pytest.skip("the accumulator spills in this way on sm_90")
    result = cure_spills(load("matmul"), config=SPILLS, shape=(4096, 4096, 4096))
    print([(one.name, one.verdict, one.best and one.best.median_ms) for one in result.tried])  # noqa: T201
    assert [one.verdict for one in result.tried] == ["cures", "cures", "does not help"]
    assert result.before.registers == 255
    assert result.before.median_ms is not None
    assert result.cure is not None
    assert result.cure.best.median_ms < 0.8 * result.before.median_ms
