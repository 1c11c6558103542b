"""Searches of Helion and strategies of Kernel Tuner on recorded spaces; prints what `triton-ops replay` prints.

    python -m benchmarks.search.peers helion RECORDING... --seeds 25 --out results.json
    python -m benchmarks.search.peers kernel_tuner RECORDING... --seeds 25 --out results.json

Each runs in an environment of its own: requirements-helion.txt and requirements.txt beside this file say how to make
them. An evaluation is a distinct config of the recording; those that failed there count.

A search of Helion is built as Helion builds it for a kernel that is not its own, and only what measures is replaced: it
answers from the recording, first measurement and every later one alike, without noise. Helion does not plan by a number
of evaluations, so one run gives the figures of all numbers: the best of its first 25 configs, of its first 50, and so
on. What the recording does not have breaks a constraint: it is refused by Helion's own filter before it is measured,
and does not count as an evaluation.

Kernel Tuner runs in its own simulation mode. Every run has a fresh Searchspace: one that is used again remembers
neighbours that were drawn before, and a later run profits from that. Every number of evaluations is a run of its own,
since several strategies plan by it. Neither `tune_kernel` nor a strategy is changed; only the cache file is parsed once
instead of every time, and watched.

`--out` is written after every recording and search, and what it holds already is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import random
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.recorded import (
    INFINITE,
    Enough,
    Kind,
    Table,
    best_ms,
    first_within,
    fraction,
    key_of,
    kinds_of,
    milliseconds,
    reach,
    read_cache,
    share,
)

Fragments = dict[str, Callable[[Kind], Any]]
Summary = Callable[[Path, str, Sequence[int], int], dict[str, Any]]
"""From a recording, a search, numbers of evaluations and of seeds to an entry of the results."""


@dataclass(frozen=True)
class Search:
    """A search of Helion as it is run.

    Attributes:
        name: Helion's name of it.
        sizes: What differs from full effort.
        kinds: Tunable to the kind of fragment that it is declared by, against recorded.py.
    """

    name: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)


SEARCHES = {
    "LFBOTreeSearch": Search("LFBOTreeSearch"),  # its default
    "LFBOTreeSearch, quick sizes": Search(
        "LFBOTreeSearch", {"initial_population": 30, "copies": 2, "max_generations": 5}
    ),
    "LFBOTreeSearch, NumWarpsFragment": Search("LFBOTreeSearch", kinds={"num_warps": "warps"}),
    "PatternSearch": Search("PatternSearch"),  # its default for kernels that are not Helion's
}
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


def _fragments() -> Fragments:
    from helion.autotuner import BooleanFragment, EnumFragment, IntegerFragment, PowerOfTwoFragment
    from helion.autotuner.config_fragment import BlockSizeFragment, NumWarpsFragment

    return {
        "flag": lambda _: BooleanFragment(),
        "choice": lambda kind: EnumFragment(choices=kind.values),
        "power": lambda kind: PowerOfTwoFragment(min(kind.values), max(kind.values)),
        "block": lambda kind: BlockSizeFragment(min(kind.values), max(kind.values)),
        "range": lambda kind: IntegerFragment(min(kind.values), max(kind.values)),
        "warps": lambda kind: NumWarpsFragment(min(kind.values), max(kind.values)),
    }


def _provider(look_up: Callable[[Any], float]) -> Any:
    """What measures for a search, answering with `look_up`."""
    from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult

    class Recorded(BenchmarkProvider):
        """Measures by looking up."""

        mutated_arg_indices: Sequence[int] = ()

        def __init__(self, **_: Any) -> None:
            pass

        def setup(self) -> None:
            pass

        def cleanup(self) -> None:
            pass

        def benchmark(self, configs: list[Any], **_: Any) -> list[BenchmarkResult]:
            return [self._result(config, look_up(config)) for config in configs]

        @staticmethod
        def _result(config: Any, time_ms: float) -> BenchmarkResult:
            status = "ok" if time_ms < INFINITE else "error"
            return BenchmarkResult(config, _compiled(time_ms), time_ms, status, 0.0, time.perf_counter())

    return Recorded


def _compiled(time_ms: float) -> Callable[..., float]:
    def kernel(*_: Any) -> float:
        return time_ms

    return kernel


def _again(kernels: list[Callable[[], float]], **_: Any) -> list[float]:
    """Helion measures its leaders again; the recording has but one answer."""
    return [kernel() for kernel in kernels]


def helion_run(content: dict[str, Any], search: str, most: int, seed: int) -> Table:
    """One search on one recording: what it asked, in order."""
    import joblib
    import torch
    from helion.autotuner import search_algorithms
    from helion.autotuner.effort_profile import get_effort_profile
    from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec
    from helion.exc import NoConfigFound

    table, kinds = Table(content, most), kinds_of(content["tune_params"])

    def look_up(config: Any) -> float:
        return table.look_up(key_of(kinds, config.config))

    def known(config: Any) -> Any:
        return config if table.has(key_of(kinds, config.config)) else None

    searcher = SEARCHES[search]
    cls = search_algorithms[searcher.name]
    declared = _fragments()
    fragments = {
        name: declared[searcher.kinds.get(name, kind.name)](kind)
        for name, kind in kinds.items()
        if kind.name != "constant"
    }
    kernel = _ExternalKernelAdapter(
        create_user_config_spec(fragments), lambda config: _compiled(look_up(config)), (),
        device=torch.device("cpu"), autotune_random_seed=seed, autotune_benchmark_fn=_again,
        autotune_config_filter=known, autotune_log_level=0, autotune_progress_bar=False,
    )  # fmt: skip
    full = cls.get_kwargs_from_profile(get_effort_profile("full"), kernel.settings)
    searching = cls(kernel, (), **{**full, **searcher.sizes})
    searching._benchmark_provider_cls = _provider(look_up)
    with joblib.parallel_config("sequential"), contextlib.suppress(Enough, NoConfigFound):  # the same forest, one core
        searching.autotune()
    return table


def helion_summary(path: Path, search: str, budgets: Sequence[int], seeds: int) -> dict[str, Any]:
    """One search on one recording, in the form of `triton-ops replay --json`, with how much it asked."""
    content = read_cache(path)
    best = best_ms(content)
    start = time.perf_counter()
    tables = [helion_run(content, search, budgets[-1], seed) for seed in range(seeds)]
    took_ms = (time.perf_counter() - start) * 1e3
    runs = [list(table.asked.values()) for table in tables]
    return {
        "file": path.name,
        "search": f"helion {search}",
        "seeds": seeds,
        "budgets": {str(budget): share([fraction(best, times[:budget]) for times in runs]) for budget in budgets},
        "to_5pct": reach([first_within(best, 0.05, times) for times in runs]),
        "to_1pct": reach([first_within(best, 0.01, times) for times in runs]),
        "overhead_ms": round(took_ms / max(sum(map(len, runs)), 1), 3),
        "evaluated": {"mean": statistics.mean(map(len, runs)), "least": min(map(len, runs))},
        "refused": {"mean": statistics.mean(len(table.refused) for table in tables)},
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
    from kernel_tuner import util

    names = ("CompilationFailedConfig", "InvalidConfig", "RuntimeFailedConfig")
    failed = {name: getattr(util, name) for name in names}
    content = read_cache(path)
    for row in content["cache"].values():
        if isinstance(row["time"], str):
            row["__error__"] = failed.get(row["time"], util.RuntimeFailedConfig)()
    return content


def kernel_tuner_run(content: dict[str, Any], strategy: str, budget: int, seed: int) -> list[float]:
    """The times of the configs that one run evaluated, in order; infinite for those that failed."""
    from kernel_tuner import interface, util
    from kernel_tuner.searchspace import Searchspace

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


def kernel_tuner_summary(path: Path, strategy: str, budgets: Sequence[int], seeds: int) -> dict[str, Any]:
    """One strategy on one recording, in the form of `triton-ops replay --json`."""
    content = load(path)
    best = best_ms(content)
    shares: dict[str, list[float]] = {}
    first: dict[float, list[float]] = {0.05: [], 0.01: []}
    evaluated, start = 0, time.perf_counter()
    for budget in budgets:
        shares[str(budget)] = []
        for seed in range(seeds):
            times = kernel_tuner_run(content, strategy, budget, seed)
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


@dataclass(frozen=True)
class Peer:
    """A package: what is imported of it, its searches, those that run if none is named, and how one is run."""

    modules: Sequence[str]
    searches: Sequence[str]
    usual: Sequence[str]
    trials: str
    summary: Summary


PEERS = {
    "helion": Peer(
        ("joblib", "helion.autotuner.external"),
        tuple(SEARCHES),
        ("LFBOTreeSearch",),
        "10,25,50,100,200",
        helion_summary,
    ),
    "kernel_tuner": Peer(("kernel_tuner.interface",), STRATEGIES, STRATEGIES, "25,50,100,200", kernel_tuner_summary),
}


def main() -> None:
    """Run what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--search", action="append", default=[], help="may be repeated")
    parser.add_argument("--trials", help="numbers of evaluations, separated by commas")
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    peer = PEERS[options.peer]
    if unknown := [search for search in options.search if search not in peer.searches]:
        parser.error(f"{options.peer} has no {', '.join(unknown)}; there are {', '.join(peer.searches)}")
    for module in peer.modules:
        importlib.import_module(module)  # before a search's clock begins
    entries = json.loads(options.out.read_text())["spaces"] if options.out.exists() else []
    finished = {(entry["file"], entry["search"].split(maxsplit=1)[-1]) for entry in entries}
    budgets = sorted(int(text) for text in (options.trials or peer.trials).split(","))
    for search in options.search or peer.usual:
        for path in options.recordings:
            if (path.name, search) in finished:
                continue
            entry = peer.summary(path, search, budgets, options.seeds)
            entries.append(entry)
            options.out.write_text(json.dumps({"spaces": entries}, indent=1) + "\n")
            print(_line(entry), flush=True)


def _line(entry: dict[str, Any]) -> str:
    means = {budget: reached["mean"] for budget, reached in entry["budgets"].items()}
    counts = {name: round(entry[name]["mean"]) for name in ("evaluated", "refused") if name in entry}
    return f"{entry['search']:38} {entry['file']:32} {means} {counts or ''} {entry['overhead_ms']} ms each"


if __name__ == "__main__":
    main()
