"""Transfer: the trials of the same kernel on another shape, dtype or device, as a prior.

A config that was tried at the other place has its time there, and a surrogate of the trials there estimates all other
configs. Distance weakens the ratios of time: the farther the other place, the closer to 1 they are. The measurements
here decide how much the prior counts; a time from another place is never a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from triton_ops.search.surrogate import ByDistance, Encoder, Floats, Surrogate, most_telling, noise_of, values_of
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Trial

_FAR = 8.0  # at this distance, ratios are taken to the power 1/e
_FEWEST = 3  # ok trials that the surrogate needs
_FAILED = 0.9  # a config that failed there has this quantile of the times of configs that ran


class Transfer:
    """Trials of one other place at a distance as a prior for `space`; those with other tunables are left out."""

    def __init__(self, space: ConfigSpace, trials: Sequence[Trial], distance: float = 0.0) -> None:
        names = set(space.tunables)
        mine = [trial for trial in trials if set(trial.config) == names]
        self._tempered = math.exp(-distance / _FAR)
        self._levels = _levels(mine)
        self._encoder = Encoder(space)
        self._learned = most_telling(mine)
        self._surrogate: Surrogate | None = None

    def __len__(self) -> int:
        return len(self._levels)

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Each config's time there over the median time there, weakened by distance; NaN if it cannot be estimated."""
        levels = np.array([self._levels.get(config, math.nan) for config in configs])
        new = np.flatnonzero(np.isnan(levels))
        if len(new) and sum(trial.ok for trial in self._learned) >= _FEWEST and self._encoder.columns:
            levels[new] = self._filled_in([configs[at] for at in new])
        return [math.exp(level * self._tempered) if math.isfinite(level) else math.nan for level in levels]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Do nothing: trials here do not change the times of the other place."""

    def _filled_in(self, configs: Sequence[Config]) -> Floats:
        if self._surrogate is None:
            self._surrogate = Surrogate(ByDistance(self._encoder.scales, self._encoder.flags))
            rows = self._encoder.rows([trial.config for trial in self._learned])
            self._surrogate.learn(rows, values_of(self._learned), noise_of(self._learned))
        levels, _ = self._surrogate.predict(self._encoder.rows(configs))
        return levels - float(np.median(values_of(self._learned)))


def _levels(trials: Sequence[Trial]) -> dict[Config, float]:
    ok = [trial for trial in trials if trial.ok]
    if not ok:
        return {}
    logs = dict(zip((trial.config for trial in ok), values_of(ok), strict=True))
    middle, slow = (float(np.quantile(list(logs.values()), share)) for share in (0.5, _FAILED))
    return {trial.config: float(logs.get(trial.config, slow)) - middle for trial in trials}
