"""The figures of a launch are those of its addresses and masks, computed here by NumPy for all programs and lanes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from triton_ops.kernel_ir import LaunchWork, Operand

LANES = 32
ITEM_BYTES, SECTOR_BYTES, LINE_BYTES = 4, 32, 128
COMPARE = {"eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal, "sgt": np.greater,
           "sge": np.greater_equal}  # fmt: skip
COUNTED = {"addi": np.add, "subi": np.subtract, "muli": np.multiply, "minsi": np.minimum, "maxsi": np.maximum}
OF_BITS = {"andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor}
OF_NATURALS = {"divsi": np.floor_divide, "remsi": np.remainder}
SHIFTS = {"shli": np.left_shift, "shrsi": np.right_shift, "shrui": np.right_shift}
HEAD = """
module {
  tt.func public @k(%arg0: !tt.ptr<f32>, %arg1: i32) {
"""


class Number(NamedTuple):
    """A block of whole numbers: its name in the text, and its elements for each program and lane."""

    name: str
    elements: np.ndarray


class Kernel:
    """Lines of TTIR, beside what they compute."""

    def __init__(self, grid, argument=0):
        self.lines, self.grid, self.argument = [], grid, argument
        ids = np.arange(np.prod(grid), dtype=np.int64)
        places = (ids % grid[0], ids // grid[0] % grid[1], ids // (grid[0] * grid[1]))
        self.ids = [self.splat(self.line(f"tt.get_program_id {'xyz'[at]} : i32"), places[at]) for at in range(3)]
        self.given = self.splat("%arg1", np.full(len(ids), argument))
        self.lane = Number(
            self.line(f"tt.make_range {{end = {LANES} : i32, start = 0 : i32}} : tensor<{LANES}xi32>"),
            np.broadcast_to(np.arange(LANES, dtype=np.int64), (len(ids), LANES)),
        )

    def line(self, text):
        name = f"%v{len(self.lines)}"
        self.lines.append(f"    {name} = {text}")
        return name

    def splat(self, scalar, by_program):
        elements = np.broadcast_to(np.asarray(by_program, dtype=np.int64)[:, None], (len(by_program), LANES))
        return Number(self.line(f"tt.splat {scalar} : i32 -> tensor<{LANES}xi32>"), elements)

    def constant(self, value):
        scalar = self.line(f"arith.constant {value} : i32")
        return self.splat(scalar, np.full(np.prod(self.grid), value))

    def both(self, name, function, one, other, kind="i32"):
        text = f"arith.{name} {one.name}, {other.name} : tensor<{LANES}x{kind}>"
        return Number(self.line(text), np.asarray(function(one.elements, other.elements)))

    def compare(self, how, one, other):
        return self.both(f"cmpi {how},", COMPARE[how], one, other)

    def select(self, condition, one, other):
        text = f"arith.select {condition.name}, {one.name}, {other.name} : tensor<{LANES}xi1>, tensor<{LANES}xi32>"
        return Number(self.line(text), np.where(condition.elements, one.elements, other.elements))

    def load(self, offset, mask):
        """The figures of the one load, at these places of the first argument."""
        pointers = f"tensor<{LANES}x!tt.ptr<f32>>"
        base = self.line(f"tt.splat %arg0 : !tt.ptr<f32> -> {pointers}")
        pointer = self.line(f"tt.addptr {base}, {offset.name} : {pointers}, tensor<{LANES}xi32>")
        self.line(f"tt.load {pointer}, {mask.name} : {pointers}")
        text = HEAD + "\n".join(self.lines) + "\n    tt.return\n  }\n}\n"
        work = LaunchWork.of(text, self.grid, (Operand(name="x"), Operand(name="n", number=self.argument)))
        (access,) = work.accesses
        return access


@st.composite
def numbers(draw, kernel, steps):
    """A block that some operations make of programs, lanes, the argument and constants."""
    several = [*kernel.ids, kernel.given, kernel.lane, kernel.constant(draw(st.integers(-40, 40)))]
    for _ in range(draw(st.integers(0, steps))):
        one, other = draw(st.sampled_from(several)), draw(st.sampled_from(several))
        how = draw(st.sampled_from(["counted", "bits", "naturals", "shift", "select"]))
        if how == "counted":
            name = draw(st.sampled_from(sorted(COUNTED)))
            new = kernel.both(name, COUNTED[name], one, other)
        elif how == "bits":
            name = draw(st.sampled_from(sorted(OF_BITS)))
            new = kernel.both(name, OF_BITS[name], one, other)
        elif how == "naturals":  # of negative numbers a quotient is rounded in one of two ways
            name = draw(st.sampled_from(sorted(OF_NATURALS)))
            other = kernel.constant(draw(st.integers(1, 40))) if other.elements.min() < 1 else other
            if one.elements.min() < 0:
                continue
            new = kernel.both(name, OF_NATURALS[name], one, other)
        elif how == "shift":
            name = draw(st.sampled_from(sorted(SHIFTS)))
            few = other.elements.min() >= 0 and other.elements.max() < 8
            other = other if few else kernel.constant(draw(st.integers(0, 7)))
            if one.elements.min() < 0:
                continue
            new = kernel.both(name, SHIFTS[name], one, other)
        else:
            condition = kernel.compare(draw(st.sampled_from(sorted(COMPARE))), one, other)
            new = kernel.select(condition, draw(st.sampled_from(several)), draw(st.sampled_from(several)))
        if np.abs(new.elements).max() < 1 << 24:
            several.append(new)
    return several[-1]


@st.composite
def conditions(draw, kernel):
    """A mask: comparisons of numbers, and what logic makes of them."""
    mask = kernel.compare(draw(st.sampled_from(sorted(COMPARE))), draw(numbers(kernel, 2)), draw(numbers(kernel, 2)))
    for _ in range(draw(st.integers(0, 2))):
        one, other = draw(numbers(kernel, 1)), draw(numbers(kernel, 1))
        more = kernel.compare(draw(st.sampled_from(sorted(COMPARE))), one, other)
        name = draw(st.sampled_from(sorted(OF_BITS)))
        mask = kernel.both(name, OF_BITS[name], mask, more, kind="i1")
    return mask


# Of more than 64 programs only some are looked at.
grids = st.sampled_from([(1, 1, 1), (7, 1, 1), (3, 4, 1), (2, 3, 4), (31, 1, 2)])


@given(grids, st.integers(0, 60), st.data())
def test_a_load_moves_the_elements_that_its_mask_lets_pass_and_programs_go_to_the_places_that_they_compute(
    grid, argument, data
):
    kernel = Kernel(grid, argument)
    offset, mask = data.draw(numbers(kernel, 5)), data.draw(conditions(kernel))
    access = kernel.load(offset, mask)
    assert access.known
    assert access.argument == 0
    assert access.shared[0] == 1
    assert access.shared[-1] == len(np.unique(offset.elements[:, 0])), "places of the first lanes of all programs"
    if (np.ptp(offset.elements, axis=1) > 0).any():  # else all lanes may be known to read one element
        assert access.elements == pytest.approx(mask.elements.sum() / len(offset.elements))


@pytest.mark.parametrize("name", sorted(COUNTED | OF_BITS | OF_NATURALS | SHIFTS))
@pytest.mark.parametrize("constant", [None, 0, 1, 3, 4])
def test_an_operation_has_the_result_that_it_has_in_numpy_in_every_lane(name, constant):
    def compared(limit):
        kernel = Kernel((9, 1, 1))
        one = kernel.both("addi", np.add, kernel.lane, kernel.both("muli", np.multiply, kernel.ids[0], kernel.lane))
        other = kernel.ids[0] if constant is None else kernel.constant(constant)
        if name in OF_NATURALS and other.elements.min() < 1:
            other = kernel.both("addi", np.add, other, kernel.constant(1))
        result = kernel.both(name, (COUNTED | OF_BITS | OF_NATURALS | SHIFTS)[name], one, other)
        mask = kernel.compare("sle", result, kernel.constant(int(np.quantile(result.elements, limit))))
        return kernel.load(kernel.lane, mask).elements, mask.elements.sum() / len(mask.elements)

    for limit in (0.1, 0.4, 0.6, 0.95):
        elements, expected = compared(limit)
        assert elements == pytest.approx(expected)


@given(st.integers(0, 200), st.integers(0, 40), st.integers(1, LANES))
def test_the_lines_of_evenly_spaced_elements_are_those_that_hold_one_of_them(begin, step, count):
    kernel = Kernel((1, 1, 1), count)
    offset = kernel.both("muli", np.multiply, kernel.lane, kernel.constant(step))
    offset = kernel.both("addi", np.add, offset, kernel.constant(begin))
    access = kernel.load(offset, kernel.compare("slt", kernel.lane, kernel.given))
    places = offset.elements[0, :count]
    assert access.lines == len(np.unique(places * ITEM_BYTES // LINE_BYTES))
    assert access.sectors == len(np.unique(places * ITEM_BYTES // SECTOR_BYTES))
    if step:
        assert access.run_bytes == ITEM_BYTES * (count if step == 1 else 1)
        assert (access.tile, access.distinct, access.elements) == (LANES, 1.0, count)
    else:
        assert (access.tile, access.elements) == (1, 1.0)


@given(st.integers(1, LANES), st.integers(1, 8))
def test_lanes_that_share_an_element_count_once_among_the_distinct_ones(count, shared):
    kernel = Kernel((1, 1, 1), count)
    offset = kernel.both("divsi", np.floor_divide, kernel.lane, kernel.constant(shared))
    access = kernel.load(offset, kernel.compare("slt", kernel.lane, kernel.given))
    assert access.distinct == pytest.approx(len(np.unique(offset.elements[0, :count])) / count)


@given(st.integers(2, 64), st.integers(1, 64))
def test_programs_that_follow_each_other_share_places(programs, each):
    kernel = Kernel((programs, 1, 1))
    row = kernel.both("divsi", np.floor_divide, kernel.ids[0], kernel.constant(each))
    offset = kernel.both("addi", np.add, kernel.both("muli", np.multiply, row, kernel.constant(LANES)), kernel.lane)
    access = kernel.load(offset, kernel.compare("sge", kernel.lane, kernel.constant(0)))
    sizes = [1 << power for power in range(10) if 1 << power < programs]
    assert len(access.shared) == len(sizes) + 1
    for size, places in zip(sizes, access.shared, strict=False):
        groups = programs // size
        starts = {0, (groups - 1) * size} | ({groups // 2 * size} if groups > 2 else set())
        means = [len({at // each for at in range(start, start + size)}) for start in starts]
        assert places == pytest.approx(sum(means) / len(means))


TILE = """
module {
  tt.func public @k(%arg0: !tt.ptr<f16>, %arg1: i32, %arg2: i32, %arg3: i32) {
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %c = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %columns = tt.expand_dims %c {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %n = tt.splat %arg3 : i32 -> tensor<16x1xi32>
    %far = arith.muli %rows, %n : tensor<16x1xi32>
    %a = tt.broadcast %far : tensor<16x1xi32> -> tensor<16x64xi32>
    %b = tt.broadcast %columns : tensor<1x64xi32> -> tensor<16x64xi32>
    %at = arith.addi %a, %b : tensor<16x64xi32>
    %m1 = tt.splat %arg1 : i32 -> tensor<16x1xi32>
    %low = arith.cmpi slt, %rows, %m1 : tensor<16x1xi32>
    %m2 = tt.splat %arg2 : i32 -> tensor<1x64xi32>
    %left = arith.cmpi slt, %columns, %m2 : tensor<1x64xi32>
    %l = tt.broadcast %low : tensor<16x1xi1> -> tensor<16x64xi1>
    %k = tt.broadcast %left : tensor<1x64xi1> -> tensor<16x64xi1>
    %mask = arith.andi %l, %k : tensor<16x64xi1>
    %x = tt.splat %arg0 : !tt.ptr<f16> -> tensor<16x64x!tt.ptr<f16>>
    %p = tt.addptr %x, %at : tensor<16x64x!tt.ptr<f16>>, tensor<16x64xi32>
    %v = tt.load %p, %mask : tensor<16x64x!tt.ptr<f16>>
    tt.return
  }
}
"""


@given(st.integers(1, 20), st.integers(1, 80), st.integers(1, 20))
def test_a_tile_has_the_lines_of_its_rows(rows, columns, far):
    operands = (Operand(name="x"), *(Operand(number=number) for number in (rows, columns, 64 * far)))
    (access,) = LaunchWork.of(TILE, (1, 1, 1), operands).accesses
    inside = np.arange(min(rows, 16))[:, None] * 64 * far + np.arange(min(columns, 64))[None, :]
    assert access.elements == inside.size
    assert access.bytes == 2 * inside.size
    assert access.lines == len(np.unique(inside * 2 // LINE_BYTES))
    assert access.sectors == len(np.unique(inside * 2 // SECTOR_BYTES))
    assert (access.tile, access.distinct, access.run_bytes) == (16 * 64, 1.0, 2 * min(columns, 64))


LOOP = """
module {
  tt.func public @k(%arg0: !tt.ptr<f32>, %arg1: i32, %arg2: i32, %arg3: i32) {
    %c1 = arith.constant 1 : i32
    %pid = tt.get_program_id x : i32
    %end = arith.muli %pid, %arg2 : i32
    %s:2 = scf.for %i = %arg1 to %end step %arg3 iter_args(%at = %pid, %same = %pid) -> (i32, i32)  : i32 {
      %p = tt.addptr %arg0, %at : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
      %q = tt.addptr %arg0, %same : !tt.ptr<f32>, i32
      %w = tt.load %q : !tt.ptr<f32>
      %next = arith.addi %at, %arg3 : i32
      scf.yield %next, %same : i32, i32
    }
    tt.return
  }
}
"""


@given(st.integers(1, 9), st.integers(0, 20), st.integers(0, 20), st.integers(1, 7))
def test_a_loop_has_the_turns_of_its_bounds_in_each_program(programs, lower, each, step):
    operands = (Operand(name="x"), *(Operand(number=number) for number in (lower, each, step)))
    turns = [len(range(lower, program * each, step)) for program in range(programs)]
    work = LaunchWork.of(LOOP, (programs, 1, 1), operands)
    if not any(turns):
        assert not work.accesses
        return
    (loop,), (moving, still) = work.loops, work.accesses
    assert (loop.entries, loop.most, loop.by_data, loop.parent) == (1.0, max(turns), False, -1)
    assert loop.turns == pytest.approx(np.mean(turns))
    assert moving.executions == still.executions == pytest.approx(np.mean(turns))
    assert (moving.loop, still.loop) == (0, 0)
    if max(turns) > 1:
        assert moving.repeats == 1
        assert still.repeats == pytest.approx(max(1.0, np.mean(turns)))


@given(st.integers(1, 30), st.integers(0, 3))
def test_a_table_of_whole_numbers_that_is_known_says_where_a_load_goes(programs, shift):
    assume(programs > shift)
    text = """
module {
  tt.func public @k(%arg0: !tt.ptr<i32>, %arg1: !tt.ptr<f32>) {
    %pid = tt.get_program_id x : i32
    %p = tt.addptr %arg0, %pid : !tt.ptr<i32>, i32
    %row = tt.load %p : !tt.ptr<i32>
    %q = tt.addptr %arg1, %row : !tt.ptr<f32>, i32
    %v = tt.load %q : !tt.ptr<f32>
    tt.return
  }
}
"""
    table = np.arange(programs) >> shift
    _, access = LaunchWork.of(text, (programs, 1, 1), (Operand(name="t", content=table), Operand(name="x"))).accesses
    assert access.shared[-1] == len(np.unique(table))
    _, access = LaunchWork.of(text, (programs, 1, 1), (Operand(name="t"), Operand(name="x"))).accesses
    assert access.shared[-1] == programs, "numbers that stand in for data are apart"
