"""The rules that put compiled leading picks in order, and what they count in PTX."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from benchmarks.model.leading_picks import KNOWN, Pick, Space, _busy, guard

pytestmark = pytest.mark.triton


def pick(name, time_ms, known_ms):
    return Pick({"name": name}, time_ms, guessed_ms=0.0, known_ms=known_ms, cycles_ms={})


FIRST, SECOND, DEFAULT = pick("first", 1.2, 0.96), pick("second", 1.05, 0.9), pick("default", 1.0, 1.05)
SPACE = Space("older", 1.0, DEFAULT, [FIRST, SECOND])


def test_another_pick_takes_the_place_of_the_first_if_it_is_ahead_by_the_margin():
    assert SPACE.pick(KNOWN, 0.05) is SECOND
    assert SPACE.pick(KNOWN, 0.07) is FIRST


def test_the_guard_may_ask_for_the_gain_of_the_first_pick_too():
    slower = {"sure": 1, "slower": 1, "lowest": round(1 / 1.05, 4)}
    assert guard([SPACE], 0.15, both=False) == slower
    assert guard([SPACE], 0.15, both=True) == {"sure": 0, "slower": 0, "lowest": 1.0}
    assert guard([SPACE], 0.05, both=True) == slower


@pytest.mark.parametrize(
    ("name", "line", "cycles"),
    [
        ("ld", "ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];", 4),
        ("ld", "ld.global.b16 { %rs1 }, [ %rd1 + 0 ];", 1),
        ("ld", "ld.param.b64 %rd1, [kernel_param_0];", 0),
        ("cp", "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;", 4),
        ("cp", "cp.async.commit_group;", 0),
        ("ldmatrix", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];", 4),
        ("shfl", "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;", 1),
        ("add", "add.s32 %r1, %r2, %r3;", 0),
    ],
)
def test_the_load_and_store_unit_takes_a_cycle_for_each_word_of_a_lane(name, line, cycles):
    assert _busy(name, line) == cycles
