"""What a live tune waits for: the seconds at which each of its steps begins and ends, and the tunes' medians.

    python -m benchmarks.tuning.time_line --runs 5
    python -m benchmarks.tuning.time_line --case "plain causal attention" --out /tmp/time_line.json
    python -m benchmarks.tuning.time_line --many --limit-s 150 --out /tmp/many.json

Each tune is a process of its own with empty caches, on the GPU; none begins after `--limit-s` seconds. The clock runs
from the call of `tune`, when torch and Triton are imported. `cpu_s` are the seconds that this process has worked by
then: where they grow between two trials, the search is thought about, or something is imported, while the GPU waits.

`--many` is one run over the 30 problems of `many_problems` with empty caches: for each problem the seconds of its
parts, the milliseconds between the steps of a trial that its worker tells of, the last of which are the capture and the
screening, and those from one trial to the next (`turn_ms`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch  # noqa: F401 - a caller has imported it

from benchmarks.many.many_problems import problems
from benchmarks.tuning.live_cases import CASES
from triton_ops import tune, tune_many
from triton_ops.compilation import pool
from triton_ops.evaluation import idle_worker, isolated
from triton_ops.processes import ForkServer, WorkerProcess
from triton_ops.processes.worker_process import StepStarted
from triton_ops.records.lockfile import FollowedLockfile
from triton_ops.tuner import Silent, loop, tuning
from triton_ops.tuner import priors as prior

_TRIALS = ", trials"  # in the name of a thread that tries configs for another one
STEPS: list[tuple[str, Any, str]] = [
    ("take an idle worker", idle_worker, "take"),
    ("start the worker", WorkerProcess, "__init__"),
    ("start the fork server", ForkServer, "__init__"),
    ("read the kernel", prior.Survey, "read"),
    ("make the searcher", tuning, "make_searcher"),
    ("first proposals", loop.TuningLoop, "prepare"),
    ("wait for the worker", isolated.Isolated, "load"),
    ("search", loop.TuningLoop, "run"),
    ("trial", isolated.Isolated, "attempt"),
    ("end the compilers", pool.CompilePool, "stop"),
    ("wait for the compilers' end", pool.CompilePool, "close"),
    ("last comparison", isolated.Isolated, "finals"),
    ("end the worker", isolated.Isolated, "close"),
    ("keep the record", tuning.Tuning, "_keep"),
]


class TimeLine:
    """Notes when steps begin and end, after the first call of `begin`."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.begin()

    def begin(self) -> None:
        """Set the clocks to 0."""
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def note(self, step: str, ends: bool) -> None:
        """A step begins or ends now."""
        wall_s, cpu_s = time.perf_counter() - self._wall_s, time.process_time() - self._cpu_s
        row = {"step": step, "ends": ends, "wall_s": round(wall_s, 4), "cpu_s": round(cpu_s, 3)}
        self.rows.append({**row, "thread": threading.current_thread().name})

    def watch(self, step: str, place: Any, name: str) -> None:
        """Note each call of a function of a module or class from now on."""
        original: Callable[..., Any] = getattr(getattr(place, name), "original", getattr(place, name))

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.note(step, ends=False)
            try:
                return original(*args, **kwargs)
            finally:
                self.note(step, ends=True)

        noted.original = original  # type: ignore[attr-defined]
        setattr(place, name, noted)  # in place of what an earlier time line has set there


def one(case: str) -> list[dict[str, Any]]:
    """The steps of one tune in this process."""
    line, target = TimeLine(), CASES[case]
    operation = target.load()
    for step in STEPS:
        line.watch(*step)
    line.begin()
    tune(operation, shape=target.shape, dtype=target.dtype, listener=Silent(), transfer=False)
    line.note("tune", ends=True)
    return line.rows


def many(limit_s: float) -> dict[str, Any]:
    """The parts of each tune of one run over the 30 problems, by the thread that tunes it."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(FollowedLockfile.SHARED, clear=True):
        os.environ |= {"TRITON_CACHE_DIR": f"{folder}/compiled", "TRITON_OPS_CACHE_DIR": f"{folder}/records"}
        line, targets = watched(), list(problems().values())
        done = tune_many(targets, budget_s=limit_s)
        line.note("all", ends=True)
    tunes = by(line.rows, lambda row: row["thread"].partition(_TRIALS)[0])
    return {"wall_s": line.rows[-1]["wall_s"], "totals": done.totals, "tunes": tunes}


def by(rows: Sequence[dict[str, Any]], whose: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """The parts of the rows of each that trials were made by."""
    owners = dict.fromkeys(whose(row) for row in rows if row["step"] == "trial")
    return {owner: parts([row for row in rows if whose(row) == owner]) for owner in owners}


def watched() -> TimeLine:
    """A time line that begins now; it notes all steps, and those that workers tell of."""
    line = TimeLine()
    for step, place, name in STEPS:
        line.watch(step, place, name)
    receive: Callable[..., Any] = getattr(WorkerProcess._answer, "original", WorkerProcess._answer)

    def received(*args: Any) -> Any:
        answer = receive(*args)
        if isinstance(answer, StepStarted):
            line.note(f"- {answer.step}", ends=False)
        return answer

    worker: Any = WorkerProcess
    received.original = receive  # type: ignore[attr-defined]
    worker._answer = received
    line.begin()
    return line


def parts(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The seconds of the parts of one tune, and the mean milliseconds between the steps of its trials."""
    begun: dict[str, float] = {}
    seconds: Counter[str] = Counter()
    trials: list[list[float]] = []
    for row in rows:
        step, wall_s = row["step"], row["wall_s"]
        if step == "trial" and not row["ends"]:
            trials.append([])
        if trials and (step.startswith("- ") or step == "trial") and "last comparison" not in begun:
            trials[-1].append(wall_s)
        if row["ends"] and step in begun:
            seconds[step] += wall_s - begun[step]
        elif not step.startswith("- "):
            begun[step] = wall_s
    shape = Counter(map(len, trials)).most_common(1)[0][0] if trials else 0
    gaps = [[b - a for a, b in pairwise(marks)] for marks in trials[1:] if len(marks) == shape]
    turns = [1e3 * (after[0] - before[-1]) for before, after in pairwise(trials)]
    return {
        "from_s": rows[0]["wall_s"], "to_s": rows[-1]["wall_s"], "trials": len(trials),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "first_trial_ms": [round(1e3 * (b - a), 1) for a, b in pairwise(trials[0])] if trials else [],
        "step_ms": [round(1e3 * statistics.mean(column), 2) for column in zip(*gaps, strict=True)],
        "turn_ms": {"median": round(statistics.median(turns), 2), "sum": round(sum(turns))} if turns else {},
    }  # fmt: skip


def in_a_process(case: str) -> list[dict[str, Any]]:
    """The same in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        caches = {"TRITON_CACHE_DIR": "triton", "TRITON_OPS_CACHE_DIR": "records", "XDG_CACHE_HOME": "home"}
        environment = {**os.environ, **{name: str(Path(folder) / part) for name, part in caches.items()}}
        command = [sys.executable, "-m", "benchmarks.tuning.time_line", "--case", case, "--inside", "--out", str(out)]
        subprocess.run(command, env=environment, check=True)
        rows: list[dict[str, Any]] = json.loads(out.read_text())
        return rows


def medians(runs: list[list[dict[str, Any]]]) -> list[tuple[str, float, float]]:
    """The step, with the number of its trial, and the medians of its seconds, of steps that every tune has."""
    marks: dict[str, list[tuple[float, float]]] = {}
    for noted in runs:
        turns: dict[str, int] = {}
        for row in noted:
            name = f"{row['step']} {'ends' if row['ends'] else 'begins'}"
            turns[name] = turns.get(name, 0) + 1
            numbered = f"{name} ({turns[name]})" if turns[name] > 1 or row["step"] == "trial" else name
            marks.setdefault(numbered, []).append((row["wall_s"], row["cpu_s"]))
    whole = {name: times for name, times in marks.items() if len(times) == len(runs)}
    rows = [
        (name, statistics.median(wall_s for wall_s, _ in times), statistics.median(cpu_s for _, cpu_s in times))
        for name, times in whole.items()
    ]
    return sorted(rows, key=lambda row: row[1])


def show(results: dict[str, Any]) -> None:
    """Print the parts of the tunes of some runs."""
    for name, run in results.items():
        for whose, part in run["tunes"].items():
            print(f"{part['to_s'] - part['from_s']:6.2f}  {whose}: {part['trials']} trials", part["seconds"])
            print("        ", part["first_trial_ms"], part["step_ms"], part["turn_ms"])
        print(f"{run['wall_s']:.2f} s, {name}", run.get("totals", ""))


def main() -> None:
    """Print the medians of some tunes, and write all rows if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="plain matmul of 960 configs", choices=list(CASES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=240.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--many", action="store_true", help="one run over the problems of `many_problems`")
    parser.add_argument("--inside", action="store_true", help="used by the script itself")
    options = parser.parse_args()
    if options.many:
        results = {"30 problems": many(options.limit_s)}
        if options.out is not None:
            options.out.write_text(json.dumps(results))
        show(results)
        return
    if options.inside:
        options.out.write_text(json.dumps(one(options.case)))
        return
    runs: list[list[dict[str, Any]]] = []
    end = time.monotonic() + options.limit_s
    while len(runs) < options.runs and time.monotonic() < end:
        runs.append(in_a_process(options.case))
        if options.out is not None:
            options.out.write_text(json.dumps({"case": options.case, "runs": runs}))
    print("wall_s   cpu_s")
    for name, wall_s, cpu_s in medians(runs):
        print(f"{wall_s:6.3f}  {cpu_s:6.3f}  {name}")


if __name__ == "__main__":
    main()
