"""Random configs without repetition: the baseline that every cleverer searcher must beat."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice

from triton_ops.exceptions import EmptySpaceError
from triton_ops.search.exhaustive import shuffled
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial

_ENUMERABLE = 50_000  # spaces up to this size are shuffled whole: exactly uniform, and ends when all are tried
_MOST_REPEATS = 20  # draws in a row that gave nothing new: what is left is too rare to be found by chance


class RandomSearch:
    """Uniform draws from the valid configs of a space; once draws only repeat, what is left in shuffled order."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._told: set[Config] = set()
        self._pending = (config for config in draws(space, random.Random(seed)) if config not in self._told)

    def ask(self, count: int) -> list[Config]:
        """Up to `count` configs not asked for before."""
        return list(islice(self._pending, count))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Leave out what was tried beside it; nothing else is learned."""
        self._told.update(trial.config for trial in trials)

    def expected_gain(self) -> float:
        """Not known."""
        return math.inf


def draws(space: ConfigSpace, rng: random.Random) -> Iterator[Config]:
    """Every valid config of `space` once: uniform draws, then what these did not find, in shuffled order."""
    seen: set[Config] = set()
    repeats = _MOST_REPEATS if space.size.total <= _ENUMERABLE else 0
    while repeats < _MOST_REPEATS:
        try:
            config = space.sample(rng)
        except EmptySpaceError:
            return
        if config in seen:
            repeats += 1
            continue
        repeats = 0
        seen.add(config)
        yield config
    yield from (config for config in shuffled(space, rng) if config not in seen)
