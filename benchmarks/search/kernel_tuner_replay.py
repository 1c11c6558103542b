"""Kernel Tuner's strategies on recorded spaces, by its own simulation mode; prints what `triton-ops replay` prints.

    python -m benchmarks.search.kernel_tuner_replay RECORDING... --seeds 25 --out results.json

Runs in an environment of its own (requirements.txt beside this file). Every run has a fresh Searchspace: one that is
used again remembers neighbours that were drawn before, and a later run profits from that. Every number of evaluations
is a run of its own, since several strategies plan by it. An evaluation is a distinct config of the space; those that
failed count. Neither `tune_kernel` nor a strategy is changed; only the cache file is parsed once instead of every time,
and watched.

`--out` is written after every recording and strategy, and what it holds already is not run again.
"""

from __future__ import annotations

import contextlib
import io
import random
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from kernel_tuner import interface, util
from kernel_tuner.searchspace import Searchspace

from benchmarks.search.recorded import best_ms, first_within, fraction, milliseconds, reach, read_cache, replayed, share

STRATEGIES = (
    "random_sample",
    "adaptive_tabu_greywolf",
    "hybrid_vndx",
    "genetic_algorithm",
    "pso",
    "firefly_algorithm",
    "diff_evo",
    "simulated_annealing",
    "basinhopping",
    "dual_annealing",
    "greedy_ils",
    "mls",
    "greedy_mls",
    "ordered_greedy_mls",
    "bayes_opt",
)  # all that run with the released package: skopt needs a second per evaluation, pyatf_strategies raise a TypeError
_FAILED = {
    "CompilationFailedConfig": util.CompilationFailedConfig,
    "InvalidConfig": util.InvalidConfig,
    "RuntimeFailedConfig": util.RuntimeFailedConfig,
}


class Watched(dict):  # type: ignore[type-arg]
    """A cache that notes which configs are looked up, in order."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.asked: dict[str, None] = {}

    def __getitem__(self, key: str) -> Any:
        self.asked.setdefault(key)
        return super().__getitem__(key)


def load(path: Path) -> dict[str, Any]:
    """A recording in Kernel Tuner's cache form, failures as its own errors."""
    content = read_cache(path)
    for row in content["cache"].values():
        if isinstance(row["time"], str):
            row["__error__"] = _FAILED.get(row["time"], util.RuntimeFailedConfig)()
    return content


def run(content: dict[str, Any], strategy: str, budget: int, seed: int) -> list[float]:
    """The times of the configs that one run evaluated, in order; infinite for those that failed."""
    random.seed(seed)
    np.random.seed(seed)
    watched = Watched(content["cache"])
    interface.Searchspace = lambda *_, **__: Searchspace(None, None, None, from_cache=content)  # a fresh one
    util.process_cache = lambda *_, **__: watched
    util.close_cache = lambda _: None
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interface.tune_kernel(
            content["kernel_name"], "", content["problem_size"], [], dict(content["tune_params"]),
            lang="CUDA", strategy=strategy, strategy_options={"max_fevals": budget}, simulation_mode=True,
            cache="watched.json", quiet=True, objective="time", objective_higher_is_better=False,
        )  # fmt: skip
    return [milliseconds(content["cache"][key]["time"]) for key in watched.asked][:budget]


def summary(path: Path, strategy: str, budgets: list[int], seeds: int) -> dict[str, Any]:
    """One strategy on one recording, in the form of `triton-ops replay --json`."""
    content = load(path)
    best = best_ms(content)
    shares: dict[str, list[float]] = {}
    first: dict[float, list[float]] = {0.05: [], 0.01: []}
    evaluated, start = 0, time.perf_counter()
    for budget in budgets:
        shares[str(budget)] = []
        for seed in range(seeds):
            times = run(content, strategy, budget, seed)
            evaluated += len(times)
            shares[str(budget)].append(fraction(best, times))
            if budget == budgets[-1]:
                for margin, counts in first.items():
                    counts.append(first_within(best, margin, times))
    return {
        "file": path.name,
        "search": f"kernel_tuner {strategy}",
        "seeds": seeds,
        "budgets": {budget: share(fractions) for budget, fractions in shares.items()},
        "to_5pct": reach(first[0.05]),
        "to_1pct": reach(first[0.01]),
        "overhead_ms": round((time.perf_counter() - start) * 1e3 / max(evaluated, 1), 3),
    }


if __name__ == "__main__":
    replayed(str(__doc__).splitlines()[0], STRATEGIES, STRATEGIES, "25,50,100,200", summary)
