"""Answers are whole JSON of a bounded length, whatever the document, and say what is left out."""

import json

from hypothesis import given
from hypothesis import strategies as st

from triton_ops_mcp.answers import MOST, text_of, trimmed

NAMES = st.text("abcdefgh", min_size=1, max_size=4)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.integers(0, 3_000).map(lambda size: "é" * size),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=8),
    max_leaves=10,
)
LONG = st.tuples(VALUES, st.integers(0, 200)).map(lambda each: [each[0]] * each[1])


@given(st.dictionaries(NAMES, VALUES | LONG, max_size=12))
def test_an_answer_fits_and_says_so_where_something_is_missing(document):
    answer = trimmed(document)
    assert len(text_of(answer)) <= MOST
    assert json.loads(text_of(answer)) == answer
    assert ("left_out" in answer) == (answer != document)


def test_a_small_document_stays_as_it_is():
    document = {"kind": "triton-ops tune", "best_config": {"BM": 64}, "trials": [{"reason": "x" * 300}] * 5}
    assert trimmed(document) == document


def test_the_first_items_of_a_long_list_stay():
    items = [{"config": {"BM": number}, "reason": "r" * 500} for number in range(480)]
    answer = trimmed({"kind": "triton-ops compile", "items": items})
    kept = [one["config"]["BM"] for one in answer["items"]]
    assert kept == list(range(len(kept)))
    assert answer["left_out"]["items"] == f"all but {len(kept)} of 480 items"


def test_what_no_cut_makes_small_enough_is_left_out_whole():
    wide = {f"name{number}": number for number in range(2_000)}
    answer = trimmed({"kind": "triton-ops lint", "unread": wide, "findings": []})
    assert answer == {"kind": "triton-ops lint", "findings": [], "left_out": {"unread": "all"}}
