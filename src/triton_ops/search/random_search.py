"""Random configs without repetition: the baseline that every cleverer searcher must beat."""

from __future__ import annotations

import random
from collections.abc import Sequence

from triton_ops.search.exhaustive import ExhaustiveSearch
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial

_ENUMERABLE = 50_000  # spaces up to this size are shuffled whole: exactly uniform, and ends when all are tried
_MOST_REPEATS = 1_000  # draws in a row that gave nothing new: what is left is too rare to find by chance


class RandomSearch:
    """Uniform draws from the valid configs of a space."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self._seen: set[Config] = set()
        self._whole = ExhaustiveSearch(space, seed) if space.size.total <= _ENUMERABLE else None

    def ask(self, count: int) -> list[Config]:
        """Up to `count` configs not asked for before."""
        if self._whole is not None:
            return self._whole.ask(count)
        fresh: list[Config] = []
        repeats = 0
        while len(fresh) < count and repeats < _MOST_REPEATS:
            config = self._space.sample(self._rng)
            if config in self._seen:
                repeats += 1
                continue
            self._seen.add(config)
            fresh.append(config)
            repeats = 0
        return fresh

    def tell(self, trials: Sequence[Trial]) -> None:
        """Nothing is learned."""
