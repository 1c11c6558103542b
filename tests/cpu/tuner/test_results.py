"""What a tune tells, through a record and back: a recalled result says all that the first one said."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import configs
from triton_ops import TensorSpec, operation, tune
from triton_ops.evaluation import Outcome, StationFacts
from triton_ops.evaluation.station import Inline
from triton_ops.records import RECORDS, Record
from triton_ops.request import TuneProblem
from triton_ops.request.effort import PRESETS
from triton_ops.space import Config
from triton_ops.timing import GuardSummary, Interval
from triton_ops.tuner.progress import record_of, result_of
from triton_ops.values import Key, Measurement, Resources, Status, Trial, TuningResult, Work

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


def expected_copy(x):
    return x.clone()


TASK = TuneProblem(target=copies).request().checked()
KEY = Key.of(TASK.problem, {"source": "ab"}, TASK.device)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times_ms = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9).map(tuple)


@st.composite
def outcomes(draw):
    """The outcome of a search with one to three trials; the default's trial, if there is one, has not failed."""
    trials = tuple(
        Trial(config, Status.OK, Measurement(draw(times_ms), "host"), resources=draw(st.none() | st.just(Resources(8))))
        for config in draw(st.lists(configs(), min_size=1, max_size=3, unique=True))
    )
    return Outcome(
        winner=draw(st.sampled_from(trials)),
        ties=tuple(trial.config for trial in trials),
        noise=draw(st.floats(0, 1)),
        gain=draw(st.none() | st.builds(Interval, st.floats(0.1, 10), st.floats(0.1, 1), st.floats(1, 10))),
        confidence=draw(words),
        trials=trials,
        guard=draw(st.none() | st.builds(GuardSummary, guarded=st.booleans(), reason=words)),
    )


FACTS = st.builds(
    StationFacts,
    against=words,
    place=words,
    notes=st.lists(words, max_size=2).map(tuple),
    waited_s=st.floats(0, 1e3),
)


def recorded(outcome, facts=None, task=TASK, default=None):
    """The record of a tune that ended with `outcome`."""
    default = outcome.trials[0].config if default is None else default
    return record_of(
        KEY,
        task,
        PRESETS["quick"],
        outcome,
        facts or StationFacts(),
        default=default,
        stopped="settled",
        elapsed_s=0.5,
        run="abc",
    )


@given(outcomes(), FACTS)
def test_a_recalled_result_says_all_that_the_first_one_said(outcome, facts):
    record = recorded(outcome, facts)
    first = result_of(record, TASK, 9.0, outcome.trials)
    again = result_of(RECORDS.loads(RECORDS.dumps(record)), TASK, 0.5)
    for field in fields(TuningResult):
        if field.name not in NOT_KEPT:
            assert getattr(again, field.name) == getattr(first, field.name), field.name
    assert (first.from_cache, first.trials, len(first.all_results)) == (False, outcome.trials, len(outcome.trials))
    assert (again.from_cache, again.elapsed_s, again.trials, again.all_results) == (True, 0.5, (), [])
    assert (first.winner, first.default) == (outcome.winner, outcome.trials[0])
    for before, after in ((first.winner, again.winner), (first.default, again.default)):
        assert (after.config, after.median_ms) == (before.config, before.median_ms)
        result, kept = after.best_measurement, before.best_measurement
        assert (result.mode, result.samples_ms) == (kept.mode, (kept.p20_ms, kept.median_ms, kept.p80_ms))
    assert again.winner.resources == first.winner.resources


@given(outcomes(), FACTS)
def test_the_json_of_a_recalled_result_is_that_of_the_first_one(outcome, facts):
    record = recorded(outcome, facts)
    first = result_of(record, TASK, 9.0, outcome.trials).as_json
    assert result_of(record, TASK, 9.0).as_json == {**first, "from_cache": True}


def test_a_default_that_failed_has_its_trial_in_the_first_result_and_none_in_a_recalled_one():
    winner = Trial(Config(BLOCK=1), Status.OK, Measurement((1.0,), "host"))
    failed = Trial(Config(BLOCK=2), Status.RUNTIME, error="ValueError: no")
    record = recorded(Outcome.of_screenings((winner, failed)), default=failed.config)
    assert result_of(record, TASK, 0.0, (winner, failed)).default == failed
    assert (record.default, result_of(record, TASK, 0.0).default) == (failed.config, None)


def test_a_record_names_the_reference_that_results_were_compared_with():
    outcome = Outcome.of_screenings((Trial(Config(BLOCK=1), Status.OK, Measurement((1.0,), "host")),))
    compared = replace(TASK, reference=expected_copy)
    assert recorded(outcome).verified.reference is None
    assert recorded(outcome, task=compared).verified.reference == compared.reference_fingerprint != ""


@pytest.mark.usefixtures("steady_clock")
def test_only_a_tune_that_goes_on_with_an_undecided_one_has_to_compare(tmp_path, monkeypatch):
    """The first one leaves the default where there is no time for a comparison; the next is to decide."""
    requests, finals = [], Inline.finals
    monkeypatch.setattr(Inline, "finals", lambda station, final: requests.append(final) or finals(station, final))
    asked = {"isolate": False, "cache_dir": tmp_path}
    with monkeypatch.context() as undecided:
        undecided.setattr(Outcome, "told", property(lambda _: False))
        tune(copies, **asked)
    tune(copies, **asked)
    tune(copies, shape=(65,), **asked)
    assert [final.anyway for final in requests] == [False, True, False]


def test_what_a_record_and_a_result_share_is_declared_once():
    """Each has its own form of the others: a config or its trial, a source of results or its words."""
    assert {*Record.__annotations__} & {*TuningResult.__annotations__} == {
        "winner", "default", "elapsed_s", "verified", "contents",
    }  # fmt: skip


@given(outcome=outcomes(), facts=FACTS)
def test_the_text_of_a_record_is_flat_and_begins_with_its_key(outcome, facts):
    """People read it from the top, and files of earlier versions have the same names."""
    content = RECORDS.encode(recorded(outcome, facts))
    assert [*content][:3] == ["key", "winner", "timing"]
    assert {"ties", "noise", "guard", "notes", "run"} <= content.keys()
