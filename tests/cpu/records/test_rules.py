"""Rules of what is kept: which runs go, how misses add up, which files a store may replace, and in which order."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import record
from tests.runs import KEY_ID, a_trial, begun
from triton_ops.base import Sealed
from triton_ops.records import RECORDS, Run, Runs
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.misses import FILE, Miss, Misses, _together, flush_misses
from triton_ops.records.runs import KEPT_ENDED, KEPT_UNFINISHED_DAYS
from triton_ops.records.store import MemoryStore
from triton_ops.report.run_facts import Report
from triton_ops.values import Key


def run_id(number):
    return f"20261122T{number:012d}-0123abcd"


@pytest.fixture
def kept(tmp_path):
    """Writes runs of one key, ended or not, and gives the numbers of those that a rule keeps."""
    runs = Runs(tmp_path, KEY_ID)
    folder = tmp_path / Runs.FOLDER / KEY_ID
    folder.mkdir(parents=True)

    def keep(ended, unfinished=(), own="", now_s=None):
        for number in (*ended, *unfinished):
            log = begun(folder, id=run_id(number))
            log.trial(a_trial(number), Origin.DEFAULT)
            if number in ended:
                log.ended("complete", None)
        runs.prune(own, now_s)
        return sorted(int(path.stem[9:21]) for path in folder.iterdir())

    return keep


def test_the_newest_ended_runs_stay_and_that_which_the_record_names(kept):
    assert KEPT_ENDED == 8
    assert kept(range(8)) == list(range(8))
    assert kept(range(11), own=run_id(1)) == [1, *range(3, 11)]


def test_runs_that_did_not_end_stay_for_some_days_and_count_as_no_ended_ones(kept, tmp_path):
    assert kept(range(8), range(8, 12)) == list(range(12))
    newest_s = max(path.stat().st_mtime for path in tmp_path.rglob("*.jsonl"))
    day_s = 86_400
    assert kept((), (), now_s=newest_s + (KEPT_UNFINISHED_DAYS - 0.5) * day_s) == list(range(12))
    assert kept((), (), now_s=newest_s + (KEPT_UNFINISHED_DAYS + 0.5) * day_s) == list(range(8))


def test_a_run_of_another_key_and_what_is_no_run_stay(kept, tmp_path):
    folder = tmp_path / Runs.FOLDER / KEY_ID
    begun(folder, id=run_id(0), key_id="0" * 32).ended("complete", None)
    foreign = [folder / "notes.txt", folder / f"{run_id(99)}.jsonl"]
    for path in foreign:
        path.write_text("mine")
    for number in range(1, 12):
        begun(folder, id=run_id(number)).ended("complete", None)
    Runs(tmp_path, KEY_ID).prune("")
    left = {path.name for path in folder.iterdir()}
    assert left == {*(path.name for path in foreign), *(f"{run_id(number)}.jsonl" for number in (0, *range(4, 12)))}


def key(number):
    return Key(kernel="k", problem={"n": number}, identity={}, device={"name": "H200"}, cache_state="cold")


moments = st.integers(1, 9).map(lambda hour: f"2026-11-22T0{hour}:00:00+00:00")
misses = st.builds(
    Miss, key=st.integers(0, 2).map(key), count=st.integers(1, 9), expected_ms=st.none() | st.floats(0.1, 9),
    first=moments | st.just(""), last=moments,
)  # fmt: skip


@given(st.lists(misses, max_size=8))
def test_misses_of_one_problem_are_added_up(lines):
    together = {miss.key.id: miss for miss in _together(lines)}
    assert together.keys() == {line.key.id for line in lines}
    for key_id, miss in together.items():
        mine = [line for line in lines if line.key.id == key_id]
        assert miss.count == sum(line.count for line in mine)
        assert (miss.first, miss.last) == (
            min(line.first or line.last for line in mine),
            max(line.last for line in mine),
        )
        times = [line.expected_ms for line in mine if line.expected_ms is not None]
        assert miss.expected_ms == (times[-1] if times else None)


def test_misses_are_forgotten_by_their_keys_and_else_the_file_is_left_alone(tmp_path):
    noted = Misses(tmp_path)
    for number in (0, 1, 1, 2):
        noted.note(key(number))
    flush_misses()
    file = tmp_path / FILE
    before = file.stat().st_ino
    assert noted.forget([key(9).id]) == 0
    assert file.stat().st_ino == before
    assert noted.forget([key(0).id, key(2).id]) == 2
    assert [(miss.key.id, miss.count) for miss in noted.read()] == [(key(1).id, 2)]
    assert [miss.key.id for miss in noted.clear()] == [key(1).id]
    assert noted.read() == []


def test_a_store_in_memory_gives_its_values_in_the_order_of_their_ids():
    store = MemoryStore(RECORDS)
    records = [record(f"kernel {number}") for number in range(6)]
    for each in records:
        store.put(each)
    store.put(replace(records[0], created="2026-02-03T04:05:06+00:00"))
    ids = [each.id for each in store]
    assert ids == sorted(each.id for each in records)
    assert store.get(records[0].id).created == "2026-02-03T04:05:06+00:00"
    assert (store.remove(records[1].id), store.remove(records[1].id), store.clear(), [*store]) == (True, False, 5, [])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None), ({"schema_version": RECORDS.schema_version + 1}, "of a newer version of triton-ops"),
        ({"schema_version": RECORDS.schema_version - 1}, None),
        ({"kind": "another"}, "holds a value of kind 'another'"),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_or_a_newer_version_is_not_replaced(changes, reason):
    content = {name: value for name, value in json.loads(RECORDS.dumps(record())).items() if name != Sealed.CHECKSUM}
    protects = RECORDS.protects(json.dumps(Sealed({**content, **changes})))
    assert protects is None if reason is None else reason in protects


def test_the_best_so_far_follows_the_times_and_not_the_order_of_lines(tmp_path):
    log = begun(tmp_path)
    path = tmp_path / f"{Run.read(next(tmp_path.iterdir())).head.id}.jsonl"
    for number, ms in ((1, 3.0), (2, 5.0), (3, 2.0), (1, 1.0)):
        log.trial(a_trial(number, ms), Origin.SEARCHER)
    run = Run.read(path)
    best = Report(run).best_so_far
    assert [trial.config["n"] for _, trial in best][-1] == 1
    assert [at for at, _ in best] == sorted(at for at, _ in best)
    assert run.at_s == max(event.at_s for event in run.events)
