"""Random configs without repetition: the searcher that every other searcher must beat."""

from __future__ import annotations

import random
from collections.abc import Iterator

from triton_ops.exceptions import EmptySpaceError
from triton_ops.search.exhaustive import shuffled
from triton_ops.search.stream import Stream
from triton_ops.space import Config, ConfigSpace

_ENUMERABLE = 50_000  # a space of up to this size is shuffled whole, which is exactly uniform
_MOST_REPEATS = 20  # after so many draws in a row without a new config, the rest is too rare to be found by chance


def random_search(space: ConfigSpace, seed: int = 0) -> Stream:
    """The searcher `random`: the configs of `draws`."""
    return Stream(draws(space, random.Random(seed)))


def draws(space: ConfigSpace, rng: random.Random) -> Iterator[Config]:
    """Every valid config of `space` once: uniform draws, then the configs that these missed, in shuffled order."""
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
