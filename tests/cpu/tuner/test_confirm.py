"""The tied configs of a tune, compared again in fresh processes."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace
from itertools import product

import pytest
import torch

from tests.runs import begun
from triton_ops import Config, FunctionKernel, operation, tune
from triton_ops.evaluation import Assignment, FinalRequest, Stations
from triton_ops.evaluation.station import Inline
from triton_ops.records import Finalist, Run
from triton_ops.records.run_log import Twins
from triton_ops.request import Effort, TuneOptions, TuneProblem
from triton_ops.timing import RacePolicy
from triton_ops.tuner.tuning import log_comparison
from triton_ops.values import Status


@operation(name="sleep", space={"delay_us": [300, 600, 601]}, arguments=lambda: {}, device="cpu")
def sleep(*, delay_us):
    time.sleep(delay_us * 1e-6)


def compared(target, args=(), processes=1, **kwargs):
    """The last comparison of a whole space in this process, and the arguments with which it is confirmed."""
    task = TuneProblem(target=target, args=args, **kwargs).request().checked()
    effort = replace(Effort.named("quick"), processes=processes, near=10.0)
    assignment = Assignment.of(task, TuneOptions(effort=effort), None)
    station = Inline(assignment)
    trials = tuple(station.attempt(config, None) for config in task.space)
    race = RacePolicy(checkpoints=(8,), seconds=20.0)  # no arm is dropped early, so any two configs may be called tied
    final = FinalRequest(trials=trials, default=task.space.default_config, race=race)
    return station.finals(final), assignment, final, station.facts.mode


@pytest.mark.processes
def test_fresh_processes_tell_tied_configs_apart_where_they_can_and_the_run_log_has_their_rounds(tmp_path):
    outcome, assignment, final, mode = compared(sleep, processes=2)
    doubtful = replace(outcome, ties=(Config(delay_us=600), Config(delay_us=300)))
    result = Stations(problem=assignment).confirm(doubtful, assignment, final, mode)
    assert result.winner.config == Config(delay_us=300)
    assert result.ties == (Config(delay_us=300),)
    log = begun(tmp_path)
    log_comparison(log, result)
    run = Run.read(tmp_path / f"{log.id}.jsonl")
    rounds = {
        (event.process, event.trial.config["delay_us"]): event.trial.final.rounds
        for event in run.events
        if isinstance(event, Finalist)
    }
    assert rounds == {(0, 300): 8, (0, 600): 8, (0, 601): 8, **dict.fromkeys(product((1, 2), (300, 600)), 32)}
    assert [event.process for event in run.events if isinstance(event, Twins)] == [0, 1, 2]
    assert run.trials == {trial.config: trial for trial in result.trials}


def test_a_single_leader_is_not_compared_again():
    outcome, assignment, final, mode = compared(sleep)
    alone = replace(outcome, ties=outcome.ties[:1])
    assert Stations(problem=assignment).confirm(alone, assignment, final, mode) is alone


@pytest.mark.processes
def test_a_kernel_that_writes_what_it_reads_is_confirmed_with_its_arguments_restored():
    home = os.getpid()

    def adds(x, *, chunk):
        if os.getpid() != home:
            assert x[0].item() == 1.0, "the arguments were not restored"
        for part in x.split(chunk):
            part.add_(1)

    outcome, assignment, final, mode = compared(FunctionKernel(adds), (torch.ones(64),), space={"chunk": [64, 63, 62]})
    tied = replace(outcome, ties=tuple(trial.config for trial in final.trials))
    result = Stations(problem=assignment).confirm(tied, assignment, final, mode)
    assert result.winner is not None
    assert all(trial.ok for trial in result.trials), [trial.error for trial in result.trials]


@pytest.mark.processes
def test_a_config_that_is_wrong_in_a_fresh_process_is_no_longer_tied():
    home = os.getpid()

    def doubles(x, *, n):
        time.sleep(0.0005 if n == 2 else 0.001)  # the fastest arm is never dropped, so its results are checked
        return x * (3 if n == 2 and os.getpid() != home else 2)

    outcome, assignment, final, mode = compared(
        FunctionKernel(doubles), (64.0,), space={"n": [1, 2, 3]}, reference=lambda x: x * 2, device="cpu"
    )
    tied = replace(outcome, ties=(Config(n=2), Config(n=1)), winner=outcome.trials[1])
    result = Stations(problem=assignment).confirm(tied, assignment, final, mode)
    assert result.winner.config == Config(n=1)
    assert {trial.config: trial.status for trial in result.trials}[Config(n=2)] is Status.WRONG


@pytest.mark.processes
def test_a_slower_config_that_is_wrong_in_a_fresh_process_is_found_too():
    home = os.getpid()

    def doubles(x, *, n):
        time.sleep(0.0005 if n == 2 else 0.001)
        return x * (3 if n == 1 and os.getpid() != home else 2)

    outcome, assignment, final, mode = compared(
        FunctionKernel(doubles), (64.0,), space={"n": [1, 2]}, reference=lambda x: x * 2, device="cpu"
    )
    tied = replace(outcome, ties=(Config(n=2), Config(n=1)), winner=outcome.trials[1])
    result = Stations(problem=assignment).confirm(tied, assignment, final, mode)
    assert {trial.config: trial.status for trial in result.trials}[Config(n=1)] is Status.WRONG
    assert result.ties == (Config(n=2),)


@pytest.mark.processes
def test_a_process_that_fails_is_left_out_with_a_warning(caplog):
    home = os.getpid()

    def dies(*, n):
        time.sleep(1e-3)
        if os.getpid() != home:
            os.abort()

    outcome, assignment, final, mode = compared(dies, space={"n": [1, 2]})
    tied = replace(outcome, ties=(Config(n=1), Config(n=2)))
    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = Stations(problem=assignment).confirm(tied, assignment, final, mode)
    assert result.winner is None or result.winner.config in tied.ties
    assert caplog.text


def test_a_kernel_that_exists_in_this_process_only_is_not_confirmed_and_a_warning_says_so(caplog):
    held = threading.Lock()

    def locked(*, n):
        with held:
            time.sleep(1e-3)

    outcome, assignment, final, mode = compared(locked, space={"n": [1, 2]}, device="cpu")
    tied = replace(outcome, ties=(Config(n=1), Config(n=2)))
    with caplog.at_level(logging.WARNING, "triton_ops"):
        assert Stations(problem=assignment).confirm(tied, assignment, final, mode) is tied
    assert "are not confirmed in further processes" in caplog.text


@pytest.mark.processes
def test_the_default_stays_where_a_confirmed_tie_holds(caplog):
    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = tune(sleep, space={"delay_us": [600, 601]}, effort="exhaustive")
    assert result.best_config == {"delay_us": 600}
    assert Config(delay_us=600) in result.ties
    assert caplog.text == ""


def test_no_confirmation_is_asked_for_by_an_effort_without_processes():
    outcome, assignment, final, mode = compared(sleep, processes=0)
    assert Stations(problem=assignment).confirm(outcome, assignment, final, mode) is outcome
