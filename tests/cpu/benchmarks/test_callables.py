"""Recorded spaces of slow functions: they are those of the script, hold two passes, and are worth a search."""

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.search.callables import CASES
from benchmarks.search.record_callables import Measured, groups

from triton_ops_lab.recording import read_recording

RECORDINGS = Path(__file__).parents[3] / "benchmarks" / "recordings" / "callables"
of_each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@of_each_case
def test_a_recording_has_the_whole_space_with_the_default_first(case):
    recording = read_recording(RECORDINGS / f"{case.name}.json.gz")
    assert (recording.kernel, recording.problem) == (case.name, case.shape)
    assert set(recording.trials) == set(case.space)
    assert next(iter(recording.trials)) == case.space.default_config
    assert 100 <= len(recording.trials) <= 600


@of_each_case
def test_few_configs_of_a_recording_are_close_to_the_best(case):
    recording = read_recording(RECORDINGS / f"{case.name}.json.gz")
    times = [trial.median_ms for trial in recording.trials.values() if trial.ok]
    assert sum(ms <= 1.05 * recording.best_ms for ms in times) <= 0.2 * len(times)
    assert max(times) > 1.5 * recording.best_ms


@of_each_case
def test_a_recording_tells_where_it_was_made_and_has_two_passes(case):
    content = json.loads(gzip.decompress((RECORDINGS / f"{case.name}.json.gz").read_bytes()))
    assert {"gpu", "cpus", "date", "command", "commit", "python", "numpy"} <= content.keys()
    ran = [row for row in content["rows"] if row["status"] == "ok"]
    assert {(len(row["ms"]), len(row["final"])) for row in ran} == {(2, 1)}


def test_a_wrong_result_is_a_failure_and_is_not_timed():
    case = next(case for case in CASES if case.name == "numpy_softmax")
    measured, default = Measured(case), case.space.default_config
    measured.check(default)
    assert measured.failures == {}
    measured.expected = measured.expected + 1
    measured.check(default)
    assert measured.failures[default].startswith("wrong: ")


def test_spaces_have_cpus_of_their_own():
    assert groups([0]) == [[0]]
    several = groups(range(18))
    assert len(several) == 4
    assert len({cpu for group in several for cpu in group}) == 16
