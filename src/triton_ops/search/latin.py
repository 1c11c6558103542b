"""Space filling: every value of every tunable occurs equally often, as far as the constraints allow.

The search is a Latin hypercube for spaces with constraints. Of 100 random configs, the next is the one whose values
were proposed least often so far.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from triton_ops.search.auto import Remaining, up_to
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Trial

_AMONG = 100  # configs compared for each proposal


class LatinSearch:
    """The searcher `latin`, as the module describes."""

    def __init__(self, space: ConfigSpace, seed: int = 0) -> None:
        self._remaining = Remaining(space, random.Random(seed))
        self._drawn: list[Config] = []
        self._counted: set[Config] = set()
        self._used: Counter[tuple[str, type, object]] = Counter()

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return up_to(count, self._next)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Count the values of configs that others proposed, too."""
        for trial in self._remaining.told(trials):
            if trial.config in self._drawn:
                self._drawn.remove(trial.config)
            self._count(trial.config)

    def _next(self) -> Config | None:
        while len(self._drawn) < _AMONG and (config := self._remaining.any()) is not None:
            self._drawn.append(config)
        if not self._drawn:
            return None
        freshest = min(self._drawn, key=lambda config: sorted((self._used[v] for v in _values(config)), reverse=True))
        self._drawn.remove(freshest)
        self._count(freshest)
        return freshest

    def _count(self, config: Config) -> None:
        if config not in self._counted:
            self._counted.add(config)
            self._used.update(_values(config))


def _values(config: Config) -> list[tuple[str, type, object]]:
    return [(name, type(value), value) for name, value in config.items()]
