"""How long the default config takes on each GPU of one tune, by which a GPU that is unlike the others is told apart.

Each screening is a ratio to the default, which is timed in turn with the candidate on the same GPU. The candidate's
time over that ratio is therefore the default's time there and then, and nothing is measured for this comparison alone.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque

from triton_ops.measure import INDIFFERENCE
from triton_ops.measure.stats import Z95, Interval, median_error, robust_sigma, small_sample
from triton_ops.trial import Trial

_LEAST = 4  # values of each GPU, as in a race
_LATEST = 16  # values by which it is seen that a GPU has become slow
SLOW = 0.10
"""A GPU whose default is slower by more than this share measures nothing more: something is wrong with it."""


class DefaultTimes:
    """The default's times on the GPUs of one tune."""

    def __init__(self) -> None:
        self._all: dict[str, list[float]] = defaultdict(list)
        self._latest: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LATEST))

    def note(self, gpu: str, trial: Trial) -> None:
        """Note what a finished trial says of the default's time on its GPU, if it has a ratio to the default."""
        if trial.measurement is None or not trial.relative or trial.same_code_as is not None:
            return
        own_ms = trial.measurement.median_ms / trial.relative
        if own_ms > 0:
            self._all[gpu].append(math.log(own_ms))
            self._latest[gpu].append(math.log(own_ms))

    def median_ms(self, gpu: str) -> float | None:
        """The median of the default's times on a GPU, the latest ones; None if there are too few to say."""
        found = self._latest[gpu]
        return math.exp(statistics.median(found)) if len(found) >= _LEAST else None

    def apart(self, gpu: str, other: str) -> float:
        """The share by which the default is slower on a GPU than on another, over the whole run; negative if faster.

        It is 0 if the difference is within the noise: the indifference zone of decisions, or the 95 % interval of the
        difference where that is wider; and where one of the two has too few values.
        """
        if min(len(self._all[gpu]), len(self._all[other])) < _LEAST:
            return 0.0
        own, its = _level(self._all[gpu]), _level(self._all[other])
        centre = own.centre - its.centre
        return math.expm1(centre) if abs(centre) > max(INDIFFERENCE, math.hypot(own.margin, its.margin)) else 0.0

    def slow(self, gpu: str, other: str) -> float:
        """The share by which the default is slower on a GPU than on another lately, if that is too much; else 0."""
        own_ms, its_ms = self.median_ms(gpu), self.median_ms(other)
        share = 0.0 if own_ms is None or its_ms is None else own_ms / its_ms - 1.0
        return share if share > SLOW else 0.0


def _level(values: list[float]) -> Interval:
    centre = statistics.median(values)
    margin = Z95 * small_sample(len(values)) * median_error(robust_sigma(values), len(values))
    return Interval(centre, centre - margin, centre + margin)
