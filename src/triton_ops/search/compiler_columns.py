"""Columns for the surrogate from the compiler's figures of configs, measured or not.

Four figures of a compiled config tell more of its speed than its tunables do: registers and spilled bytes per thread,
shared memory per block, and the number of blocks that a multiprocessor then holds at a time. The figures become columns
beside those of the tunables. For a config that is not compiled, the figures are estimated from the compiled configs by
a regression on the tunables, because the compiler's figures are mostly products of powers of the tunables.

Of two configs that are the same program, one needs to be measured. Equal figures alone do not mean an equal program: on
recorded spaces the times of configs that agree in all four figures differ by up to 8 %.
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
_FEWEST = 6  # compiled configs that the regression needs
_PENALTY = 0.01  # ridge penalty of the regression's coefficients, for columns from 0 to 1
_CROSSED = 12  # products of two columns are taken for at most so many columns


class CompilerColumns:
    """The compiled configs, each with its columns.

    Attributes:
        configs: All compiled configs, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self._at: dict[Config, int] = {}
        self._rows: list[Floats] = []  # the columns of the tunables
        self._made: list[Floats] = []  # the columns of the compiler's figures
        self._launch: dict[Config, str] = {}
        self._same: dict[str, list[Config]] = {}
        self._fitted: Floats | None = None

    def __len__(self) -> int:
        return len(self.configs)

    def places(self, configs: Sequence[Config]) -> NDArray[np.intp]:
        """The position of each config in the attribute `configs`; -1 for a config that was not compiled."""
        return np.array([self._at.get(config, -1) for config in configs], dtype=np.intp)

    @property
    def width(self) -> int:
        """The number of the compiler's columns: 0 until six configs are compiled."""
        return COLUMNS if len(self.configs) >= _FEWEST else 0

    def take(self, found: Compiled, row: Floats) -> None:
        """Add a config that can be launched and whose registers are known, with the row of its tunables."""
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

    def same_program(self, config: Config) -> list[Config]:
        """The other compiled configs that are the same program as `config`."""
        launch = self._launch.get(config)
        return [] if launch is None else [other for other in self._same[launch] if other != config]

    def rows(self, rows: Floats, places: NDArray[np.intp]) -> Floats:
        """The rows of configs' tunables, followed by the compiler's figures, known or estimated.

        Args:
            rows: Rows of the tunables; shape (n, columns of the tunables).
            places: The result of `places` for the same configs; shape (n,).

        Returns:
            Shape (n, columns of the tunables and `width`).
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
            penalty[0, 0] = 1e-9  # the constant term is not penalised
            found: Floats = np.linalg.solve(terms.T @ terms + penalty, terms.T @ made).astype(np.float64)
            self._fitted = found
        return self._fitted


def wasteful(found: Compiled) -> bool:
    """Whether a config that can be launched comes last, because a rule defers it or it spills."""
    return found.deferred or (found.resources is not None and found.resources.wasteful)


def _columns(found: Compiled) -> Floats:
    """The logarithms of the four figures, each scaled to about 0 to 1 over the range of all devices."""
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
    """The terms of the regression: 1, each column, its square, and the products of two columns if there are few."""
    count, width = rows.shape
    one, two = np.triu_indices(width) if width <= _CROSSED else (np.arange(width), np.arange(width))
    return np.hstack([np.ones((count, 1)), rows, rows[:, one] * rows[:, two]])
