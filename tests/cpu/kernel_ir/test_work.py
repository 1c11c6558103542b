"""The work of whole kernels, counted by hand: products, reductions, arithmetic, descriptors, and what is held."""

from __future__ import annotations

import pytest

from tests.cpu.kernel_ir.test_ttir import GIVEN, work
from triton_ops.kernel_ir import KernelFacts, KernelWork, LaunchWork, Operand

MATMUL = """
module {
  tt.func public @k(%arg0: !tt.ptr<f16>, %arg1: !tt.ptr<f16>, %arg2: !tt.ptr<f16>, %arg3: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %zero = arith.constant dense<0.000000e+00> : tensor<16x64xf32>
    %step = arith.constant dense<32> : tensor<16x32xi32>
    %a0 = tt.splat %arg0 : !tt.ptr<f16> -> tensor<16x32x!tt.ptr<f16>>
    %k = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %row = tt.expand_dims %k {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %along = tt.broadcast %row : tensor<1x32xi32> -> tensor<16x32xi32>
    %a1 = tt.addptr %a0, %along : tensor<16x32x!tt.ptr<f16>>, tensor<16x32xi32>
    %b0 = tt.splat %arg1 : !tt.ptr<f16> -> tensor<32x64x!tt.ptr<f16>>
    %r:2 = scf.for %i = %c0 to %arg3 step %c1 iter_args(%acc = %zero, %pa = %a1) -> (tensor<16x64xf32>, tensor<16x32x!tt.ptr<f16>>)  : i32 {
      %a = tt.load %pa : tensor<16x32x!tt.ptr<f16>>
      %b = tt.load %b0 : tensor<32x64x!tt.ptr<f16>>
      %d = tt.dot %a, %b, %acc, inputPrecision = tf32 : tensor<16x32xf16> * tensor<32x64xf16> -> tensor<16x64xf32>
      %next = tt.addptr %pa, %step : tensor<16x32x!tt.ptr<f16>>, tensor<16x32xi32>
      scf.yield %d, %next : tensor<16x64xf32>, tensor<16x32x!tt.ptr<f16>>
    }
    %h = arith.truncf %r#0 : tensor<16x64xf32> to tensor<16x64xf16>
    %c = tt.splat %arg2 : !tt.ptr<f16> -> tensor<16x64x!tt.ptr<f16>>
    tt.store %c, %h : tensor<16x64x!tt.ptr<f16>>
    tt.return
  }
}
"""  # noqa: E501 - a loop's head is one line


def test_a_matrix_product_in_a_loop():
    operands = (Operand(name="a"), Operand(name="b"), Operand(name="c"), Operand(number=10))
    result = LaunchWork.of(MATMUL, (4, 2, 1), operands)
    (product,) = result.products
    assert (product.batch, product.rows, product.columns, product.inner) == (1, 16, 64, 32)
    assert (product.dtype, product.item_bytes, product.executions, product.loop) == ("float16", 2, 10.0, 0)
    assert (product.loads, product.after, product.computed, product.made_of) == ((0, 1), (), False, (0, 1))
    assert product.flops == 2 * 16 * 64 * 32 * 10
    assert (result.programs, result.flops) == (8, 8 * product.flops)
    a, b, c = result.accesses
    assert [(one.kind, one.argument, one.loop, one.executions) for one in (a, b, c)] == [
        ("load", 0, 0, 10.0), ("load", 1, 0, 10.0), ("store", 2, -1, 1.0)
    ]  # fmt: skip
    assert (a.repeats, b.repeats) == (1.0, 10.0), "the pointer of b stands still"
    (loop,) = result.loops
    assert (loop.turns, loop.most, loop.stages, loop.written) == (10.0, 10.0, None, False)
    assert KernelWork((result,)).accumulator == (16, 64)
    assert KernelWork(()).accumulator is None
    assert KernelFacts.of(MATMUL).products[0].precision == "tf32"


def test_a_product_holds_its_sums_and_what_is_computed_and_loads_are_on_the_way_beside_it():
    operands = (Operand(name="a"), Operand(name="b"), Operand(name="c"), Operand(number=10))
    assert LaunchWork.of(MATMUL, (1, 1, 1), operands).alive == 16 * 64
    assert (work().alive, work().loaded) == (0.0, 128.0)
    computed = work("    %x = arith.mulf %9, %9 : tensor<128xf32>\n" + SUM.replace("%9", "%x"))
    assert (computed.alive, computed.loaded) == (128.0, 128.0)
    beside = work("    %x = arith.mulf %9, %9 : tensor<128xf32>\n    %y = tt.load %8 : tensor<128x!tt.ptr<f32>>\n"
                  + SUM.replace("%9", "%x"))  # fmt: skip
    assert beside.loaded == 256.0


SUM = """
    %s = "tt.reduce"(%9) <{axis = 0 : i32}> ({
    ^bb0(%p: f32, %q: f32):
      %t = arith.addf %p, %q : f32
      tt.reduce.return %t : f32
    }) : (tensor<128xf32>) -> f32
"""


def test_a_reduction_counts_its_elements_as_arithmetic_and_is_kept_with_its_tile():
    plain, result = work(), work(SUM)
    assert result.plain - plain.plain == 128
    assert (plain.reductions, result.reductions) == (0.0, 1.0)
    (tile,) = result.reduced
    assert (tile.shape, tile.axis, tile.executions, tile.operands, tile.operations, tile.scans) == (
        (128,), 0, 1.0, 1, 1, False
    )  # fmt: skip


def test_a_scan_of_two_operands_counts_both():
    scan = """
    %s:2 = "tt.scan"(%9, %9) <{axis = 0 : i32, reverse = false}> ({
    ^bb0(%p: f32, %q: f32, %u: f32, %v: f32):
      %t = arith.addf %p, %u : f32
      %w = arith.mulf %q, %v : f32
      tt.scan.return %t, %w : f32, f32
    }) : (tensor<128xf32>, tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>)
"""
    result = work(scan)
    (tile,) = result.reduced
    assert (tile.operands, tile.operations, tile.scans) == (2, 2, True)
    assert result.plain - work().plain == 256


@pytest.mark.parametrize(
    ("line", "plain", "special"),
    [
        ("arith.addf %9, %9 : tensor<128xf32>", 128, 0),
        ("arith.mulf %9, %9 : tensor<128xf32>", 128, 0),
        ("math.exp %9 : tensor<128xf32>", 0, 128),
        ("arith.divf %9, %9 : tensor<128xf32>", 0, 128),
        ("math.sqrt %9 : tensor<128xf32>", 0, 128),
        ("arith.addi %4, %4 : tensor<128xi32>", 0, 0),
        ("arith.xori %4, %4 : tensor<128xi32>", 128, 0),
        ("tt.bitcast %9 : tensor<128xf32> -> tensor<128xi32>", 0, 0),
        ("arith.sitofp %4 : tensor<128xi32> to tensor<128xf32>", 128, 0),
        ("arith.cmpf ogt, %9, %9 : tensor<128xf32>", 128, 0),
    ],
)
def test_operations_on_single_elements_are_counted_by_kind(line, plain, special):
    result, before = work(f"    %x = {line}\n"), work()
    assert (result.plain - before.plain, result.special - before.special) == (plain, special)


DESCRIPTOR = """
module {
  tt.func public @k(%arg0: !tt.ptr<f16>, %arg1: i32, %arg2: i32, %arg3: i64, %arg4: i32, %arg5: i32) {
    %c1 = arith.constant 1 : i64
    %d = tt.make_tensor_descriptor %arg0, [%arg1, %arg2], [%arg3, %c1] : <f16>, <tensor<16x64xf16>>
    %v = tt.descriptor_load %d[%arg4, %arg5] : !tt.tensordesc<tensor<16x64xf16>> -> tensor<16x64xf16>
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("extents", "at", "elements"),
    [
        ((100, 200), (0, 0), 16 * 64), ((100, 200), (84, 136), 16 * 64), ((100, 200), (90, 0), 10 * 64),
        ((100, 200), (0, 190), 16 * 10), ((100, 200), (96, 198), 4 * 2), ((100, 200), (100, 0), 0),
        ((8, 200), (0, 0), 8 * 64),
    ],
)  # fmt: skip
def test_a_block_of_a_descriptor_moves_what_lies_within_the_tensor(extents, at, elements):
    operands = (Operand(name="x"), *(Operand(number=number) for number in (*extents, 200, *at)))
    (access,) = LaunchWork.of(DESCRIPTOR, (1, 1, 1), operands).accesses
    assert access.elements == elements
    assert (access.descriptor, access.tile, access.run_bytes, access.argument) == (True, 1024, 128, 0)
    assert (access.lines, access.sectors) == (16.0, 64.0)


def test_a_scaled_product_has_twice_the_inner_length_of_packed_operands():
    text = """
module {
  tt.func public @k(%arg0: !tt.ptr<i8>) {
    %a = arith.constant dense<0> : tensor<16x32xi8>
    %b = arith.constant dense<0> : tensor<64x32xi8>
    %s = arith.constant dense<0> : tensor<16x2xi8>
    %c = arith.constant dense<0.000000e+00> : tensor<16x32xf32>
    %d = tt.dot_scaled %a scale %s, %b, %c lhs = e2m1 rhs = e4m3 {fastMath = false} : tensor<16x32xi8>, tensor<16x2xi8> * tensor<64x32xi8> -> tensor<16x32xf32>
    tt.return
  }
}
"""  # noqa: E501 - an operation is one line
    (product,) = LaunchWork.of(text, (1, 1, 1), (Operand(),)).products
    assert (product.rows, product.columns, product.inner) == (16, 32, 64)
    (product,) = LaunchWork.of(text.replace("e2m1", "e4m3"), (1, 1, 1), (Operand(),)).products
    assert product.inner == 32


@pytest.mark.parametrize(
    ("how", "value", "programs"),
    [("ne", 0, 4), ("eq", 0, 4), ("ne", 1, 4), ("eq", 1, 4)],
)
def test_a_condition_that_was_made_a_number_is_itself_again_where_it_is_compared_with_0(how, value, programs):
    body = f"""
    %c1 = arith.constant 1 : i32
    %cv = arith.constant {value} : i32
    %bit = arith.andi %0, %c1 : i32
    %odd = arith.cmpi eq, %bit, %c1 : i32
    %number = arith.extui %odd : i1 to i32
    %again = arith.cmpi {how}, %number, %cv : i32
    scf.if %again {{
      %p = tt.addptr %arg0, %0 : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
    }}
    """
    (loaded,) = (one for one in work(body, grid=(7, 1, 1)).accesses if one.kind == "load" and one.tile == 1)
    numbers = [program % 2 for program in range(7)]
    expected = [(number != value) if how == "ne" else (number == value) for number in numbers]
    assert loaded.executions == pytest.approx(sum(expected) / 7)


def test_sides_of_a_condition_share_its_programs_and_what_they_choose_is_known_after_it():
    body = """
    %c3 = arith.constant 3 : i32
    %few = arith.cmpi slt, %0, %c3 : i32
    %at = scf.if %few -> (i32) {
      %p = tt.addptr %arg0, %0 : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
      scf.yield %0 : i32
    } else {
      %p = tt.addptr %arg1, %c3 : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
      scf.yield %c3 : i32
    }
    %q = tt.addptr %arg0, %at : !tt.ptr<f32>, i32
    %w = tt.load %q : !tt.ptr<f32>
    """
    one, other, after = (each for each in work(body).accesses if each.kind == "load" and each.tile == 1)
    assert (one.executions, other.executions, after.executions) == (3 / 8, 5 / 8, 1.0)
    assert (one.argument, other.argument) == (0, 1)
    assert after.shared[-1] == 4, "0, 1, 2 and 3 for all others"


def test_a_branch_on_data_is_taken_by_half_of_the_programs_and_noted():
    body = """
    %p = tt.addptr %arg0, %0 : !tt.ptr<f32>, i32
    %v = tt.load %p : !tt.ptr<f32>
    %big = arith.cmpf ogt, %v, %v : f32
    scf.if %big {
      tt.store %p, %v : !tt.ptr<f32>
    } else {
    }
    """
    result = work(body)
    (stored,) = (one for one in result.accesses if one.kind == "store" and one.tile == 1)
    assert stored.executions == 0.5
    assert "a condition that depends on data is taken to hold for half of the programs" in result.notes


def test_a_loop_whose_bounds_are_data_is_guessed_and_noted():
    body = """
    %c1 = arith.constant 1 : i32
    %c0 = arith.constant 0 : i32
    %t = tt.bitcast %arg0 : !tt.ptr<f32> -> !tt.ptr<i32>
    %end = tt.load %t : !tt.ptr<i32>
    scf.for %i = %c0 to %end step %c1  : i32 {
    }
    """
    result = work(body)
    assert (result.loops[0].by_data, result.loops[0].turns) == (True, 1024)
    assert any("the bounds of a loop are data" in note for note in result.notes)


def test_loops_within_loops_multiply_and_know_their_parents():
    body = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c5 = arith.constant 5 : i32
    %c3 = arith.constant 3 : i32
    scf.for %i = %c0 to %c5 step %c1  : i32 {
      %m = arith.mulf %9, %9 : tensor<128xf32>
      scf.for %j = %c0 to %c3 step %c1  : i32 {
        %n = arith.mulf %9, %9 : tensor<128xf32>
        %p = tt.addptr %arg0, %j : !tt.ptr<f32>, i32
        %v = tt.load %p : !tt.ptr<f32>
      } {tt.num_stages = 2 : i32}
    }
    """
    result = work(body)
    outer, inner = sorted(result.loops, key=lambda loop: loop.turns)
    assert (outer.entries, outer.turns, outer.plain, outer.written, outer.parent) == (1.0, 5.0, 5 * 128, True, -1)
    assert (inner.entries, inner.turns, inner.plain, inner.parent) == (5.0, 15.0, 15 * 128, result.loops.index(outer))
    (loaded,) = (one for one in result.accesses if one.kind == "load" and one.tile == 1)
    assert (loaded.executions, loaded.repeats) == (15.0, 5.0), "the outer loop does not move it"


def test_the_same_places_are_named_once_and_a_shifted_tile_in_part():
    body = """
    %again = tt.load %8, %6 : tensor<128x!tt.ptr<f32>>
    %one = arith.constant dense<32> : tensor<128xi32>
    %near = tt.addptr %8, %one : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %shifted = tt.load %near : tensor<128x!tt.ptr<f32>>
    """
    first, again, shifted, _ = work(body).accesses
    assert (first.again, again.again) == (-1, 0)
    assert shifted.again == 0
    assert shifted.anew == pytest.approx(32 / 128, abs=0.01)


def test_truth_that_is_no_parameter_is_false_and_one_that_is_decides():
    text = """
module {
  tt.func public @k(%arg0: !tt.ptr<f32>, %arg1: i1) {
    %v = tt.load %arg0, %arg1 : !tt.ptr<f32>
    tt.return
  }
}
"""
    assert KernelFacts.of(text).accesses[0].mask.name == "compared"
    assert LaunchWork.of(text, (1, 1, 1), GIVEN[:1]).accesses[0].executions == 1


def test_products_of_a_function_that_is_called_stand_after_those_of_the_kernel():
    square = "tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>"
    text = f"""
module {{
  tt.func public @k(%arg0: !tt.ptr<f32>) {{
    %a = arith.constant dense<0.000000e+00> : tensor<16x16xf16>
    %z = arith.constant dense<0.000000e+00> : tensor<16x16xf32>
    %inner = tt.call @inner(%a) : (tensor<16x16xf16>) -> tensor<16x32xf32>
    %first = tt.dot %a, %a, %z : {square}
    %half = arith.truncf %first : tensor<16x16xf32> to tensor<16x16xf16>
    %second = tt.dot %half, %a, %z : {square}
    tt.return
  }}
  tt.func private @inner(%a: tensor<16x16xf16>) -> tensor<16x32xf32> {{
    %b = arith.constant dense<0.000000e+00> : tensor<16x32xf16>
    %y = arith.constant dense<0.000000e+00> : tensor<16x32xf32>
    %d = tt.dot %a, %b, %y : tensor<16x16xf16> * tensor<16x32xf16> -> tensor<16x32xf32>
    tt.return %d : tensor<16x32xf32>
  }}
}}
"""
    products = LaunchWork.of(text, (1, 1, 1), (Operand(),)).products
    assert [(product.columns, product.after, product.computed) for product in products] == [
        (16, (), False), (16, (0,), True), (32, (), False)
    ]  # fmt: skip


def test_what_a_later_block_uses_is_held_in_the_blocks_before_it():
    body = f"""
    %x = arith.mulf %9, %9 : tensor<128xf32>
    %y = arith.addf %9, %9 : tensor<128xf32>
    cf.br ^bb1
  ^bb1:
{SUM.replace("%9", "%y")}    cf.br ^bb2
  ^bb2:
    tt.store %8, %x : tensor<128x!tt.ptr<f32>>
    """
    assert work(body).alive == 256.0
    assert work(body.replace("tt.store %8, %x", "tt.store %8, %9")).alive == 128.0


AT = """
    %far{n} = arith.constant dense<{far}> : tensor<128xi32>
    %at{n} = tt.addptr %8, %far{n} : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %v{n} = tt.load %at{n} : tensor<128x!tt.ptr<f32>>
"""


def test_a_tile_is_named_beside_the_one_that_is_met_most_often_and_counts_what_no_earlier_one_has():
    places = [
        (one.again, round(one.anew * 128)) for one in work(AT.format(n=1, far=32) + AT.format(n=2, far=40)).accesses
    ]
    assert places == [(-1, 0), (0, 32), (0, 8), (-1, 0)], "the last one is the store"
    loop = f"""
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c5 = arith.constant 5 : i32
    scf.for %i = %c0 to %c5 step %c1  : i32 {{
      %v = tt.load %8 : tensor<128x!tt.ptr<f32>>
      %w = tt.load %8 : tensor<128x!tt.ptr<f32>>
    }}
{AT.format(n=3, far=0)}
    """
    before, one, other, after, _ = work(loop).accesses
    assert [each.executions for each in (before, one, other, after)] == [1, 5, 5, 1]
    assert [each.again for each in (before, one, other, after)] == [1, -1, 1, 1]
    assert [each.anew for each in (before, other, after)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("far", "again"), [(0, 0), (1, 0), (127, 0), (128, -1), (-127, 0), (-128, -1), (500, -1)])
def test_tiles_that_share_no_place_are_not_the_same(far, again):
    _, moved, _ = work(AT.format(n=1, far=far)).accesses
    assert moved.again == again
    assert moved.anew == (pytest.approx(abs(far) / 128) if again == 0 else 0.0)
