"""The ranking model as the prior of a search: the forecast of a config is better once the config was compiled."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from triton_ops.cost_model.inferred import Readings
from triton_ops.cost_model.prediction import Model
from triton_ops.device import Machine
from triton_ops.space import Config
from triton_ops.values import Compiled, Resources, Trial


class ModelPrior:
    """The model's expected times, with the compiler's own figures for the configs that were tried."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._resources: dict[Config, Resources] = {}
        self._guessed: dict[Config, float] = {}  # for configs of which nothing is known, which a search asks for again

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds, in 20 µs each: NaN for a config without a forecast, infinite if it does not fit."""
        return [self._expected_ms(config) for config in configs]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Keep the resources that the compiler gave the tried configs."""
        self._resources.update((t.config, t.resources) for t in trials if t.resources is not None)

    def take_previews(self, found: Sequence[Compiled]) -> None:
        """Keep what no guess can tell of configs that are not tried yet: whether their products are serialised.

        Registers are guessed until a config is tried, because real ones for some configs and guesses for the others
        would order them worse than guesses for all.
        """
        for one in found:
            if one.resources is not None and one.resources.serialised is not None:
                self._resources.setdefault(one.config, Resources(serialised=one.resources.serialised))

    def _expected_ms(self, config: Config) -> float:
        if (resources := self._resources.get(config)) is not None:
            return self._model.expected_ms(config, resources)
        if config not in self._guessed:
            self._guessed[config] = self._model.expected_ms(config)
        return self._guessed[config]


_FEWEST = 12  # configs with a forecast that a fit needs
_ALIKE = 1.02  # the slowest over the fastest below which a model orders nothing
_MOST_FITTED = 4_000


class InferredPrior:
    """Expected times by the work that was read, and by a fit of them for other configs; none if `silent`."""

    def __init__(self, readings: Readings, machine: Machine, configs: Sequence[Config]) -> None:
        self._model = ModelPrior(readings.model(machine))
        self.readings = readings
        some = [config for config in configs if readings.key(config) in readings.works][:_MOST_FITTED]
        pairs = zip(some, self._model.score(some), strict=True)
        self._samples = [(config, ms) for config, ms in pairs if math.isfinite(ms) and ms > 0]
        self._fit: Any = None
        self.silent = readings.silent or _why_useless([ms for _, ms in self._samples])

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds, once in 0.1 ms each: NaN for one without a forecast, infinite if it does not fit."""
        times = self._model.score(configs)
        gaps = [
            at
            for at, ms in enumerate(times)
            if math.isnan(ms) and self.readings.key(configs[at]) not in self.readings.works
        ]
        if gaps and len(self._samples) >= _FEWEST:
            if self._fit is None:  # with NumPy, which a known winner does not need
                fit = importlib.import_module("triton_ops.cost_model.fit").Fit
                self._fit = fit(*map(list, zip(*self._samples, strict=True)))
            for at, ms in zip(gaps, self._fit.times([configs[at] for at in gaps]), strict=True):
                times[at] = ms
        return times

    def tell(self, trials: Sequence[Trial]) -> None:
        """Keep the resources that the compiler gave the tried configs."""
        self._model.tell(trials)

    def take_previews(self, found: Sequence[Compiled]) -> None:
        """Keep what no guess can tell of configs that are not tried yet."""
        self._model.take_previews(found)


def _why_useless(times: Sequence[float]) -> str:
    if not times:
        return "no config has a forecast on this device"
    if max(times) < _ALIKE * min(times):
        return f"all forecasts are within {_ALIKE - 1:.0%} of each other"
    return ""
