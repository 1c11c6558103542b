"""What the compiler made of configs that nobody has measured, as a search sees it.

Four numbers of a compiled config say more of its speed than its tunables do, for they are what these come to: registers
and spilled bytes per thread, shared memory per block, and how many blocks a multiprocessor then holds at a time. They
become columns beside the tunables' own. For a config that was not compiled they are expected from those that were, by a
regression on the tunables: a compiler's figures follow from the tunables, and mostly as products of powers.

Two configs that are the same program need measuring once. Equal figures alone do not make them so: on recorded spaces
configs that agree in all four differ by up to 8 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from triton_ops.search.encoding import Floats
from triton_ops.space import Config
from triton_ops.trial import Compiled

COLUMNS = 4
_FEWEST = 6  # compiled configs from which the others' figures are expected
_PENALTY = 0.01  # of the regression's coefficients, where columns go from 0 to 1
_CROSSED = 12  # columns of which products are taken


class CompilerColumns:
    """Configs that were compiled, each with its columns.

    Attributes:
        configs: All of them, in the order seen.
    """

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self._at: dict[Config, int] = {}
        self._rows: list[Floats] = []  # the tunables' columns
        self._made: list[Floats] = []  # the compiler's
        self._launch: dict[Config, str] = {}
        self._same: dict[str, list[Config]] = {}
        self._fitted: Floats | None = None

    def __len__(self) -> int:
        return len(self.configs)

    def places(self, configs: Sequence[Config]) -> NDArray[np.intp]:
        """Where each of these is among `configs`; -1 where it was not seen."""
        return np.array([self._at.get(config, -1) for config in configs], dtype=np.intp)

    @property
    def width(self) -> int:
        """How many there are: none before enough was seen."""
        return COLUMNS if len(self.configs) >= _FEWEST else 0

    def take(self, found: Compiled, row: Floats) -> None:
        """See `found`, a config that can be launched and whose registers are known, with its tunables' row."""
        if found.config in self._at:
            return
        self._at[found.config] = len(self.configs)
        self.configs.append(found.config)
        self._rows.append(row)
        self._made.append(_columns(found))
        self._fitted = None
        if found.launch is not None:
            self._launch[found.config] = found.launch
            self._same.setdefault(found.launch, []).append(found.config)

    def twins(self, config: Config) -> list[Config]:
        """Seen configs that are the same program as `config`."""
        launch = self._launch.get(config)
        return [] if launch is None else [other for other in self._same[launch] if other != config]

    def rows(self, rows: Floats, places: NDArray[np.intp]) -> Floats:
        """`rows` of configs' tunables with the compiler's figures, known or expected, beside them.

        Args:
            rows: Shape (n, tunables' columns).
            places: Shape (n,): from `places`, of the same configs.

        Returns:
            Shape (n, tunables' columns and `width`).
        """
        if not self.width or not len(rows):
            return np.hstack([rows, np.zeros((len(rows), self.width))]) if self.width else rows
        made = np.clip(_terms(rows) @ self._coefficients(), -0.25, 1.25)
        known = places >= 0
        made[known] = np.array(self._made)[places[known]]
        return np.hstack([rows, made])

    def _coefficients(self) -> Floats:
        if self._fitted is None:
            terms, made = _terms(np.array(self._rows)), np.array(self._made)
            penalty = _PENALTY * np.eye(terms.shape[1])
            penalty[0, 0] = 1e-9  # the middle is free
            found: Floats = np.linalg.solve(terms.T @ terms + penalty, terms.T @ made).astype(np.float64)
            self._fitted = found
        return self._fitted


def wasteful(found: Compiled) -> bool:
    """Whether a config that can be launched comes last: a rule has said so, or it spills."""
    return found.deferred or (found.resources is not None and found.resources.wasteful)


def _columns(found: Compiled) -> Floats:
    """Logarithms, each about 0 to 1 over what there is on any device."""
    made = found.resources
    registers, spilled, shared = (
        (0, 0, 0) if made is None else (made.registers or 0, made.spill_bytes or 0, made.shared_bytes or 0)
    )
    return np.array(
        [
            math.log2(max(registers, 16) / 16) / 4,
            min(math.log2(1 + spilled / 4) / 8, 1.0),
            math.log2(max(shared, 1)) / 18,
            math.log2(max(found.resident or 1, 1)) / 5,
        ]
    )


def _terms(rows: Floats) -> Floats:
    """One, each column, its square, and, where there are not too many, the products of two."""
    count, width = rows.shape
    one, two = np.triu_indices(width) if width <= _CROSSED else (np.arange(width), np.arange(width))
    return np.hstack([np.ones((count, 1)), rows, rows[:, one] * rows[:, two]])
