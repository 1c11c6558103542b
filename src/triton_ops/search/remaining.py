"""What a walking search has not proposed yet: its memory, and its way on when it is stuck."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from triton_ops.search.random_search import draws
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial


def up_to(count: int, following: Callable[[], Config | None]) -> list[Config]:
    """The next `count` configs that `following` gives, or as many as there are before it gives None."""
    return list(islice(iter(following, None), count))


class Remaining:
    """The configs of a space that were not taken yet."""

    def __init__(self, space: ConfigSpace, rng: random.Random) -> None:
        self._names = set(space.tunables)
        self._draws = draws(space, rng)
        self._taken: set[Config] = set()

    def __contains__(self, config: Config) -> bool:
        return config not in self._taken

    def take(self, config: Config) -> Config:
        """`config`, which is not left any more."""
        self._taken.add(config)
        return config

    def told(self, trials: Sequence[Trial]) -> list[Trial]:
        """Those of `trials` that are of this space, whose configs are not left any more."""
        mine = [trial for trial in trials if set(trial.config) == self._names]
        self._taken.update(trial.config for trial in mine)
        return mine

    def first(self, configs: Iterable[Config]) -> Config | None:
        """Take the first of `configs` that is left; None if none is."""
        found = next((config for config in configs if config in self), None)
        return None if found is None else self.take(found)

    def any(self) -> Config | None:
        """Take one at random; None when nothing is left: so a search that asks here is never stuck, and ends."""
        return self.first(self._draws)
