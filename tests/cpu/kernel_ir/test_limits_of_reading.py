"""Each limit of what is read or computed holds exactly: as much as is allowed, and one more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.kernel_ir.test_ttir import COPY, GIVEN, work
from triton_ops.kernel_ir import KernelFacts, LaunchWork, Operand, UntoldError, evaluation, kernel_work, term_walk
from triton_ops.kernel_ir.evaluation import _first_false, _turns_between
from triton_ops.kernel_ir.facts import places_in
from triton_ops.kernel_ir.kernel_work import _spread_ids
from triton_ops.kernel_ir.terms import Terms
from triton_ops.kernel_ir.trace import Value
from triton_ops.kernel_ir.ttir_syntax import TtirOperation


def calls(depth):
    """A kernel whose functions call each other so deep."""
    names = ["public @k", *(f"private @f{at}" for at in range(depth))]
    inner = [*(f"    tt.call @f{at}() : () -> ()\n" for at in range(depth)), ""]
    functions = (f"  tt.func {one}() {{\n{call}    tt.return\n  }}\n" for one, call in zip(names, inner, strict=True))
    return "module {\n" + "".join(functions) + "}\n"


def test_eight_calls_within_calls_are_followed():
    assert KernelFacts.of(calls(8)).terms.count > 0
    with pytest.raises(UntoldError, match="call each other without end"):
        KernelFacts.of(calls(9))
    with pytest.raises(UntoldError, match="not in the text: @f0"):
        KernelFacts.of(calls(1).replace("private @f0", "private @other"))


def test_as_many_operations_as_are_allowed_are_walked_through(monkeypatch):
    count = sum(" = " in line or "tt." in line for line in COPY.splitlines()) - 1  # without the function itself
    for most, walks in ((count, True), (count - 1, False)):
        monkeypatch.setattr(term_walk, "_MOST_OPERATIONS", most)
        if walks:
            assert KernelFacts.of(COPY.replace("BODY", "")).accesses
        else:
            with pytest.raises(UntoldError, match="too many to walk through"):
                KernelFacts.of(COPY.replace("BODY", ""))


@pytest.mark.parametrize(("count", "holds"), [(0, False), (1, True), ((1 << 31) - 1, True), (1 << 31, False)])
def test_a_grid_has_less_than_two_to_the_31_programs(count, holds):
    if holds:
        assert work(grid=(count, 1, 1)).programs == count
    else:
        with pytest.raises(UntoldError, match=f"its grid has {count} programs"):
            work(grid=(count, 1, 1))


@given(st.integers(1, 3000), st.integers(1, 64))
def test_programs_are_all_of_a_small_grid_or_one_of_each_of_equal_parts(count, most):
    ids = _spread_ids(count, most)
    if count <= most:
        assert ids.tolist() == list(range(count))
        return
    assert len(ids) == most
    for at, one in enumerate(ids):
        assert at * count // most <= one <= (at + 1) * count / most


def test_sixty_four_programs_are_all_looked_at_and_of_more_a_sixty_fourth_each(monkeypatch):
    asked, evaluate = [], kernel_work.evaluate

    def watched(facts, programs):
        asked.append(programs)
        return evaluate(facts, programs)

    monkeypatch.setattr(kernel_work, "evaluate", watched)
    ranges = "    %r = tt.make_range {{end = {} : i32, start = 0 : i32}} : tensor<{}xi32>\n"
    for body, count in (("", 64), (ranges.format(4096, 4096), 32), (ranges.format(1 << 17, 1 << 17), 8)):
        asked.clear()
        assert work(body, grid=(5000, 1, 1)).looked_at == 4096
        assert [len(one.ids) for one in asked] == [count, 4096]
        assert [one.whole for one in asked] == [True, False]
        assert asked[1].ids.tolist() == list(range(4096))
    asked.clear()
    assert work(grid=(64, 1, 1)).looked_at == 64
    assert [one.ids.tolist() for one in asked] == [list(range(64))] * 2


@given(st.lists(st.integers(0, 300), min_size=1, max_size=6))
def test_the_first_turn_for_which_a_condition_fails_is_found(ends):
    turns = np.array(ends, dtype=np.int64)
    assert _first_false(lambda turn: np.asarray(turn < turns), len(ends)).tolist() == ends


def test_a_loop_has_a_million_turns_at_most(monkeypatch):
    monkeypatch.setattr(evaluation, "_MOST_TURNS", 64)
    ends = np.array([64, 3])
    assert _first_false(lambda turn: np.asarray(turn < ends), 2).tolist() == [64, 3]
    with pytest.raises(UntoldError, match="has no end"):
        _first_false(lambda turn: np.asarray(turn < ends + 1), 2)


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(1, 7))
def test_turns_are_those_of_a_range(lower, upper, step):
    begin, end, by = (np.array([number], dtype=np.int64) for number in (lower, upper, step))
    turns, guessed = _turns_between(Value(begin), Value(end), by)
    assert (turns.tolist(), guessed) == ([len(range(lower, upper, step))], False)
    for one, other in ((Value(), Value(end)), (Value(begin), Value()), (Value(begin, made_up=True), Value(end)),
                       (Value(begin), Value(end, made_up=True))):  # fmt: skip
        turns, guessed = _turns_between(one, other, by)
        assert (turns.tolist(), guessed) == ([1024 // step], True)
    assert _turns_between(Value(), Value(), np.array([5000]))[0].tolist() == [1], "never none"


def test_sixty_four_names_of_a_place_are_followed():
    def frames(names):
        lines = [f'#loc{at} = loc("x"(#loc{at + 1}))' for at in range(names)]
        return places_in("\n".join([*lines, f'#loc{names} = loc("f.py":7:3)']))(
            TtirOperation("a", (), (), "", (), (), location="#loc0")
        )

    assert [(one.file, one.line) for one in frames(63)] == [("f.py", 7)]
    assert frames(64) == ()
    circle = places_in('#loc1 = loc(callsite(#loc2 at #loc1))\n#loc2 = loc("a\\\\b\\C3\\A4.py":1:1)\n')
    several = circle(TtirOperation("a", (), (), "", (), (), location="#loc1"))
    assert {(one.file, one.line) for one in several} == {("a\\bä.py", 1)}
    assert len(several) == 63, "the places below each of 64 but the last"


def test_words_have_two_thousand_characters_at_most():
    terms = Terms()
    for length in (1999, 2000, 2001):
        assert len(terms.make("argument", "n" * length).words) == min(length, 2000)


def loops(depth):
    """A kernel with loops of two turns so deep, whose places the innermost one loads from."""
    body = "    %c0 = arith.constant 0 : i32\n    %c1 = arith.constant 1 : i32\n    %c2 = arith.constant 2 : i32\n"
    for at in range(depth):
        body += f"    scf.for %i{at} = %c0 to %c2 step %c1  : i32 {{\n"
    at = "%i0"
    for number in range(1, depth):
        body += f"    %a{number} = arith.addi {at}, %i{number} : i32\n"
        at = f"%a{number}"
    body += (
        f"    %p = tt.addptr %arg0, {at} : !tt.ptr<f32>, i32\n    %v = tt.load %p : !tt.ptr<f32>\n" + "    }\n" * depth
    )
    return body


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_turns_of_loops_within_loops_are_counted_however_deep(depth):
    result = work(loops(depth))
    (loaded,) = (one for one in result.accesses if one.kind == "load" and one.tile == 1)
    assert (loaded.executions, loaded.known) == (2.0**depth, True)
    assert sorted(loop.turns for loop in result.loops) == [2.0 ** (at + 1) for at in range(depth)]
    assert [loop.most for loop in result.loops] == [loop.turns for loop in result.loops]


@given(st.integers(-9, 9), st.integers(-20, 20), st.sampled_from([(4, 16), (1, 32), (32, 1)]))
def test_a_shifted_tile_shares_the_places_that_are_in_both(rows, columns, shape):
    (tall, wide), far = shape, 100
    shift = rows * far + columns
    text = f"""
module {{
  tt.func public @k(%x: !tt.ptr<f32>) {{
    %far = arith.constant dense<{far}> : tensor<{tall}x1xi32>
    %shift = arith.constant dense<{shift}> : tensor<{tall}x{wide}xi32>
    %r = tt.make_range {{end = {tall} : i32, start = 0 : i32}} : tensor<{tall}xi32>
    %c = tt.make_range {{end = {wide} : i32, start = 0 : i32}} : tensor<{wide}xi32>
    %r1 = tt.expand_dims %r {{axis = 1 : i32}} : tensor<{tall}xi32> -> tensor<{tall}x1xi32>
    %c1 = tt.expand_dims %c {{axis = 0 : i32}} : tensor<{wide}xi32> -> tensor<1x{wide}xi32>
    %rf = arith.muli %r1, %far : tensor<{tall}x1xi32>
    %rb = tt.broadcast %rf : tensor<{tall}x1xi32> -> tensor<{tall}x{wide}xi32>
    %cb = tt.broadcast %c1 : tensor<1x{wide}xi32> -> tensor<{tall}x{wide}xi32>
    %at = arith.addi %rb, %cb : tensor<{tall}x{wide}xi32>
    %moved = arith.addi %at, %shift : tensor<{tall}x{wide}xi32>
    %b = tt.splat %x : !tt.ptr<f32> -> tensor<{tall}x{wide}x!tt.ptr<f32>>
    %p = tt.addptr %b, %at : tensor<{tall}x{wide}x!tt.ptr<f32>>, tensor<{tall}x{wide}xi32>
    %q = tt.addptr %b, %moved : tensor<{tall}x{wide}x!tt.ptr<f32>>, tensor<{tall}x{wide}xi32>
    %v = tt.load %p : tensor<{tall}x{wide}x!tt.ptr<f32>>
    %w = tt.load %q : tensor<{tall}x{wide}x!tt.ptr<f32>>
    tt.return
  }}
}}
"""
    first, second = LaunchWork.of(text, (1, 1, 1), (Operand(name="x"),)).accesses
    places = {row * far + column for row, column in itertools.product(range(tall), range(wide))}
    shared = len(places & {one + shift for one in places}) / len(places)
    assert first.again == -1
    assert second.again == (0 if shared else -1)
    assert second.anew == pytest.approx(1 - shared if shared else 0.0)


def test_more_than_the_operands_that_are_told_are_unknown():
    told = work(given=GIVEN[:1])
    assert [one.argument for one in told.accesses] == [0, 1]
    assert [one.name for one in told.arguments] == ["x"]
