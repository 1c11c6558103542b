"""Helion's searches on recorded spaces, by its own search classes; prints what `triton-ops replay` prints.

    python -m benchmarks.search.helion_replay RECORDING... --seeds 25 --out results.json

Runs in an environment of its own (requirements-helion.txt beside this file says how to make it). A search is built as
Helion builds it for a kernel that is not its own, and only what measures is replaced: it answers from the recording,
first measurement and every later one alike, without noise. Helion does not plan by a number of evaluations, so one run
gives the figures of all numbers: the best of its first 25 configs, of its first 50, and so on.

An evaluation is a distinct config of the recording; those that failed there count. What the recording does not have
breaks a constraint: it is refused by Helion's own filter before it is measured, and does not count as an evaluation.

`--out` is written after every recording, and what it holds already is not run again.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import torch
from helion.autotuner import BooleanFragment, EnumFragment, IntegerFragment, PowerOfTwoFragment, search_algorithms
from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult
from helion.autotuner.config_fragment import BlockSizeFragment, NumWarpsFragment
from helion.autotuner.effort_profile import get_effort_profile
from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec
from helion.exc import NoConfigFound

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
    reach,
    read_cache,
    replayed,
    share,
)

Fragments = dict[str, Callable[[Kind], Any]]


@dataclass(frozen=True)
class Search:
    """A search as it is run.

    Attributes:
        name: Helion's name of it.
        sizes: What differs from full effort.
        kinds: Tunable to the fragment that it is declared by, against recorded.py.
    """

    name: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    kinds: Fragments = field(default_factory=dict)


SEARCHES = {
    "LFBOTreeSearch": Search("LFBOTreeSearch"),  # its default
    "LFBOTreeSearch, quick sizes": Search(
        "LFBOTreeSearch", {"initial_population": 30, "copies": 2, "max_generations": 5}
    ),
    "LFBOTreeSearch, NumWarpsFragment": Search(
        "LFBOTreeSearch", {}, {"num_warps": lambda kind: NumWarpsFragment(min(kind.values), max(kind.values))}
    ),
    "PatternSearch": Search("PatternSearch"),  # its default for kernels that are not Helion's
}
_FRAGMENTS: Fragments = {
    "flag": lambda _: BooleanFragment(),
    "choice": lambda kind: EnumFragment(choices=kind.values),
    "power": lambda kind: PowerOfTwoFragment(min(kind.values), max(kind.values)),
    "block": lambda kind: BlockSizeFragment(min(kind.values), max(kind.values)),
    "range": lambda kind: IntegerFragment(min(kind.values), max(kind.values)),
}


def _provider(look_up: Callable[[Any], float]) -> type[BenchmarkProvider]:
    """What measures for a search, answering with `look_up`."""

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


def run(content: dict[str, Any], search: str, most: int, seed: int) -> Table:
    """One search on one recording: what it asked, in order."""
    table, kinds = Table(content, most), kinds_of(content["tune_params"])

    def look_up(config: Any) -> float:
        return table.look_up(key_of(kinds, config.config))

    def known(config: Any) -> Any:
        return config if table.has(key_of(kinds, config.config)) else None

    searcher = SEARCHES[search]
    cls = search_algorithms[searcher.name]
    fragments = {
        name: searcher.kinds.get(name, _FRAGMENTS[kind.name])(kind)
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


def summary(path: Path, search: str, budgets: Sequence[int], seeds: int) -> dict[str, Any]:
    """One search on one recording, in the form of `triton-ops replay --json`, with how much it asked."""
    content = read_cache(path)
    best = best_ms(content)
    start = time.perf_counter()
    tables = [run(content, search, budgets[-1], seed) for seed in range(seeds)]
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


if __name__ == "__main__":
    replayed(str(__doc__).splitlines()[0], list(SEARCHES), ["LFBOTreeSearch"], "10,25,50,100,200", summary)
