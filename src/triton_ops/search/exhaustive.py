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


def exhaustive_search(space: ConfigSpace, seed: int = 0) -> Stream:
    """The searcher `exhaustive`, as the module describes."""
    return Stream(shuffled(space, random.Random(seed)))


def shuffled(space: ConfigSpace, rng: random.Random) -> Iterator[Config]:
    """Every valid config of `space` once, in an order drawn from `rng` within windows of 100,000 configs."""
    configs = iter(space)
    while window := sorted(islice(configs, _SHUFFLE_WINDOW), key=lambda config: config.text):
        rng.shuffle(window)
        yield from window
