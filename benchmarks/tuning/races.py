"""What do a race of the model's five first picks, and its first pick alone, find beside a whole tune?

    python -m benchmarks.tuning.races --limit-s 240 --out benchmarks/results/nvidia-h100-80gb-hbm3/races.json
    python -m benchmarks.tuning.races --only attention_backward layer_norm_backward --out OUT.json
    python -m benchmarks.tuning.races --fresh --limit-s 540 --out OUT.json

Each of the 30 problems of `many_problems`, or of the `fresh_spaces`, is tuned with the efforts `expected`, `race` and
`quick`, each with an empty folder of records, without the winners that packages bring, and in a process whose worker
has started. The winner of the race then runs beside that of the whole tune and beside the default: `share` is its speed
over that of the tune's winner, `over_default` over the default's, each with the 95 % interval of the paired rounds. So
does what the effort `expected` runs: `spoke` says whether the model was sure, `why` why not; where it was not, the
default runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.many.many_problems import problems
from benchmarks.model import fresh_spaces
from triton_ops import Operation, TuneProblem, TuningResult, compare, tune
from triton_ops.device import probe
from triton_ops.exceptions import TritonKernelError, UntunedError
from triton_ops.records.lockfile import FollowedLockfile
from triton_ops.space import Config
from triton_ops.tuner import Silent

_PAIR_S = 0.6  # of each comparison


def tuned(problem: TuneProblem, effort: str) -> TuningResult:
    """The result of a tune from nothing."""
    FollowedLockfile.SHARED.clear()
    with tempfile.TemporaryDirectory() as folder:
        return tune(
            problem.target, shape=problem.shape, dtype=problem.dtype, effort=effort, cache_dir=folder,
            transfer=False, listener=Silent(),
        )  # fmt: skip


def beside(problem: TuneProblem, config: Config, other: Config) -> dict[str, Any]:
    """The speed of a config over that of another, with its interval; 1 for the same config."""
    if config == other:
        return {"speed": 1.0, "interval": [1.0, 1.0]}
    target = problem.target
    assert isinstance(target, Operation)
    shape = None if problem.shape is None else tuple(problem.shape)
    arguments = target.materialise(target.problem(shape, problem.dtype), "cuda").keyword
    verdict = compare((target, config), (target, other), kwargs=arguments, seconds=_PAIR_S)
    return {"speed": _speed(verdict.percent), "interval": [_speed(each) for each in verdict.interval]}


def _speed(percent: float) -> float:
    return 1 + percent / 100 if percent >= 0 else 1 / (1 - percent / 100)


def expected(problem: TuneProblem) -> dict[str, Any]:
    """The config that the effort `expected` runs; none where no model was sure."""
    start = time.monotonic()
    try:
        result = tuned(problem, "expected")
    except UntunedError as error:
        return {"spoke": False, "why": error.message, "seconds": time.monotonic() - start, "winner": None}
    return {
        "spoke": True, "why": " and ".join(result.ordered_by), "seconds": time.monotonic() - start,
        "winner": dict(result.best_config), "pick": [dict(trial.config) for trial in result.trials][-1],
    }  # fmt: skip


def row(problem: TuneProblem) -> dict[str, Any]:
    """The tunes of a problem, and what the winners of the shorter ones are worth."""
    first = expected(problem)
    start = time.monotonic()
    race = tuned(problem, "race")
    race_s = time.monotonic() - start
    whole = tuned(problem, "quick")
    winner, best = Config(race.best_config), Config(whole.best_config)
    default = whole.default.config if whole.default is not None else winner
    runs = default if first["winner"] is None else Config(first["winner"])
    shares = {config: beside(problem, config, best) for config in {winner, runs}}
    gains = {config: beside(problem, config, default) for config in {winner, runs}}
    return {
        "race_s": race_s, "whole_s": whole.elapsed_s, "trials": len(race.trials), "winner": dict(winner),
        "whole_winner": dict(best), "ordered_by": race.ordered_by, "share": shares[winner],
        "over_default": gains[winner],
        "expected": {**first, "share": shares[runs], "over_default": gains[runs]},
    }  # fmt: skip


def summary_of(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The figures of all problems."""
    shares = [each["share"]["speed"] for each in rows.values()]
    spoken = {name: each["expected"] for name, each in rows.items() if each["expected"]["spoke"]}
    return {
        "problems": len(rows), "mean_share": statistics.mean(shares), "worst_share": min(shares),
        "median_race_s": statistics.median(each["race_s"] for each in rows.values()),
        "longest_race_s": max(each["race_s"] for each in rows.values()),
        "slower_than_default": [name for name, each in rows.items() if each["over_default"]["interval"][1] < 1],
        "expected": {
            "spoke": len(spoken), "gains": sum(each["over_default"]["interval"][0] > 1 for each in spoken.values()),
            "mean_share": statistics.mean(each["expected"]["share"]["speed"] for each in rows.values()),
            "mean_share_where_it_spoke": statistics.mean([each["share"]["speed"] for each in spoken.values()] or [1]),
            "worst_share_where_it_spoke": min((each["share"]["speed"] for each in spoken.values()), default=1),
            "median_s": statistics.median(each["expected"]["seconds"] for each in rows.values()),
            "slower_than_default": [name for name, each in spoken.items() if each["over_default"]["interval"][1] < 1],
        },
    }  # fmt: skip


def fresh() -> dict[str, TuneProblem]:
    """The problems of `fresh_spaces`."""
    return {one.name: TuneProblem(target=one.operation, shape=one.shape, dtype=one.dtype)
            for one in fresh_spaces.SPACES}  # fmt: skip


def chosen(every: dict[str, TuneProblem], starts: list[str] | None) -> dict[str, TuneProblem]:
    """The problems whose names begin with the words, in the order of these; all without words."""
    return {name: every[name] for start in starts or [""] for name in every if name.startswith(start)}


def main() -> int:
    """Measure until the limit, and write one JSON file; the exit code is 1 if what runs is slower than a default.

    The file is written after each problem; one that fails is told, and left out.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=240.0, help="begin with no problem after so many seconds")
    parser.add_argument("--fresh", action="store_true", help="the problems of the fresh spaces")
    parser.add_argument("--only", nargs="+", help="begin with these words the problems that are run, in their order")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", help="of the tree that the script stands in, where that is no clone")
    options = parser.parse_args()
    end, rows, summary = time.monotonic() + options.limit_s, {}, {}
    every = fresh() if options.fresh else problems()
    command = f"python -m benchmarks.tuning.races{' --fresh' if options.fresh else ''}"
    first, *_ = every.values()
    tuned(first, "race")  # starts the processes
    for name, problem in chosen(every, options.only).items():
        if time.monotonic() < end:
            try:
                rows[name] = row(problem)
            except TritonKernelError:
                traceback.print_exc()
                continue
            print(name, json.dumps({what: rows[name][what] for what in ("race_s", "share", "expected")}), flush=True)
            summary = summary_of(rows)
            save(options.out, headed(command, options.commit, device=probe("cuda").name, summary=summary,
                                     problems=rows))  # fmt: skip
    print(json.dumps(summary, indent=1))
    return bool(summary["slower_than_default"] or summary["expected"]["slower_than_default"])


if __name__ == "__main__":
    sys.exit(main())
