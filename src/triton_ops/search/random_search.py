"""Random configs without repetition: the baseline that every cleverer searcher must beat."""

from __future__ import annotations

import random
from collections.abc import Iterator

from triton_ops.exceptions import EmptySpaceError
from triton_ops.search.exhaustive import shuffled
from triton_ops.search.stream import Stream
from triton_ops.space import Config, ConfigSpace

_ENUMERABLE = 50_000  # spaces up to this size are shuffled whole: exactly uniform, and ends when all are tried
_MOST_REPEATS = 20  # draws in a row that gave nothing new: what is left is too rare to be found by chance


def random_search(space: ConfigSpace, seed: int = 0) -> Stream:
    """Uniform draws from the valid configs of a space; once draws only repeat, what is left in shuffled order."""
    return Stream(draws(space, random.Random(seed)))


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
