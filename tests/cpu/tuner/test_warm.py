"""A call of `tune` that was a hit before is one again at once, unless anything that decides has changed."""

from __future__ import annotations

import gc
import weakref

import pytest

from triton_ops import ConfigSpace, Operation, TensorSpec, tune
from triton_ops.records.store import open_store
from triton_ops.settings import cache_folder
from triton_ops.tuner import session as warm

torch = pytest.importorskip("torch")

FACTOR = 1
SPACE = {"block": [1, 2]}


def work(x, n, block=1):
    return [FACTOR, n]


def arguments(n=4):
    return {"x": TensorSpec((n * FACTOR,), "float32")}


@pytest.fixture(autouse=True)
def _cold(steady_clock):
    warm._hits.clear()


@pytest.fixture
def asked(monkeypatch):
    """How often the whole way was taken."""
    result = []
    real = warm.remember
    monkeypatch.setattr(warm, "remember", lambda *given: (result.append(1), real(*given))[1])
    return result


def test_the_third_call_takes_no_way_at_all(asked):
    x = torch.zeros(8)
    first = tune(work, (x, 1), space=SPACE, trials=2)
    second, third = (tune(work, (torch.ones(8), 1), space=dict(SPACE), trials=2) for _ in range(2))
    assert (first.from_cache, second.from_cache, third.from_cache) == (False, True, True)
    assert asked == [1]
    assert third.best_config == second.best_config == first.best_config
    assert str(third).splitlines()[0] == str(second).splitlines()[0]
    third.best_config["block"] = "changed"
    assert tune(work, (x, 1), space=SPACE, trials=2).best_config == first.best_config


OTHERS = [
    {"args": (torch.zeros(9), 1)},
    {"args": (torch.zeros(8, dtype=torch.float16), 1)},
    {"args": (torch.zeros(9)[1:], 1)},
    {"args": (torch.zeros(16)[::2], 1)},
    {"args": (torch.zeros(8), 2)},
    {"args": (torch.zeros(8), True)},
    {"space": {"block": [2, 1]}},
    {"cold": False},
    {"tolerance": 0.5},
    {"reference": lambda x, n: [1, n]},
]


@pytest.mark.parametrize("other", OTHERS)
def test_another_call_is_no_hit_of_this_one(other):
    call = {"args": (torch.zeros(8), 1), "space": SPACE, "trials": 2}
    for _ in range(2):
        tune(work, **call)
    assert not tune(work, **{**call, **other}).from_cache


def test_what_changes_meanwhile_is_seen(monkeypatch):
    call = {"args": (1, 1), "space": SPACE, "trials": 2}
    for _ in range(3):
        result = tune(work, **call)
    assert result.from_cache
    monkeypatch.setitem(globals(), "FACTOR", 2)
    assert not tune(work, **call).from_cache


def test_a_record_that_was_removed_or_another_folder_is_a_miss(monkeypatch, tmp_path):
    call = {"args": (1, 1), "space": SPACE, "trials": 2}
    for _ in range(3):
        tune(work, **call)
    open_store(cache_folder(None)).clear()
    assert not tune(work, **call).from_cache
    assert tune(work, **call).from_cache
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    assert not tune(work, **call).from_cache


def test_the_callers_tensors_are_not_kept():
    x = torch.zeros(8)
    gone = weakref.ref(x)
    for _ in range(3):
        tune(work, (x, 1), space=SPACE, trials=2)
    del x
    gc.collect()
    assert gone() is None


def test_force_and_a_greater_effort_search_again():
    call = {"args": (1, 1), "space": SPACE}
    for _ in range(3):
        tune(work, trials=2, **call)
    assert not tune(work, trials=2, force=True, **call).from_cache
    assert not tune(work, trials=2, keep=False, **call).from_cache


def test_operations_follow_what_makes_their_problems(monkeypatch):
    operation = Operation("warm", lambda x, block=1: x, ConfigSpace(SPACE), arguments, device="cpu")
    for _ in range(3):
        result = tune(operation, shape=(8,), trials=2)
    assert result.from_cache
    assert tune(operation, shape=(8,), trials=2).from_cache
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert not tune(operation, shape=(8,), trials=2).from_cache
