"""Local search with restarts: a walk from the best of a few random configs to better neighbours, until none is better.

A neighbour differs in one tunable. The walk moves to the first better neighbour that it is told of. When all neighbours
are tried, the walk starts again at random, so that the search ends only when the whole space was tried.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from triton_ops.search.sampling import OneByOne
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Trial


class Descent(OneByOne):
    """A walk from the best of a few random configs, or of `first`, to better ones; where none is, another one."""

    def __init__(self, space: ConfigSpace, seed: int, starts: int, first: Sequence[Config] = ()) -> None:
        super().__init__(space, seed)
        self._starts = self._random_starts = starts
        self._first = iter(first)
        if first:
            self._starts = 0
        self._best: Trial | None = None
        self._around: Iterator[Config] = iter(())

    def tell(self, trials: Sequence[Trial]) -> None:
        """Move to the best of the trials if it is better than the current config, of which the latest time counts."""
        for trial in self._remaining.note(trials):
            if self._best is not None and trial.ok and trial.config == self._best.config:
                self._best = trial
            elif trial.ok and (self._best is None or trial.rank < self._best.rank):
                before, self._best = self._best, trial
                self._around = self._neighbours(trial.config, None if before is None else before.config)

    def _next(self) -> Config | None:
        if (first := self._remaining.first(self._first)) is not None:
            return first
        if self._starts > 0:
            self._starts -= 1
            return self._remaining.any()
        config = self._remaining.first(self._around)
        if config is None:  # nothing around is better: start again
            self._starts, self._best, self._around = self._random_starts - 1, None, iter(())
            return self._remaining.any()
        return config

    @abstractmethod
    def _neighbours(self, config: Config, before: Config | None) -> Iterator[Config]:
        """The configs around one, in the order in which they are tried; `before` is the one that was left for it."""


class LocalSearch(Descent):
    """The searcher `local`, as the module describes."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        super().__init__(space, seed, starts=8)

    def _neighbours(self, config: Config, before: Config | None) -> Iterator[Config]:  # noqa: ARG002 - any order
        around = list(self._space.neighbours(config))
        self._rng.shuffle(around)
        return iter(around)
