"""The configs that a search may still propose: all of them if they fit in memory, else a fair and growing sample.

A space of up to 30,000 valid configs is held whole, however many combinations of values its constraints leave out, if
these can be walked soon. A larger space is never enumerated: the sample has random configs and the neighbours of the
best configs so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from triton_ops.search.columns import Encoder, Floats
from triton_ops.search.sampling import draws
from triton_ops.space import Config, ConfigSpace, all_configs

_WHOLE = 30_000  # most valid configs of a space that is held whole: about 30 MB, and 0.5 s to encode
_SAMPLE = 2_000  # random configs that are added to the sample at a time
_FEW = 200  # with fewer open configs, further random configs are added


class OpenConfigs:
    """The configs that may still be proposed, each with its row.

    Attributes:
        whole: Whether `configs` is the whole space.
        configs: All configs of the sample, proposed or not.
        rows: The rows of `configs`, in the same order.
        open: For each of `configs`, whether it may still be proposed.
    """

    def __init__(self, space: ConfigSpace, encoder: Encoder, seed: int) -> None:
        self._space = space
        self._encoder = encoder
        self._rng = random.Random(seed)
        all_valid = all_configs(space, _WHOLE)
        self.whole = all_valid is not None
        self.configs: list[Config] = []
        self.rows: Floats = np.zeros((0, encoder.columns))
        self.open: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._at: dict[Config, int] = {}
        self._proposals: set[Config] = set()
        self._reserve: dict[Config, None] = {}
        self._draws = iter(()) if all_valid is not None else draws(space, self._rng)
        self._add(all_valid if all_valid is not None else islice(self._draws, _SAMPLE))

    def take(self, config: Config) -> None:
        """Close `config`, because it is proposed or was tried otherwise."""
        self._proposals.add(config)
        if (at := self._at.get(config)) is not None:
            self.open[at] = False

    def hold(self, config: Config) -> None:
        """Propose `config` only when no other config is left."""
        if config not in self._proposals:
            self._reserve[config] = None
            if (at := self._at.get(config)) is not None:
                self.open[at] = False

    def place(self, config: Config) -> int | None:
        """The position of `config` in `configs`; None if it is not in the sample."""
        return self._at.get(config)

    def position(self, config: Config) -> int | None:
        """The position of `config` in `configs`; None if it may not be proposed any more."""
        at = self._at.get(config)
        return at if at is not None and self.open[at] else None

    def left(self) -> NDArray[np.intp]:
        """Positions of the configs that may still be proposed; empty only if the space has no such config."""
        if not self.whole and int(self.open.sum()) < _FEW:
            self._add(islice(self._draws, _SAMPLE))
        if self._reserve and not self.open.any():
            self._bring_back()
        return np.flatnonzero(self.open)

    def widen(self, leaders: Sequence[Config]) -> None:
        """Add the neighbours of `leaders`, the best configs so far, unless the whole space is held."""
        if not self.whole:
            for leader in leaders:
                self._add(self._space.neighbours(leader))

    def nearby(self, leaders: Sequence[Config]) -> NDArray[np.intp]:
        """Positions of the open configs, the nearest to any of `leaders` first."""
        positions = self.left()
        if not leaders:
            return positions[:0]
        rows = self.rows[positions]
        steps = np.min([np.abs(rows - row).sum(axis=1) for row in self._encoder.rows(leaders)], axis=0)
        return positions[np.argsort(steps, kind="stable")]

    def _bring_back(self) -> None:
        """Open the configs of `hold` that were not proposed since."""
        configs, self._reserve = [config for config in self._reserve if config not in self._proposals], {}
        self._add(configs)
        self.open[[self._at[config] for config in configs]] = True

    def _add(self, configs: Iterable[Config]) -> None:
        new = [config for config in dict.fromkeys(configs) if config not in self._at]
        if not new:
            return
        self._at.update((config, at) for at, config in enumerate(new, len(self.configs)))
        self.configs += new
        self.rows = np.vstack([self.rows, self._encoder.rows(new)])
        self.open = np.append(
            self.open, [config not in self._proposals and config not in self._reserve for config in new]
        )
