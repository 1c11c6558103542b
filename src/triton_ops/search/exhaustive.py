"""Every valid config once, in an order drawn from the seed.

The order is random because a clock that drifts during the run would otherwise favour one end of the space; and so
that a run that is cut short has seen a fair sample. It is drawn from the configs sorted by their text: the same
configs listed in another order are tried in the same one, and the same is decided.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from triton_ops.search.stream import Stream
from triton_ops.space import Config, ConfigSpace

_SHUFFLE_WINDOW = 100_000  # larger spaces are shuffled within windows of this many configs, to bound memory


def exhaustive_search(space: ConfigSpace, seed: int = 0) -> Stream:
    """All configs of a space; see the module."""
    return Stream(shuffled(space, random.Random(seed)))


def shuffled(space: ConfigSpace, rng: random.Random) -> Iterator[Config]:
    """Every valid config of `space` once, in an order drawn from `rng`; up to 100,000 in whatever order they come."""
    configs = iter(space)
    while window := sorted(islice(configs, _SHUFFLE_WINDOW), key=lambda config: config.text):
        rng.shuffle(window)
        yield from window
