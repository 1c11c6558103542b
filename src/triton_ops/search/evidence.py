"""What trials say of speed, as numbers a surrogate can learn.

Values are logarithms of time, so that differences are ratios. A config that failed counts as one of middling speed:
as the slowest, it would darken everything around it, and good configs often lie beside the ones that no longer fit.
Above the middle, differences count for less: how bad the bad ones are says little of where the best one is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from triton_ops.search.encoding import Floats
from triton_ops.trial import Measurement, Trial

_LEARNED = 400  # trials learned at most: more would take seconds
_SLOW = 0.3  # of a difference that counts above the middle
_LEAST_MS = 1e-9
_FIFTHS = 1.68  # deviations between the first and the last fifth of a normal distribution


def values_of(trials: Sequence[Trial]) -> Floats:
    """The logarithm of each trial's time, bent as the module says; at least one trial is ok."""
    times = np.array([math.log(max(trial.rank, _LEAST_MS)) if trial.ok else math.nan for trial in trials])
    middle = float(np.nanmedian(times))
    times = np.where(np.isnan(times), middle, times)
    bent: Floats = np.where(times > middle, middle + _SLOW * (times - middle), times)
    return bent


def noise_of(trials: Sequence[Trial]) -> Floats:
    """The standard error of each value that its own samples show: screening is noisier evidence than a race."""
    return np.array([_relative_error(trial.best_measurement) if trial.ok else 0.0 for trial in trials])


def _relative_error(measurement: Measurement) -> float:
    # 1.25: the standard error of a median, in standard errors of a mean
    return 1.25 * measurement.spread / _FIFTHS / math.sqrt(len(measurement.samples_ms))


def most_telling(trials: Sequence[Trial]) -> list[Trial]:
    """At most 400 of them: the fastest half of these, and the latest of the others."""
    if len(trials) <= _LEARNED:
        return list(trials)
    fastest = sorted((t for t in trials if t.ok), key=lambda t: (t.rank, t.config.text))[: _LEARNED // 2]
    chosen = {trial.config for trial in fastest}
    others = [trial for trial in trials if trial.config not in chosen]
    return fastest + others[-(_LEARNED - len(fastest)) :]
