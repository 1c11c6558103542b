"""What does a race of the model's five first picks and the default find in its second, beside a whole tune?

    python -m benchmarks.tuning.races --limit-s 240 --out benchmarks/results/nvidia-h100-80gb-hbm3/races.json

Each of the 30 problems of `many_problems` is tuned with the effort `race`, and then with `quick`, each with an empty
folder of records, without the winners that packages bring, and in a process whose worker has started. The winner of the
race then runs beside that of the whole tune and beside the default: `share` is its speed over that of the tune's
winner, `over_default` over the default's, each with the 95 % interval of the paired rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.many.many_problems import problems
from triton_ops import Operation, TuneProblem, TuningResult, compare, tune
from triton_ops.device import probe
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


def row(problem: TuneProblem) -> dict[str, Any]:
    """Both tunes of a problem, and what the winner of the race is worth."""
    start = time.monotonic()
    race = tuned(problem, "race")
    race_s = time.monotonic() - start
    whole = tuned(problem, "quick")
    winner = Config(race.best_config)
    default = whole.default.config if whole.default is not None else winner
    return {
        "race_s": race_s, "whole_s": whole.elapsed_s, "trials": len(race.trials), "winner": dict(winner),
        "whole_winner": dict(whole.best_config), "ordered_by": race.ordered_by,
        "share": beside(problem, winner, Config(whole.best_config)), "over_default": beside(problem, winner, default),
    }  # fmt: skip


def summary_of(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The figures of all problems."""
    shares = [each["share"]["speed"] for each in rows.values()]
    return {
        "problems": len(rows), "mean_share": statistics.mean(shares), "worst_share": min(shares),
        "median_race_s": statistics.median(each["race_s"] for each in rows.values()),
        "longest_race_s": max(each["race_s"] for each in rows.values()),
        "slower_than_default": [name for name, each in rows.items() if each["over_default"]["interval"][1] < 1],
    }  # fmt: skip


def main() -> int:
    """Measure until the limit, and write one JSON file; the exit code is 1 if a winner is slower than its default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=240.0, help="begin with no problem after so many seconds")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", help="of the tree that the script stands in, where that is no clone")
    options = parser.parse_args()
    end, rows = time.monotonic() + options.limit_s, {}
    first, *_ = problems().values()
    tuned(first, "race")  # starts the processes
    for name, problem in problems().items():
        if time.monotonic() < end:
            rows[name] = row(problem)
            print(
                name, json.dumps({what: rows[name][what] for what in ("race_s", "share", "over_default")}), flush=True
            )
    summary = summary_of(rows)
    save(options.out, headed("python -m benchmarks.tuning.races", options.commit, device=probe("cuda").name,
                             summary=summary, problems=rows))  # fmt: skip
    print(json.dumps(summary, indent=1))
    return bool(summary["slower_than_default"])


if __name__ == "__main__":
    sys.exit(main())
