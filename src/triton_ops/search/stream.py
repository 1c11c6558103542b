"""A searcher that proposes the configs of an iterator and learns nothing, for `exhaustive` and `random`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from triton_ops.space import Config
from triton_ops.trial import Trial


class Stream:
    """Proposes the configs of an iterator in their order.

    Args:
        configs: The configs, each at most once.
    """

    def __init__(self, configs: Iterator[Config]) -> None:
        self._told: set[Config] = set()
        self._pending = (config for config in configs if config not in self._told)

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return list(islice(self._pending, count))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Leave out configs that others proposed."""
        self._told.update(trial.config for trial in trials)
