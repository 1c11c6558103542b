"""Canonical expressions of what a TTIR module writes."""

from __future__ import annotations

import pytest

from triton_ops.kernel_ir import UntoldError
from triton_ops.kernel_ir.expressions import Expressions
from triton_ops.kernel_ir.ttir_syntax import parsed_module

HEAD = """module {
  tt.func public @k(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32, %x_tiles: !tt.tensordesc<64xf32>) {
"""
TAIL = "    tt.return\n  }\n}\n"
PLACES = """
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %s = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %p = tt.addptr %s, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %t = tt.splat %out : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %q = tt.addptr %t, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
"""
BY_POINTER = "    %v = tt.load %p : tensor<64x!tt.ptr<f32>>\n"
BY_DESCRIPTOR = "    %v = tt.descriptor_load %x_tiles[%n] : !tt.tensordesc<64xf32> -> tensor<64xf32>\n"
STORED = "    tt.store %q, %w : tensor<64x!tt.ptr<f32>>\n"


def stored(*lines):
    module = parsed_module("".join((HEAD, PLACES, *lines, STORED, TAIL)))
    return Expressions.of(module, lambda _: None).stored


def doubled(with_what="%v"):
    return f"    %w = arith.addf %v, {with_what} : tensor<64xf32>\n"


def test_a_descriptor_named_after_a_tensor_loads_what_its_pointer_loads():
    assert stored(BY_POINTER, doubled()) == stored(BY_DESCRIPTOR, doubled())


def test_which_places_are_chosen_is_no_part_of_it_and_what_is_chosen_is():
    compared = "    %c = arith.cmpi slt, %r, {} : tensor<64xi32>\n"
    chosen = "    %w = arith.select %c, %v, {} : tensor<64xi1>, tensor<64xf32>\n"
    three, four = (f"    %m{number} = arith.constant dense<{number}> : tensor<64xi32>\n" for number in (3, 4))
    zero = "    %z = arith.constant dense<0.000000e+00> : tensor<64xf32>\n"
    of = [stored(BY_POINTER, three, four, zero, compared.format(one), chosen.format("%z")) for one in ("%m3", "%m4")]
    assert of[0] == of[1]
    assert of[0] != stored(BY_POINTER, three, four, zero, compared.format("%m3"), chosen.format("%v"))


def test_operations_and_flags_are_parts_of_it():
    subtracted = "    %w = arith.subf %v, %v{} : tensor<64xf32>\n"
    ways = [doubled(), subtracted.format(""), subtracted.format(" fastmath<fast>")]
    assert len({frozenset(stored(BY_POINTER, way)) for way in ways}) == 3


def test_jumps_are_not_read():
    with pytest.raises(UntoldError, match="it jumps"):
        stored(BY_POINTER, doubled(), "    cf.br ^bb1\n  ^bb1:\n")
