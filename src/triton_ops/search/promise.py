"""How likely a search has found a config within 1 % of the fastest of its space.

The logarithm of the odds is a weighted sum of what is known when a search ends: how many configs were tried, how many
of them came near the fastest, how far the fastest leads, and, without a model of the kernel, how many are left. With a
model the configs left are not alike: those that it expects to be slow stay untried for good, however many they are.

The weights hold for the search `auto`. They were fitted to simulated tunes on recorded spaces, which were cut off after
24 and more trials (`benchmarks/search/promise.py`, with results in `benchmarks/results/simulated/promise.json`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from triton_ops.values import Trial

_WITHIN = 0.01
_FEWEST = 24  # trials; of fewer the promises were wrong by up to 16 points
_WHOLE = 0.997  # where every config was tried: noise hid the fastest in 4 of 1,678 tunes
_NEAR, _NEAR_WEIGHT = 1.1, 0.70  # times the fastest time
_MOST_LEAD, _LEAD_WEIGHT = 0.3, 4.1  # of the logarithm of the second time over the fastest
_BY_TUNABLES = (-3.05, 1.28)  # the constant, and the weight of the trials
_BY_MODEL = (-4.72, 1.77)
_LEFT_WEIGHT = -1.02  # without a model


def chance_within_1pct(trials: Sequence[Trial], configs: int, *, modelled: bool, noise: float = 0.0) -> float | None:
    """The chance, 0 to 1, that the fastest of `trials` is within 1 % of the fastest of all valid `configs`.

    None for fewer than 24 trials, unless they are all, where none of them ran, and where `noise`, a relative
    difference, hides 1 %.
    """
    times = sorted(trial.median_ms for trial in trials if trial.ok)
    if not times or noise > _WITHIN or len(trials) < min(_FEWEST, configs):
        return None
    if len(trials) >= configs:
        return _WHOLE
    constant, weight = _BY_MODEL if modelled else _BY_TUNABLES
    odds = constant + weight * math.log(len(trials))
    odds += _NEAR_WEIGHT * math.log(sum(ms <= _NEAR * times[0] for ms in times))
    odds += _LEAD_WEIGHT * min(math.log(times[min(1, len(times) - 1)] / times[0]), _MOST_LEAD)
    odds += 0.0 if modelled else _LEFT_WEIGHT * math.log(configs / len(trials))
    return min(round(1 / (1 + math.exp(-odds)), 3), _WHOLE)
