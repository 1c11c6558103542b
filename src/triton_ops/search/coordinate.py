"""Coordinate descent: one tunable at a time is moved to a better value, until no single move is better.

The walk begins at the space's default, or at the best of a few random configs where it has none. Of the current
tunable the values within a radius are tried, the nearest first, or all values of one that has no order; then the next
tunable is moved. When no tunable alone can be moved to a better value, combinations of single steps of several tunables
may be tried, two at a time first. When nothing around is better, the walk starts again at random, so that the search
ends only when the whole space was tried. Source: the coordinate descent tuner of torch's compiler, whose options these
are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product
from typing import Any

from triton_ops.exceptions import SettingsError
from triton_ops.search.auto import Remaining, up_to
from triton_ops.space import Config, ConfigSpace, Value
from triton_ops.values import Trial

_STARTS = 4  # random configs, from the best of which a walk starts


class CoordinateDescent:
    """The searcher `coordinate`, as the module describes.

    Args:
        space: The space.
        seed: The seed of random starts.
        radius: How many steps a tunable's value is moved at most, 1 or more.
        all_directions: Whether steps of several tunables at once are tried where no single one is better. There may be
            3 to the power of the number of tunables.

    Raises:
        SettingsError: `radius` is no whole number of 1 or more.
    """

    def __init__(self, space: ConfigSpace, seed: int = 0, *, radius: int = 1, all_directions: bool = False) -> None:
        given: Any = radius
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise SettingsError(f"radius is {given!r}; it must be a whole number of 1 or more", hint="such as radius=2")
        self._space = space
        self._radius, self._all_directions = radius, all_directions
        self._remaining = Remaining(space, random.Random(seed))
        self._first: Iterator[Config] = iter(() if space.default is None else (space.default,))
        self._starts = 0 if space.default is not None else _STARTS
        self._best: Trial | None = None
        self._around: Iterator[Config] = iter(())

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return up_to(count, self._next)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Move to the best of the trials if it is better than the current config, and go on with the next tunable."""
        for trial in self._remaining.told(trials):
            if self._best is not None and trial.ok and trial.config == self._best.config:
                self._best = trial
            elif trial.ok and (self._best is None or trial.rank < self._best.rank):
                moved = self._moved(trial.config)
                self._best = trial
                self._around = self._neighbours(trial.config, moved)

    def _next(self) -> Config | None:
        if (first := self._remaining.first(self._first)) is not None:
            return first
        if self._starts > 0:
            self._starts -= 1
            return self._remaining.any()
        found = self._remaining.first(self._around)
        if found is None:  # nothing around is better: start again
            self._starts, self._best = _STARTS - 1, None
            return self._remaining.any()
        return found

    def _moved(self, config: Config) -> int:
        """The place of the first tunable in which a config differs from the current one; -1 if there is none yet."""
        if self._best is None:
            return -1
        names = enumerate(self._space.tunables)
        return next((at for at, name in names if config[name] != self._best.config[name]), -1)

    def _neighbours(self, config: Config, moved: int) -> Iterator[Config]:
        """The configs around one, beginning with the tunable after the one that was moved last."""
        names = list(self._space.tunables)
        turned = [*names[moved + 1 :], *names[: moved + 1]]
        along = (Config({**config, name: value}) for name in turned for value in self._values(config, name))
        across = self._diagonals(config, names) if self._all_directions else iter(())
        return (one for one in chain(along, across) if one in self._space)

    def _values(self, config: Config, name: str) -> list[Value]:
        """The other values of a tunable within the radius, the nearest first; all of one that has no order."""
        tunable, value = self._space.tunables[name], config[name]
        others = [one for one in tunable.values if type(one) is not type(value) or one != value]
        if not tunable.ordered or value not in tunable.values:
            return others
        at = tunable.values.index(value)
        steps = chain.from_iterable((step, -step) for step in range(1, self._radius + 1))
        return [tunable.values[at + step] for step in steps if 0 <= at + step < len(tunable.values)]

    def _diagonals(self, config: Config, names: Sequence[str]) -> Iterator[Config]:
        """Single steps of two tunables at once, then of three, and so on."""
        steps = {name: self._steps(config, name) for name in names}
        for many in range(2, len(names) + 1):
            for chosen in combinations(names, many):
                for values in product(*(steps[name] for name in chosen)):
                    yield Config({**config, **dict(zip(chosen, values, strict=True))})

    def _steps(self, config: Config, name: str) -> list[Value]:
        """The values one step away."""
        tunable, value = self._space.tunables[name], config[name]
        if not tunable.ordered or value not in tunable.values:
            return self._values(config, name)
        at = tunable.values.index(value)
        return [tunable.values[to] for to in (at + 1, at - 1) if 0 <= to < len(tunable.values)]


def in_all_directions(space: ConfigSpace, seed: int = 0) -> CoordinateDescent:
    """The searcher `coordinate-all`: coordinate descent that tries steps of several tunables at once, too."""
    return CoordinateDescent(space, seed, all_directions=True)
