"""Trials beside a baseline that fails: whose failure it is, and what the times are relative to."""

from __future__ import annotations

import logging

import pytest
import torch

from triton_ops import Config, FunctionKernel
from triton_ops.backend import Arguments, ArgumentSet
from triton_ops.device import probe
from triton_ops.evaluation import Subject
from triton_ops.evaluation.station import Evaluator
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
