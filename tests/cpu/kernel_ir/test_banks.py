"""Conflicts of banks by stride, against the CUDA C++ Programming Guide's examples and a count by gcd."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import ConfigValueError, bank_conflicts, bank_padding
from triton_ops.kernel_ir.shared_memory import WarpRegisters


@given(st.integers(1, 4096))
def test_words_conflict_as_often_as_stride_and_banks_share_factors(stride):
    assert bank_conflicts(stride) == bank_conflicts(-stride) == math.gcd(stride, 32)


@pytest.mark.parametrize(
    ("stride", "item_bytes", "ways"),
    [(0, 4, 1), (1, 2, 1), (64, 2, 32), (2, 2, 1), (1, 8, 1), (1, 16, 1), (2, 8, 2), (2, 16, 2), (32, 16, 8)],
)
def test_items_of_other_sizes(stride, item_bytes, ways):
    assert bank_conflicts(stride, item_bytes=item_bytes) == ways


@given(st.integers(-300, 300).filter(bool), st.sampled_from([1, 2, 4, 8, 16]))
def test_padding_leaves_the_fewest_conflicts_that_a_stride_can_have(stride, item_bytes):
    padded = stride + bank_padding(stride, item_bytes=item_bytes)
    assert padded != 0
    assert bank_conflicts(padded, item_bytes=item_bytes) == 1


def test_the_documents_tile_and_sixty_four_lanes():
    assert (bank_conflicts(32), bank_conflicts(33), bank_padding(32), bank_padding(33)) == (32, 1, 1, 0)
    assert bank_conflicts(1, lanes=64) == 2
    assert bank_conflicts(1, lanes=64, banks=64) == 1


@pytest.mark.parametrize("bad", [{"item_bytes": 3}, {"lanes": 0}, {"banks": -1}, {"stride": 1.5}, {"stride": True}])
def test_values_that_are_no_sizes_are_refused(bad):
    with pytest.raises(ConfigValueError, match=str(next(iter(bad.values())))):
        bank_conflicts(**{"stride": 1, **bad})


@pytest.mark.parametrize(("name", "least"), [("lanes", 1), ("banks", 1)])
def test_one_lane_and_one_bank_are_enough_and_fewer_are_refused(name, least):
    for function in (bank_conflicts, bank_padding):
        assert function(0, **{name: least}) in (0, 1)
        with pytest.raises(ConfigValueError, match=f"{name} is {least - 1}"):
            function(0, **{name: least - 1})


def ways(addresses, item_bytes, banks=32):
    """The steps of each part of the lanes that is served at once: the most words that one bank is asked for."""
    together = len(addresses) if item_bytes <= 4 else max(1, 4 * banks // item_bytes)
    parts = [addresses[at : at + together] for at in range(0, len(addresses), together)]
    steps = []
    for part in parts:
        asked = [set() for _ in range(banks)]
        for byte in (begin + more for begin in part for more in range(item_bytes)):
            asked[byte // 4 % banks].add(byte // 4)
        steps.append(max(map(len, asked)))
    return steps


SIZES = st.sampled_from([1, 2, 4, 8, 16])


@given(st.integers(-70, 70), SIZES, st.sampled_from([1, 8, 32, 64]), st.sampled_from([2, 32, 64]))
def test_conflicts_and_padding_are_those_that_counting_the_words_of_each_bank_gives(stride, item_bytes, lanes, banks):
    def counted(stride):
        return max(ways([lane * stride * item_bytes for lane in range(lanes)], item_bytes, banks))

    more = {"item_bytes": item_bytes, "lanes": lanes, "banks": banks}
    assert bank_conflicts(stride, **more) == counted(stride)
    length = abs(stride)
    best = min(range(4 * banks), key=lambda more: (counted(length + more), more))
    assert bank_padding(length, **more) == best


LANES = range(32)
MASK = (1 << 32) - 1


def signed(number):
    number &= MASK
    return number - (1 << 32) if number >> 31 else number


WORK = {
    "add.s32": (2, lambda x, y: x + y), "sub.s32": (2, lambda x, y: x - y), "mul.lo.s32": (2, lambda x, y: x * y),
    "mad.lo.s32": (3, lambda x, y, z: x * y + z), "and.b32": (2, lambda x, y: x & y), "or.b32": (2, lambda x, y: x | y),
    "xor.b32": (2, lambda x, y: x ^ y), "not.b32": (1, lambda x: ~x), "neg.s32": (1, lambda x: -x),
    "mov.b32": (1, lambda x: x), "setp.eq.b32": (2, lambda x, y: x == y), "setp.ne.b32": (2, lambda x, y: x != y),
    "selp.b32": (3, lambda x, y, z: x if z else y),
}  # fmt: skip
BY = {"shl.b32": lambda x, by: x << by, "shr.u32": lambda x, by: (x & MASK) >> by, "shr.s32": lambda x, by: x >> by}
FIELDS = {"bfe.u32": lambda x, at, bits: (x >> at) & ((1 << bits) - 1),
          "bfe.s32": lambda x, at, bits: signed((x >> at) << (32 - bits)) >> (32 - bits)}  # fmt: skip
FORMS = {"ld.shared.b32": 4, "st.shared.b8": 1, "ld.shared.v2.b32": 8, "st.shared.v4.b32": 16, "ld.shared.v2.f64": 16,
         "cp.async.ca.shared.global": 8}  # fmt: skip


@given(st.data())
def test_the_first_warps_registers_have_the_numbers_that_the_instructions_make(data):
    registers, numbers = WarpRegisters(), {"%tid.x": list(LANES), "%laneid": list(LANES)}
    several = st.one_of(st.integers(-200, 200).map(str), st.sampled_from(["global_smem", "0x10"]))
    for at in range(data.draw(st.integers(1, 6))):
        name = data.draw(st.sampled_from(sorted(WORK | BY | FIELDS)))
        operand = st.one_of(st.sampled_from(sorted(numbers)), several)
        count, work = WORK.get(name) or (1, (BY | FIELDS)[name])
        operands = [data.draw(operand) for _ in range(count)]
        operands += [str(data.draw(st.integers(0, 31)))] if name in BY else []
        operands += [str(data.draw(st.integers(0, 15))), str(data.draw(st.integers(1, 16)))] if name in FIELDS else []
        registers.follow(f"    {name} %r{at}, {', '.join(operands)};", False)
        lanes = [[numbers[one][lane] if one in numbers else 0 if one == "global_smem" else int(one, 0)
                  for one in operands] for lane in LANES]  # fmt: skip
        numbers[f"%r{at}"] = [signed(int(work(*one))) for one in lanes]
    register, offset = data.draw(st.sampled_from(sorted(numbers))), data.draw(st.integers(0, 64))
    form = data.draw(st.sampled_from(sorted(FORMS)))
    begins = [number + offset for number in numbers[register]]
    operands = f"[{register} + {offset}], [%rd1], 8" if form.startswith("cp") else f"[{register} + {offset}], %r9"
    assert registers.further_steps(form, operands) == sum(one - 1 for one in ways(begins, FORMS[form]))


@pytest.mark.parametrize(("matrices", "rows"), [(1, 8), (2, 16), (4, 32)])
def test_a_matrix_is_read_by_eight_lanes_each(matrices, rows):
    registers = WarpRegisters()
    registers.follow("    shl.b32 %r1, %tid.x, 7;", False)
    steps = registers.further_steps(f"ldmatrix.sync.aligned.m8n8.x{matrices}.shared.b16", "{%r2}, [%r1]")
    assert steps == sum(one - 1 for one in ways([lane * 128 for lane in range(rows)], 16)) == 7 * matrices


def test_in_a_loop_a_register_keeps_the_number_of_the_first_turn_and_outside_two_writes_leave_none():
    registers = WarpRegisters()
    registers.follow("    shl.b32 %r1, %tid.x, 7;", False)
    registers.follow("    add.s32 %r1, %r1, 4;", True)
    assert registers.further_steps("ld.shared.b32", "%r2, [%r1]") == 31
    registers.follow("    shl.b32 %r3, %tid.x, 2;", True)
    assert registers.further_steps("ld.shared.b32", "%r2, [%r3]") == 0
    registers.follow("    shl.b32 %r3, %tid.x, 2;", False)
    assert registers.further_steps("ld.shared.b32", "%r2, [%r3]") == 0, "the same again"
    registers.follow("    shl.b32 %r3, %tid.x, 3;", False)
    assert registers.further_steps("ld.shared.b32", "%r2, [%r3]") is None
    registers.follow("    ld.shared.v2.b32 {%r1, %r4}, [%r3];", True)
    assert registers.further_steps("ld.shared.b32", "%r2, [%r1]") is None
    registers.follow("    bar.sync 0;", True)
    assert registers.further_steps("ld.shared.b32", "%r2, [%laneid]") == 0
