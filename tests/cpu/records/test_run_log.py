"""The run log: events that are written can be read, and damaged lines do no harm."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import record
from tests.runs import ID, a_trial, begun, head
from tests.strategies import compiled, configs, examples, trials
from triton_ops import Config, RunLogError
from triton_ops.base import Sealed
from triton_ops.records import Finalist, Run, RunLog
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.run_log import RunEnd as End
from triton_ops.records.run_log import Twins, has_ended
from triton_ops.report.run_facts import Report
from triton_ops.values import Measurement

CONFIGS = configs()
RECORDS = st.builds(
    record,
    winner=CONFIGS,
    ties=st.lists(CONFIGS, max_size=2).map(tuple),
    noise=st.floats(0, 1),
    gain_interval=st.none() | st.tuples(st.floats(0, 9), st.floats(0, 9)),
    guard=st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    notes=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=2).map(tuple),
)


@examples(20)
@given(
    tried=st.lists(st.tuples(trials(), st.sampled_from(Origin)), max_size=5, unique_by=lambda given: given[0].config),
    seen=st.lists(compiled(of=CONFIGS), max_size=2),
    left=st.none() | RECORDS,
)
def test_events_that_are_written_can_be_read(tmp_path_factory, tried, seen, left):
    folder = tmp_path_factory.mktemp("runs")
    log = begun(folder)
    for one in seen:
        log.preview(one)
    for trial, origin in tried:
        log.trial(trial, origin)
    if tried:
        log.write(Finalist(at_s=1.0, trial=tried[0][0], dropped_at=4))
        log.write(Twins(at_s=1.0, config=tried[0][0].config, medians_ms=((1.0, 2.0), (1.5, 2.5))))
    log.ended("complete", left)
    run = Run.read(folder / f"{ID}.jsonl")
    assert run.head.id == log.id == ID
    assert run.head.space.default == Config(n=1, shape=(1, 2))
    assert list(run.trials.values()) == [trial for trial, _ in tried]
    assert [event.origin for event in run.events if hasattr(event, "origin")] == [origin for _, origin in tried]
    assert [event.compiled for event in run.events if hasattr(event, "compiled")] == seen
    assert run.end is not None
    assert run.end.record == left
    assert has_ended(run.path)


def test_the_times_of_a_resumed_run_continue_from_its_interruption(tmp_path):
    now = [100.0]
    path = tmp_path / f"{ID}.jsonl"
    log = RunLog(path, 95.0, clock=lambda: now[0])
    log.write(head(), durable=True)
    log.trial(a_trial(1), Origin.DEFAULT)
    now[0] = 5000.0
    again = RunLog(path, 4999.0, Run.read(path).at_s, clock=lambda: now[0])
    again.resume(effort="quick", searcher="random", seed=1)
    again.trial(a_trial(2), Origin.SEARCHER)
    assert [event.at_s for event in Run.read(path).events] == [5.0, 6.0, 6.0]
    assert Run.read(path).at_s == 6.0
    assert Run.read(path).end is None


def test_the_head_and_the_end_of_a_run_are_on_disk_and_its_trials_within_half_a_second(
    tmp_path, waits_for_the_disk, monkeypatch
):
    now, synced = [0.0], []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(now[0]))
    log = RunLog(tmp_path / f"{ID}.jsonl", clock=lambda: now[0])
    log.write(head(), durable=True)
    for n in range(1, 12):
        now[0] = n / 10
        log.trial(a_trial(n), Origin.SEARCHER)
    now[0] = 1.2
    log.ended("complete")
    assert synced == [0.0, 0.0, 0.5, 1.0, 1.2]  # the head with the name of its file


def test_the_best_so_far_can_be_plotted_from_the_log_alone(tmp_path):
    now = [0.0]
    log = RunLog(tmp_path / f"{ID}.jsonl", clock=lambda: now[0])
    log.write(head(), durable=True)
    for second, (n, ms) in enumerate([(1, 3.0), (2, 4.0), (3, 2.0), (1, 2.5)], 1):
        now[0] = float(second)
        log.trial(a_trial(n, ms), Origin.REPEATED if second == 4 else Origin.SEARCHER)
    best = Report(Run.read(tmp_path / f"{ID}.jsonl")).best_so_far
    assert [(at_s, trial.median_ms) for at_s, trial in best] == [(2.0, 4.0), (3.0, 2.0)]  # 3 ms was measured again


@pytest.mark.parametrize("keep", range(1, 60, 7))
def test_a_torn_last_line_is_ignored_and_the_next_line_starts_anew(tmp_path, keep):
    log = begun(tmp_path)
    log.trial(a_trial(1), Origin.DEFAULT)
    path = tmp_path / f"{ID}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps({"type": "end", "at_s": 0.1, "at": "", "stopped": "complete"})[:keep])
    assert list(Run.read(path).trials.values()) == [a_trial(1)]
    assert not has_ended(path)
    log.trial(a_trial(3), Origin.SEARCHER)
    assert list(Run.read(path).trials.values()) == [a_trial(1), a_trial(3)]


@pytest.mark.parametrize(
    "line",
    [
        "not json", "[]", "[" * 100_000, '{"type": "trial"}', '{"type": "?"}',
        '{"type": "trial", "at_s": 1, "origin": "searcher", "trial": {"config": {"n": 1}, "status": "fast"}}',
        '{"type": "trial", "at_s": 1, "origin": "searcher", "trial": {"config": {"n": 9e999}, "status": "wrong"}}',
        '{"type": "trial", "at_s": 1, "origin": "searcher", "trial": {"config": [1], "status": "wrong"}}',
        '{"type": "trial", "at_s": 1, "origin": "a whim", "trial": {"config": {"n": 1}, "status": "wrong"}}',
        '{"type": "end", "at_s": 1}',
    ],
    ids=lambda line: line[:90],
)  # fmt: skip
@pytest.mark.parametrize("with_checksum", [False, True], ids=["as it is", "with its checksum"])
def test_a_line_that_cannot_be_read_is_left_out_with_a_warning(tmp_path, caplog, line, with_checksum):
    log = begun(tmp_path)
    path = tmp_path / f"{ID}.jsonl"
    if with_checksum:
        with contextlib.suppress(ValueError, RecursionError, TypeError):  # else it is no object, and has no checksum
            line = json.dumps(Sealed(json.loads(line)))
    with path.open("a") as file:
        file.write(line + "\n")
    log.trial(a_trial(1), Origin.DEFAULT)
    with caplog.at_level(logging.WARNING, "triton_ops"):
        run = Run.read(path)
    assert list(run.trials.values()) == [a_trial(1)]
    assert run.end is None
    [warning] = caplog.records
    assert f"{path}: a line is ignored, so that its trials are run again (line 2: " in warning.getMessage()


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("", "is no run log"),
        ("[1]", "is no run log"),
        ('{"type": "trial"}', "is no run log"),
        ('{"type": "run", "schema_version": 1, "key": "c3554002fdf9807cb06aeb30fad1c2c0"}', "has schema version 1"),
        ('{"type": "run", "schema_version": 99}', "has schema version 99"),
        ('{"type": "run", "schema_version": 2, "id": 3}', "its first line: it has no checksum"),
    ],
    ids=lambda text: text[:60],
)
def test_a_file_that_is_no_run_log_of_this_version_is_refused(tmp_path, first, message):
    path = tmp_path / f"{ID}.jsonl"
    path.write_text(first + "\n")
    with pytest.raises(RunLogError, match=message):
        Run.read(path)


def test_a_folder_in_place_of_a_run_log_is_refused(tmp_path):
    with pytest.raises(RunLogError, match="cannot be read"):
        Run.read(tmp_path)


def test_a_log_that_cannot_be_written_causes_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    broken = RunLog(tmp_path / "file" / f"{ID}.jsonl")
    with caplog.at_level(logging.WARNING, "triton_ops"):
        broken.write(head(), durable=True)
        broken.trial(a_trial(1), Origin.DEFAULT)
    assert caplog.text.count("cannot be resumed") == 1


def test_a_run_without_a_file_has_no_id_and_writes_nothing():
    log = RunLog()
    log.write(head(), durable=True)
    log.trial(a_trial(1), Origin.DEFAULT)
    log.ended("complete")
    assert log.id == ""


def test_the_end_of_a_failed_run_has_no_winner(tmp_path):
    begun(tmp_path).ended("failed")
    end = Run.read(tmp_path / f"{ID}.jsonl").end
    assert end == End(at_s=end.at_s, at=end.at, stopped="failed")


def test_a_fresh_process_that_compares_a_finalist_again_does_not_change_its_trial(tmp_path):
    log, trial = begun(tmp_path), a_trial(1)
    slower = replace(trial, final=Measurement((9.0,), "event-cold"))
    log.trial(trial, Origin.DEFAULT)
    log.write(Finalist(at_s=1.0, trial=replace(trial, final=Measurement((2.0,), "event-cold"))))
    log.write(Finalist(at_s=2.0, trial=slower, process=1))
    assert Run.read(tmp_path / f"{ID}.jsonl").trials[trial.config].median_ms == 2.0
