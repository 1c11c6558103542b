"""Calling an operation runs the winner of its problem, and counts it."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

import triton_ops
from triton_ops import Operation, TensorSpec, tune
from triton_ops.dispatch import ladder as sources
from triton_ops.dispatch import operations
from triton_ops.exceptions import ConfigCollisionError, KernelTypeError, UntunedError
from triton_ops.records import Misses
from triton_ops.records.misses import flush_misses
from triton_ops.settings import cache_folder

RAN = []


def work(x, block=1):
    RAN.append(block)
    return [value + block * 0 for value in x]


@pytest.fixture
def operation():
    sources._sources.ladders.clear()
    operations._calls.forget()
    RAN.clear()
    return Operation("worked", work, {"block": [1, 2, 3]}, lambda n=4: {"x": TensorSpec((n,), "float32")})


def test_without_a_winner_the_default_runs_and_the_problem_is_noted(operation, tmp_path):
    assert list(operation([1, 2])) == [1, 2]
    assert operation(x=[1, 2]) == [1, 2]
    assert RAN == [1, 1]
    (row,) = [row for row in triton_ops.launches() if row.kernel == "worked" and row.rung == "default"]
    assert "on_miss is default" in row.why
    flush_misses()
    assert [miss.key.kernel for miss in Misses(Path(cache_folder(None))).read()] == ["worked"]


def test_no_launch_is_lost_when_the_policy_changes(operation):
    def total():
        return sum(row.launches for row in triton_ops.launches() if row.problem == "[6,7]")

    before = total()
    for policy, calls in (("default", 3), ("queue", 2), ("default", 1)):
        with triton_ops.on_miss(policy):
            for _ in range(calls):
                operation([6, 7])
    assert total() == before + 6


def test_a_call_that_gives_what_is_tuned_is_refused(operation):
    for call in (lambda: operation([1, 2], 3), lambda: operation(x=[1, 2], block=3)):
        with pytest.raises(ConfigCollisionError, match="block"):
            call()
    assert RAN == []


def test_arguments_beyond_the_parameters_or_given_twice_are_refused(operation):
    with pytest.raises(KernelTypeError, match="worked takes 2 positional arguments, and the call gives 3"):
        operation([1, 2], 3, 4)
    with pytest.raises(KernelTypeError, match="gives x twice"):
        operation([1, 2], x=[3])
    assert RAN == []


def test_a_winner_runs(operation, steady_clock):
    best = tune(operation, ([1, 2],)).best_config["block"]
    sources._sources.ladders.clear()
    RAN.clear()
    operation([1, 2])
    assert [best] == RAN
    assert operations._calls.decisions[-1].found.rung == "record"


def test_policies_hold_for_operations_too(operation, steady_clock):
    with triton_ops.on_miss("error"), pytest.raises(UntunedError, match="no winner is known for worked"):
        operation([1, 2])
    operation([1, 2])
    with triton_ops.on_miss("error"), pytest.raises(UntunedError):
        operation([1, 2])
    with triton_ops.on_miss("tune"):
        operation([1, 2])
    assert operations._calls.decisions[-1].found.rung == "tuned"


def test_a_race_is_a_tune_of_a_few_configs_which_a_longer_tune_goes_beyond(operation, steady_clock):
    with triton_ops.on_miss("race"):
        operation([1, 2])
    decision = operations._calls.decisions[-1]
    assert decision.found.rung == "tuned"
    raced = triton_ops.recall(operation, ([1, 2],))
    assert (raced.effort, raced.budget.trials) == ("race", 6)
    assert tune(operation, ([1, 2],)).record == raced.id
    assert triton_ops.recall(operation, ([1, 2],)).effort == "quick"
    sources._sources.ladders.clear()
    operations._calls.forget()
    with triton_ops.on_miss("race"):  # what a longer tune has found answers a race
        operation([1, 2])
    assert operations._calls.decisions[-1].found.rung == "record"


def test_where_no_model_expects_a_config_an_operation_runs_its_default_and_notes_the_problem(operation):
    with triton_ops.on_miss("expected"):
        assert operation([1, 2]) == [1, 2]
    answer = operations._calls.decisions[-1].found
    assert (answer.rung, RAN) == ("default", [1])
    assert "is expected to be faster than the default: it is not compiled ahead" in answer.why
    flush_misses()
    assert [miss.key.kernel for miss in Misses(Path(cache_folder(None))).read()] == ["worked"]


def test_a_user_without_a_home_folder_is_served_and_nothing_is_kept(operation, monkeypatch, caplog, steady_clock):
    """As in a container that runs as any number: the user has no entry in the system's list."""

    def homeless(_):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("TRITON_OPS_CACHE_DIR")
    monkeypatch.setattr(platformdirs, "user_cache_dir", homeless)
    with triton_ops.on_miss("tune"):
        assert operation([1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]
    assert "winners are found, and not kept: there is no home folder" in caplog.text
    assert [row.rung for row in triton_ops.launches() if row.kernel == "worked" and row.problem == "[1,2,3,4,5]"] == [
        "tuned"
    ]
    assert triton_ops.recall(operation, ([1, 2, 3, 4, 5],)) is None
    assert not tune(operation, ([1, 2, 3, 4, 5],)).from_cache
    assert "set TRITON_OPS_CACHE_DIR, XDG_CACHE_HOME or HOME" in caplog.text
