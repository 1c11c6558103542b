"""Depth-first search for values that keep constraints, which strikes out what cannot be chosen as early as it is known.

A constraint is asked as soon as all but one of its tunables have a value, for each value that is left for the last one.
A value of the first tunable that goes with no value of the last is therefore refused before the tunables between them
are chosen. A search that asks predicates more often than its limit allows ends with `TooManyAsks`, so that it always
ends.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from triton_ops.space.constraint import Constraint
from triton_ops.space.tunable import Value

Domains: TypeAlias = Mapping[str, Sequence[Value]]  # the values that each tunable may still take, in order

PROJECTION_LIMIT = 50_000  # most combinations of one constraint's tunables that are all asked for, in about 0.05 s


class TooManyAsks(Exception):  # noqa: N818 - no error: it ends a search, and its caller says what that means
    """A search asked predicates as often as it may."""


class Asks:
    """Counts how often predicates are asked.

    Args:
        limit: Most asks until `restart`; None is no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._since = 0

    def kept(self, constraint: Constraint, values: Mapping[str, Any]) -> bool:
        """Whether `values` keep `constraint`.

        Raises:
            TooManyAsks: The limit is reached.
            ConstraintError: The predicate raised.
        """
        if self._since == self._limit:
            raise TooManyAsks
        self._since += 1
        return constraint.kept_by(values)

    def restart(self) -> None:
        """Count from zero."""
        self._since = 0


class Walk:
    """The combinations of values, one for each name, that keep all constraints.

    Args:
        names: The tunables in the order in which they are chosen; the last changes fastest.
        constraints: Constraints over two or more of `names`; `narrowed_alone` answers those over one.
        domains: The values of each tunable.
        asks: Counts the asks of this walk.
        rng: Tries the values of each tunable in random order; None keeps their order.
        promising: Asked after each choice, with its name and the values chosen so far; False leaves out all rows that
            begin with them.
    """

    def __init__(
        self,
        names: Sequence[str],
        constraints: Sequence[Constraint],
        domains: Domains,
        *,
        asks: Asks,
        rng: random.Random | None = None,
        promising: Callable[[str, Mapping[str, Value]], bool] | None = None,
    ) -> None:
        self._names = names
        self._domains = domains
        self._asks = asks
        self._rng = rng
        self._promising = promising
        self._narrows_at = _narrowing(names, constraints)

    def rows(self, chosen: Mapping[str, Value] | None = None) -> Iterator[dict[str, Value]]:
        """All combinations that begin with `chosen`, the values of the first names, lazily.

        Raises:
            TooManyAsks: The limit of asks is reached.
            ConstraintError: A predicate raised.
        """
        begun: dict[str, Value] = {}
        domains = self._domains
        for name, value in (chosen or {}).items():
            begun[name] = value
            left = self._narrowed(name, begun, domains)
            if left is None:
                return
            domains = left
        yield from self._below(begun, len(begun), domains)

    def _below(self, chosen: dict[str, Value], at: int, domains: Domains) -> Iterator[dict[str, Value]]:
        if at == len(self._names):
            yield dict(chosen)
            return
        name = self._names[at]
        for value in self._in_order(domains[name]):
            chosen[name] = value
            left = self._narrowed(name, chosen, domains)
            if left is not None and (self._promising is None or self._promising(name, chosen)):
                yield from self._below(chosen, at + 1, left)
        chosen.pop(name, None)

    def _in_order(self, values: Sequence[Value]) -> Sequence[Value]:
        return values if self._rng is None else self._rng.sample(values, len(values))

    def _narrowed(self, name: str, chosen: Mapping[str, Value], domains: Domains) -> Domains | None:
        """The values that are left for later tunables once `name` has its value; None if one has none left."""
        rules = self._narrows_at[name]
        if not rules:
            return domains
        left = dict(domains)
        for constraint, free in rules:
            left[free] = [v for v in left[free] if self._asks.kept(constraint, {**chosen, free: v})]
            if not left[free]:
                return None
        return left


def _narrowing(names: Sequence[str], constraints: Sequence[Constraint]) -> dict[str, list[tuple[Constraint, str]]]:
    """For each name, the constraints that have one tunable without a value once it is chosen, with that tunable."""
    place = {name: at for at, name in enumerate(names)}
    found: dict[str, list[tuple[Constraint, str]]] = {name: [] for name in names}
    for constraint in constraints:
        *_, before, last = sorted(set(constraint.names), key=place.__getitem__)
        found[before].append((constraint, last))
    return found


def narrowed_alone(constraints: Sequence[Constraint], domains: Domains) -> dict[str, Sequence[Value]]:
    """`domains` without the values that a constraint over one tunable refuses.

    Raises:
        ConstraintError: A predicate raised.
    """
    left = dict(domains)
    for constraint in constraints:
        if len(constraint.names) == 1:
            (name,) = constraint.names
            left[name] = [value for value in left[name] if constraint.kept_by({name: value})]
    return left


def narrowed_by_projections(
    constraints: Sequence[Constraint], domains: Domains
) -> tuple[dict[str, Sequence[Value]], Constraint | None]:
    """`domains` without the values that occur in no combination that one of `constraints` keeps.

    Each constraint over at most 50,000 combinations is asked about all of them.

    Returns:
        The domains, and the constraint that left none of its combinations, or None.

    Raises:
        ConstraintError: A predicate raised.
    """
    left = dict(domains)
    for constraint in constraints:
        axes = [left[name] for name in constraint.names]
        if math.prod(map(len, axes)) > PROJECTION_LIMIT:
            continue
        kept = [row for row in itertools.product(*map(range, map(len, axes))) if _keeps(constraint, axes, row)]
        for place, name in enumerate(constraint.names):
            used = {row[place] for row in kept}
            left[name] = [value for at, value in enumerate(axes[place]) if at in used]
        if not kept:
            return left, constraint
    return left, None


def _keeps(constraint: Constraint, axes: Sequence[Sequence[Value]], row: tuple[int, ...]) -> bool:
    chosen = (values[at] for values, at in zip(axes, row, strict=True))
    return constraint.kept_by(dict(zip(constraint.names, chosen, strict=True)))
