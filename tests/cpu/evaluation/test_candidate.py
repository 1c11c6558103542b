"""Trials beside a baseline that fails: whose failure it is, and what the times are relative to."""

from __future__ import annotations

import logging
import math

import pytest
import torch

from triton_ops import Config, FunctionKernel
from triton_ops.backend import Arguments, ArgumentSet
from triton_ops.device import probe
from triton_ops.evaluation import Subject
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.evaluation.questions import StationStep
from triton_ops.timing import ScreenPolicy, SharedTimer
from triton_ops.values import Status

BASELINE, GOOD, BAD = (Config(n=n) for n in range(3))


@pytest.mark.parametrize("error", [ValueError("no longer"), SystemExit(3)])
def test_a_baseline_that_works_no_longer_is_not_blamed_on_the_others(steady_clock, caplog, error):
    broken = []

    def launch(x, *, n):
        if n == 2 or (n == 0 and broken):
            raise error
        return x

    kernel = FunctionKernel(launch)
    own = Subject(ArgumentSet(Arguments((torch.ones(4),)), ()))
    evaluator = Evaluator(
        kernel=kernel, subject=own, shared_timer=SharedTimer(probe("cpu"), "cpu"), policy=ScreenPolicy()
    )
    first = evaluator.attempt(BASELINE, None)
    broken.append(True)
    with caplog.at_level(logging.WARNING, "triton_ops"):
        trials = [evaluator.attempt(config, first) for config in (GOOD, BAD, Config(n=3))]
    assert [trial.status for trial in trials] == [Status.OK, Status.RUNTIME, Status.OK]
    assert trials[0].relative == pytest.approx(trials[0].median_ms / first.median_ms)
    assert caplog.text.count("config (n=0) worked before and does not now") == 1
    assert evaluator.attempt(BASELINE, first).status is Status.RUNTIME


def evaluator_of(launch, **more):
    own = Subject(ArgumentSet(Arguments((torch.ones(4),)), ()))
    return Evaluator(
        kernel=FunctionKernel(launch), subject=own, shared_timer=SharedTimer(probe("cpu"), "cpu"),
        policy=ScreenPolicy(), **more,
    )  # fmt: skip


@pytest.mark.parametrize("long_ms", [0.0, math.inf])
def test_a_launch_that_takes_long_is_a_sample_of_its_own_and_is_not_run_to_prepare_it(
    long_ms, steady_clock, monkeypatch
):
    calls = []
    monkeypatch.setattr("triton_ops.evaluation.evaluator._LONG_MS", long_ms)
    evaluator = evaluator_of(lambda x, *, n: calls.append(n) or x)
    assert evaluator.attempt(BASELINE, None).ok
    calls.clear()
    sampler = evaluator.sampler(BASELINE)
    assert bool(calls) is bool(long_ms)
    calls.clear()
    sampler.take(evaluator.shared_timer.timer, 1)
    assert len(calls) == sampler.launches


def test_each_step_of_a_trial_is_told_before_it_begins(steady_clock):
    steps = []

    def launch(x, *, n):
        steps.append("runs")
        return x

    evaluator = evaluator_of(launch, tell=steps.append)
    for config in (BASELINE, GOOD):
        steps.clear()
        assert evaluator.attempt(config, None).ok
        assert steps[: steps.index("runs")] == [StationStep.COMPILE, StationStep.LAUNCH]
        assert set(steps) == {StationStep.COMPILE, StationStep.LAUNCH, "runs"}
