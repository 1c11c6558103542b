"""Every valid config once, in an order drawn from the seed.

The order is random because a clock that drifts during the run would otherwise favour one end of the space; and so
that a run that is cut short has seen a fair sample. It is drawn from the configs sorted by their text: the same
configs listed in another order are tried in the same one, and the same is decided.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice

from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial

_SHUFFLE_WINDOW = 100_000  # larger spaces are shuffled within windows of this many configs, to bound memory


class ExhaustiveSearch:
    """All configs of a space; see the module."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._told: set[Config] = set()
        self._pending = (config for config in shuffled(space, random.Random(seed)) if config not in self._told)

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return list(islice(self._pending, count))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Leave out what was tried beside it; nothing else is learned."""
        self._told.update(trial.config for trial in trials)

    def expected_gain(self) -> float:
        """Not known."""
        return math.inf


def shuffled(space: ConfigSpace, rng: random.Random) -> Iterator[Config]:
    """Every valid config of `space` once, in an order drawn from `rng`; up to 100,000 in whatever order they come."""
    configs = iter(space)
    while window := sorted(islice(configs, _SHUFFLE_WINDOW), key=lambda config: config.text):
        rng.shuffle(window)
        yield from window
