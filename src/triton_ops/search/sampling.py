"""Random configs without repetition: the searcher that every other searcher must beat.

The order is random for two reasons: a clock that drifts during the run would otherwise favour one end of the space, and
a run that is cut short has tried a fair sample. The configs are sorted by their text before they are shuffled, so that
the order in which a space lists its configs changes neither the trials nor the decision.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from triton_ops.exceptions import EmptySpaceError
from triton_ops.search.columns import Floats
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Trial


class Stream:
    """Proposes the configs of an iterator in their order.

    Args:
        configs: The configs, each at most once.
    """

    def __init__(self, configs: Iterator[Config]) -> None:
        self._others: set[Config] = set()
        self._pending = (config for config in configs if config not in self._others)

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return list(islice(self._pending, count))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Leave out configs that others proposed."""
        self._others.update(trial.config for trial in trials)


_SHUFFLE_WINDOW = 100_000  # a larger space is shuffled within windows of this many configs, to bound memory
_RARE = 20  # where fewer than one config in so many is valid, windows are smaller in proportion, to bound the time
_LEAST_WINDOW = 100


def exhaustive_search(space: ConfigSpace, seed: int = 0) -> Stream:
    """The searcher `exhaustive`, as the module describes."""
    return Stream(shuffled(space, random.Random(seed)))


def shuffled(space: ConfigSpace, rng: random.Random) -> Iterator[Config]:
    """Every valid config of `space` once, in an order drawn from `rng` within windows of 100,000 configs.

    Where valid configs are rare and too many to be counted, windows are smaller, down to 100 configs.
    """
    configs, most = iter(space), _window(space)
    while window := sorted(islice(configs, most), key=lambda config: config.text):
        rng.shuffle(window)
        yield from window


def _window(space: ConfigSpace) -> int:
    size = space.size
    if size.exact or size.valid * _RARE >= size.total:
        return _SHUFFLE_WINDOW
    return max(_LEAST_WINDOW, _SHUFFLE_WINDOW * _RARE * size.valid // size.total)


_AMONG = 10  # random rows that are compared: the farthest of all rows would always be the same corners


def farthest(rows: Floats, others: Floats, random: np.random.Generator) -> int:
    """The position of the row, among some random `rows`, that is farthest from all of `others`; any if none is known.

    The distance is the sum of differences over all columns. There must be at least one row.
    """
    sample = random.permutation(len(rows))[:_AMONG]
    if not len(others):
        return int(sample[0])
    nearest = np.full(len(sample), np.inf)
    for row in others:
        nearest = np.minimum(nearest, np.abs(rows[sample] - row).sum(axis=1))
    return int(sample[int(np.argmax(nearest))])


def middle(rows: Floats, others: Floats) -> int:
    """The position of the row that, once known, makes the sum of distances from all rows to the nearest known smallest.

    `farthest` prefers corners, and this function prefers places with many rows. There must be at least one row.

    Cost: the distances of all pairs, 20 ms for 500 rows.
    """
    apart = np.abs(rows[:, None] - rows[None]).sum(axis=2)
    if len(others):
        apart = np.minimum(apart, np.abs(rows[:, None] - others[None]).sum(axis=2).min(axis=1)[:, None])
    return int(np.argmin(apart.sum(axis=0)))


_ENUMERABLE = 50_000  # a space of up to this size is shuffled whole, which is exactly uniform
_MOST_REPEATS = 20  # after so many draws in a row without a new config, the rest is too rare to be found by chance


def random_search(space: ConfigSpace, seed: int = 0) -> Stream:
    """The searcher `random`: the configs of `draws`."""
    return Stream(draws(space, random.Random(seed)))


def draws(space: ConfigSpace, rng: random.Random) -> Iterator[Config]:
    """Every valid config of `space` once: uniform draws, then the configs that these missed, in shuffled order."""
    configs: set[Config] = set()
    repeats = _MOST_REPEATS if space.size.total <= _ENUMERABLE else 0
    while repeats < _MOST_REPEATS:
        try:
            config = space.sample(rng)
        except EmptySpaceError:
            return
        if config in configs:
            repeats += 1
            continue
        repeats = 0
        configs.add(config)
        yield config
    yield from (config for config in shuffled(space, rng) if config not in configs)
