"""The table of devices beside what a driver says of the device that is here."""

from __future__ import annotations

import pytest

from triton_ops.device import DeviceSpec, probe

pytestmark = pytest.mark.gpu


def test_the_row_of_this_device_has_the_figures_that_its_driver_reports():
    import torch

    here = probe("cuda")
    row = DeviceSpec.named(here.name)
    if row is None:
        pytest.skip(f"the table has no row for {here.name}")
    assert (row.kind, row.arch, row.units) == (here.kind, here.arch, here.units)
    assert row.shared_bytes_per_block == here.shared_bytes_per_block
    assert row.registers_per_unit == here.registers_per_unit
    assert here.l2_bytes is None or row.l2_bytes == pytest.approx(here.l2_bytes, rel=0.05)
    limits = here.limits
    seen = torch.cuda.get_device_properties(0)
    assert limits.warps * limits.warp_size == seen.max_threads_per_multi_processor
    assert limits.shared_bytes == seen.shared_memory_per_multiprocessor
