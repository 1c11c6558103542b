"""What the simulator expects of stages, warps and architectures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.device.limits import LIMITS
from triton_ops.device.specs import TARGETS
from triton_ops_lab.expectation import PRODUCTS, ROWS, STAGES, drawn, stages_habit, timeline, warp_choices, warps_habit


def test_one_stage_is_serial_and_three_run_two_loads_ahead():
    serial, deep = timeline(1, load=2.0), timeline(3, load=2.0)
    assert [(step.issued, step.begun) for step in serial.steps[:3]] == [(0, 2), (3, 5), (6, 8)]
    assert [step.issued for step in deep.steps[:4]] == [0, 0, 2, 3]  # two tiles at once, then one before each step
    assert deep.busy == 1.0
    assert serial.busy == pytest.approx(1 / 3)


@given(load=st.floats(0.1, 20.0), stages=st.integers(1, 7))
def test_more_stages_never_compute_less_and_no_buffer_holds_two_tiles(load, stages):
    result = timeline(stages, load=load)
    assert timeline(stages + 1, load=load).busy >= result.busy - 1e-9
    for before, after in zip(result.steps, result.steps[stages:], strict=False):
        assert before.buffer == after.buffer
        assert after.issued >= before.done - 1e-9
    assert {len(line) for line in drawn(result)} == {64}
    assert len(drawn(result)) == stages


def test_more_warps_share_the_accumulator():
    each = {
        choice.warps: (choice.accumulator_registers, choice.fits) for choice in warp_choices(TARGETS["sm_90"], 65_536)
    }
    assert (each[4], each[8]) == ((128.0, True), (64.0, True))
    assert warp_choices(TARGETS["sm_90"], 131_072)[2].fits is False  # 128x256 with 4 warps: 256 registers
    assert [choice.warps for choice in warp_choices(TARGETS["gfx942"], 65_536)] == [1, 2, 4, 8, 16]  # 64 lanes each


def test_every_architecture_has_advice():
    assert set(LIMITS) == set(TARGETS)
    for arch, target in TARGETS.items():
        assert stages_habit(arch, PRODUCTS).low >= 1
        assert stages_habit(arch, ROWS).high == 2
        assert warps_habit(target, PRODUCTS, 128 * 256).high == 16
        assert warps_habit(target, PRODUCTS, 128 * 128).holds(4)
    assert stages_habit("sm_80", PRODUCTS).holds(3)
    assert stages_habit("sm_90", PRODUCTS).holds(4)
    assert stages_habit("sm_61", PRODUCTS) is None
    assert warps_habit(TARGETS["sm_90"], ROWS, 0) is None
    assert len(STAGES) == 5
