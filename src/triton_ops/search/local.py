"""Local search with restarts: from the best of a few random configs to better neighbours, until none is better.

A neighbour differs in one tunable. The walk moves to the first better one it is told of; when all neighbours are
tried, it starts again at random, so that it ends only with the space.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from triton_ops.search.neighbours import neighbours
from triton_ops.search.remaining import Remaining, up_to
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial

_STARTS = 8  # random configs of which the best is walked from


class LocalSearch:
    """See the module."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self._remaining = Remaining(space, self._rng)
        self._starts = _STARTS
        self._best: Trial | None = None
        self._around: list[Config] = []

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return up_to(count, self._next)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Move to the best of them if it is better than where the walk is.

        Where the walk is may have been measured again: its latest time counts.
        """
        for trial in self._remaining.told(trials):
            if self._best is not None and trial.ok and trial.config == self._best.config:
                self._best = trial
            elif trial.ok and (self._best is None or trial.rank < self._best.rank):
                self._best = trial
                self._around = self._shuffled_neighbours(trial.config)

    def _next(self) -> Config | None:
        if self._starts > 0:
            self._starts -= 1
            return self._remaining.any()
        found = self._remaining.first(iter(self._around))
        if found is None:  # where it is, nothing near is better: start again
            self._starts, self._best, self._around = _STARTS - 1, None, []
            return self._remaining.any()
        return found

    def _shuffled_neighbours(self, config: Config) -> list[Config]:
        found = list(neighbours(self._space, config))
        self._rng.shuffle(found)
        return found
