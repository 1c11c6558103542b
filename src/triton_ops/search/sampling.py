"""Configs drawn at random from a space without repetition, which every other searcher must beat.

The order is random for two reasons: a clock that drifts during the run would otherwise favour one end of the space, and
a run that is cut short has tried a fair sample. The configs are sorted by their text before they are shuffled, so that
the order in which a space lists its configs changes neither the trials nor the decision.

A space of up to 30,000 valid configs is held whole, however many combinations of values its constraints leave out, if
these can be walked soon. A larger space is never enumerated: the sample has random configs and the neighbours of the
best configs so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from triton_ops.exceptions import EmptySpaceError
from triton_ops.search.surrogate import Encoder, Floats
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Trial

_SHUFFLE_WINDOW = 100_000  # a larger space is shuffled within windows of this many configs, to bound memory
_RARE = 20  # where fewer than one config in so many is valid, windows are smaller in proportion, to bound the time
_LEAST_WINDOW = 100


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
    """The position of the row, of some random `rows`, that is farthest from all of `others`; any if none is known."""
    sample = random.permutation(len(rows))[:_AMONG]
    if not len(others):
        return int(sample[0])
    nearest = np.full(len(sample), np.inf)
    for row in others:
        nearest = np.minimum(nearest, np.abs(rows[sample] - row).sum(axis=1))
    return int(sample[int(np.argmax(nearest))])


_ENUMERABLE = 50_000  # a space of up to this size is shuffled whole, which is exactly uniform
_MOST_REPEATS = 20  # after so many draws in a row without a new config, the rest is too rare to be found by chance


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


class RandomSearch:
    """The searcher `random`: the configs of `draws`, one by one; searchers that derive from it take others."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self._draws = draws(space, self._rng)
        self._taken: set[Config] = set()  # proposed, or tried by others

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return list(islice(iter(self._next, None), count))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Leave out configs that others proposed."""
        self._taken.update(trial.config for trial in trials)

    def _next(self) -> Config | None:
        """Take the next config, here a random one; None ends the search."""
        return self._first_of(self._draws)

    def _first_of(self, configs: Iterable[Config]) -> Config | None:
        """Take the first of some configs that is not taken yet; None if all are taken."""
        config = next((config for config in configs if config not in self._taken), None)
        if config is not None:
            self._taken.add(config)
        return config


class ExhaustiveSearch(RandomSearch):
    """The searcher `exhaustive`: the configs of `shuffled`."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._draws = shuffled(space, self._rng)


_WHOLE = 30_000  # most valid configs of a space that is held whole: about 30 MB, and 0.5 s to encode
_SAMPLE = 2_000  # random configs that are added to the sample at a time
_FEW = 200  # with fewer open configs, further random configs are added


class OpenConfigs:
    """The configs that may still be proposed, marked `open` in `configs`, which is a sample, or the `whole` space."""

    def __init__(self, space: ConfigSpace, encoder: Encoder, seed: int) -> None:
        self._space, self._encoder = space, encoder
        self._rng = random.Random(seed)
        all_valid = space.all_configs(_WHOLE)
        self.whole = all_valid is not None
        self.configs: list[Config] = []
        self.rows: Floats = np.zeros((0, encoder.columns))
        self.open: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._at: dict[Config, int] = {}
        self._proposals: set[Config] = set()
        self._reserve: dict[Config, None] = {}
        self._draws = iter(()) if all_valid is not None else draws(space, self._rng)
        self._add(all_valid if all_valid is not None else islice(self._draws, _SAMPLE))

    def take(self, *configs: Config) -> None:
        """Close `configs`, because they are proposed or were tried otherwise."""
        self._proposals.update(configs)
        self.open[[at for config in configs if (at := self._at.get(config)) is not None]] = False

    def hold(self, config: Config) -> None:
        """Propose `config` only when no other config is left."""
        if config not in self._proposals:
            self._reserve[config] = None
            if (at := self._at.get(config)) is not None:
                self.open[at] = False

    def place(self, config: Config) -> int | None:
        """The position of `config` in `configs`; None if it is not in the sample."""
        return self._at.get(config)

    def position(self, config: Config) -> int | None:
        """The position of `config` in `configs`; None if it may not be proposed any more."""
        at = self._at.get(config)
        return at if at is not None and self.open[at] else None

    def left(self) -> NDArray[np.intp]:
        """Positions of the configs that may still be proposed; empty only if the space has no such config."""
        if not self.whole and int(self.open.sum()) < _FEW:
            self._add(islice(self._draws, _SAMPLE))
        if self._reserve and not self.open.any():
            configs, self._reserve = [config for config in self._reserve if config not in self._proposals], {}
            self._add(configs)
            self.open[[self._at[config] for config in configs]] = True
        return np.flatnonzero(self.open)

    def widen(self, leaders: Sequence[Config]) -> None:
        """Add the neighbours of `leaders`, the best configs so far, unless the whole space is held."""
        if not self.whole:
            for leader in leaders:
                self._add(self._space.neighbours(leader))

    def nearby(self, leaders: Sequence[Config]) -> NDArray[np.intp]:
        """Positions of the open configs, the nearest to any of `leaders` first."""
        positions = self.left()
        if not leaders:
            return positions[:0]
        rows = self.rows[positions]
        steps = np.min([np.abs(rows - row).sum(axis=1) for row in self._encoder.rows(leaders)], axis=0)
        return positions[np.argsort(steps, kind="stable")]

    def _add(self, configs: Iterable[Config]) -> None:
        new = [config for config in dict.fromkeys(configs) if config not in self._at]
        if not new:
            return
        self._at.update((config, at) for at, config in enumerate(new, len(self.configs)))
        self.configs += new
        self.rows = np.vstack([self.rows, self._encoder.rows(new)])
        self.open = np.append(
            self.open, [config not in self._proposals and config not in self._reserve for config in new]
        )
