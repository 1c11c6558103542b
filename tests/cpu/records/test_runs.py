"""The runs of a key: which run is resumed, which trials they hold together, and which are removed."""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import datetime, timedelta, timezone

import pytest

from tests.runs import KEY_ID, a_trial, begun
from triton_ops import tune
from triton_ops.base import Sealed
from triton_ops.records import Run, Runs
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.run_log import FinishedTrial as Tried
from triton_ops.records.run_log import Resumed, SpaceFacts
from triton_ops.records.runs import KEPT_ENDED
from triton_ops.records.store import open_store
from triton_ops.space import Config
from triton_ops.values import Status

SPACE = "f" * 32
DAY_S = 86_400


def run_id(day, minute=0):
    return f"202611{day:02}T10{minute:02}12000000-0123abcd"


def a_run(folder, name, *numbers, ended=True, **changes):
    """A run of the key with trials of the configs `numbers`."""
    log = begun(folder / "runs" / KEY_ID, id=name, **changes)
    for n in numbers:
        log.trial(a_trial(n), Origin.SEARCHER)
    if ended:
        log.ended("complete")
    return folder / "runs" / KEY_ID / f"{name}.jsonl"


def names(folder):
    return sorted(path.stem for path in (folder / "runs" / KEY_ID).glob("*.jsonl"))


class TestGoingOn:
    def test_a_run_that_ended_is_not_resumed(self, tmp_path):
        a_run(tmp_path, run_id(1), 1)
        assert Runs(tmp_path, KEY_ID).unfinished(SPACE) is None

    def test_the_newest_run_without_an_end_is_resumed(self, tmp_path):
        a_run(tmp_path, run_id(1), 1, ended=False)
        newest = a_run(tmp_path, run_id(2), 2, ended=False)
        a_run(tmp_path, run_id(3), 3)
        result = Runs(tmp_path, KEY_ID).unfinished(SPACE)
        assert result.path == newest
        assert list(result.trials) == [Config(n=2)]

    def test_a_run_in_another_space_is_not_resumed(self, tmp_path):
        a_run(tmp_path, run_id(1), 1, ended=False, space=SpaceFacts(fingerprint="0" * 32, tunables={"n": [1]}))
        assert Runs(tmp_path, KEY_ID).unfinished(SPACE) is None

    def test_a_run_of_another_key_is_not_resumed(self, tmp_path):
        a_run(tmp_path, run_id(1), 1, ended=False, key_id="0" * 32)
        assert Runs(tmp_path, KEY_ID).unfinished(SPACE) is None

    @pytest.mark.parametrize(
        ("changes", "space", "effort", "goes_on"),
        [
            ({}, "0" * 32, "quick", True),
            ({}, SPACE, "quick", False),
            ({}, "0" * 32, "thorough", False),
            ({"ended": False}, "0" * 32, "quick", False),
            ({"key_id": "0" * 32}, "0" * 32, "quick", False),
        ],
    )
    def test_the_newest_run_goes_on_in_another_space_with_the_same_effort_if_it_ended(
        self, tmp_path, changes, space, effort, goes_on
    ):
        a_run(tmp_path, run_id(1), 1)
        newest = a_run(tmp_path, run_id(2), 2, **changes)
        a_run(tmp_path, run_id(3))  # it has no trial
        result = Runs(tmp_path, KEY_ID).of_another_space(space, effort)
        assert (None if result is None else result.path) == (newest if goes_on else None)

    @pytest.mark.parametrize("text", ["", "torn", "not a run log\n", '{"type": "run", "schema_version": 99}\n'])
    def test_a_file_that_is_no_run_log_is_passed_over(self, tmp_path, caplog, text):
        older = a_run(tmp_path, run_id(1), 1, ended=False)
        other = older.with_name(f"{run_id(2)}.jsonl")
        other.write_text(text)
        with caplog.at_level(logging.WARNING, "triton_ops"):
            assert Runs(tmp_path, KEY_ID).unfinished(SPACE).path == older
        assert (str(other) in caplog.text) is text.endswith("\n")  # a writer that was killed at once is no news
        assert other.read_text() == text

    def test_without_a_folder_there_are_no_runs(self):
        runs = Runs(None, KEY_ID)
        assert runs.path("x") is None
        assert runs.unfinished(SPACE) is None
        assert runs.trials() == []
        runs.prune("")


class TestTrials:
    def test_trials_of_the_named_run_come_first_and_other_runs_add_missing_configs(self, tmp_path):
        a_run(tmp_path, run_id(1), 1, 2)
        a_run(tmp_path, run_id(2), 2, 3, ended=False)
        assert [trial.config["n"] for trial in Runs(tmp_path, KEY_ID).trials(run_id(1))] == [2, 3, 1]

    def test_runs_in_another_space_than_the_first_are_left_out(self, tmp_path):
        a_run(tmp_path, run_id(1), 1)
        a_run(tmp_path, run_id(2), 2, space=SpaceFacts(fingerprint="0" * 32, tunables={"n": [1, 2]}))
        assert [trial.config["n"] for trial in Runs(tmp_path, KEY_ID).trials(run_id(1))] == [1]


class TestPruning:
    def test_the_newest_ended_runs_and_the_named_one_are_kept(self, tmp_path):
        for day in range(1, 15):
            a_run(tmp_path, run_id(day))
        Runs(tmp_path, KEY_ID).prune(run_id(2))
        assert names(tmp_path) == [run_id(2), *(run_id(day) for day in range(15 - KEPT_ENDED, 15))]

    def test_unfinished_runs_are_kept_for_30_days(self, tmp_path):
        now_s = time.time()
        for day, age_days in ((1, 31), (2, 29)):
            path = a_run(tmp_path, run_id(day), ended=False)
            os.utime(path, (now_s - age_days * DAY_S,) * 2)
        Runs(tmp_path, KEY_ID).prune("", now_s)
        assert names(tmp_path) == [run_id(2)]

    def test_files_that_are_not_recognised_are_never_removed(self, tmp_path):
        for day in range(1, 2 + KEPT_ENDED):
            a_run(tmp_path, run_id(10 + day))
        folder = tmp_path / "runs" / KEY_ID
        end = json.dumps({"type": "end", "at_s": 1.0, "at": "", "stopped": "complete"}) + "\n"
        foreign = {
            "notes.jsonl": end,  # another name
            f"{run_id(1)}.jsonl": "mine\n" + end,  # no run log
            f"{run_id(2)}.jsonl": '{"type": "run", "schema_version": 99}\n' + end,  # newer
            f"{run_id(3)}.jsonl": (folder / f"{run_id(11)}.jsonl").read_text(),  # a copy under another name
        }
        for name, text in foreign.items():
            (folder / name).write_text(text)
            os.utime(folder / name, (0, 0))
        Runs(tmp_path, KEY_ID).prune("")
        assert {name: (folder / name).read_text() for name in foreign} == foreign
        assert not (folder / f"{run_id(11)}.jsonl").exists()


def test_ids_sort_by_time_and_differ():
    now = datetime(2026, 11, 22, 1, 2, 3, 4, tzinfo=timezone.utc)
    assert Runs.new_id(now).startswith("20261122T010203000004-")
    assert Runs.new_id(now) != Runs.new_id(now)
    assert Runs.new_id(now) < Runs.new_id(now + timedelta(microseconds=1))
    assert Runs.new_id(now.astimezone(timezone(timedelta(hours=14)))) < Runs.new_id(now + timedelta(seconds=1))


def stops(*, n):
    """A callable that is interrupted, as by Ctrl-C, at the config that the environment names."""
    if n == int(os.environ.get("STOP_AT", "0")):
        raise KeyboardInterrupt
    time.sleep(1e-4 * n)


def test_an_interrupted_force_keeps_all_earlier_trials_and_transfers_still_see_them(tmp_path, monkeypatch):
    def tuned():
        return tune(stops, space={"n": list(range(1, 9))}, cache_dir=tmp_path, search="exhaustive", force=True)

    tuned()
    (record,) = open_store(tmp_path)
    (first,) = tmp_path.glob("runs/*/*.jsonl")
    learned = Run.read(first)
    assert record.run == first.stem
    assert len(learned.trials) == 8

    monkeypatch.setenv("STOP_AT", str([*learned.trials][3]["n"]))
    assert tuned().stopped == "interrupted"
    (second,) = set(tmp_path.glob("runs/*/*.jsonl")) - {first}
    assert Run.read(second).end is None
    assert len(Run.read(second).trials) < 8
    assert Run.read(first) == learned
    assert {trial.config for trial in Runs(tmp_path, record.id).trials(record.run)} == learned.trials.keys()

    monkeypatch.delenv("STOP_AT")
    tuned()
    assert len(list(tmp_path.glob("runs/*/*.jsonl"))) == 2  # the interrupted run went on in its own file
    run = Run.read(second)
    tried = [event.trial.config["n"] for event in run.events if isinstance(event, Tried)]
    assert sorted(tried) == list(range(1, 9))  # none was done again
    assert [event.effort for event in run.events if isinstance(event, Resumed)] == ["quick"]
    (record,) = open_store(tmp_path)
    assert record.run == second.stem


def fails_or_stops(*, n):
    """A callable that fails where the environment says so, and is interrupted at its last config then."""
    if os.environ.get("FAILS"):
        if n == 4:
            raise KeyboardInterrupt
        raise ValueError("as the environment says")
    time.sleep(1e-4)


def test_failures_in_the_log_of_an_interrupted_run_make_no_tune_fail(tmp_path, monkeypatch):
    def tuned():
        return tune(fails_or_stops, space={"n": [1, 2, 3, 4]}, cache_dir=tmp_path, search="exhaustive")

    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(KeyboardInterrupt):
        tuned()
    (path,) = tmp_path.glob("runs/*/*.jsonl")
    assert [trial.status for trial in Run.read(path).trials.values()] == [Status.RUNTIME] * 3
    monkeypatch.delenv("FAILS")
    assert tuned().totals == {"ok": 4}


def test_a_failure_of_the_default_alone_is_not_believed(tmp_path, monkeypatch):
    path = unfinished_log(tmp_path, monkeypatch)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = []
    for line in lines:
        if line["type"] == "trial" and line["trial"]["config"] == {"n": 1}:
            line["trial"] |= {"status": "crash", "measurement": None, "error": "a lie", "relative": None}
        changed.append(json.dumps(Sealed({name: value for name, value in line.items() if name != Sealed.CHECKSUM})))
    path.write_text("\n".join(changed) + "\n")
    result = tune(stops, space={"n": [1, 2, 3, 4]}, cache_dir=tmp_path, search="exhaustive")
    assert result.notes[0] == "2 trials were taken over from an earlier run"
    assert result.totals == {"ok": 4}


def unfinished_log(folder, monkeypatch):
    """The log of a tune whose last config was interrupted."""
    monkeypatch.setenv("STOP_AT", "4")
    tune(stops, space={"n": [1, 2, 3, 4]}, cache_dir=folder, search="exhaustive")
    monkeypatch.delenv("STOP_AT")
    (path,) = folder.glob("runs/*/*.jsonl")
    return path


def test_a_log_describes_the_run_and_its_result(tmp_path):
    def waits(*, n):
        time.sleep(1e-4 * n)

    result = tune(waits, space={"n": [3, 1, 2, 40]}, cache_dir=tmp_path, seed=5)
    (path,) = tmp_path.glob("runs/*/*.jsonl")
    run = Run.read(path)
    assert run.head.id == path.stem
    assert run.head.key_id == path.parent.name
    assert run.head.space.tunables == {"n": [3, 1, 2, 40]}
    assert run.head.effort["name"] == "quick"
    assert run.head.seed == 5
    assert run.head.environment.versions["python"]
    tried = [event for event in run.events if isinstance(event, Tried)]
    assert tried[0].origin is Origin.DEFAULT
    assert {event.origin for event in tried[1:]} == {Origin.SEARCHER}
    assert run.trials == {trial.config: trial for trial in result.trials}
    assert run.end.record == next(iter(open_store(tmp_path)))
    assert all(trial.status is Status.OK for trial in run.trials.values())


def test_the_log_distinguishes_the_incumbent_from_configs_of_the_searcher(tmp_path):
    def waits(*, n):
        time.sleep(1e-4 * n)

    space = {"n": [30, 1, 20]}  # so far apart that no other program's work makes them equal
    best = tune(waits, space=space, cache_dir=tmp_path).best_config
    tune(waits, space=space, cache_dir=tmp_path, force=True)
    newest = max(tmp_path.glob("runs/*/*.jsonl"))
    origins = {e.trial.config["n"]: e.origin for e in Run.read(newest).events if isinstance(e, Tried)}
    assert best == {"n": 1}
    assert origins == {30: Origin.DEFAULT, 1: Origin.INCUMBENT, 20: Origin.SEARCHER}
