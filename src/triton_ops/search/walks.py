"""Local search with restarts: a walk from the best of a few random configs to better neighbours, until none is better.

A neighbour differs in one tunable. The walk moves to the first better neighbour that it is told of. When all neighbours
are tried, the walk starts again at random, so that the search ends only when the whole space was tried.

Times are compared by ratio. At the start, a neighbour that is twice as slow is accepted with 6 %, a neighbour that is
10 % slower with 68 %. After a hundred trials the chances are less than one in a million and 5 %. Once all neighbours
are tried, the walk continues from a random config.

The two parents are the best of small groups drawn from the fastest configs so far. A child takes each value from one of
its parents, and about one tunable of each child changes: by one step if the tunable is ordered, else to any value.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from triton_ops.search.sampling import OneByOne
from triton_ops.space import Config, ConfigSpace, Value
from triton_ops.values import Trial

_HOT = 0.25  # logarithm of the ratio that is accepted with probability 1/e at the start
_COOLING = 0.98  # factor per trial on that logarithm
_COLD = 0.005  # lowest value of that logarithm


class AnnealingSearch(OneByOne):
    """The searcher `annealing`, as the module describes."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._heat = _HOT
        self._here: Trial | None = None
        self._around: list[Config] = []

    def tell(self, trials: Sequence[Trial]) -> None:
        """Accept each trial or not; of a repeated measurement of the current config, the latest time counts."""
        for trial in self._remaining.note(trials):
            if self._here is not None and trial.ok and trial.config == self._here.config:
                self._here = trial
                continue
            self._heat = max(self._heat * _COOLING, _COLD)
            if trial.ok and self._steps_to(trial):
                self._here = trial
                self._around = list(self._space.neighbours(trial.config, steps_only=True))
                self._rng.shuffle(self._around)

    def _next(self) -> Config | None:
        config = self._remaining.first(iter(self._around))
        if config is None:
            self._here = None  # the walk continues from the next config that it is told of
            config = self._remaining.any()
        return config

    def _steps_to(self, trial: Trial) -> bool:
        if self._here is None or trial.rank <= self._here.rank:
            return True
        uphill = math.log(trial.rank / self._here.rank) if self._here.rank > 0 else math.inf
        return self._rng.random() < math.exp(-uphill / self._heat)


_POPULATION = 20
_GROUP = 3  # configs in a group whose best becomes a parent
_TRIES = 30  # most children that are drawn to find one that is valid and new


class EvolutionSearch(OneByOne):
    """The searcher `evolution`, as the module describes."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._count = 0
        self._population: list[Trial] = []

    def tell(self, trials: Sequence[Trial]) -> None:
        """Add the fastest of the trials to the population."""
        mine = {trial.config: trial for trial in self._remaining.note(trials)}
        others = [trial for trial in self._population if trial.config not in mine]
        ok = sorted([*others, *(t for t in mine.values() if t.ok)], key=lambda t: (t.rank, t.config.text))
        self._population = ok[:_POPULATION]

    def _next(self) -> Config | None:
        self._count += 1
        if self._count <= _POPULATION or len(self._population) < 2:
            return self._remaining.any()
        pairs = ((self._parent(), self._parent()) for _ in range(_TRIES))
        children = (
            Config({name: self._mutate(name, self._rng.choice(pair)[name]) for name in pair[0]}) for pair in pairs
        )
        child = self._remaining.first(config for config in children if config in self._space)
        if child is None:
            child = self._remaining.first(self._space.neighbours(self._parent()))
        return child or self._remaining.any()

    def _parent(self) -> Config:
        group = self._rng.sample(self._population, min(_GROUP, len(self._population)))
        return min(group, key=lambda trial: (trial.rank, trial.config.text)).config

    def _mutate(self, name: str, value: Value) -> Value:
        if self._rng.random() >= 1 / len(self._space.tunables):
            return value
        tunable = self._space.tunables[name]
        if not tunable.ordered or value not in tunable.values:
            return self._rng.choice(tunable.values)
        at = tunable.values.index(value) + self._rng.choice((-1, 1))
        return tunable.values[min(max(at, 0), len(tunable) - 1)]


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
