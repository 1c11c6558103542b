"""Searches that walk from a config to better neighbours, until none is better, and then start again.

A walk that finds nothing better around starts again at random, so that the search ends only when the whole space was
tried. Local search begins at the best of a few random configs. A neighbour differs in one tunable, and the walk moves
to the first better one that it is told of.

Coordinate descent moves one tunable at a time to a better value. It begins at the space's default, or at the best of a
few random configs where it has none. Of the current tunable the values within a radius are tried, the nearest first, or
all values of one that has no order; then the next tunable is moved. When no tunable alone can be moved to a better
value, combinations of single steps of several tunables may be tried, two at a time first. Source: the coordinate
descent tuner of torch's compiler, whose options these are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product

from triton_ops.exceptions import SettingsError
from triton_ops.search.sampling import RandomSearch
from triton_ops.space import Config, ConfigSpace, Value
from triton_ops.values import Trial

_STARTS = 4  # random configs, from the best of which a walk starts


class Descent(RandomSearch, ABC):
    """A walk from the best of a few random configs, or of `first`, to better ones; where none is, another one."""

    def __init__(self, space: ConfigSpace, seed: int, starts: int, first: Sequence[Config] = ()) -> None:
        super().__init__(space, seed)
        self._starts, self._random_starts = 0 if first else starts, starts
        self._first = iter(first)
        self._best: Trial | None = None
        self._around: Iterator[Config] = iter(())

    def tell(self, trials: Sequence[Trial]) -> None:
        """Move to the best of the trials if it is better than the current config, of which the latest time counts."""
        mine = [trial for trial in trials if self._space.names_agree(trial.config)]
        self._taken.update(trial.config for trial in mine)
        for trial in mine:
            if self._best is not None and trial.ok and trial.config == self._best.config:
                self._best = trial
            elif trial.ok and (self._best is None or trial.rank < self._best.rank):
                before, self._best = self._best, trial
                self._around = self._neighbours(trial.config, None if before is None else before.config)

    def _next(self) -> Config | None:
        if (first := self._first_of(self._first)) is not None:
            return first
        if not self._starts:
            if (config := self._first_of(self._around)) is not None:
                return config
            self._starts, self._best = self._random_starts, None  # nothing around is better: start again
        self._starts -= 1
        return super()._next()

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


class CoordinateDescent(Descent):
    """The searcher `coordinate`, as the module describes.

    Args:
        space: The space.
        seed: The seed of random starts.
        radius: How many steps a tunable's value is moved at most, 1 or more.
        all_directions: Whether steps of several tunables at once are tried where no single one is better. They are up
            to 3 to the power of the number of tunables, each a trial.

    Raises:
        SettingsError: `radius` is no whole number of 1 or more.
    """

    def __init__(self, space: ConfigSpace, seed: int = 0, *, radius: int = 1, all_directions: bool = False) -> None:
        SettingsError.checked("radius", radius, 1, whole=True, hint="such as radius=2")
        super().__init__(space, seed, _STARTS, () if space.default is None else (space.default,))
        self._radius, self._all_directions = radius, all_directions

    def _neighbours(self, config: Config, before: Config | None) -> Iterator[Config]:
        """The configs around one, beginning with the tunable after the first in which it differs from the last one."""
        names = list(self._space.tunables)
        first = next((at + 1 for at, name in enumerate(names) if before and config.get(name) != before.get(name)), 0)
        along = (
            Config({**config, name: value})
            for name in [*names[first:], *names[:first]]
            for value in self._values(config, name, self._radius)
        )
        across = self._diagonals(config, names) if self._all_directions else iter(())
        return (one for one in chain(along, across) if one in self._space)

    def _values(self, config: Config, name: str, radius: int) -> list[Value]:
        """The other values of a tunable within the radius, the nearest first; all of one that has no order."""
        tunable, value = self._space.tunables[name], config.get(name)
        # True equals 1, and they are two values
        others = [one for one in tunable.values if type(one) is not type(value) or one != value]
        if not tunable.ordered or value not in tunable.values:
            return others
        at = tunable.values.index(value)
        steps = chain.from_iterable((step, -step) for step in range(1, radius + 1))
        return [tunable.values[at + step] for step in steps if 0 <= at + step < len(tunable.values)]

    def _diagonals(self, config: Config, names: Sequence[str]) -> Iterator[Config]:
        steps = {name: self._values(config, name, 1) for name in names}
        for many in range(2, len(names) + 1):
            for subset in combinations(names, many):
                for values in product(*(steps[name] for name in subset)):
                    yield Config({**config, **dict(zip(subset, values, strict=True))})


def in_all_directions(space: ConfigSpace, seed: int = 0) -> CoordinateDescent:
    """The searcher `coordinate-all`: coordinate descent that tries steps of several tunables at once, too."""
    return CoordinateDescent(space, seed, all_directions=True)
