"""Every valid config once, in an order drawn from the seed.

The order is random for two reasons: a clock that drifts during the run would otherwise favour one end of the space, and
a run that is cut short has tried a fair sample. The configs are sorted by their text before they are shuffled, so that
the order in which a space lists its configs changes neither the trials nor the decision.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from triton_ops.search.stream import Stream
from triton_ops.space import Config, ConfigSpace

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
