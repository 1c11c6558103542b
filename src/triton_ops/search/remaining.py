"""The configs that a search has not proposed yet, with random configs for a search that finds none by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from triton_ops.search.random_search import draws
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Trial


def up_to(count: int, following: Callable[[], Config | None]) -> list[Config]:
    """The next `count` configs of `following`, or fewer if `following` returns None before."""
    return list(islice(iter(following, None), count))


class Remaining:
    """The configs of a space that were not taken yet.

    Args:
        space: The space.
        rng: Draws the random configs.
    """

    def __init__(self, space: ConfigSpace, rng: random.Random) -> None:
        self._names = set(space.tunables)
        self._draws = draws(space, rng)
        self._taken: set[Config] = set()

    def __contains__(self, config: Config) -> bool:
        return config not in self._taken

    def take(self, config: Config) -> Config:
        """Mark `config` as taken and return it."""
        self._taken.add(config)
        return config

    def told(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials of this space among `trials`; their configs are marked as taken."""
        mine = [trial for trial in trials if set(trial.config) == self._names]
        self._taken.update(trial.config for trial in mine)
        return mine

    def first(self, configs: Iterable[Config]) -> Config | None:
        """Take the first of `configs` that is not taken yet; None if all are taken."""
        found = next((config for config in configs if config in self), None)
        return None if found is None else self.take(found)

    def any(self) -> Config | None:
        """Take a random config; None when all are taken, which ends a search."""
        return self.first(self._draws)
