"""Nevergrad's optimizer for discrete values that changes one config after the other."""

from __future__ import annotations

import math
import warnings
from typing import Any

from benchmarks.league.spaces import Space
from benchmarks.league.tuners import EVALUATIONS
from triton_ops.space import Config

_FAILED = 1e3  # more than the logarithm of any time


class OnePlusOne:
    """Values are choices, with steps between neighbours where a tunable has an order."""

    def __init__(self, space: Space, seed: int, default: Config | None) -> None:
        import nevergrad

        self._space = space
        choices = {
            name: (nevergrad.p.TransitionChoice if space.is_ordered(name) else nevergrad.p.Choice)(range(len(values)))
            for name, values in space.tunables.items()
        }
        parameters = nevergrad.p.Dict(**choices)
        parameters.random_state.seed(seed)
        self._optimizer = nevergrad.optimizers.registry["DiscreteOnePlusOne"](parameters, budget=EVALUATIONS)
        if default is not None:
            self._suggest(default)
        self._asked: dict[Config, Any] = {}

    def ask(self) -> Config:
        """The optimizer's next config."""
        candidate = self._optimizer.ask()
        config = self._space.at(candidate.value)
        self._asked[config] = candidate
        return config

    def tell(self, config: Config, ms: float | None) -> None:
        """Tell the logarithm of the time, of which the optimizer heeds the order alone."""
        if config not in self._asked:
            self._suggest(config)
            self.ask()
        self._optimizer.tell(self._asked.pop(config), _FAILED if ms is None else math.log(ms))

    def _suggest(self, config: Config) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimizer.suggest(self._space.positions(config))
