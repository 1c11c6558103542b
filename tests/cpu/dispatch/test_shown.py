"""Decisions that are shown in the cache of Triton's decorator, where others may look, write and remove."""

import copy
from types import SimpleNamespace

import pytest

from triton_ops.dispatch import triton_autotuner
from triton_ops.dispatch.printed import Printed
from triton_ops.dispatch.triton_autotuner import Shown, Winners, standing
from triton_ops.space import Config
from triton_ops.values import Measurement, Status, Trial

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


def test_of_more_keys_than_a_kernel_may_have_those_before_count_as_set_by_others(cache, monkeypatch):
    monkeypatch.setattr(triton_autotuner, "_MOST", 2)
    shown = Shown(lambda: SimpleNamespace(cache=cache))
    for key in "ab":
        shown.put(key, "place", OURS)
    assert shown.others == {}
    shown.put("c", "place", OURS)
    assert shown.others == {"a": OURS, "b": OURS}


def test_a_decision_that_changes_keeps_the_places_of_all_and_one_beside_others_has_its_own(shown, cache):
    shown.put("key", "one", OURS)
    shown.put("key", "two", OURS)
    shown.put("key", "one", LATER)
    assert cache == {"key": LATER}
    cache["theirs"] = THEIRS
    shown.put("theirs", "three", OURS)
    cache.clear()
    assert shown.taken_away("key") == {"one", "two"}
    assert shown.taken_away("theirs") == {"three"}


def test_a_decision_that_stands_already_is_not_written_again(shown, cache):
    class Counting(dict):
        writes = 0

        def __setitem__(self, key, config):
            self.writes += 1
            super().__setitem__(key, config)

    counting = Counting()
    shown = Shown(lambda: SimpleNamespace(cache=counting))
    for place in ("one", "one", "two"):
        shown.put("key", place, OURS)
    assert counting.writes == 1


def test_the_kernels_own_cache_tells_what_others_change_and_not_what_is_shown():
    changes, winners = [], None

    class Kernel:
        def changed(self):
            changes.append(dict(winners))

    kernel = Kernel()
    winners = Winners(kernel.changed)
    assert winners.tells(kernel)
    assert not winners.tells(Kernel())
    shown = Shown(lambda: SimpleNamespace(cache=winners))
    shown.put("key", "place", OURS)
    shown.put("key", "place", LATER)
    assert (winners, changes) == ({"key": LATER}, [])
    winners["other"] = THEIRS
    assert changes == [{"key": LATER, "other": THEIRS}]
    assert winners.pop("other") is THEIRS
    with pytest.raises(KeyError):
        winners.pop("other")
    winners.update(other=THEIRS)
    assert winners.setdefault("other") is THEIRS
    winners |= {"third": OURS}
    del winners["third"]
    assert len(changes) == 7
    for copied in (copy.copy(winners), copy.deepcopy(winners)):
        assert type(copied) is dict
        assert set(copied) == {"key", "other"}


def test_a_cache_that_can_only_be_asked_and_written_is_enough():
    class Plain:
        def __init__(self):
            self.configs = {}

        def __contains__(self, key):
            return key in self.configs

        def __getitem__(self, key):
            return self.configs[key]

        def __setitem__(self, key, config):
            self.configs[key] = config

    plain = Plain()
    shown = Shown(lambda: SimpleNamespace(cache=plain))
    assert shown.put("key", "place", OURS)
    shown.take_back()
    assert plain.configs == {"key": OURS}
    assert shown.by_others("key") is OURS, "from now on it counts as set by others"


def test_what_another_thread_takes_away_meanwhile_is_not_there():
    class Emptied(dict):
        def __contains__(self, key):
            return True

    assert standing(Emptied(), "key") is None


@pytest.mark.triton
def test_each_config_is_printed_and_why_it_failed_in_one_line_if_it_did(capsys):
    pytest.importorskip("triton")
    printed, config = Printed("k", "(4,)"), Config(BLOCK=64)
    printed.tried(Trial(config, Status.OK, Measurement((1.0,), "wall")), None)
    good = capsys.readouterr().out
    printed.tried(Trial(config, Status.CRASH, error="no\x1b[2J room"), None)
    assert good.startswith("Autotuning kernel k with config BLOCK: 64")
    assert good.count("\n") == 1
    assert capsys.readouterr().out == good + "Autotuning failed with no\\x1b[2J room\n"
