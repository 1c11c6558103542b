"""Lanes that a mask leaves out and a reduction or a product takes in: by which condition, and with which harm."""

from __future__ import annotations

import math

import pytest

from tests.cpu.kernel_ir.test_facts import facts
from triton_ops.kernel_ir import draws
from triton_ops.kernel_ir.draws import padded_lanes_of
from triton_ops.kernel_ir.operations import NotComputedError

REDUCE = """
    %s = "tt.reduce"({of}) <{{axis = 0 : i32}}> ({{
    ^bb0(%p: f32, %q: f32):
      %t = {how} %p, %q : f32
      tt.reduce.return %t : f32
    }}) : (tensor<128xf32>) -> f32
"""
OTHER = """
    %fill = arith.constant dense<{fill}> : tensor<128xf32>
    %v = tt.load %8, %6, %fill : tensor<128x!tt.ptr<f32>>
"""


def harms(body):
    """By the words of each condition what a padding does; empty for no harm."""
    return {
        condition if isinstance(condition, str) else condition.words: harm
        for _, condition, harm in padded_lanes_of(facts(body))
    }


CONDITION = "128·program_id(0) + i < arg2"


@pytest.mark.parametrize(
    ("how", "harmless", "harmful"),
    [
        ("arith.addf", [0.0], [1.0, -3.0, math.inf, math.nan]),
        ("arith.mulf", [1.0], [0.0, 2.0, math.nan]),
        ("arith.maxnumf", [-math.inf, -1e30], [0.0, 9.0, math.inf]),
        ("arith.minnumf", [math.inf, 1e30], [0.0, -9.0, -math.inf]),
    ],
)
def test_what_changes_a_reduction_is_what_its_operation_does_not_leave_alone(how, harmless, harmful):
    found = harms(REDUCE.format(of="%9", how=how))
    assert found.keys() == {CONDITION}
    assert [found[CONDITION](padding) for padding in harmless] == [""] * len(harmless)
    assert all("changes the reduction of a lane with data" in found[CONDITION](padding) for padding in harmful)


@pytest.mark.parametrize(("fill", "harmful"), [("0.000000e+00", False), ("1.000000e+00", True), ("0xFF800000", True)])
def test_what_a_load_puts_into_its_masked_lanes_counts_whatever_stood_there(fill, harmful):
    (harm,) = harms(OTHER.format(fill=fill) + REDUCE.format(of="%v", how="arith.addf")).values()
    for padding in (0.0, 1.0, math.nan):
        assert bool(harm(padding)) == harmful


def test_what_the_kernel_chooses_in_the_place_of_masked_lanes_counts():
    body = """
    %zero = arith.constant dense<0.000000e+00> : tensor<128xf32>
    %c = arith.select %6, %9, %zero : tensor<128xi1>, tensor<128xf32>
    """
    (harm,) = harms(body + REDUCE.format(of="%c", how="arith.addf")).values()
    assert harm(math.nan) == ""


def test_without_a_mask_no_lane_is_padded():
    body = "    %v = tt.load %8 : tensor<128x!tt.ptr<f32>>\n"
    assert harms(body + REDUCE.format(of="%v", how="arith.addf")) == {}


def test_what_is_computed_of_a_padded_lane_counts():
    body = "    %e = math.exp %9 : tensor<128xf32>\n"
    (harm,) = harms(body + REDUCE.format(of="%e", how="arith.addf")).values()
    assert harm(-math.inf) == ""
    assert harm(0.0)


def test_of_two_conditions_the_looser_one_leaves_lanes_out_since_others_hold_data_of_one_load():
    body = """
    %one = arith.constant 1 : i32
    %more = arith.addi %arg2, %one : i32
    %wide = tt.splat %more : i32 -> tensor<128xi32>
    %loose = arith.cmpi slt, %4, %wide : tensor<128xi32>
    %w = tt.load %8, %loose : tensor<128x!tt.ptr<f32>>
    %both = arith.addf %9, %w : tensor<128xf32>
    """
    assert harms(body + REDUCE.format(of="%both", how="arith.addf")).keys() == {"128·program_id(0) + i <= arg2"}


def test_a_mask_that_lets_the_whole_block_pass_leaves_nothing_out():
    body = """
    %all = arith.constant dense<128> : tensor<128xi32>
    %inside = arith.cmpi slt, %2, %all : tensor<128xi32>
    %v = tt.load %8, %inside : tensor<128x!tt.ptr<f32>>
    """
    assert harms(body + REDUCE.format(of="%v", how="arith.addf")) == {}
    less = body.replace("dense<128>", "dense<127>")
    assert harms(less + REDUCE.format(of="%v", how="arith.addf")).keys() == {"i <= 126"}


DOT = """
    %k = tt.make_range {{end = 32 : i32, start = 0 : i32}} : tensor<32xi32>
    %row = tt.expand_dims %k {{axis = 0 : i32}} : tensor<32xi32> -> tensor<1x32xi32>
    %column = tt.expand_dims %k {{axis = 1 : i32}} : tensor<32xi32> -> tensor<32x1xi32>
    %n = tt.splat %arg2 : i32 -> tensor<1x32xi32>
    %m = tt.splat %arg2 : i32 -> tensor<32x1xi32>
    %lr = arith.cmpi slt, %row, %n : tensor<1x32xi32>
    %lc = arith.cmpi slt, %column, %m : tensor<32x1xi32>
    %rb = tt.broadcast %row : tensor<1x32xi32> -> tensor<32x32xi32>
    %cb = tt.broadcast %column : tensor<32x1xi32> -> tensor<32x32xi32>
    %mr = tt.broadcast %lr : tensor<1x32xi1> -> tensor<32x32xi1>
    %mc = tt.broadcast %lc : tensor<32x1xi1> -> tensor<32x32xi1>
    %x = tt.splat %arg0 : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
    %xr = tt.addptr %x, %rb : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
    %xc = tt.addptr %x, %cb : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
    %zero = arith.constant dense<0.000000e+00> : tensor<32x32xf32>
    %a = tt.load %xr, %mr{left} : tensor<32x32x!tt.ptr<f32>>
    %b = tt.load %xc, %mc{right} : tensor<32x32x!tt.ptr<f32>>
    %d = tt.dot %a, %b, %zero : tensor<32x32xf32> * tensor<32x32xf32> -> tensor<32x32xf32>
"""


@pytest.mark.parametrize(
    ("left", "right", "harmful"),
    [("", "", True), (", %zero", "", False), ("", ", %zero", False), (", %zero", ", %zero", False)],
)
def test_a_product_is_right_where_one_factor_has_zeros_in_the_padded_lanes(left, right, harmful):
    found = harms(DOT.format(left=left, right=right))
    assert found.keys() == {"k < arg2"}
    assert bool(found["k < arg2"](2.0)) == harmful
    assert found["k < arg2"](0.0) == ""
    if harmful:
        assert "it multiplies 2 by 2, and adds 4 to the sum" in found["k < arg2"](2.0)


WEIGHED = """
    %s = "tt.reduce"(%9) <{axis = 0 : i32}> ({
    ^bb0(%p: f32, %q: f32):
      %w = arith.constant WEIGHT
      %t = arith.mulf %q, %w : f32
      %u = arith.addf %p, %t : f32
      tt.reduce.return %u : f32
    }) : (tensor<128xf32>) -> f32
"""


@pytest.mark.parametrize(
    ("weight", "harm"),
    [("0.000000e+00", ""), ("false", ""), ("2.500000e-01", "0.25"), ("true", "1"), ("0x7F800000", "inf")],
)
def test_constants_of_a_reduction_s_own_block_are_taken_in(weight, harm):
    result = harms(WEIGHED.replace("WEIGHT", f"{weight} : f32"))[CONDITION](1.0)
    if not harm:
        assert result == ""
        return
    before, after = map(float, result.partition("from ")[2].split(" to "))
    assert after - before == pytest.approx(float(harm), abs=1e-3)


def test_a_reduction_that_returns_nothing_is_not_computed():
    body = REDUCE.format(of="%9", how="arith.addf").replace("      tt.reduce.return %t : f32\n", "")
    with pytest.raises(NotComputedError, match="returns nothing"):
        harms(body)[CONDITION](0.0)


def test_what_is_made_of_as_many_parts_as_are_allowed_is_computed_and_of_more_is_not(monkeypatch):
    kernel = facts(REDUCE.format(of="%9", how="arith.addf"))
    parts = sum(1 for _ in kernel.reductions[0].inputs[0].term.inner())
    monkeypatch.setattr(draws, "_MOST_PARTS", parts + 1)
    assert [one.words for _, one, _ in padded_lanes_of(kernel)] == [CONDITION]
    monkeypatch.setattr(draws, "_MOST_PARTS", parts)
    ((_, reason, harm),) = padded_lanes_of(kernel)
    assert "takes more than" in reason
    assert harm(math.nan) == ""


RUNNING = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %begin = arith.constant {begin} : f32
    %w = scf.for %i = %c0 to %arg2 step %c1 iter_args(%k = %begin) -> (f32)  : i32 {{
      %s = "tt.reduce"(%9) <{{axis = 0 : i32}}> ({{
      ^bb0(%p: f32, %q: f32):
        %t = arith.maxnumf %p, %q : f32
        tt.reduce.return %t : f32
      }}) : (tensor<128xf32>) -> f32
      %n = {how} %k, %s : f32
{more}      scf.yield %n : f32
    }}
    tt.store %arg1, %w : !tt.ptr<f32>
"""
STORED = "      tt.store %arg1, %s : !tt.ptr<f32>\n"


@pytest.mark.parametrize(
    ("begin", "how", "more", "padding", "harmful"),
    [
        ("0.000000e+00", "arith.maxnumf", "", 0.0, False),  # a maximum that begins at 0 takes it in anyway
        ("0.000000e+00", "arith.maxnumf", "", -1.0, False),
        ("0.000000e+00", "arith.maxnumf", "", 3.0, True),
        ("-3.000000e+00", "arith.maxnumf", "", 0.0, True),
        ("0xFF800000", "arith.maxnumf", "", 0.0, True),  # where a maximum begins that takes in nothing
        ("0.000000e+00", "arith.maxnumf", STORED, 0.0, True),  # what is stored of a turn is another use
        ("0.000000e+00", "arith.addf", "", 0.0, True),
    ],
)
def test_a_running_maximum_hides_what_is_less_than_its_begin_where_it_alone_uses_the_reduction(
    begin, how, more, padding, harmful
):
    (harm,) = (one for one in harms(RUNNING.format(begin=begin, how=how, more=more)).values())
    assert bool(harm(padding)) == harmful


CARRIED = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %zero = arith.constant dense<0.000000e+00> : tensor<128xf32>
    %w = scf.for %i = %c0 to %arg2 step %c1 iter_args(%k = %zero) -> (tensor<128xf32>)  : i32 {
      %v = tt.load %8, %6 : tensor<128x!tt.ptr<f32>>
      %n = arith.addf %k, %v : tensor<128xf32>
      scf.yield %n : tensor<128xf32>
    }
"""


@pytest.mark.parametrize(
    ("body", "padding"),
    [
        (REDUCE.format(of="%9", how="arith.addf"), 1.0), (DOT.format(left="", right=""), 2.0),
        (CARRIED + REDUCE.format(of="%w", how="arith.addf"), 1.0),
    ],
)  # fmt: skip
def test_a_change_of_as_many_draws_as_are_enough_is_a_harm_and_of_fewer_is_none(body, padding, monkeypatch):
    (harm,) = harms(body).values()
    most = draws.DRAWS if "tt.dot" in body else draws.DRAWS // 2  # all, or all with tiny arguments and all with others
    for enough, harmful in ((1, True), (most, True), (most + 1, False)):
        monkeypatch.setattr(draws, "_ENOUGH", enough)
        assert bool(harm(padding)) == harmful


@pytest.mark.parametrize(("close", "harmful"), [(4.0, False), (3.9, True)])
def test_a_product_of_padded_lanes_harms_if_it_is_not_close_to_0(close, harmful, monkeypatch):
    (harm,) = harms(DOT.format(left="", right="")).values()
    monkeypatch.setattr(draws, "_CLOSE", close)
    assert bool(harm(2.0)) == bool(harm(-2.0)) == harmful
