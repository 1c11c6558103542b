"""Terms mean what they were made of, however they are simplified, and equal ones are one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.kernel_ir.terms import AND, AT_LEAST_ZERO, NOT, OR, SUM, ZERO, Terms

NAMES = ("m", "n", "k")
environments = st.fixed_dictionaries({name: st.integers(0, 12) for name in NAMES})


def value_of(term, environment):
    """The number, or truth, of a term."""
    if term.name == SUM:
        return sum(
            factor * math.prod(value_of(one, environment) for one in monomial) for monomial, factor in term.operands
        )
    if term.name in ("argument", "index"):
        return environment[term.operands[0]]
    if term.name == "truth":
        return term.operands[0]
    first, *rest = (value_of(one, environment) for one in term.operands)
    if term.name in (AND, OR):
        return (all if term.name == AND else any)([first, *rest])
    return {
        AT_LEAST_ZERO: lambda: first >= 0, ZERO: lambda: first == 0, NOT: lambda: not first,
        "choose": lambda: rest[0] if first else rest[1], "quotient": lambda: first // rest[0],
        "remainder": lambda: first % rest[0],
    }[term.name]()  # fmt: skip


@st.composite
def numbers(draw, terms, depth=3):
    """A term of a whole number, and the function of the arguments that it stands for."""
    ways = ["number", "argument", "add", "multiply", "divide", "rest", "choose"]
    how = draw(st.sampled_from(ways if depth > 0 else ways[:2]))
    if how == "number":
        value = draw(st.integers(-9, 9))
        return terms.number(value), lambda environment: value
    if how == "argument":
        name = draw(st.sampled_from(NAMES))
        return terms.whole(terms.make("argument", name)), lambda environment: environment[name]
    one, of_one = draw(numbers(terms, depth - 1))
    if how == "divide" or how == "rest":
        by = draw(st.integers(1, 9))
        square = terms.multiply(one, one)  # none is negative, where roundings differ
        if how == "divide":
            return terms.quotient(square, terms.number(by)), lambda environment: of_one(environment) ** 2 // by
        return terms.remainder(square, terms.number(by)), lambda environment: of_one(environment) ** 2 % by
    other, of_other = draw(numbers(terms, depth - 1))
    if how == "add":
        a, b = draw(st.integers(-3, 3)), draw(st.integers(-3, 3))
        return terms.add((a, one), (b, other)), lambda e: a * of_one(e) + b * of_other(e)
    if how == "multiply":
        return terms.multiply(one, other), lambda e: of_one(e) * of_other(e)
    condition, holds = draw(conditions(terms, depth - 1))
    return terms.choose(condition, one, other), lambda e: of_one(e) if holds(e) else of_other(e)


@st.composite
def conditions(draw, terms, depth=3):
    """A term of a condition, and the function of the arguments that it stands for."""
    ways = ["least", "zero", "truth", "both", "either", "refuse", "choose"]
    how = draw(st.sampled_from(ways if depth > 0 else ways[:3]))
    if how == "truth":
        value = draw(st.booleans())
        return terms.truth(value), lambda environment: value
    if how in ("least", "zero"):
        number, of_number = draw(numbers(terms, max(depth - 1, 0)))
        if how == "least":
            return terms.at_least_zero(number), lambda environment: of_number(environment) >= 0
        return terms.zero(number), lambda environment: of_number(environment) == 0
    one, of_one = draw(conditions(terms, depth - 1))
    if how == "refuse":
        return terms.refuse(one), lambda environment: not of_one(environment)
    other, of_other = draw(conditions(terms, depth - 1))
    if how == "choose":
        condition, holds = draw(conditions(terms, depth - 1))
        return terms.choose(condition, one, other), lambda e: of_one(e) if holds(e) else of_other(e)
    third, of_third = draw(conditions(terms, depth - 1))
    if how == "both":
        return terms.both(one, other, third), lambda e: of_one(e) and of_other(e) and of_third(e)
    return terms.either(one, other, third), lambda e: of_one(e) or of_other(e) or of_third(e)


@given(st.data(), st.lists(environments, min_size=6, max_size=6))
def test_a_term_has_the_value_of_what_it_was_made_of(data, several):
    terms = Terms()
    for strategy in (numbers, conditions):
        term, expected = data.draw(strategy(terms))
        for environment in several:
            assert value_of(term, environment) == expected(environment)


@given(st.data(), st.lists(environments, min_size=4, max_size=4))
def test_a_changed_term_has_the_value_of_what_stands_in_the_place_of_symbols(data, several):
    terms = Terms()
    name = data.draw(st.sampled_from(NAMES))
    symbol = terms.make("argument", name)
    instead, of_instead = data.draw(numbers(terms, 1))
    square = terms.multiply(instead, instead)
    for strategy in (numbers, conditions):
        term, expected = data.draw(strategy(terms))
        changed = terms.change(term, {symbol: square})
        for environment in several:
            assert value_of(changed, environment) == expected({**environment, name: of_instead(environment) ** 2})
        assert terms.change(term, {}) is term


@given(st.data())
def test_equal_terms_are_one(data):
    terms = Terms()
    one, other, third = (data.draw(conditions(terms, 1))[0] for _ in range(3))
    assert terms.both(one, other, third) is terms.both(third, one, other)
    assert terms.either(one, other, third) is terms.either(third, one, other)
    assert terms.refuse(terms.refuse(one)) is one
    assert terms.both(one, one) is terms.either(one, one) is one
    a, b = (data.draw(numbers(terms, 1))[0] for _ in range(2))
    assert terms.add((1, a), (1, b)) is terms.add((1, b), (1, a))
    assert terms.multiply(a, b) is terms.multiply(b, a)
    assert terms.add((2, a), (-1, a), (-1, a)) is terms.number(0)
    assert terms.zero(terms.add((1, a), (-1, b))) is terms.zero(terms.add((1, b), (-1, a)))


def arguments(terms):
    return [terms.whole(terms.make("argument", name)) for name in NAMES]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda t, m, n, k: t.add((2, m), (1, t.number(3))), "3 + 2·m"),
        (lambda t, m, n, k: t.multiply(m, n), "m·n"),
        (lambda t, m, n, k: t.at_least_zero(t.add((1, n), (-1, m), (-1, t.number(1)))), "m < n"),
        (lambda t, m, n, k: t.at_least_zero(t.add((1, n), (-1, m))), "m <= n"),
        (lambda t, m, n, k: t.at_least_zero(t.add((1, n), (-1, t.number(3)))), "2 < n"),
        (lambda t, m, n, k: t.at_least_zero(t.add((-1, n), (1, t.number(3)))), "n <= 3"),
        (lambda t, m, n, k: t.quotient(m, t.number(4)), "(m) // 4"),
        (lambda t, m, n, k: t.remainder(m, t.number(4)), "(m) % 4"),
        (lambda t, m, n, k: t.quotient(t.add((8, m)), t.number(4)), "2·m"),
        (lambda t, m, n, k: t.remainder(t.add((8, m)), t.number(4)), "0"),
        (lambda t, m, n, k: t.quotient(t.number(9), t.number(4)), "2"),
        (lambda t, m, n, k: t.remainder(t.number(9), t.number(4)), "1"),
        (lambda t, m, n, k: t.quotient(m, t.number(1)), "m"),
    ],
)
def test_words_are_those_of_the_simplest_form(make, words):
    terms = Terms()
    assert make(terms, *arguments(terms)).words == words


def test_a_pointer_that_is_chosen_keeps_its_root_where_both_have_one():
    terms = Terms()
    m, n, k = arguments(terms)
    x, y = (terms.make("argument", name) for name in "xy")
    condition = terms.at_least_zero(k)
    one, other, third = (terms.make("pointer", root, at) for root, at in ((x, m), (x, n), (y, n)))
    assert terms.choose(condition, one, other) is terms.make("pointer", x, terms.choose(condition, m, n))
    assert terms.choose(condition, one, third).name == "choose"
    assert terms.choose(condition, one, one) is one
    assert terms.choose(terms.true, one, third) is one
    assert terms.choose(terms.false, one, third) is third


def test_symbols_are_found_within_terms():
    terms = Terms()
    m, n, _ = arguments(terms)
    within = terms.quotient(terms.add((1, m), (1, terms.number(1))), terms.number(3))
    assert terms.symbols("argument", [within]) == [terms.make("argument", "m")]
    assert terms.symbols("argument", [within, n]) == [terms.make("argument", name) for name in "mn"]
    assert terms.symbols("index", [within]) == []


def test_a_lone_argument_is_one_with_a_factor_and_a_number():
    terms = Terms()
    m, n, _ = arguments(terms)
    for term, lone in (
        (m, ("m", 1)), (terms.add((-3, m), (1, terms.number(7))), ("m", -3)), (terms.make("argument", "x"), ("x", 1)),
        (terms.number(3), ("", 0)), (terms.add((1, m), (1, n)), ("", 0)), (terms.multiply(m, n), ("", 0)),
        (terms.multiply(m, m), ("", 0)), (terms.quotient(m, n), ("", 0)), (terms.true, ("", 0)),
    ):  # fmt: skip
        assert term.lone_argument == lone
    assert (terms.number(-4).constant, terms.number(0).constant, m.constant, terms.true.constant) == (-4, 0, None, None)
