"""Helion's tree search with a learned order of candidates, built as Helion builds it for a kernel that is not its own.

Only what measures is replaced. A config that is not in the space is refused by Helion's own filter before it is
measured. Of the kinds of tunables the first that fits counts: 0 and 1 are a flag; numbers that name a method a choice;
powers of two in a row a power of two, as a block size where the name says so; whole numbers in a row a range; anything
else a choice. Where no default is given it is Helion's own: off, the least value, the first choice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.league.tuners import Called

_METHODS = frozenset({"between_method", "use_method"})  # point in polygon: which of several algorithms
_BLOCKS = frozenset({"BM", "BN", "BK", "BLOCK", "ROWS", "MWG", "NWG"})  # extents of a tile, beside block_size_…


def kind_of(name: str, values: Sequence[Any]) -> str:
    """The kind of the tunable `name`: flag, choice, power, block or range."""
    if any(type(value) is not int for value in values):
        return "choice"
    ordered = sorted(values)
    least = ordered[0]
    if ordered == [0, 1]:
        return "flag"
    if name in _METHODS:
        return "choice"
    if least > 0 and not least & least - 1 and ordered == [least << n for n in range(len(ordered))]:
        return "block" if name in _BLOCKS or name.startswith("block_size") else "power"
    return "range" if ordered == list(range(least, ordered[-1] + 1)) else "choice"


def fragment_of(name: str, values: Sequence[Any], default: Any) -> Any:
    """What a user of Helion would declare the tunable to be; None as default is Helion's own."""
    from helion.autotuner import BooleanFragment, EnumFragment, IntegerFragment, PowerOfTwoFragment
    from helion.autotuner.config_fragment import BlockSizeFragment

    kind = kind_of(name, values)
    if kind == "choice":
        return EnumFragment(choices=tuple(sorted(values, key=lambda value: value != default)))
    if kind == "flag":
        return BooleanFragment() if default is None else EnumFragment(choices=(bool(default), not default))
    maker = {"block": BlockSizeFragment, "power": PowerOfTwoFragment, "range": IntegerFragment}[kind]
    return maker(min(values), max(values), default)


def _compiled(ms: float) -> Callable[..., float]:
    return lambda *_: ms


class Lfbo(Called):
    """`LFBOTreeSearch` with Helion's full effort: 100 configs at first, five copies, twenty generations."""

    sizes: Mapping[str, int] = {}

    def search(self) -> None:
        """Run Helion's search."""
        import joblib
        import torch
        from helion.autotuner import search_algorithms
        from helion.autotuner.effort_profile import get_effort_profile
        from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec
        from helion.exc import NoConfigFound

        def known(config: Any) -> Any:  # no method: Helion copies its settings, and cannot copy this object
            return config if self._config(config) in self.space.places else None

        start = {} if self.default is None else self.default
        fragments = {name: fragment_of(name, values, start.get(name)) for name, values in self.space.tunables.items()}
        kernel = _ExternalKernelAdapter(
            create_user_config_spec(fragments), lambda config: _compiled(self._ms(config)), (),
            device=torch.device("cpu"), autotune_random_seed=self.seed, autotune_benchmark_fn=_again,
            autotune_config_filter=known, autotune_log_level=0, autotune_progress_bar=False,
        )  # fmt: skip
        cls = search_algorithms["LFBOTreeSearch"]
        full = cls.get_kwargs_from_profile(get_effort_profile("full"), kernel.settings)
        searching = cls(kernel, (), **{**full, **self.sizes})
        searching._benchmark_provider_cls = _provider(self._ms)
        if self.default is not None:
            self.measure(self.default)
        with joblib.parallel_config("sequential"), contextlib.suppress(NoConfigFound):  # the same forest, one core
            searching.autotune()

    def _ms(self, config: Any) -> float:
        """Infinite for a config that fails."""
        ms = self.measure(self._config(config))
        return float("inf") if ms is None else ms

    def _config(self, config: Any) -> Any:
        """Helion writes flags as Booleans."""
        values = {}
        for name, declared in self.space.tunables.items():
            value = config.config[name]
            values[name] = int(value) if kind_of(name, declared) == "flag" else value
        return self.space.config(values)


class Quick(Lfbo):
    """The same with 30 configs at first, two copies and five generations."""

    sizes: Mapping[str, int] = {"initial_population": 30, "copies": 2, "max_generations": 5}


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
        def _result(config: Any, ms: float) -> BenchmarkResult:
            status = "ok" if ms < float("inf") else "error"
            return BenchmarkResult(config, _compiled(ms), ms, status, 0.0, time.perf_counter())

    return Recorded


def _again(kernels: list[Callable[[], float]], **_: Any) -> list[float]:
    """Helion measures its leaders again; the recording has but one answer."""
    return [kernel() for kernel in kernels]
