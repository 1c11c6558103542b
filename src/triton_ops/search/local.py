"""Local search with restarts: a walk from the best of a few random configs to better neighbours, until none is better.

A neighbour differs in one tunable. The walk moves to the first better neighbour that it is told of. When all neighbours
are tried, the walk starts again at random, so that the search ends only when the whole space was tried.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from triton_ops.search.neighbours import neighbours
from triton_ops.search.remaining import Remaining, up_to
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial

_STARTS = 8  # random configs, from the best of which the walk starts


class LocalSearch:
    """The searcher `local`, as the module describes."""

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
        """Move to the best of the trials if it is better than the current config.

        Of a repeated measurement of the current config, the latest time counts.
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
        if found is None:  # no neighbour of the current config is better: start again
            self._starts, self._best, self._around = _STARTS - 1, None, []
            return self._remaining.any()
        return found

    def _shuffled_neighbours(self, config: Config) -> list[Config]:
        found = list(neighbours(self._space, config))
        self._rng.shuffle(found)
        return found
