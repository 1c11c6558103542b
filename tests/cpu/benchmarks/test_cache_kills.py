"""The judge of `benchmarks/robustness/cache_kills.py` finds what is planted, and a small run of it finds nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.robustness.cache_kills import Notes, Verdict, judge

PROJECT = Path(__file__).parents[3]


def judged(tmp_path, *notes):
    """What is found in the notes of several workers; each note has its time first."""
    written = []
    for number, lines in enumerate(notes):
        written.append(Notes(tmp_path / str(number)))
        written[-1].path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    verdict = Verdict()
    judge(written, verdict)
    return dict(verdict.found)


SET = [[10, "set", 0, 1], [20, "was set", 0, 1]]
KILLED = [[30, "set", 0, 2], [40, "killed"]]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([*SET, [30, "got", 0, 1]], {}),
        ([*SET, [30, "got", 0, None]], {"lost": 1}),
        ([*SET, [30, "got", 0, 7]], {"stale": 1}),
        ([*SET, [30, "got", 0, -1]], {"torn": 1}),
        ([*SET, [30, "torn", "x is ignored"], [31, "error", "get: no"]], {"torn": 1, "error": 1}),
        ([*SET, *KILLED, [50, "got", 0, 1], [60, "got", 0, 1]], {}),
        ([*SET, *KILLED, [50, "got", 0, 2], [60, "got", 0, 1]], {"stale": 1}),
        ([*SET, *KILLED, [50, "got", 0, None]], {"lost": 1}),
        ([*KILLED, [50, "got", 0, 2]], {}),
        ([*KILLED, [50, "got", 0, None], [60, "got", 0, 2]], {"stale": 1}),
        ([*SET, [30, "clear"], [40, "cleared"], [50, "got", 0, None]], {}),
        ([*SET, [22, "clear"], [25, "cleared"], *KILLED, [50, "got", 0, None]], {}),
        ([*SET, [22, "clear"], [25, "cleared"], [30, "got", 0, None], [40, "got", 0, 1]], {"stale": 1}),
        ([[1, "clear"], [5, "cleared"], *SET, [50, "got", 0, None]], {"lost": 1}),
    ],
)
def test_each_answer_is_judged_by_what_was_noted(tmp_path, lines, found):
    assert judged(tmp_path, lines) == found


def test_a_clear_of_another_worker_explains_a_missing_entry(tmp_path):
    lines = [*SET, [30, "got", 0, None]]
    assert judged(tmp_path, lines, [[25, "clear"], [35, "killed"]]) == {}
    assert judged(tmp_path, lines, [[31, "clear"], [35, "cleared"]]) == {"lost": 1}


@pytest.mark.processes
def test_processes_that_are_killed_lose_and_tear_nothing():
    words = ["--processes", "3", "--ops", "15", "--kills", "25", "--seed", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.robustness.cache_kills", *words], cwd=PROJECT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
