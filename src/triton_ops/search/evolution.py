"""Evolution: every new config mixes two good configs, with a random change.

The two parents are the best of small groups drawn from the fastest configs so far. A child takes each value from one of
its parents, and about one tunable of each child changes: by one step if the tunable is ordered, else to any value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from triton_ops.search.neighbours import neighbours
from triton_ops.search.remaining import Remaining, up_to
from triton_ops.space import Config, ConfigSpace, Value
from triton_ops.trial import Trial

_POPULATION = 20
_GROUP = 3  # configs in a group whose best becomes a parent
_TRIES = 30  # most children that are drawn to find one that is valid and new


class EvolutionSearch:
    """The searcher `evolution`, as the module describes."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self._remaining = Remaining(space, self._rng)
        self._asked = 0
        self._population: list[Trial] = []

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return up_to(count, self._next)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Add the fastest of the trials to the population."""
        mine = {trial.config: trial for trial in self._remaining.told(trials)}
        kept = [trial for trial in self._population if trial.config not in mine]
        ok = sorted([*kept, *(t for t in mine.values() if t.ok)], key=lambda t: (t.rank, t.config.text))
        self._population = ok[:_POPULATION]

    def _next(self) -> Config | None:
        self._asked += 1
        if self._asked <= _POPULATION or len(self._population) < 2:
            return self._remaining.any()
        children = (self._child() for _ in range(_TRIES))
        child = self._remaining.first(config for config in children if config in self._space)
        if child is None:
            child = self._remaining.first(neighbours(self._space, self._parent()))
        return child or self._remaining.any()

    def _parent(self) -> Config:
        group = self._rng.sample(self._population, min(_GROUP, len(self._population)))
        return min(group, key=lambda trial: (trial.rank, trial.config.text)).config

    def _child(self) -> Config:
        one, other = self._parent(), self._parent()
        return Config({name: self._changed(name, self._rng.choice((one, other))[name]) for name in one})

    def _changed(self, name: str, value: Value) -> Value:
        if self._rng.random() >= 1 / len(self._space.tunables):
            return value
        tunable = self._space.tunables[name]
        if not tunable.ordered or value not in tunable.values:
            return self._rng.choice(tunable.values)
        at = tunable.values.index(value) + self._rng.choice((-1, 1))
        return tunable.values[min(max(at, 0), len(tunable) - 1)]
