"""What a tune tells, through a record and back: a recalled result says all that the first one said."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import configs
from triton_ops import TensorSpec, operation
from triton_ops.cache import RECORDS, Key
from triton_ops.runner.results import metrics_of, record_of, result_from, result_json
from triton_ops.space import Config
from triton_ops.task.effort import PRESETS
from triton_ops.task.request import make_request
from triton_ops.trial import Measurement, Resources, Status, Trial, TuningResult, Work, totals

# Not in a record: every trial, with what is told of it. What was asked: whether it was recalled, and how long it took.
NOT_KEPT = {"trials", "all_results", "from_cache", "elapsed_s", "winner", "default"}


@operation(
    space={"BLOCK": [1, 2]},
    arguments=lambda N=64: {"x": TensorSpec((N,), "float32")},
    name="copies",
    work=lambda problem: Work(flops=64, bytes=512),
    device="cpu",
)
def copies(x, *, BLOCK):
    return x.clone()


REQUEST = make_request(copies)
KEY = Key.of(REQUEST.problem, {"source": "ab"}, REQUEST.device)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times_ms = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9).map(tuple)


@st.composite
def results(draw):
    """A result as a search gives it."""
    trials = tuple(
        Trial(config, Status.OK, Measurement(draw(times_ms), "host"), resources=draw(st.none() | st.just(Resources(8))))
        for config in draw(st.lists(configs(), min_size=1, max_size=3, unique=True))
    )
    winner, default = draw(st.sampled_from(trials)), draw(st.none() | st.sampled_from(trials))
    return TuningResult(
        best_config=dict(winner.config),
        metrics=metrics_of(winner.best_measurement, REQUEST.work, REQUEST.device),
        problem_size=REQUEST.problem.label,
        device=REQUEST.device.name,
        trials=trials,
        default=default,
        ties=tuple(trial.config for trial in trials),
        noise=draw(st.floats(0, 1)),
        speedup=draw(st.none() | st.floats(0.1, 10)),
        gain_interval=draw(st.none() | st.tuples(st.floats(0.1, 1), st.floats(1, 10))),
        confidence=draw(words),
        guard={"guarded": draw(st.booleans())},
        stopped=draw(st.sampled_from(["complete", "settled", "trials", "seconds"])),
        elapsed_s=draw(st.floats(0, 1e4)),
        place=draw(words),
        verified=draw(words),
        notes=tuple(draw(st.lists(words, max_size=2))),
        waited_s=draw(st.floats(0, 1e3)),
        mode="host",
        totals=totals(trials),
        run=draw(words),
        winner=winner,
    )


@given(results(), st.none() | words)
def test_a_recalled_result_says_all_that_the_first_one_said(first, reference):
    record = record_of(KEY, first, first.winner, PRESETS["quick"], space="", reference=reference)
    record = RECORDS.loads(RECORDS.dumps(record))
    again = result_from(record, REQUEST, 0.5)
    for field in fields(TuningResult):
        if field.name not in NOT_KEPT:
            assert getattr(again, field.name) == getattr(first, field.name), field.name
    assert (again.from_cache, again.elapsed_s, again.trials, again.all_results) == (True, 0.5, (), [])
    for before, after in ((first.winner, again.winner), (first.default, again.default)):
        assert (before is None) == (after is None)
        if before is not None:
            assert (after.config, after.median_ms) == (before.config, before.median_ms)
            found, kept = after.best_measurement, before.best_measurement
            assert (found.mode, found.samples_ms) == (kept.mode, (kept.p20_ms, kept.median_ms, kept.p80_ms))
    assert again.winner.resources == first.winner.resources
    assert record.verified.reference == reference


@given(results())
def test_the_json_of_a_recalled_result_is_that_of_the_first_one(first):
    record = record_of(KEY, first, first.winner, PRESETS["quick"], space="")
    again = result_json(replace(result_from(record, REQUEST, first.elapsed_s), from_cache=False))
    assert again == result_json(first)


def test_a_default_that_failed_is_not_recalled():
    winner = Trial(Config(BLOCK=1), Status.OK, Measurement((1.0,), "host"))
    failed = Trial(Config(BLOCK=2), Status.RUNTIME, error="ValueError: no")
    first = TuningResult(
        {"BLOCK": 1}, metrics_of(winner.best_measurement, None, REQUEST.device), default=failed, mode="host"
    )
    record = record_of(KEY, first, winner, PRESETS["quick"], space="")
    assert result_from(record, REQUEST, 0.0).default is None
