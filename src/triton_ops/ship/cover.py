"""The choice of at most k columns of a matrix of regrets: exact where the search ends in time, else with a bound.

A row is a problem and a column a config. A cell is the regret of the config on the problem, the share by which it is
slower than the best config that was measured there; it is infinite where the config was not measured, or failed. A
problem is served by the best of the chosen configs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

NODES = 30_000
"""Steps that the exact search may take: a second or two for hundreds of configs."""
_EPSILON = 1e-12
_UNSERVED = 1e6  # regret of a row that no chosen column serves, for means; sums with it keep ten decimals


@dataclass(frozen=True)
class Choice:
    """A choice of columns.

    Attributes:
        columns: The chosen ones, those first that serve most rows.
        value: The worst or the mean regret, as was asked for; infinite if a row is not served.
        bound: No choice of as many columns has a smaller one.
    """

    columns: tuple[int, ...]
    value: float
    bound: float

    @property
    def exact(self) -> bool:
        """Whether no choice is better."""
        return self.value <= self.bound + _EPSILON


Cells: TypeAlias = "NDArray[np.float64]"
Matrix: TypeAlias = Sequence[Sequence[float]]


def least_worst(regrets: Matrix, weights: Sequence[float], k: int, nodes: int = NODES) -> Choice:
    """At most k columns with the least worst regret over all rows; of equal ones, one with a small mean regret.

    The least worst regret is one of the cells, and k columns reach it if they cover all rows by cells that are no
    larger: the cells are searched by halves, each time for such a cover.

    Args:
        regrets: Rows of cells.
        weights: What each row counts in the mean; positive.
        k: The most columns, 1 or more.
        nodes: Steps of the search; where they do not suffice, the value is that of a greedy cover.
    """
    levels = sorted({cell for row in regrets for cell in row if math.isfinite(cell)})
    best: tuple[int, ...] | None = None
    low, high, known = 0, len(levels), 0  # below `known` all levels are known to be too small
    budget = _Budget(nodes)
    while low < high:
        middle = (low + high) // 2
        cover = _cover(_sets(regrets, levels[middle]), len(regrets), k, budget)
        if cover is not None:
            best, high = cover, middle
            continue
        if not budget.spent:
            known = middle + 1
        low = middle + 1
    if best is None:
        best = _greedy_mean(regrets, weights, k)
        value, bound = worst(regrets, best), math.inf if known == len(levels) else levels[known]
        return Choice(_ordered(regrets, best), value, min(value, bound))
    value = levels[high]
    best = _with_less_mean(regrets, weights, best, value, k)
    return Choice(_ordered(regrets, best), worst(regrets, best), min(worst(regrets, best), levels[known]))


def least_mean(regrets: Matrix, weights: Sequence[float], k: int, nodes: int = NODES) -> Choice:
    """At most k columns with the least weighted mean regret over all rows.

    Columns are added greedily and exchanged one by one; then a search by branch and bound looks for better ones.

    Args:
        regrets: Rows of cells.
        weights: What each row counts; positive.
        k: The most columns, 1 or more.
        nodes: Steps of the search; where they do not suffice, the bound is that of the greedy choice.
    """
    start = _greedy_mean(regrets, weights, k)
    search = _Branches(regrets, weights, k, _Budget(nodes), start)
    search.run()
    found = search.best
    value = mean(regrets, weights, found)
    bound = value if not search.budget.spent else min(value, _bound_of_mean(regrets, weights, k, found))
    return Choice(_ordered(regrets, found), value, bound)


def worst(regrets: Matrix, columns: Sequence[int]) -> float:
    """The largest regret of a row, each served by the best of some columns."""
    return max((_served(row, columns) for row in regrets), default=0.0)


def mean(regrets: Matrix, weights: Sequence[float], columns: Sequence[int]) -> float:
    """The weighted mean regret of the rows, each served by the best of some columns; infinite if one is not served."""
    served = [_served(row, columns) for row in regrets]
    if not all(map(math.isfinite, served)):
        return math.inf
    return math.fsum(w * each for w, each in zip(weights, served, strict=True)) / math.fsum(weights) if served else 0.0


def _served(row: Sequence[float], columns: Sequence[int]) -> float:
    return min((row[column] for column in columns), default=math.inf)


def _ordered(regrets: Matrix, columns: Sequence[int]) -> tuple[int, ...]:
    """The columns that serve a row, those first that serve most."""
    counts = dict.fromkeys(columns, 0)
    for row in regrets:
        if math.isfinite(_served(row, columns)):
            counts[min(columns, key=lambda column: row[column])] += 1
    return tuple(sorted((column for column in columns if counts[column]), key=lambda column: (-counts[column], column)))


class _Budget:
    """Steps of a search; `spent` says that they did not suffice."""

    def __init__(self, nodes: int) -> None:
        self._left, self.spent = nodes, False

    def step(self) -> bool:
        """Whether one more step may be taken."""
        self._left -= 1
        self.spent = self.spent or self._left < 0
        return not self.spent


def _sets(regrets: Matrix, level: float) -> list[int]:
    """For each column, the rows that it covers by cells of at most `level`, as the bits of a number."""
    columns = len(regrets[0]) if regrets else 0
    sets = [0] * columns
    for at, row in enumerate(regrets):
        for column, cell in enumerate(row):
            if cell <= level:
                sets[column] |= 1 << at
    return sets


def _cover(sets: Sequence[int], rows: int, k: int, budget: _Budget) -> tuple[int, ...] | None:
    """At most k columns that cover all rows; None if there are none, or if the budget of steps is spent."""
    useful = _undominated(sets)
    rare = sorted(range(rows), key=lambda row: sum(sets[column] >> row & 1 for column in useful))  # covered by few

    def further(left: int, more: int, chosen: tuple[int, ...]) -> tuple[int, ...] | None:
        if not left:
            return chosen
        gains = heapq.nlargest(more, ((sets[column] & left).bit_count() for column in useful))
        if not more or sum(gains) < left.bit_count() or not budget.step():
            return None
        row = next(each for each in rare if left >> each & 1)
        able = [column for column in useful if sets[column] >> row & 1]
        for column in sorted(able, key=lambda column: -(sets[column] & left).bit_count()):
            if (found := further(left & ~sets[column], more - 1, (*chosen, column))) is not None:
                return found
        return None

    return further((1 << rows) - 1, k, ())


def _undominated(sets: Sequence[int]) -> list[int]:
    """The columns that are not part of another one."""
    order = sorted(range(len(sets)), key=lambda column: -sets[column].bit_count())
    kept: list[int] = []
    for column in order:
        if sets[column] and not any(sets[column] | sets[other] == sets[other] for other in kept):
            kept.append(column)
    return kept


def _capped(regrets: Matrix) -> list[list[float]]:
    return [[min(cell, _UNSERVED) for cell in row] for row in regrets]


def _greedy_mean(regrets: Matrix, weights: Sequence[float], k: int) -> tuple[int, ...]:
    """Columns that are added one by one where they lower the mean most, then exchanged one by one."""
    cells, counts = np.array(_capped(regrets), dtype=np.float64), np.array(weights)
    if not cells.size:
        return ()
    chosen: tuple[int, ...] = ()
    for _ in range(k):
        _, more = _one_more(cells, counts, chosen)
        if chosen and _total(cells, counts, more) >= _total(cells, counts, chosen) - _EPSILON:
            break
        chosen = more
    return _exchanged(cells, counts, chosen, math.inf, k)


def _with_less_mean(
    regrets: Matrix, weights: Sequence[float], start: tuple[int, ...], level: float, k: int
) -> tuple[int, ...]:
    """Columns of the same worst regret at most, with a mean that no addition and no exchange of one column lowers."""
    return _exchanged(np.array(_capped(regrets), dtype=np.float64), np.array(weights), start, level, k)


def _exchanged(cells: Cells, weights: Cells, start: tuple[int, ...], level: float, k: int) -> tuple[int, ...]:
    """Columns after all additions and exchanges of one that lower the total, with cells of at most `level`.

    Totals are compared as one function gives them, so that each step lowers it and the steps end: sums of the same
    numbers in another order differ in their last digits, and two choices could each seem better than the other.
    """
    chosen, total = start, _total(cells, weights, start)
    while True:
        kept = [(*chosen[:at], *chosen[at + 1 :]) for at in range(len(chosen))]
        kept += [chosen] if len(chosen) < k else []
        least, better = min(_one_more(cells, weights, each, level) for each in kept)
        lower = _total(cells, weights, better)
        if math.isinf(least) or lower >= total - _EPSILON:
            return chosen
        chosen, total = better, lower


def _one_more(
    cells: Cells, weights: Cells, chosen: tuple[int, ...], level: float = math.inf
) -> tuple[float, tuple[int, ...]]:
    """The least total with one more column, infinite if each leaves a row above `level`, and the columns."""
    served = np.minimum(cells, _row_minima(cells, chosen)[:, None])
    totals = weights @ served
    totals[served.max(axis=0) > level] = math.inf
    added = int(np.argmin(totals))
    return float(totals[added]), (*chosen, added)


def _total(cells: Cells, weights: Cells, chosen: tuple[int, ...]) -> float:
    return math.fsum(weights * _row_minima(cells, chosen))


def _row_minima(cells: Cells, chosen: tuple[int, ...]) -> Cells:
    if not chosen:
        return np.full(len(cells), _UNSERVED)
    found: Cells = cells[:, list(chosen)].min(axis=1)
    return found


def _bound_of_mean(regrets: Matrix, weights: Sequence[float], k: int, chosen: Sequence[int]) -> float:
    """A mean below which no k columns come: what each further column saves falls with every column that is added.

    So k columns save no more beside `chosen` than the k that save most alone.
    """
    cells = _capped(regrets)
    now = [min(row[column] for column in chosen) for row in cells]
    saved = sorted(
        (
            math.fsum(w * max(0.0, here - row[column]) for w, here, row in zip(weights, now, cells, strict=True))
            for column in range(len(cells[0]))
        ),
        reverse=True,
    )
    total = math.fsum(w * here for w, here in zip(weights, now, strict=True))
    return max(0.0, (total - math.fsum(saved[:k])) / math.fsum(weights))


class _Branches:
    """Branch and bound for the least mean, over columns in the order of their own means."""

    def __init__(
        self, regrets: Matrix, weights: Sequence[float], k: int, budget: _Budget, start: tuple[int, ...]
    ) -> None:
        self.budget, self.best, self._k = budget, start, k
        self._weights, cells = weights, _capped(regrets)
        columns = range(len(cells[0]) if cells else 0)
        totals = {c: math.fsum(w * row[c] for w, row in zip(weights, cells, strict=True)) for c in columns}
        self._order = sorted(columns, key=lambda column: totals[column])
        self._columns = [[row[column] for row in cells] for column in self._order]
        self._rest = self._best_of_the_rest(len(cells))
        self._least = self._total(self._served(start, cells))

    def run(self) -> None:
        """Search; `best` is then the best choice that was found, the best of all unless the budget is spent."""
        self._further(0, (), [_UNSERVED] * len(self._rest[0]))

    def _further(self, at: int, chosen: tuple[int, ...], served: list[float]) -> None:
        total = self._total(served)
        if total < self._least - _EPSILON:
            self._least, self.best = total, tuple(self._order[place] for place in chosen)
        if len(chosen) == self._k:
            return
        for place in range(at, len(self._order)):
            if self._total(list(map(min, served, self._rest[place]))) >= self._least - _EPSILON:
                return  # nor can those after it
            if not self.budget.step():
                return
            self._further(place + 1, (*chosen, place), list(map(min, served, self._columns[place])))

    def _best_of_the_rest(self, rows: int) -> list[list[float]]:
        """For each place, what each row is served with by all columns from there on."""
        rest = [[_UNSERVED] * rows]
        for column in reversed(self._columns):
            rest.append(list(map(min, rest[-1], column)))
        return rest[::-1]

    def _total(self, served: Sequence[float]) -> float:
        return math.fsum(w * each for w, each in zip(self._weights, served, strict=True))

    @staticmethod
    def _served(chosen: Sequence[int], cells: Matrix) -> list[float]:
        return [min((row[column] for column in chosen), default=_UNSERVED) for row in cells]
