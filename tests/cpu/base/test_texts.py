"""Texts and plain values: what they hold is what was put in, as files and terminals can take it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.base import Sealed, counted, escaped, excerpt, gain_text, storable
from triton_ops.base.plain import DamagedError


class Struct(msgspec.Struct):
    one: float
    two: object


@dataclass
class Data:
    one: float
    two: object


def test_plain_values_are_those_that_json_can_hold():
    inner = {"x\ud800": [1.5, (math.nan, math.inf, -math.inf)], "y": True, "z": None, "n": 1 << 70}
    expected = {"x?": [1.5, [None, None, None]], "y": True, "z": None, "n": 1 << 70}
    assert storable(inner) == expected
    for kind in (Struct, Data):
        assert storable(kind(0.1, inner)) == {"one": 0.1, "two": expected}
    assert storable([math.pi, 100_000 * math.pi, 2.0], 3) == [3.14, 314_000.0, 2.0]
    assert storable({"a": Data(math.pi, [math.pi])}, 2) == {"a": {"one": 3.1, "two": [3.1]}}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_seventeen_digits_change_no_number(number):
    assert storable(number) == number


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1.25, (1.22, 1.28)), "1.25x (1.22 to 1.28)"), ((1.25,), "1.25x"), ((1.25, (1.251, 1.254)), "1.25x"),
        ((None,), "-"), ((1.25, (1.2, 1.3), "too few"), "unproven"), ((None, None, "too few"), "unproven"),
        ((0.999, None), "1.00x"),
    ],
)  # fmt: skip
def test_a_gain_has_two_digits_and_its_interval_where_that_has_a_width(arguments, text):
    assert gain_text(*arguments) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "kernel", "1 kernel"), (0, "kernel", "0 kernels"), (2, "entry", "2 entries"), (1, "entry", "1 entry"),
        (2000, "launch", "2,000 launches"), (12345, "byte", "12,345 bytes"),
    ],
)  # fmt: skip
def test_things_are_counted_in_words(count, noun, text):
    assert counted(count, noun) == text


@pytest.mark.parametrize(("length", "kept"), [(78, 80), (79, 80), (500, 80), (3, 5)])
def test_an_excerpt_has_eighty_characters_at_most(length, kept):
    text = excerpt("x" * length)
    assert len(text) == kept
    assert text.endswith("..." if length > 78 else "'")


@given(
    st.text(
        st.one_of(
            st.characters(), st.sampled_from("\x00\x08\t\n\x1b\x1f ~\x7f\x9f\xa0\u061c\u200f\u202e\u2066\u2069\u206a")
        )
    )
)
def test_a_terminal_obeys_nothing_of_an_escaped_text(text):
    shown = escaped(text)
    hidden = re.compile("[\x00-\x08\n-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
    assert not hidden.search(shown)
    assert shown == "".join(ascii(one)[1:-1] if hidden.match(one) else one for one in text)


def test_an_object_that_has_a_name_twice_is_ambiguous():
    assert Sealed.unambiguous('{"a": {"b": 1}, "b": 2}') == {"a": {"b": 1}, "b": 2}
    for text in ('{"a": 1, "a": 1}', b'{"x": [{"b": 1, "c": 2, "b": 3}]}'):
        with pytest.raises(DamagedError, match=r"has the name '[ab]' twice"):
            Sealed.unambiguous(text)


def test_what_is_sealed_is_opened_with_its_checksum_alone():
    sealed = Sealed({"a": 1})
    assert Sealed.opened(sealed) == {"a": 1}
    with pytest.raises(DamagedError, match="no checksum"):
        Sealed.opened({"a": 1})
    with pytest.raises(DamagedError, match="damaged, or edited"):
        Sealed.opened({**sealed, "a": 2})
    with pytest.raises(DamagedError, match="no canonical form"):
        Sealed.opened({**sealed, "a": math.nan})
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(DamagedError, match="no canonical form"):
        Sealed.opened({"a": deep})
    with pytest.raises(DamagedError, match="holds a list"):
        Sealed.parsed("[1]")
    with pytest.raises(DamagedError, match="not JSON"):
        Sealed.parsed('{"a": "\ud800"}')


@given(st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False))
def test_plain_values_become_a_type(one, two):
    assert Sealed.typed({"one": one, "two": [two]}, Struct).two == [two]
    assert Sealed.typed([one], tuple[int, ...]) == (one,)
    assert Sealed.typed({"two": "x", "one": 2.5}, Data, lambda kind, value: value) == Data(2.5, "x")
