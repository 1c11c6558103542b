"""The numbers of terms in many draws are those that NumPy computes of their parts, at the places that are asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cpu.kernel_ir.test_facts import facts
from tests.cpu.kernel_ir.test_padding import DOT, REDUCE
from triton_ops.kernel_ir.draws import DRAWS, Draw, _extents
from triton_ops.kernel_ir.operations import NotComputedError

SMALL = np.arange(DRAWS) % 2 == 1


def draw_of(body="", padding=math.nan, turns=0, places=None):
    """The facts of a kernel with these lines, and draws of its terms; places are numbers along the axes."""
    kernel = facts(body)
    return kernel, Draw(
        kernel, {kernel.terms.index(axis): at for axis, at in (places or {0: 0}).items()}, padding, turns
    )


def test_symbols_have_numbers_of_their_kind_and_every_symbol_has_its_own():
    kernel, draw = draw_of()
    make, whole = kernel.terms.make, kernel.terms.whole
    n, m, program, turn = (make(*one) for one in (("argument", "n"), ("argument", "m"), ("program_id", 0), ("turn", 7)))
    assert (draw(whole(n)) >= 5000).all()
    assert (draw(whole(n)) < 6000).all()
    assert not (draw(whole(n)) == draw(whole(m))).all()
    for symbol, most in ((program, 2), (turn, 2), (make("turns", 3), 4), (make("index", 1), 3), (make("bound", 2), 3)):
        assert set(draw(whole(symbol))) == set(range(most))
    real = draw(n)
    assert (real[SMALL] == 1e-10).all()
    assert ((real[~SMALL] >= 0.5) & (real[~SMALL] < 2)).all()


def test_a_place_is_one_for_all_draws_or_one_for_each_and_the_rest_stays():
    kernel, draw = draw_of()
    (load, _) = kernel.accesses
    index, offset = kernel.terms.index(0), load.offset
    several = np.arange(DRAWS) * 3.0
    assert (draw.at({index: 5})(offset) == draw(offset) + 5).all()
    assert (draw.at({index: several})(offset) == draw(offset) + several).all()
    other = kernel.terms.index(1)
    assert (draw.at({other: 9}).at({index: 2})(kernel.terms.add((1, offset), (1, other))) == draw(offset) + 11).all()
    assert (draw(offset) % 128 == 0).all(), "the first place, as it was asked for"


def test_a_load_gives_one_number_for_each_address_and_the_padding_beyond_its_mask():
    kernel, draw = draw_of(padding=-7.0)
    load, store = kernel.accesses
    data, index = store.value.term, kernel.terms.index(0)
    here, there = draw(data), draw.at({index: 3})(data)
    assert ((np.abs(here) <= 2) & (here != there)).all()
    assert (draw.at({index: 128, kernel.terms.make("program_id", 0): 0})(data)
            == draw.at({index: 0, kernel.terms.make("program_id", 0): 1})(data)).all()  # fmt: skip
    beyond = draw.beyond(index, load.mask)
    assert (beyond(data) == -7.0).all()
    last = beyond(kernel.terms.whole(index)) - 1
    assert (draw.at({index: last})(data) != -7.0).all(), "the place before it has data"
    small = draw.at({kernel.terms.make("argument", "arg2"): 0})
    assert (small.beyond(index, load.mask)(kernel.terms.whole(index)) == 1).all(), "never the first place"


def test_in_the_block_at_the_edge_the_condition_fails_for_the_first_time():
    kernel, draw = draw_of()
    (load, _) = kernel.accesses
    edge = draw.at_the_edge(load.mask)
    block, n = (edge(kernel.terms.whole(kernel.terms.make(*one))) for one in (("program_id", 0), ("argument", "arg2")))
    assert (128 * block <= n - 1).all()
    assert (128 * (block + 1) > n - 1).all()
    assert edge(load.mask).all()
    less = kernel.terms.add((1, kernel.terms.make("argument", "arg2")), (-1, kernel.terms.index(0)))
    alone = kernel.terms.at_least_zero(less)
    assert draw.at_the_edge(alone) is draw, "no turn and no program moves it"


@pytest.mark.parametrize(
    ("how", "function"),
    [("arith.addf", np.add), ("arith.mulf", np.multiply), ("arith.maxnumf", np.fmax), ("arith.minimumf", np.minimum)],
)
def test_a_reduction_is_that_of_three_places(how, function):
    kernel, draw = draw_of(REDUCE.format(of="%9", how=how) + "    tt.store %arg1, %s : !tt.ptr<f32>\n")
    reduced = next(one.value.term for one in kernel.accesses if one.value is not None and not one.type.shape)
    data, index = kernel.reductions[0].inputs[0].term, kernel.terms.index(0)
    parts = [draw.at({index: place})(data) for place in (0, 1, 2)]
    assert draw(reduced) == pytest.approx(function(function(parts[0], parts[1]), parts[2]))


@pytest.mark.parametrize(
    ("how", "count"),
    [("arith.addf tt.reduce.return", 2), ("arith.addf arith.addf tt.reduce.return", 1),
     ("math.exp tt.reduce.return", 1), ("new.thing tt.reduce.return", 1)],
)  # fmt: skip
def test_another_reduction_is_some_number_that_its_data_decide(how, count):
    """Of several operands, of several steps, or by what makes one number of one: it is the same for the same data."""
    kernel, draw = draw_of()
    terms, data = kernel.terms, kernel.accesses[1].value.term
    several = [data, terms.make("argument", "y")][:count]
    reduced, again, other = (
        draw(terms.make("tt.reduce", "f32", how, number, 0, *operands))
        for number, operands in ((7, several), (7, several), (7, several[1:] or [terms.make("argument", "z")]))
    )
    assert (np.abs(reduced) <= 2).all()
    assert (reduced == again).all()
    assert not (reduced == other).any()


def test_a_product_is_the_sum_of_three_places_beside_what_it_began_with():
    body = DOT.format(left="", right="") + "    tt.store %xr, %d : tensor<32x32x!tt.ptr<f32>>\n"
    kernel, draw = draw_of(body, places={0: 1, 1: 4})
    product = kernel.products[0]
    term = next(one.value.term for one in kernel.accesses if one.value is not None and len(one.type.shape) == 2)
    parts = [draw.at({product.bound: place}) for place in (0, 1, 2)]
    assert draw(term) == pytest.approx(sum(one(product.factors[0]) * one(product.factors[1]) for one in parts))


LOOP = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c9 = arith.constant 9 : i32
    %half = arith.constant 5.000000e-01 : f32
    %two = arith.constant 2.000000e+00 : f32
    %w = scf.for %i = %c0 to %c9 step %c1 iter_args(%k = %half) -> (f32)  : i32 {
      %n = arith.mulf %k, %two : f32
      scf.yield %n : f32
    }
    tt.store %arg1, %w : !tt.ptr<f32>
"""


@pytest.mark.parametrize(("turns", "carried"), [(0, 0.5), (1, 1.0), (2, 2.0), (3, 4.0)])
def test_what_a_loop_carries_is_what_so_many_turns_make_of_its_begin(turns, carried):
    kernel, draw = draw_of(LOOP, turns=turns)
    (one,) = kernel.carried.values()
    assert (draw(one.symbol) == carried).all()
    assert (draw(one.next) == 2 * carried).all()
    after = next(one.value.term for one in kernel.accesses if one.value is not None and not one.type.shape)
    assert after.name == "after"
    assert (draw(after) == 1.0).all(), "one turn"


def test_what_a_loop_of_another_kernel_carries_is_not_computed():
    kernel, draw = draw_of()
    with pytest.raises(NotComputedError, match="without a known number"):
        draw(kernel.terms.make("carried", 99, 0))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda t, n, m: t.at_least_zero(t.add((1, n), (-1, m))), lambda n, m: n >= m),
        (lambda t, n, m: t.zero(t.add((1, n), (-1, m))), lambda n, m: n == m),
        (lambda t, n, m: t.refuse(t.zero(n)), lambda n, m: n != 0),
        (lambda t, n, m: t.both(t.refuse(t.zero(n)), t.zero(m)), lambda n, m: (n > 0) & (m == 0)),
        (lambda t, n, m: t.either(t.zero(n), t.zero(m)), lambda n, m: (n == 0) | (m == 0)),
        (lambda t, n, m: t.true, lambda n, m: n == n),
        (lambda t, n, m: t.false, lambda n, m: n != n),
        (lambda t, n, m: t.make("compared", n), lambda n, m: n != 0),
        (lambda t, n, m: t.make("compared", "slt", n, m), lambda n, m: n < m),
        (lambda t, n, m: t.choose(t.zero(n), m, t.number(7)), lambda n, m: np.where(n == 0, m, 7)),
        (lambda t, n, m: t.quotient(t.add((7, n), (3, m)), t.number(4)), lambda n, m: (7 * n + 3 * m) // 4),
        (lambda t, n, m: t.remainder(t.add((7, n), (3, m)), t.number(4)), lambda n, m: (7 * n + 3 * m) % 4),
        (lambda t, n, m: t.add((3, t.multiply(n, m)), (1, t.number(2))), lambda n, m: 3 * n * m + 2),
        (lambda t, n, m: t.make("number", 2.5), lambda n, m: 2.5 + 0 * n),
    ],
)
def test_a_term_of_numbers_is_computed_in_every_draw(make, expected):
    kernel, draw = draw_of()
    terms = kernel.terms
    n, m = (terms.whole(terms.make("argument", name)) for name in "nm")
    numbers = np.arange(DRAWS) % 4.0, np.arange(DRAWS) // 8 % 3.0
    here = draw.at(dict(zip((one.operands[0][0][0] for one in (n, m)), numbers, strict=True)))
    result = here(make(terms, n, m))
    assert result.shape == (DRAWS,)
    assert (result == expected(*numbers)).all()


@pytest.mark.parametrize(("name", "operands"), [("was there", (7,)), ("was there", (7, 8)), ("new.thing", ())])
def test_a_term_of_an_operation_without_numbers_is_not_computed(name, operands):
    kernel, draw = draw_of()
    with pytest.raises(NotComputedError, match=name):
        draw(kernel.terms.make(name, *operands))


def test_a_comparison_of_three_is_not_computed():
    kernel, draw = draw_of()
    one = kernel.terms.number(1)
    with pytest.raises(NotComputedError, match="a comparison slt"):
        draw(kernel.terms.make("compared", "slt", one, one, one))


@pytest.mark.parametrize("apart", [(0, 0), (3, 2), (2, 5)])
def test_results_differ_in_as_many_draws_as_those_with_tiny_or_with_other_arguments_the_fewer(apart):
    _, draw = draw_of(padding=0.0)
    before = np.ones(DRAWS)
    after = before.copy()
    after[~SMALL] += np.arange(DRAWS // 2) < apart[0]
    after[SMALL] += np.arange(DRAWS // 2) < apart[1]
    assert draw.differ(before, after) == min(apart)
    assert draw.differ(before, before * (1 + 1e-6)) == 0, "but for a rounding"
    assert draw.differ(before, before * (1 + 3e-5)) == DRAWS // 2
    nothing = np.full(DRAWS, math.nan)
    assert draw.differ(nothing, before) == draw.differ(before, nothing) == 0
    _, put = draw_of(padding=math.nan)
    assert put.differ(before, nothing) == DRAWS // 2, "no number was put there"
    assert draw.differ(before, before + 1, SMALL) == 0
    few = np.arange(DRAWS) < 10
    assert draw.differ(before, before + 1, few) == 5


def test_a_divisor_that_was_loaded_is_positive_and_others_are_what_they_are():
    body = """
    %q = arith.divf %9, %9 : tensor<128xf32>
    %neg = arith.negf %9 : tensor<128xf32>
    %r = arith.divf %9, %neg : tensor<128xf32>
    %f = arith.constant dense<-2.000000e+00> : tensor<128xf32>
    %t = arith.divf %9, %f : tensor<128xf32>
    tt.store %8, %q : tensor<128x!tt.ptr<f32>>
    tt.store %8, %r : tensor<128x!tt.ptr<f32>>
    tt.store %8, %t : tensor<128x!tt.ptr<f32>>
    """
    kernel, draw = draw_of(body)
    q, r, t, x = (draw(one.value.term) for one in kernel.accesses if one.value is not None)
    assert (q == np.sign(x)).all()
    assert (r == np.sign(x)).all()
    assert (t == x / -2).all()


def test_a_term_of_too_many_numbers_is_not_computed(monkeypatch):
    monkeypatch.setattr("triton_ops.kernel_ir.draws._MOST", 3)
    kernel, draw = draw_of()
    make = kernel.terms.make
    for name in "abc":
        draw(make("argument", name))
    draw(make("argument", "a"))  # it is computed already
    with pytest.raises(NotComputedError, match="too many steps"):
        draw(make("argument", "d"))


def test_a_count_that_is_an_extent_is_small_where_numbers_are_made_of_it():
    """As a divisor it would else hide what one lane adds."""
    kernel, draw = draw_of()
    terms = kernel.terms
    n = terms.whole(terms.make("argument", "n"))
    for count in (n, terms.add((3, n), (2, terms.number(1)))):
        several = draw(terms.make("arith.sitofp", "f32", "", 0, count))
        assert set(several) <= {2, 3, 4, 5, 6, 7} if count is n else (several == draw(count)).all()
    place = terms.whole(terms.make("program_id", 0))
    assert (draw(terms.make("arith.sitofp", "f32", "", 0, place)) == draw(place)).all()
    assert (draw(terms.make("arith.truncf", "f32", "", 0, terms.make("number", 9.0))) == 9.0).all()


def test_extents_are_the_arguments_that_stand_alone_in_comparisons_by_their_sign():
    terms = draw_of()[0].terms
    n, m, k = (terms.make("argument", name) for name in "nmk")
    more = terms.at_least_zero(terms.add((1, n), (-2, m), (1, terms.multiply(n, k)), (-1, terms.make("program_id", 0))))
    other = terms.both(terms.refuse(terms.zero(terms.whole(k))), terms.make("compared", k))
    assert _extents([more, other]) == {n, m}
    assert _extents([more, other], 1) == {n}
    assert _extents([more], -1) == {m}
