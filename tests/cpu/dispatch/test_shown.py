"""Decisions that are shown in the cache of Triton's decorator, where others may look, write and remove."""

from types import SimpleNamespace

import pytest

from triton_ops.dispatch import triton_autotuner
from triton_ops.dispatch.triton_autotuner import Shown

OURS, THEIRS, LATER = (object() for _ in range(3))


@pytest.fixture
def cache():
    return {}


@pytest.fixture
def shown(cache):
    return Shown(lambda: SimpleNamespace(cache=cache))


def test_what_is_shown_is_no_config_of_others_and_what_others_write_is(shown, cache):
    assert shown.by_others("key") is None
    assert shown.put("key", "place", OURS)
    assert (cache, shown.by_others("key"), shown.others) == ({"key": OURS}, None, {})
    cache["key"] = THEIRS
    cache["other"] = LATER
    assert shown.by_others("key") is THEIRS
    assert shown.others == {"key": THEIRS, "other": LATER}


def test_a_config_of_others_stays_and_the_same_place_may_change_its_own(shown, cache):
    cache["key"] = THEIRS
    assert not shown.put("key", "place", OURS)
    assert cache == {"key": THEIRS}
    assert shown.put("own", "place", OURS)
    assert not shown.put("own", "another place", LATER)
    assert cache["own"] is OURS
    assert not shown.put("own", "place", LATER)
    assert cache["own"] is LATER


def test_who_removes_what_is_shown_takes_the_decisions_of_all_its_places_away(shown, cache):
    shown.put("key", "one", OURS)
    shown.put("key", "two", OURS)
    assert shown.taken_away("key") == set()
    del cache["key"]
    assert shown.taken_away("key") == {"one", "two"}
    assert shown.taken_away("key") == set()


def test_what_is_taken_back_leaves_the_configs_of_others(shown, cache):
    cache["theirs"] = THEIRS
    for key in ("theirs", "ours", "replaced"):
        shown.put(key, "place", OURS)
    cache["replaced"] = LATER
    shown.take_back()
    assert cache == {"theirs": THEIRS, "replaced": LATER}
    assert shown.taken_away("ours") == set(), "its decisions are over already"


def test_of_more_keys_than_a_kernel_may_have_those_before_count_as_set_by_others(shown, cache, monkeypatch):
    monkeypatch.setattr(triton_autotuner, "_MOST", 2)
    for key in "ab":
        shown.put(key, "place", OURS)
    assert shown.others == {}
    shown.put("c", "place", OURS)
    assert shown.others == {"a": OURS, "b": OURS}
