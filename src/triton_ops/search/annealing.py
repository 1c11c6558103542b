"""Simulated annealing: a walk from neighbour to neighbour that accepts slower configs often at first and seldom later.

Times are compared by ratio. At the start, a neighbour that is twice as slow is accepted with 6 %, a neighbour that is
10 % slower with 68 %. After a hundred trials the chances are less than one in a million and 5 %. Once all neighbours
are tried, the walk continues from a random config.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from triton_ops.search.neighbours import neighbours
from triton_ops.search.remaining import Remaining, up_to
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial

_HOT = 0.25  # logarithm of the ratio that is accepted with probability 1/e at the start
_COOLING = 0.98  # factor per trial on that logarithm
_COLD = 0.005  # lowest value of that logarithm


class AnnealingSearch:
    """The searcher `annealing`, as the module describes."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self._remaining = Remaining(space, self._rng)
        self._heat = _HOT
        self._here: Trial | None = None
        self._around: list[Config] = []

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return up_to(count, self._next)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Accept each trial or not; of a repeated measurement of the current config, the latest time counts."""
        for trial in self._remaining.told(trials):
            if self._here is not None and trial.ok and trial.config == self._here.config:
                self._here = trial
                continue
            self._heat = max(self._heat * _COOLING, _COLD)
            if trial.ok and self._steps_to(trial):
                self._here = trial
                self._around = list(neighbours(self._space, trial.config, steps_only=True))
                self._rng.shuffle(self._around)

    def _next(self) -> Config | None:
        found = self._remaining.first(iter(self._around))
        if found is None:
            self._here = None  # the walk continues from the next config that it is told of
            found = self._remaining.any()
        return found

    def _steps_to(self, trial: Trial) -> bool:
        if self._here is None or trial.rank <= self._here.rank:
            return True
        uphill = math.log(trial.rank / self._here.rank) if self._here.rank > 0 else math.inf
        return self._rng.random() < math.exp(-uphill / self._heat)
