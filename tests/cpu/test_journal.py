"""The journal: what is written comes back, and nothing that is damaged does harm."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_ops import Config, JournalError, Measurement, Status, Trial
from triton_ops.history.journal import Journal
from triton_ops.trial import Resources

VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=5))
CONFIGS = st.dictionaries(st.text(min_size=1, max_size=6), st.one_of(VALUES, st.tuples(VALUES, VALUES)), min_size=1)
SAMPLES = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=5).map(tuple)
MEASUREMENTS = st.builds(Measurement, SAMPLES, st.sampled_from(["host", "event-cold"]))
RESOURCES = st.none() | st.builds(Resources, st.integers(0, 255), st.integers(0, 9), st.integers(0, 9), st.none())
GOOD = st.builds(
    lambda config, found, resources, final: Trial(Config(config), Status.OK, found, resources=resources, final=final),
    CONFIGS, MEASUREMENTS, RESOURCES, st.none() | MEASUREMENTS,
)  # fmt: skip
FAILED = st.builds(
    lambda config, status, error: Trial(Config(config), status, error=error),
    CONFIGS, st.sampled_from([s for s in Status if s is not Status.OK]), st.text(max_size=40),
)  # fmt: skip


def journal(path):
    return Journal(path / "run.jsonl", "key")


@settings(max_examples=60)
@given(trials=st.lists(st.one_of(GOOD, FAILED), max_size=6, unique_by=lambda trial: trial.config))
def test_trials_come_back(tmp_path_factory, trials):
    path = tmp_path_factory.mktemp("journal")
    written = journal(path)
    written.begin(search="random")
    for trial in trials:
        written.add(trial)
    assert journal(path).unfinished() == trials


def a_trial(n: int) -> Trial:
    return Trial(Config(n=n), Status.OK, Measurement((1.0,), "host"))


def test_a_run_that_ended_is_not_gone_on_with(tmp_path):
    written = journal(tmp_path)
    written.begin()
    written.add(a_trial(1))
    written.end("complete")
    assert journal(tmp_path).unfinished() == []
    written.begin()
    written.add(a_trial(2))
    assert journal(tmp_path).unfinished() == [a_trial(2)]


@pytest.mark.parametrize("keep", range(1, 60, 7))
def test_a_torn_last_line_is_ignored_and_written_over(tmp_path, keep):
    written = journal(tmp_path)
    written.begin()
    written.add(a_trial(1))
    line = json.dumps({"type": "trial", "config": {"n": 2}, "status": "ok"})
    with (tmp_path / "run.jsonl").open("a") as file:
        file.write(line[:keep])
    assert journal(tmp_path).unfinished() == [a_trial(1)]
    journal(tmp_path).add(a_trial(3))
    assert journal(tmp_path).unfinished() == [a_trial(1), a_trial(3)]


@pytest.mark.parametrize(
    "line",
    [
        "not json", "[]", "[" * 100_000, '{"type": "trial"}', '{"type": "?"}',
        '{"type": "trial", "config": {"n": 1}, "status": "fast"}',
        '{"type": "trial", "config": {"n": 9e999}, "status": "ok"}',
        '{"type": "trial", "config": [1], "status": "ok"}',
    ],
    ids=lambda line: line[:60],
)  # fmt: skip
def test_a_bad_line_is_a_warning(tmp_path, caplog, line):
    journal(tmp_path).begin()
    with (tmp_path / "run.jsonl").open("a") as file:
        file.write(line + "\n")
    journal(tmp_path).add(a_trial(1))
    with caplog.at_level(logging.WARNING, "triton_ops"):
        assert journal(tmp_path).unfinished() == [a_trial(1)]
    assert "left out" in caplog.text


def test_another_keys_journal_is_refused(tmp_path):
    Journal(tmp_path / "run.jsonl", "other").begin()
    with pytest.raises(JournalError, match="belongs to key other"):
        journal(tmp_path).unfinished()


def test_a_journal_that_cannot_be_written_is_said_once(tmp_path, caplog):
    broken = Journal(tmp_path / "no such folder" / "run.jsonl", "key")
    with caplog.at_level(logging.WARNING, "triton_ops"):
        broken.begin()
        broken.add(a_trial(1))
    assert caplog.text.count("cannot be resumed") == 1
