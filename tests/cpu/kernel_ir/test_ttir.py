"""Texts of TTIR: what can be told of them, and that no text raises anything but the reason why nothing can."""

from __future__ import annotations

import random

import pytest

from triton_ops.kernel_ir import LaunchWork, Operand, UntoldError
from triton_ops.kernel_ir.ttir_syntax import Type, UnreadableError, _split_types, parsed_module, parsed_type

COPY = """
module {
  tt.func public @copy(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f32>, %arg2: i32) attributes {noinline = false} {
    %c128_i32 = arith.constant 128 : i32
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %0, %c128_i32 : i32
    %2 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %3 = tt.splat %1 : i32 -> tensor<128xi32>
    %4 = arith.addi %3, %2 : tensor<128xi32>
    %5 = tt.splat %arg2 : i32 -> tensor<128xi32>
    %6 = arith.cmpi slt, %4, %5 : tensor<128xi32>
    %7 = tt.splat %arg0 : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %8 = tt.addptr %7, %4 : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %9 = tt.load %8, %6 : tensor<128x!tt.ptr<f32>>
BODY
    %10 = tt.splat %arg1 : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %11 = tt.addptr %10, %4 : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    tt.store %11, %9, %6 : tensor<128x!tt.ptr<f32>>
    tt.return
  }
}
"""  # noqa: E501 - a function's head is one line
GIVEN = (Operand(name="x"), Operand(name="y"), Operand(name="n", number=1000))


def work(body="", grid=(8, 1, 1), given=GIVEN):
    return LaunchWork.of(COPY.replace("BODY", body), grid, given)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i32", Type((), "i32")),
        ("tensor<64x32xbf16>", Type((64, 32), "bf16")),
        ("tensor<8x!tt.ptr<f8E4M3FN>>", Type((8,), "f8E4M3FN", pointer=True)),
        ("!tt.ptr<f32, 1>", Type((), "f32", pointer=True)),
        ("!tt.tensordesc<tensor<128x32xbf16>>", Type((128, 32), "bf16", descriptor=True)),
        ("!tt.tensordesc<128x32xbf16>", Type((128, 32), "bf16", descriptor=True)),
        ("tensor<4x8xi1, #blocked>", Type((4, 8), "i1")),
    ],
)
def test_types_are_read_in_the_forms_of_all_versions(text, kind):
    assert parsed_type(text) == kind


def test_masks_leave_elements_out():
    result = work()
    assert result.moved_bytes("load", "store") == 2 * 4 * 1000
    assert [argument.name for argument in result.arguments] == ["x", "y", "n"]


def test_locations_are_no_part_of_what_is_read():
    with_places = "\n".join(
        f'{line} loc("name(\\"x\\"): 3"("file.py":3:4))' if " = " in line else line for line in COPY.splitlines()
    )
    assert LaunchWork.of(with_places.replace("BODY", ""), (8, 1, 1), GIVEN) == work()


def test_a_number_that_is_not_known_masks_nothing():
    assert work(given=(Operand(), Operand(), Operand())).moved_bytes("load") == 4 * 128 * 8


def test_an_operation_that_is_not_known_is_noted_and_passed_over():
    result = work('    %x:2 = "new.thing"(%9) <{how = 3 : i32}> : (tensor<128xf32>) -> (tensor<128xf32>, i32)\n')
    assert result.moved_bytes("load") == 4000
    assert "new.thing is not known here" in result.notes[0]


def test_an_operation_with_a_region_that_is_not_known_is_passed_over():
    body = """
    %x = "new.thing"(%9) ({
    ^bb0(%p: f32, %q: f32):
      %r = arith.addf %p, %q : f32
      new.done %r : f32
    }) : (tensor<128xf32>) -> tensor<128xf32>
    """
    assert work(body).moved_bytes("load") == 4000


def test_a_loop_without_an_end_is_told():
    with pytest.raises(UntoldError, match="has no end"):
        work(
            """
    %c0 = arith.constant 0 : i32
    scf.for %i = %c0 to %c128_i32 step %c0  : i32 {
    }
    """
        )


WHILE = """
    %c0 = arith.constant 0 : i32
    %w = scf.while (%i = %c0) : (i32) -> i32 {
      %c = arith.cmpi {predicate}, %i, %arg2 : i32
      scf.condition(%c) %i : i32
    } do {
    ^bb0(%i: i32):
      %n = arith.addi %i, {step} : i32
      scf.yield %n : i32
    }
    """


def test_a_while_loop_that_goes_on_for_ever_is_told():
    with pytest.raises(UntoldError, match="has no end"):
        work(WHILE.replace("{predicate}", "ne").replace("{step}", "%c128_i32"), given=(*GIVEN[:2], Operand(number=-1)))


def test_a_while_loop_counts_its_turns():
    assert work(WHILE.replace("{predicate}", "slt").replace("{step}", "%c128_i32")).loops[0].turns == 8


def test_what_a_loop_carries_unevenly_is_unknown():
    body = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c9 = arith.constant 9 : i32
    %w = scf.for %i = %c0 to %c9 step %c1 iter_args(%k = %c1) -> (i32)  : i32 {
      %p = tt.addptr %arg0, %k : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
      %n = arith.muli %k, %c128_i32 : i32
      scf.yield %n : i32
    }
    """
    _, inner, _ = work(body).accesses
    assert inner.executions == 9


def test_a_jump_back_is_told():
    with pytest.raises(UntoldError, match="jumps back"):
        work("    cf.br ^bb1\n  ^bb1:\n    cf.br ^bb1\n  ^bb2:\n")


def test_loops_within_loops_end():
    opening = "    scf.for %i{n} = %c128_i32 to %arg2 step %c128_i32  : i32 {{\n"
    body = "".join(opening.format(n=n) for n in range(40)) + "    }\n" * 40
    assert len(work(body).loops) == 40


@pytest.mark.parametrize("grid", [(0, 1, 1), (-3, 1, 1), (1 << 20, 1 << 20, 4)])
def test_a_grid_that_cannot_be_launched_is_told(grid):
    with pytest.raises(UntoldError, match="its grid has"):
        work(grid=grid)


def test_a_hundred_thousand_programs_are_sampled():
    result = work(grid=(100_000, 1, 1), given=(Operand(), Operand(), Operand(number=12_800_000)))
    assert result.moved_bytes("load") == 4 * 128 * 100_000
    assert result.looked_at < 100_000


def test_comments_are_passed_over_and_an_operation_that_must_name_a_type_says_so():
    assert work("    // a comment\n    #alias = 3  // and another\n    //\n") == work()
    with pytest.raises(UntoldError, match=r"arith\.index_cast names no type"):
        work("    %x = arith.index_cast %0\n")


@pytest.mark.parametrize(
    ("element", "size"),
    [("i1", 1), ("i4", 1), ("i8", 1), ("i16", 2), ("i64", 8), ("index", 8), ("f16", 2), ("bf16", 2), ("f32", 4),
     ("f64", 8), ("f8E5M2", 1), ("f4E2M1FN", 1), ("!tt.ptr<f32>", 8)],
)  # fmt: skip
def test_an_element_has_the_size_of_its_type(element, size):
    assert parsed_type(f"tensor<4x{element}>").item_bytes == (4 if element.endswith("<f32>") else size)
    assert Type((), element, pointer=True).item_bytes == size


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (" %a, %b : i32", (" %a, %b ", " i32")), (" {a = 1 : i32} : i64", (" {a = 1 : i32} ", " i64")),
        (" {a = 1 : i32}", (" {a = 1 : i32}", "")), (" %a : (i32, i64) -> (i1)", (" %a ", " (i32, i64) -> (i1)")),
        (" %a : i32 -> tensor<4xi32, #a<{b : 3}>>", (" %a ", " i32 -> tensor<4xi32, #a<{b : 3}>>")),
        ("", ("", "")), (":<", (":<", "")), (": i32", ("", " i32")),
    ],
)  # fmt: skip
def test_types_stand_behind_the_last_colon_outside_of_brackets(text, parts):
    assert _split_types(text) == parts


def test_the_kernel_is_the_first_public_function_and_others_can_be_called():
    heads = ("private @a", "public @b", "public @c", "private @d")
    functions = "".join(f"  tt.func {head}() {{\n    tt.return\n  }}\n" for head in heads)
    module = parsed_module(f"module {{\n  tt.func private @declared() -> i32\n{functions}}}\n")
    assert module.kernel.name == "b"
    assert [*module.functions] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("text", ["", "module {\n}", "tt.func public @k() {", "#!/bin/sh\necho", "module {\n" * 1000])
def test_a_text_that_is_no_module_is_told(text):
    with pytest.raises(UnreadableError):
        parsed_module(text)


def test_damaged_texts_raise_nothing_but_their_reason():
    rng, text = random.Random(0), COPY.replace("BODY", WHILE.replace("{predicate}", "slt").replace("{step}", "%arg2"))
    lines, read, reasons = text.splitlines(), 0, []
    for _ in range(300):
        damaged = list(lines)
        at = rng.randrange(len(damaged))
        how = rng.randrange(3)
        if how == 0:
            del damaged[at]
        elif how == 1:
            damaged[at] = damaged[at][: rng.randrange(len(damaged[at]) + 1)]
        else:
            damaged[at], other = damaged[rng.randrange(len(damaged))], damaged[at]
            damaged.append(other)
        try:
            read += LaunchWork.of("\n".join(damaged), (8, 1, 1), GIVEN).programs == 8
        except (UntoldError, UnreadableError) as error:
            reasons.append(str(error))
    assert read + len(reasons) == 300
    assert read > 0, "some damage leaves a text that can be read"
    assert len({*reasons}) > 5
    assert all(reasons)
