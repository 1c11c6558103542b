"""The first configs of a search for a new problem: winners of the same kernel for problems nearby."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from triton_ops import share_lockfile, tune
from triton_ops.backend import operation
from triton_ops.records import FollowedLockfile, LockPlan, Quarantine, Run, lock_of
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.run_log import FinishedTrial as Tried
from triton_ops.records.store import open_store
from triton_ops.request import TuneProblem
from triton_ops.space import Config
from triton_ops.tuner.priors import winners_nearby
from triton_ops.values import Key, Status, TensorSpec, Trial

BLOCKS = range(1, 81)


def arguments(M: int = 8):
    return {"x": TensorSpec((M,), "float32")}


@operation(space={"BLOCK": BLOCKS}, arguments=arguments, name="scales", device="cpu")
def scales(x, *, BLOCK):
    return x * 2


@pytest.fixture(autouse=True)
def no_packages():
    with patch.dict(FollowedLockfile.SHARED, clear=True):
        yield


def task_and_key(M):
    task = TuneProblem(target=scales, shape=(M,)).request().checked()
    return task, Key.of(task.problem, task.kernel.identity, task.device)


@pytest.fixture
def record(tmp_path, steady_clock):
    """Makes the record of a problem whose winner is a block."""
    tune(scales, shape=(7,), trials=2, cache_dir=tmp_path / "one")
    (made,) = open_store(tmp_path / "one")
    return lambda M, block, confidence="ok", **changes: replace(
        made, key=replace(task_and_key(M)[1], **changes), winner=Config(BLOCK=block), ties=(), confidence=confidence
    )


def blocks(M, records):
    return [config["BLOCK"] for config in winners_nearby(*task_and_key(M), records)]


def test_the_nearest_winners_come_first_and_three_at_most(record):
    known = [record(2048, 4), record(512, 2), record(4096, 5), record(1100, 1), record(256, 3)]
    assert blocks(1024, known) == [1, 4, 2]


def test_winners_of_far_problems_other_kernels_and_other_devices_are_left_out(record):
    elsewhere = {**record(1024, 1).key.device, "name": "another"}
    known = [record(1 << 20, 1), record(1025, 2, kernel="another"), record(1026, 3, device=elsewhere), record(1027, 4)]
    assert blocks(1024, known) == [4]


def test_a_winner_that_the_space_does_not_hold_is_left_out_and_equal_ones_count_once(record):
    assert blocks(1024, [record(1025, 500), record(1026, 7), record(1030, 7), record(1040, 8)]) == [7, 8]


def test_a_winner_that_no_comparison_has_proven_is_none(record):
    assert blocks(1024, [record(1025, 6, confidence="nothing was raced"), record(1030, 7)]) == [7]


def test_kernels_that_cannot_be_told_apart_have_no_neighbours(record):
    unknown = {**record(1024, 1).key.identity, "unknown": "source: an open file"}
    task, key = task_and_key(1024)
    assert winners_nearby(task, replace(key, identity=unknown), [record(1025, 1)]) == []
    assert blocks(1024, [record(1025, 1, identity=unknown), record(1026, 2)]) == [2]


def test_a_bucket_is_where_its_largest_problem_is(record, tmp_path):
    span = {**record(8, 1).key.problem["x"], "shape": [[513, 1024]], "stride": [1]}
    known = [record(8, 5, problem={"x": span}), record(2048, 6), record(1024 << 5, 7)]
    assert blocks(1000, known) == [5, 6]
    assert blocks(1 << 14, known) == [7, 6, 5]


def test_a_lockfile_that_a_package_brings_has_neighbours_until_it_is_put_aside(record, tmp_path):
    path = tmp_path / "brought.lock.json"
    lock_of([record(1025, 6)], LockPlan())[0].write(path)
    share_lockfile(path)
    assert blocks(1024, [record(1030, 7)]) == [6, 7]
    with patch.dict(FollowedLockfile.SHARED, clear=True):
        assert FollowedLockfile.shared() == ()
        assert blocks(1024, []) == []
    assert blocks(1024, []) == [6]


def tried(folder):
    newest = max(folder.glob("runs/*/*.jsonl"), key=lambda path: path.name)
    return [
        (event.origin, event.trial.config["BLOCK"]) for event in Run.read(newest).events if isinstance(event, Tried)
    ]


@pytest.mark.processes
@pytest.mark.usefixtures("steady_clock")
def test_a_tune_tries_them_after_the_default_unless_other_problems_are_to_be_left_out(record, tmp_path):
    known = record(1100, 33)
    open_store(tmp_path).put(known)
    tune(scales, shape=(1024,), trials=4, cache_dir=tmp_path)
    assert tried(tmp_path)[:2] == [(Origin.DEFAULT, 1), (Origin.NEARBY, 33)]
    tune(scales, shape=(1024,), trials=4, cache_dir=tmp_path, force=True, transfer=False)
    assert Origin.NEARBY not in dict(tried(tmp_path))


@pytest.mark.usefixtures("steady_clock")
def test_a_config_that_ended_its_process_before_takes_no_trial(record, tmp_path):
    for M, block in ((1100, 33), (1200, 34)):
        open_store(tmp_path).put(record(M, block))
    Quarantine.of(tmp_path, task_and_key(1024)[1]).add(Trial(Config(BLOCK=33), Status.CRASH, error="it ended"))
    tune(scales, shape=(1024,), trials=2, cache_dir=tmp_path)
    assert tried(tmp_path) == [(Origin.DEFAULT, 1), (Origin.NEARBY, 34)]
