"""The choice of at most k columns of a matrix of regrets, with a bound below which no choice lies.

A row is a problem and a column a config. A cell is the regret of the config on the problem, the share by which it is
slower than the best config that was measured there; it is infinite where the config was not measured, or failed. A
problem is served by the best of the chosen configs.

A choice grows greedily, with exchanges of single columns. A mixed-integer program then looks for a better one.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.base import require

SECONDS = 10.0
"""Time of the integer program; 300 configs on 40 problems, made at random, took it less than a second."""
_EPSILON = 1e-12
_PURPOSE = "choosing a portfolio"
_OPTIMAL, _INFEASIBLE = 0, 2  # statuses of `scipy.optimize.milp`

Cells: TypeAlias = "NDArray[np.float64]"
Matrix: TypeAlias = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Choice:
    """A choice of columns."""

    columns: tuple[int, ...]  # those first that serve most rows
    value: float  # the worst or the mean regret, as was asked for; infinite if a row is not served
    bound: float  # no choice of as many columns has a smaller value

    @property
    def exact(self) -> bool:
        """True if no choice is better."""
        return self.value <= self.bound + _EPSILON


def least_worst(regrets: Matrix, weights: Sequence[float], k: int, seconds: float = SECONDS) -> Choice:
    """At most k columns with the least worst regret over all rows; of equal ones, one with a small mean regret.

    The least worst regret is one of the cells, and k columns reach it if they cover all rows by cells that are no
    larger: the cells below the regret of a greedy choice are searched by halves, each time for such a cover. The
    weights, all positive, are what each row counts in the mean. Where the seconds do not suffice, the best cover so far
    counts.
    """
    greedy = _Exchange(regrets, weights, k, worst_first=True)
    columns = greedy.improve(())
    value = worst(regrets, columns)
    levels = sorted({cell for row in regrets for cell in row if cell < value})
    levels.append(value)
    low, high, proven = 0, len(levels) - 1, 0  # no k columns reach a level before `proven`
    until = time.monotonic() + seconds
    while low < high:
        middle = (low + high) // 2
        cover, impossible = _cover(np.array(regrets) <= levels[middle], k, until - time.monotonic())
        if cover is not None:
            columns, high = cover, middle
            continue
        low = middle + 1
        proven = low if impossible else proven
    columns = greedy.improve(columns)
    value = worst(regrets, columns)
    return Choice(_order(regrets, columns), value, min(value, levels[proven]))


def least_mean(regrets: Matrix, weights: Sequence[float], k: int, seconds: float = SECONDS) -> Choice:
    """At most k columns with the least weighted mean regret over all rows, as far as the seconds suffice."""
    exchange = _Exchange(regrets, weights, k)
    start = exchange.improve(())
    columns, least = _median(exchange, start, seconds)
    value = mean(regrets, weights, columns)
    bound = math.inf if least > exchange.most_served else least / math.fsum(weights)
    return Choice(_order(regrets, columns), value, min(value, bound))


def worst(regrets: Matrix, columns: Sequence[int]) -> float:
    """The largest regret of a row, each served by the best of some columns."""
    return max((_row_value(row, columns) for row in regrets), default=0.0)


def mean(regrets: Matrix, weights: Sequence[float], columns: Sequence[int]) -> float:
    """The weighted mean regret of the rows, each served by the best of some columns; infinite if one is not served."""
    rows = [_row_value(row, columns) for row in regrets]
    if not all(map(math.isfinite, rows)):
        return math.inf
    return math.fsum(w * each for w, each in zip(weights, rows, strict=True)) / math.fsum(weights) if rows else 0.0


def _row_value(row: Sequence[float], columns: Sequence[int]) -> float:
    return min((row[column] for column in columns), default=math.inf)


def _order(regrets: Matrix, columns: Sequence[int]) -> tuple[int, ...]:
    """The columns that serve a row, those first that serve most."""
    counts = dict.fromkeys(columns, 0)
    for row in regrets:
        if math.isfinite(_row_value(row, columns)):
            counts[min(columns, key=lambda column: row[column])] += 1
    return tuple(sorted((column for column in columns if counts[column]), key=lambda column: (-counts[column], column)))


class _Exchange:
    """Additions and exchanges of single columns."""

    def __init__(self, regrets: Matrix, weights: Sequence[float], k: int, *, worst_first: bool = False) -> None:
        cells = np.array(regrets, dtype=np.float64)
        self.weights, self.k, self._worst_first = np.array(weights, dtype=np.float64), k, worst_first
        largest = cells.max(initial=0.0, where=np.isfinite(cells))
        self.most_served = float(self.weights.sum() * largest)  # no choice that serves all rows has a larger total
        self.unserved = 1.0 + 2.0 * self.most_served / float(self.weights.min(initial=1.0))
        self.cells = np.minimum(cells, self.unserved)  # where there is none, one that outweighs all others

    def cost(self, columns: Sequence[int]) -> tuple[float, float]:
        """The worst regret, 0 unless it comes first, and the total.

        Choices are compared as this function gives their totals, so that each step lowers it and the steps end: sums
        of the same numbers in another order differ in their last digits, and two choices could each seem better than
        the other.
        """
        minima = self._row_minima(columns)
        return float(minima.max()) if self._worst_first else 0.0, math.fsum(self.weights * minima)

    def improve(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        """Columns whose cost no addition and no exchange of one column lowers."""
        while self.cells.size:
            smaller = [(*columns[:at], *columns[at + 1 :]) for at in range(len(columns))]
            smaller += [columns] if len(columns) < self.k else []
            better = min(map(self._with_one_more, smaller), key=self.cost)
            (level, total), (now, least) = self.cost(better), self.cost(columns)
            if (level, total) >= (now, least - _EPSILON):
                break
            columns = better
        return columns

    def _with_one_more(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        minima = np.minimum(self.cells, self._row_minima(columns)[:, None])
        totals = self.weights @ minima
        levels = minima.max(axis=0) if self._worst_first else np.zeros_like(totals)
        return *columns, int(np.lexsort((totals, levels))[0])

    def _row_minima(self, columns: Sequence[int]) -> Cells:
        if not columns:
            return np.full(len(self.cells), self.unserved)
        minima: Cells = self.cells[:, list(columns)].min(axis=1)
        return minima


def _cover(covers: NDArray[np.bool_], k: int, seconds: float) -> tuple[tuple[int, ...] | None, bool]:
    """At most k columns that cover all rows, None if none were met in time, and whether there are none at all."""
    rows, count = covers.shape
    least = np.append(np.ones(rows), -float(k))
    answer = _answer(np.zeros(count), count, np.vstack([covers, -np.ones(count)]), least, seconds)
    return None if answer.x is None else _columns_of(answer.x, count), answer.status == _INFEASIBLE


def _median(exchange: _Exchange, start: tuple[int, ...], seconds: float) -> tuple[tuple[int, ...], float]:
    """The columns of the least total that were met in time, `start` if none are better, and a bound of the total.

    Beside a variable for each column the program has one for each cell but the largest of a row: 1 if no chosen column
    serves the row with as little. These are whole numbers by themselves where the columns are. A choice that serves a
    row with so much that its total is no less than that of `start` is not looked for: cells are capped there.
    """
    total, minima = exchange.cost(start)[1], exchange.cells.min(axis=1, initial=exchange.unserved)
    floor = math.fsum(exchange.weights * minima)
    if total <= floor + _EPSILON:
        return start, total
    count = exchange.cells.shape[1]
    costs, least = [0.0] * count, [-float(exchange.k)]
    entries = [(-1.0, 0, column) for column in range(count)]
    for row, weight, minimum in zip(exchange.cells, exchange.weights, minima, strict=True):
        cap = minimum + (total - floor) / weight
        levels = [*np.unique(row[row < cap]), cap]
        for at, (level, following) in enumerate(itertools.pairwise(levels)):
            entries += [(1.0, len(least), int(column)) for column in np.flatnonzero(row == level)]
            entries += [(1.0, len(least), len(costs)), (-1.0, len(least), len(costs) - 1)][: 2 if at else 1]
            least.append(0.0 if at else 1.0)
            costs.append(float(weight * (following - level)))
    numbers, *places = zip(*entries, strict=True)
    matrix = require("scipy.sparse", _PURPOSE).coo_array((numbers, places), shape=(len(least), len(costs)))
    answer = _answer(np.array(costs), count, matrix, np.array(least), seconds)
    columns = start if answer.x is None else min(start, _columns_of(answer.x, count), key=exchange.cost)
    if answer.status == _OPTIMAL:
        return columns, exchange.cost(columns)[1]
    return columns, floor + max(0.0, answer.mip_dual_bound or 0.0)


def _answer(costs: Cells, whole: int, matrix: Any, least: Cells, seconds: float) -> Any:
    """The answer of the solver: variables between 0 and 1 of least cost, with sums of at least `least`.

    The first `whole` variables are 0 or 1. The matrix has the factors of the variables, a row for each sum.
    """
    optimize = require("scipy.optimize", _PURPOSE)
    return optimize.milp(
        costs,
        integrality=np.arange(len(costs)) < whole,
        bounds=optimize.Bounds(0, 1),
        constraints=optimize.LinearConstraint(matrix, least),
        options={"time_limit": max(0.0, seconds), "mip_rel_gap": 0.0},
    )


def _columns_of(variables: Cells, count: int) -> tuple[int, ...]:
    return tuple(map(int, np.flatnonzero(variables[:count] > 0.5)))
