"""Trials as numbers that a surrogate can learn.

Values are logarithms of time, so that differences are ratios. A failed config has the median value: with the largest
value it would make its neighbours look slow, and good configs often are neighbours of configs that no longer fit.
Differences above the median are shrunk, because they tell little of where the best config is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from triton_ops.search.columns import Floats
from triton_ops.values import Measurement, Trial

_LEARNED = 400  # most trials that are learned: more would take seconds
_SLOW = 0.3  # factor on differences above the median
_LEAST_MS = 1e-9
_FIFTHS = 1.68  # standard deviations between the first and the last fifth of a normal distribution


def values_of(trials: Sequence[Trial]) -> Floats:
    """The value of each trial, as the module describes; at least one trial must be ok."""
    times = np.array([math.log(max(trial.rank, _LEAST_MS)) if trial.ok else math.nan for trial in trials])
    middle = float(np.nanmedian(times))
    times = np.where(np.isnan(times), middle, times)
    bent: Floats = np.where(times > middle, middle + _SLOW * (times - middle), times)
    return bent


def noise_of(trials: Sequence[Trial]) -> Floats:
    """The standard error of each value by its own samples: times of a screening are noisier than those of a race."""
    return np.array([_relative_error(trial.best_measurement) if trial.ok else 0.0 for trial in trials])


def _relative_error(measurement: Measurement) -> float:
    # 1.25: the standard error of a median, in standard errors of a mean
    return 1.25 * measurement.spread / _FIFTHS / math.sqrt(len(measurement.samples_ms))


def most_telling(trials: Sequence[Trial]) -> list[Trial]:
    """At most 400 of `trials`: 200 of the fastest, and the latest of the others."""
    if len(trials) <= _LEARNED:
        return list(trials)
    fastest = sorted((t for t in trials if t.ok), key=lambda t: (t.rank, t.config.text))[: _LEARNED // 2]
    configs = {trial.config for trial in fastest}
    others = [trial for trial in trials if trial.config not in configs]
    return fastest + others[-(_LEARNED - len(fastest)) :]
