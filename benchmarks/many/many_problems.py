"""30 problems of the shipped kernels as one run, by single tunes, graded against every config, and over several GPUs.

    python -m benchmarks.many.many_problems --parts many single fresh --out OUT.json
    python -m benchmarks.many.many_problems --parts graded --limit-s 540 --out OUT.json  again, until all rows are there
    python -m benchmarks.many.many_problems --parts gpus --gpus 2 --out OUT.json
    python -m benchmarks.many.many_problems --parts graded --share 1/2 --out ONE.json    a half of the rows, from a copy
    python -m benchmarks.many.many_problems --merge ONE.json TWO.json --out OUT.json

`many` is one call of `tune_many`, `single` one `tune` after the other in one process, which leaves its processes to the
next, and `fresh` the same with `release_processes` before each. Each begins with empty caches, of Triton too, in a
process of its own; the clock begins after the imports of torch and Triton. `graded` has every config of each problem
tried, and the best of them race against the winner of `many`, or of `gpus` on one, in one process. `gpus` is `many` on
one GPU and on several, in turn.

The file is written after every row. A part is ended where its seconds are over, and its rows stay: `graded` goes on
with the others at the next call.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton  # noqa: F401 - imported before the clock begins

import triton_ops_kernels as kernels
from benchmarks.document import headed, save
from benchmarks.many.many_seconds import seconds_by_device, timed_jobs
from benchmarks.tuning.spaces import operation_of
from triton_ops import Operation, TuneProblem, compare, release_processes, tune, tune_many
from triton_ops.device import probe
from triton_ops.many import ManyResult, ProblemOutcome, RunOptions, run_jobs, session
from triton_ops.records.lockfile import FollowedLockfile
from triton_ops.request import Budget, TuneOptions
from triton_ops.request.effort import PRESETS
from triton_ops.space import Config
from triton_ops.tuner import Silent

NAMED = {
    "attention": ("llama-8b-prefill", "llama-8b-decode", "qwen-0.5b-prefill", "whisper-large"),
    "attention_backward": ("qwen-0.5b-training",),
    "fp8_dequantize": ("deepseek-v3-weight", "llama-8b-by-token"),
    "fp8_quantize": ("deepseek-v3-prefill", "llama-8b-by-token"),
    "gated_mlp_backward": ("llama-8b-prefill", "qwen-7b-prefill"),
    "grouped_matmul": ("mixtral-8x7b-up-decode", "qwen3-30b-up-decode"),
    "layer_norm": ("falcon-40b-prefill", "gpt-2-training", "deepseek-indexer"),
    "layer_norm_backward": ("falcon-40b-prefill", "gpt-2-training"),
    "rmsnorm_rope": ("llama-8b-prefill", "llama-8b-decode", "qwen-7b-prefill"),
    "rmsnorm_rope_backward": ("llama-8b-prefill", "qwen-7b-prefill"),
    "softmax": ("attention-4096", "qwen-logits-prefill", "deepseek-router"),
    "softmax_backward": ("attention-4096", "deepseek-router"),
}
"""Kernels whose spaces can be tried whole, 17 to 411 configs; the plain matmul below has 480."""
PLAIN = ("4096", "llama-8b-prefill")
_PAIR_S = 2.0  # of the comparison of a winner with the best of all configs
_LAST_ROW_S = 40.0  # that a part may take longer than its limit, to end what it has begun
_WITHIN = 1.0  # percent
_PARTS = ("many", "single", "fresh", "graded", "gpus")
EVERY = replace(PRESETS["quick"], name="every", search="exhaustive", budget=Budget(), near=0.1, finalists=8, previews=0)


@functools.cache
def problems() -> dict[str, TuneProblem]:
    """The 30 problems by `kernel name`."""
    named = {
        f"{kernel} {name}": _named(kernels.load(kernel), kernels.load(kernel), name)
        for kernel, names in NAMED.items() for name in names
    }  # fmt: skip
    shipped = kernels.load("matmul")
    return {**named, **{f"matmul {name}": _named(shipped, operation_of("matmul"), name) for name in PLAIN}}


def _named(shipped: Operation, target: Operation, name: str) -> TuneProblem:
    shape, dtype = shipped.problems[name]
    return TuneProblem(target=target, shape=shape, dtype=dtype)


def main() -> int:
    """Run the parts that are asked for, and write their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=["many"])
    parser.add_argument("--gpus", type=int, default=2, help="how many GPUs the part `gpus` uses")
    parser.add_argument(
        "--limit-s", type=float, default=540.0, help="no row is begun after so many seconds of the call"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/many_problems.json"))
    parser.add_argument(
        "--cpus-per-gpu", type=int, help="each run of the part `gpus` has so many CPUs for each of its GPUs"
    )
    parser.add_argument("--commit")
    parser.add_argument("--ahead", type=int, default=session.AHEAD, help="problems prepared while one is measured")
    parser.add_argument("--share", default="1/1", help="which of the problems `graded` takes, such as 1/2")
    parser.add_argument(
        "--merge", type=Path, nargs="*", default=[], help="take the parts of these files in, and measure nothing"
    )
    parser.add_argument("--side", choices=_PARTS, help="used by the script itself")
    options = parser.parse_args()
    if options.merge:
        save(options.out, merged(*options.merge))
        print(*told_of(json.loads(options.out.read_text())), sep="\n")
        return 0
    if options.side:
        session.AHEAD = options.ahead
        # Nothing is known of the problems, as for a kernel that nobody has tuned.
        with patch.dict(FollowedLockfile.SHARED, clear=True):
            SIDES[options.side](options)
        return 0
    until = time.monotonic() + options.limit_s
    document = json.loads(options.out.read_text()) if options.out.is_file() else _begun(options)
    save(options.out, document)
    for part in options.parts:
        left_s = until - time.monotonic()
        if left_s > 0:
            _side(part, left_s, options)
    results = json.loads(options.out.read_text())
    print(*told_of(results), sep="\n")
    return 0


def merged(*paths: Path) -> dict[str, Any]:
    """One document of several: the parts of all, the latest of each, and of `graded` the rows of all.

    Each part says when and at which commit it was measured.
    """
    whole: dict[str, Any] = {}
    for path in paths:
        document = json.loads(path.read_text())
        for part in (set(_PARTS) - {"graded"}) & document.keys():
            document[part] = {"date": document["date"], "commit": document["commit"], **document[part]}
        rows = {**whole.get("graded", {}).get("rows", {}), **document.get("graded", {}).get("rows", {})}
        whole |= document
        if rows:
            whole["graded"] = grades_of(rows, len(document["problems"]))
    return whole


def winners_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """What one run on one GPU has found, by problem."""
    if "many" in document:
        return dict(document["many"]["rows"])
    return dict(document["gpus"]["rows"]["1 GPUs"]["problems"])


def grades_of(rows: Mapping[str, Any], of: int) -> dict[str, Any]:
    """How many winners are within 1 % of the best of all configs, with the rows."""
    within = sum(row["behind_percent"] <= _WITHIN for row in rows.values())
    return {"graded": len(rows), "of": of, "within": within, "rows": dict(rows)}


def told_of(document: Mapping[str, Any]) -> list[str]:
    """The figures in short."""
    lines = [
        f"{part}: {document[part]['wall_s']:.1f} s for {len(document[part]['rows'])} problems"
        for part in ("many", "single", "fresh")
        if "wall_s" in document.get(part, {})
    ]
    graded = document.get("graded", {})
    if graded:
        rows = graded["rows"].values()
        within = sum(row["behind_percent"] <= _WITHIN for row in rows)
        lines.append(f"graded: {within} of {len(rows)} winners within 1 % of the best of all configs")
    if "speedup" in document.get("gpus", {}):
        lines.append(f"gpus: {document['gpus']['speedup']:.2f} times as fast")
    return lines


def _begun(options: argparse.Namespace) -> dict[str, Any]:
    return headed(
        "python -m benchmarks.many.many_problems", options.commit, device=probe("cuda").name,
        cpus=len(os.sched_getaffinity(0)), problems=list(problems()),
    )  # fmt: skip


def _side(part: str, left_s: float, options: argparse.Namespace) -> None:
    """One part in a process of its own, with caches of its own that begin empty."""
    command = [
        sys.executable, "-m", "benchmarks.many.many_problems", "--side", part, "--out", str(options.out),
        "--limit-s", str(left_s), "--gpus", str(options.gpus), "--share", options.share, "--ahead", str(options.ahead),
        *(["--cpus-per-gpu", str(options.cpus_per_gpu)] if options.cpus_per_gpu else []),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NO_COLOR": "1", "TRITON_CACHE_DIR": f"{folder}/compiled"}
        environment["TRITON_OPS_CACHE_DIR"] = f"{folder}/records"
        try:
            done = subprocess.run(command, env=environment, timeout=left_s + _LAST_ROW_S, check=False)
        except subprocess.TimeoutExpired:
            print(f"the part {part} was ended: its last row took over {_LAST_ROW_S:.0f} s more", flush=True)
            return
    if done.returncode:
        raise SystemExit(f"the part {part} ended with {done.returncode}")


def _many(options: argparse.Namespace) -> None:
    """One call of `tune_many`."""
    rows, start = _Rows(options.out, "many"), _ready()
    result = tune_many(list(problems().values()), told=lambda outcome: rows.add(_label(outcome), _row(outcome)))
    rows.close(wall_s=time.monotonic() - start, stopped=result.stopped, totals=result.totals)


def _single(options: argparse.Namespace, *, fresh: bool = False) -> None:
    """One tune after the other."""
    rows, start = _Rows(options.out, "fresh" if fresh else "single"), _ready()
    released_s = 0.0
    for label, problem in problems().items():
        if time.monotonic() - start > options.limit_s:
            rows.close(stopped="limit")
            return
        if fresh:
            begun = time.monotonic()
            release_processes()
            released_s += time.monotonic() - begun
        begun = time.monotonic()
        result = tune(problem.target, shape=problem.shape, dtype=problem.dtype, listener=Silent())
        rows.add(label, {"wall_s": time.monotonic() - begun, **_of_result(result)})
    rows.close(wall_s=time.monotonic() - start - released_s, stopped="complete")


def _graded(options: argparse.Namespace) -> None:
    """Each winner of `many` against the best of all configs, in one process."""
    rows, start = _Rows(options.out, "graded", again=True), _ready()
    winners = winners_of(json.loads(options.out.read_text()))
    place, _, shares = options.share.partition("/")
    for label in list(problems())[int(place) - 1 :: int(shares)]:
        if label in rows.done or "best_config" not in winners.get(label, {}):
            continue
        if time.monotonic() - start > options.limit_s:
            break
        rows.add(label, _grade(problems()[label], Config(winners[label]["best_config"])))
        rows.close(**grades_of(rows.done, len(problems())))


def _grade(problem: TuneProblem, winner: Config) -> dict[str, Any]:
    """By how much the winner is slower than the best of all configs, by a race of the two."""
    begun = time.monotonic()
    target = problem.target
    assert isinstance(target, Operation)
    every = tune(target, shape=problem.shape, dtype=problem.dtype, effort=EVERY, listener=Silent(), transfer=False)
    best, behind, interval = Config(every.best_config), 0.0, None
    if winner != best:
        shape = None if problem.shape is None else tuple(problem.shape)
        arguments = target.materialise(target.problem(shape, problem.dtype), "cuda").keyword
        comparison = compare(
            (target, winner), (target, best), kwargs=arguments, names=("many", "every"), seconds=_PAIR_S
        )
        behind, interval = -comparison.percent, comparison.interval
    return {
        "behind_percent": behind, "interval": interval, "best": dict(best), "winner": dict(winner),
        "tried": every.totals, "wall_s": time.monotonic() - begun,
    }  # fmt: skip


def _gpus(options: argparse.Namespace) -> None:
    """The same run on one GPU and on several, each with empty caches, in turn."""
    _check_count(options.gpus)
    rows = _Rows(options.out, "gpus")
    walls: dict[int, float] = {}
    cpus = sorted(os.sched_getaffinity(0))
    for used in (1, options.gpus):
        usable = cpus[: used * (options.cpus_per_gpu or len(cpus))]
        os.sched_setaffinity(0, usable)
        start = _ready()
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRITON_CACHE_DIR"] = f"{folder}/compiled"
            result, seconds = _over(tuple(f"cuda:{at}" for at in range(used)), folder)
            walls[used] = time.monotonic() - start
        release_processes()
        rows.add(f"{used} GPUs", {
            "wall_s": walls[used], "cpus": len(usable), "totals": result.totals, "stopped": result.stopped,
            "seconds": seconds, "problems": {_label(each): _row(each) for each in result.outcomes},
        })  # fmt: skip
    whole = all(row["totals"] == {"tuned": len(problems())} for row in rows.done.values())
    rows.close(speedup=walls[1] / walls[options.gpus] if whole else None, stopped="complete" if whole else "failures")


def _check_count(least: int) -> None:
    count = torch.cuda.device_count()
    if count < least:
        raise SystemExit(f"there are {count} GPUs, and {least} were asked for")


def _over(devices: tuple[str, ...], folder: str) -> tuple[ManyResult, dict[str, Any]]:
    """A run on some GPUs, and where the seconds of each went."""
    common = RunOptions(each=TuneOptions(cache_dir=f"{folder}/records"), devices=devices)
    jobs = timed_jobs(session.jobs_of(problems().values(), common), f"{folder}/seconds")
    result = run_jobs(jobs, common, told=lambda _: None)
    return result, seconds_by_device(result.outcomes, f"{folder}/seconds")


def _ready() -> float:
    """The start of the clock, when this process has a context on the GPU."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    return time.monotonic()


def _label(outcome: ProblemOutcome) -> str:
    return next(label for label, problem in problems().items() if problem is outcome.problem)


def _row(outcome: ProblemOutcome) -> dict[str, Any]:
    row = {"status": outcome.status, "began_s": outcome.began_s, "ended_s": outcome.ended_s, "device": outcome.device}
    if outcome.error is not None:
        return {**row, "error": str(outcome.error)}
    return row if outcome.result is None else {**row, **_of_result(outcome.result)}


def _of_result(result: Any) -> dict[str, Any]:
    return {
        "best_config": dict(Config(result.best_config)), "median_ms": result.metrics.latency_ms, "gain": result.gain,
        "trials": len(result.trials), "totals": result.totals, "tune_s": result.elapsed_s, "waited_s": result.waited_s,
        "stopped": result.stopped, "place": result.place,
    }  # fmt: skip


class _Rows:
    """The rows of one part in the file, which is written after each."""

    def __init__(self, out: Path, part: str, *, again: bool = False) -> None:
        self._out, self._part = out, part
        document = json.loads(out.read_text())
        self.done: dict[str, Any] = document.get(part, {}).get("rows", {}) if again else {}

    def add(self, label: str, row: dict[str, Any]) -> None:
        """Write one row."""
        self.done[label] = row
        self.close()
        print(self._part, label, json.dumps({name: row.get(name) for name in _SHOWN if name in row}), flush=True)

    def close(self, **facts: Any) -> None:
        """Write what holds for the part as a whole."""
        document = json.loads(self._out.read_text())
        document[self._part] = {**facts, "rows": self.done}
        save(self._out, document)


_SHOWN = (
    "status", "wall_s", "began_s", "ended_s", "behind_percent", "trials", "waited_s", "error", "seconds",
)  # fmt: skip
SIDES: dict[str, Callable[[argparse.Namespace], None]] = {
    "many": _many,
    "single": _single,
    "fresh": lambda options: _single(options, fresh=True),
    "graded": _graded,
    "gpus": _gpus,
}


if __name__ == "__main__":
    sys.exit(main())
