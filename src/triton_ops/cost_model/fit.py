"""The expected times of configs that were not read, from those of configs that were.

The logarithm of the time is fitted by a polynomial of second degree in the logarithms of the tunables' numbers; words
and flags are columns of zeros and ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
_RIDGE = 1e-2
_MOST_COLUMNS = 40  # of first degree; with more, columns of second degree would outnumber the configs


class Fit:
    """A fit of the finite expected times, all above 0, of some configs."""

    def __init__(self, configs: Sequence[Mapping[str, Any]], times: Sequence[float]) -> None:
        names = sorted({name for config in configs for name in config})
        self._values = {name: sorted({repr(config.get(name)) for config in configs}) for name in names}
        self._numbers = [name for name in names if all(_is_number(config.get(name)) for config in configs)]
        rows, logs = self._rows(configs), np.log(np.asarray(times, dtype=float))
        self._centre = float(logs.mean())
        square = rows.T @ rows + _RIDGE * len(rows) * np.eye(rows.shape[1])
        self._weights: Floats = np.linalg.solve(square, rows.T @ (logs - self._centre))
        self._low, self._high = float(logs.min()), float(logs.max())

    def times(self, configs: Sequence[Mapping[str, Any]]) -> list[float]:
        """Expected times of other configs of the space, within the range of the known ones."""
        logs = np.clip(self._rows(configs) @ self._weights + self._centre, self._low, self._high)
        return [math.exp(log) for log in logs]

    def _rows(self, configs: Sequence[Mapping[str, Any]]) -> Floats:
        first = np.array([self._first(config) for config in configs], dtype=float).reshape(len(configs), -1)
        columns = [np.ones(len(configs)), *first.T]
        if first.shape[1] <= _MOST_COLUMNS:
            columns += [a * b for a, b in combinations_with_replacement(first.T, 2)]
        return np.stack(columns, axis=1)

    def _first(self, config: Mapping[str, Any]) -> list[float]:
        row: list[float] = []
        for name, values in self._values.items():
            if name in self._numbers:
                row.append(math.log2(config[name]) if _is_number(config.get(name)) else 0.0)
            else:
                row += [float(repr(config.get(name)) == value) for value in values[1:]]
        return row


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
