"""SMAC3's search with a random forest."""

from __future__ import annotations

import logging
import math
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.league.spaces import Space
from benchmarks.league.tuners import EVALUATIONS
from triton_ops.space import Config


def _measure(config: Any, seed: int) -> float:
    raise NotImplementedError  # SMAC is asked and told


class Forest:
    """Values are positions: ordinals where a tunable has an order, else categories."""

    def __init__(self, space: Space, seed: int, default: Config | None) -> None:
        import ConfigSpace
        import smac

        logging.disable(logging.WARNING)
        self._space, self._default = space, default
        self._axes = ConfigSpace.ConfigurationSpace(seed=seed)
        for name, values in space.tunables.items():
            ordered = space.is_ordered(name)
            kind = ConfigSpace.OrdinalHyperparameter if ordered else ConfigSpace.CategoricalHyperparameter
            self._axes.add(kind(name, list(range(len(values)))))
        self._folder = tempfile.TemporaryDirectory()
        scenario = smac.Scenario(
            self._axes, deterministic=True, n_trials=EVALUATIONS, seed=seed, output_directory=Path(self._folder.name)
        )
        self._smac = smac.HyperparameterOptimizationFacade(scenario, _measure, overwrite=True, logging_level=False)
        self._asked: dict[Config, Any] = {}
        self._worst = 0.0

    def ask(self) -> Config | None:
        """The default, where one is given; then what the forest expects most of; None if it has tried all."""
        from smac.main.exceptions import ConfigurationSpaceExhaustedException

        if self._default is not None:
            first, self._default = self._default, None
            return first
        try:
            info = self._smac.ask()
        except ConfigurationSpaceExhaustedException:
            return None
        config = self._space.at(info.config)
        self._asked[config] = info
        return config

    def tell(self, config: Config, ms: float | None) -> None:
        """Tell the logarithm of the time; what failed has that of the slowest so far."""
        from ConfigSpace import Configuration
        from smac.runhistory import StatusType, TrialInfo, TrialValue

        if (info := self._asked.pop(config, None)) is None:
            info = TrialInfo(Configuration(self._axes, values=self._space.positions(config)), seed=0)
        value = self._worst if ms is None else math.log(ms)
        self._worst = max(self._worst, value)
        self._smac.tell(info, TrialValue(value, status=StatusType.CRASHED if ms is None else StatusType.SUCCESS))

    def close(self) -> None:
        """Remove what SMAC has written."""
        self._folder.cleanup()
