"""The prior knowledge of a tune: records of other problems with their run logs, and how to leave them out."""

import json
import shutil
from dataclasses import replace

import pytest

from triton_ops import tune
from triton_ops.backend import operation
from triton_ops.cost_model import FirstPick
from triton_ops.records import Runs
from triton_ops.records.store import open_store
from triton_ops.request import TuneProblem
from triton_ops.space import Config
from triton_ops.tuner import priors
from triton_ops.tuner.priors import coming_priors, transfers_to
from triton_ops.values import Key, TensorSpec

TIMES = {block: 0.2 + 0.4 * abs(block - 40) / 40 for block in range(1, 81)}


def arguments(M: int = 8):
    return {"x": TensorSpec((M,), "float32")}


@operation(space={"BLOCK": range(1, 81)}, arguments=arguments, name="waits", device="cpu")
def waits(x, *, BLOCK):
    import time

    time.sleep(TIMES[BLOCK] * 1e-3)


@pytest.fixture
def elsewhere(tmp_path):
    """A folder that holds a tune of another shape."""
    tune(waits, shape=(16,), trials=20, search="random", cache_dir=tmp_path)
    return tmp_path


def task_and_key(shape):
    task = TuneProblem(target=waits, shape=shape).request().checked()
    return task, Key.of(task.problem, task.kernel.identity, task.device)


def test_a_record_of_another_shape_brings_every_trial_of_its_run(elsewhere):
    task, key = task_and_key((8,))
    (record,) = open_store(elsewhere)
    trials = Runs(elsewhere, record.id).trials(record.run)
    assert len(trials) == 20
    (transfer,) = transfers_to(task, key, [record], elsewhere)
    assert len(transfer) == len(trials)
    assert transfer.score([record.winner])[0] <= 1.0 <= max(transfer.score([t.config for t in trials]))


def test_without_run_logs_winner_and_default_remain(elsewhere):
    task, key = task_and_key((8,))
    (record,) = open_store(elsewhere)
    shutil.rmtree(elsewhere / "runs")
    (transfer,) = transfers_to(task, key, [record], elsewhere)
    assert 1 <= len(transfer) <= 1 + len(record.ties) + 1
    assert transfer.score([record.winner, record.default])[0] <= 1.0


def test_records_of_the_same_problem_are_no_transfer(elsewhere):
    task, key = task_and_key((16,))
    assert transfers_to(task, key, open_store(elsewhere), elsewhere) == []


def test_kernels_that_cannot_be_told_apart_do_not_learn_from_each_other(elsewhere):
    task, key = task_and_key((8,))
    (record,) = open_store(elsewhere)
    unknown = {**key.identity, "unknown": "source: an open file"}
    assert transfers_to(task, replace(key, identity=unknown), [record], elsewhere) == []
    other = replace(record, key=replace(record.key, identity=unknown))
    assert transfers_to(task, key, [other], elsewhere) == []
    assert len(transfers_to(task, key, [other, record], elsewhere)) == 1


@pytest.mark.parametrize("transfer", [True, False])
def test_records_decide_what_is_tried_first_unless_they_are_switched_off(elsewhere, transfer):
    (record,) = open_store(elsewhere)
    task, key = task_and_key((8,))
    (prior,) = transfers_to(task, key, [record], elsewhere)
    praised = sorted(task.space, key=lambda config: prior.score([config])[0])[:8]
    result = tune(waits, shape=(8,), trials=2, cache_dir=elsewhere, transfer=transfer)
    tried = [trial.config for trial in result.trials]
    assert tried[0] == Config(BLOCK=1)  # the default
    assert (tried[1] in praised) is transfer
    assert result.ordered_by == (("records of other problems",) if transfer else ())
    assert json.loads(open_store(elsewhere).directory.path_of(result.record).read_text())["ordered_by"] == [
        *result.ordered_by
    ]


def test_a_function_without_declared_work_has_no_model(tmp_path):
    request = TuneProblem(target=waits, shape=(8,)).request().checked()
    assert coming_priors(request, tmp_path, None).result() == []


def test_what_a_model_picks_for_calls_is_tried_next_to_the_default_and_races_however_slow_it_was(monkeypatch, tmp_path):
    slow = Config(BLOCK=80)
    monkeypatch.setattr(priors, "_first_pick", lambda *_: FirstPick(slow, 1.0, 2.0))
    result = tune(waits, shape=(16,), trials=8, search="random", cache_dir=tmp_path)
    (record,) = open_store(tmp_path)
    run = Runs(tmp_path, record.id).run(record.run)
    assert list(run.trials)[:2] == [record.default, slow]
    assert slow in run.finalists
    assert result.best_config != slow
