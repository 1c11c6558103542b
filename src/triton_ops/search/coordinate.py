"""Coordinate descent: one tunable at a time is moved to a better value, until no single move is better.

The walk begins at the space's default, or at the best of a few random configs where it has none. Of the current
tunable the values within a radius are tried, the nearest first, or all values of one that has no order; then the next
tunable is moved. When no tunable alone can be moved to a better value, combinations of single steps of several tunables
may be tried, two at a time first. When nothing around is better, the walk starts again at random, so that the search
ends only when the whole space was tried. Source: the coordinate descent tuner of torch's compiler, whose options these
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product

from triton_ops.exceptions import SettingsError
from triton_ops.search.walks import Descent
from triton_ops.space import Config, ConfigSpace, Value

_STARTS = 4  # random configs, from the best of which a walk starts


class CoordinateDescent(Descent):
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
        if type(radius) is not int or radius < 1:
            raise SettingsError(
                f"radius is {radius!r}; it must be a whole number of 1 or more", hint="such as radius=2"
            )
        super().__init__(space, seed, _STARTS, () if space.default is None else (space.default,))
        self._radius, self._all_directions = radius, all_directions

    def _neighbours(self, config: Config, before: Config | None) -> Iterator[Config]:
        """The configs around one, beginning with the tunable after the first in which it differs from the last one."""
        names = list(self._space.tunables)
        first = next((at + 1 for at, name in enumerate(names) if before and config[name] != before[name]), 0)
        along = (
            Config({**config, name: value})
            for name in [*names[first:], *names[:first]]
            for value in self._values(config, name, self._radius)
        )
        across = self._diagonals(config, names) if self._all_directions else iter(())
        return (one for one in chain(along, across) if one in self._space)

    def _values(self, config: Config, name: str, radius: int) -> list[Value]:
        """The other values of a tunable within the radius, the nearest first; all of one that has no order."""
        tunable, value = self._space.tunables[name], config[name]
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
