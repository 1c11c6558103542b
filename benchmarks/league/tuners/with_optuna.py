"""Optuna's tree of Parzen estimators over all tunables together."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.league.spaces import Space
from triton_ops.space import Config


class Tpe:
    """Values are positions: integers where a tunable has an order, else choices."""

    def __init__(self, space: Space, seed: int, default: Config | None) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._optuna = space, optuna
        self._axes = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1)
            if space.is_ordered(name)
            else optuna.distributions.CategoricalDistribution(range(len(values)))
            for name, values in space.tunables.items()
        }
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
        if default is not None:
            self._study.enqueue_trial(space.positions(default))
        self._asked: dict[Config, Any] = {}

    def ask(self) -> Config:
        """The sampler's next config."""
        trial = self._study.ask(self._axes)
        config = self._space.at(trial.params)
        self._asked[config] = trial
        return config

    def tell(self, config: Config, ms: float | None) -> None:
        """Tell the logarithm of the time, or that the trial failed."""
        value, states = None if ms is None else math.log(ms), self._optuna.trial.TrialState
        if (trial := self._asked.pop(config, None)) is not None:
            self._study.tell(trial, value, states.FAIL if ms is None else states.COMPLETE)
        elif value is not None:
            params = self._space.positions(config)
            self._study.add_trial(self._optuna.create_trial(params=params, distributions=self._axes, value=value))
