"""Canonical JSON: the same content gives the same text, another content another one, here and in other processes."""

import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import values
from triton_ops.base import canonical_json, fingerprint

_jsons = st.recursive(values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


def lists(value):
    """What JSON makes of a value: tuples become lists."""
    if isinstance(value, dict):
        return {name: lists(item) for name, item in value.items()}
    return [lists(item) for item in value] if isinstance(value, (list, tuple)) else value


@given(_jsons)
def test_text_reads_back_as_the_value(value):
    assert json.loads(canonical_json(value)) == lists(value)


@given(_jsons)
def test_tuples_and_lists_are_the_same(value):
    assert fingerprint(value) == fingerprint(lists(value))


@given(st.dictionaries(st.text(max_size=4), values, min_size=2), st.randoms())
def test_order_of_names_does_not_count(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)


def test_what_python_calls_equal_can_differ():
    assert len({canonical_json(value) for value in (1, 1.0, True, "1", "true", None)}) == 6


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, {"a": [math.nan]}])
def test_nan_and_infinity_are_refused(bad):
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(bad)


@pytest.mark.parametrize("bad", [{1, 2}, b"x", object(), 1j])
def test_what_json_lacks_is_refused(bad):
    with pytest.raises(TypeError, match="not JSON serializable"):
        canonical_json(bad)


@pytest.mark.parametrize("length", [8, 32, 64])
def test_length_of_a_fingerprint(length):
    assert fingerprint("x", length) == fingerprint("x", 64)[:length]
    assert len(fingerprint("x", length)) == length


@pytest.mark.processes
def test_fingerprint_is_the_same_in_another_process_and_for_ever():
    value = {"BLOCK": (64, 128), "name": "µ", "flag": True, "none": None, "scale": 0.1}
    code = f"from triton_ops.base import fingerprint; print(fingerprint({value!r}))"
    message = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    # A change of this text would orphan every record that anybody has.
    assert message.strip() == fingerprint(value) == "2b603f16af6429455fcc316a128a67e3"
