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
        self._candidates: list[Config] = []
        self._proposals: set[Config] = set()
        self._counts: Counter[tuple[str, type, object]] = Counter()

    def ask(self, count: int) -> list[Config]:
        """The next `count` configs."""
        return up_to(count, self._next)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Count the values of configs that others proposed, too."""
        for trial in self._remaining.note(trials):
            if trial.config in self._candidates:
                self._candidates.remove(trial.config)
            self._count(trial.config)

    def _next(self) -> Config | None:
        while len(self._candidates) < _AMONG and (config := self._remaining.any()) is not None:
            self._candidates.append(config)
        if not self._candidates:
            return None
        freshest = min(
            self._candidates, key=lambda config: sorted((self._counts[v] for v in _values(config)), reverse=True)
        )
        self._candidates.remove(freshest)
        self._count(freshest)
        return freshest

    def _frequencies(self, config: Config) -> list[int]:
        return sorted((self._counts[value] for value in _values(config)), reverse=True)

    def _count(self, config: Config) -> None:
        if config not in self._proposals:
            self._proposals.add(config)
            self._counts.update(_values(config))


def _values(config: Config) -> list[tuple[str, type, object]]:
    return [(name, type(value), value) for name, value in config.items()]
