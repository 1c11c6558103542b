"""Strategies of Kernel Tuner, in its own simulation mode over a cache that asks the league for each time.

Neither `tune_kernel` nor a strategy is changed. Every run has a fresh `Searchspace`: one that is used again remembers
neighbours that were drawn before (Kernel Tuner 1.5.0). A strategy that takes no start has the default measured first.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.league.tuners import EVALUATIONS, Called

_STARTS = 20
"""Kernel Tuner 1.5.0 may raise an AttributeError where it remembers neighbours, for which no issue was found; then the
strategy starts again, with a fresh memory."""


class _Cache(dict[str, Any]):
    """Rows by key, whose time is that of the league."""

    def __init__(self, rows: Mapping[str, Any], measure: Callable[[Mapping[str, Any]], float | None]) -> None:
        super().__init__(rows)
        self._measure = measure

    def __getitem__(self, key: str) -> dict[str, Any]:
        row = super().__getitem__(key)
        if (ms := self._measure(row)) is None:
            from kernel_tuner.util import RuntimeFailedConfig

            return {**row, "time": "RuntimeFailedConfig", "__error__": RuntimeFailedConfig()}
        return {**row, "time": ms}


class _Strategy(Called):
    name, takes_start = "", True

    def search(self) -> None:
        """Tune with the strategy."""
        from kernel_tuner import interface, util
        from kernel_tuner.searchspace import Searchspace

        random.seed(self.seed)
        np.random.seed(self.seed)
        options: dict[str, Any] = {"max_fevals": EVALUATIONS}
        if self.default is not None:
            self.measure(self.default)
            options |= {"x0": [self.default[name] for name in self.space.tunables]} if self.takes_start else {}
        rows = {}
        for config in self.space.configs:
            row = {name: config[name] for name in self.space.tunables}
            rows[",".join(map(str, row.values()))] = row
        tunables = {name: list(values) for name, values in self.space.tunables.items()}
        content = {"tune_params_keys": list(tunables), "tune_params": tunables, "cache": rows}
        cache = _Cache(rows, lambda row: self.measure(self.space.config(row)))
        interface.Searchspace = lambda *_, **__: Searchspace(None, None, None, from_cache=content)
        util.process_cache, util.close_cache = lambda *_, **__: cache, lambda _: None

        def tune() -> None:
            interface.tune_kernel(
                "kernel", "", 1, [], tunables, lang="CUDA", strategy=self.name, strategy_options=options,
                simulation_mode=True, cache="league.json", quiet=True, objective="time",
                objective_higher_is_better=False,
            )  # fmt: skip

        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(_STARTS):
                with contextlib.suppress(AttributeError):
                    tune()
                    break


class Firefly(_Strategy):
    """`firefly_algorithm`."""

    name = "firefly_algorithm"


class Genetic(_Strategy):
    """`genetic_algorithm`."""

    name = "genetic_algorithm"


class Tabu(_Strategy):
    """`adaptive_tabu_greywolf`, which takes no start."""

    name, takes_start = "adaptive_tabu_greywolf", False
