"""Depth-first search for values that keep constraints, which strikes out what cannot be chosen as early as it is known.

A constraint is asked as soon as all but one of its tunables have a value, for each value that is left for the last one.
A value of the first tunable that goes with no value of the last is therefore refused before the tunables between them
are chosen. A search that asks predicates more often than its limit allows ends with `TooManyAsks`, so that it always
ends.

The valid configs of a space are the product of the valid rows of its groups. Whether there is any, which is first, how
many there are and how to draw one is therefore asked of each group by itself, in its own few combinations, and never of
the product of all tunables.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from triton_ops.base import BoundedDict, cached_property
from triton_ops.space.config import Value
from triton_ops.space.tunable import Constraint, Tunable

Domains: TypeAlias = Mapping[str, Sequence[Value]]  # the values that each tunable may still take, in order

PROJECTION_LIMIT = 50_000  # most combinations of one constraint's tunables that are all asked for, in about 0.05 s


class TooManyAsks(Exception):  # noqa: N818 - no error: it ends a search, and its caller says what that means
    """A search asked predicates as often as it may."""


class Asks:
    """Counts how often predicates are asked; without a limit, for ever."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._since = 0

    def keeps(self, constraint: Constraint, values: Mapping[str, Any]) -> bool:
        """True if `values` keep `constraint`; TooManyAsks at the limit."""
        if self._since == self._limit:
            raise TooManyAsks
        self._since += 1
        return constraint.kept_by(values)

    def restart(self) -> None:
        """Count from zero."""
        self._since = 0


class SpaceWalk:
    """The combinations of values, one for each name, that keep all constraints.

    The names are in the order in which they are chosen; the last changes fastest. The constraints are over two or more
    of them; a group's domains keep those over one. With `rng` the values of each tunable are tried in random order.
    After each choice `promising` is asked, with its name and the values chosen so far; False leaves out all rows that
    begin with them.
    """

    def __init__(
        self, names: Sequence[str], constraints: Sequence[Constraint], domains: Domains, *, asks: Asks,
        rng: random.Random | None = None, promising: Callable[[str, Mapping[str, Value]], bool] | None = None,
    ) -> None:  # fmt: skip
        self._names, self._domains, self._asks, self._rng, self._promising = names, domains, asks, rng, promising
        self._narrows_at = _narrowing(names, constraints)

    def rows(self, prefix: Mapping[str, Value] | None = None) -> Iterator[dict[str, Value]]:
        """All combinations that begin with `prefix`, values of the first names, lazily; TooManyAsks at the limit."""
        values: dict[str, Value] = {}
        domains = self._domains
        for name, value in (prefix or {}).items():
            values[name] = value
            if (rest := self._narrow(name, values, domains)) is None:
                return
            domains = rest
        yield from self._below(values, len(values), domains)

    def _below(self, values: dict[str, Value], at: int, domains: Domains) -> Iterator[dict[str, Value]]:
        if at == len(self._names):
            yield dict(values)
            return
        name = self._names[at]
        options = domains[name]
        for value in options if self._rng is None else self._rng.sample(options, len(options)):
            values[name] = value
            rest = self._narrow(name, values, domains)
            if rest is not None and (self._promising is None or self._promising(name, values)):
                yield from self._below(values, at + 1, rest)
        values.pop(name, None)

    def _narrow(self, name: str, values: Mapping[str, Value], domains: Domains) -> Domains | None:
        """The values that are left for later tunables once `name` has its value; None if one has none left."""
        if not (rules := self._narrows_at[name]):
            return domains
        rest = dict(domains)
        for constraint, free in rules:
            rest[free] = [v for v in rest[free] if self._asks.keeps(constraint, {**values, free: v})]
            if not rest[free]:
                return None
        return rest


def _narrowing(names: Sequence[str], constraints: Sequence[Constraint]) -> dict[str, list[tuple[Constraint, str]]]:
    """For each name, the constraints that have one tunable without a value once it is chosen, with that tunable."""
    place = {name: at for at, name in enumerate(names)}
    rules: dict[str, list[tuple[Constraint, str]]] = {name: [] for name in names}
    for constraint in constraints:
        *_, before, last = sorted(set(constraint.names), key=place.__getitem__)
        rules[before].append((constraint, last))
    return rules


def narrowed_by_projections(
    constraints: Sequence[Constraint], domains: Domains
) -> tuple[dict[str, Sequence[Value]], Constraint | None]:
    """`domains` without the values that occur in no combination that one of `constraints` keeps.

    Each constraint over at most 50,000 combinations is asked about all of them. The second answer is the constraint
    that left none of its combinations, or None.
    """
    rest = dict(domains)
    for constraint in constraints:
        names, axes = constraint.names, [rest[name] for name in constraint.names]
        if math.prod(map(len, axes)) > PROJECTION_LIMIT:
            continue
        products = itertools.product(*map(enumerate, axes))
        rows = [row for row in products if constraint.kept_by({n: v for n, (_, v) in zip(names, row, strict=True)})]
        for place, name in enumerate(names):
            places = {row[place][0] for row in rows}
            rest[name] = [value for at, value in enumerate(axes[place]) if at in places]
        if not rows:
            return rest, constraint
    return rest, None


_FIRST_ASKS = 20_000  # asks of the first search for a row, which ends much sooner in nearly every space
_LONGER_ASKS = 200_000  # asks of each further search: about 0.3 s
_RESTARTS = 5  # searches from random beginnings, after those in order
_PREFIX_ASKS = 20_000  # asks of a search whether some values can be completed; beyond, they count as if they could
_MOST_PREFIXES = 100_000  # prefixes whose answer is remembered: about 30 MB
_DRAWS = 100  # of whole rows by chance, before a walk looks for one
_DRAW_ASKS = 100_000  # asks of that walk
COUNT_LIMIT = 50_000  # combinations of a group that are counted in any case, and asks for those of a larger: 0.1 s


@dataclass(frozen=True)
class RowOutcome:
    """The outcome of a search for a row of a group."""

    row: Mapping[str, Value] | None  # None if there is none, or none was found
    sure: bool = True  # whether there is none if `row` is None; otherwise the search ended before it knew
    refusing: tuple[Constraint, ...] = ()  # where `row` is None, the constraints that refused all that was asked


@dataclass(frozen=True)
class Group:
    """Tunables that constraints join, or one tunable that none joins to another, in the order of the space."""

    names: tuple[str, ...]
    constraints: tuple[Constraint, ...]  # all over them
    values: Domains  # all of each tunable

    @cached_property
    def domains(self) -> Domains:
        """The values that no constraint over one tunable refuses."""
        rest = dict(self.values)
        for constraint in self.constraints:
            if len(constraint.names) == 1:
                (name,) = constraint.names
                rest[name] = [value for value in rest[name] if constraint.kept_by({name: value})]
        return rest

    @property
    def joined(self) -> tuple[Constraint, ...]:
        """The constraints over two or more tunables."""
        return tuple(constraint for constraint in self.constraints if len(constraint.names) > 1)

    @cached_property
    def count(self) -> int | None:
        """The number of rows; None if counting them would take long."""
        total = math.prod(len(self.domains[name]) for name in self.names)
        if not self.joined:
            return total
        try:
            asks = Asks(None if total <= COUNT_LIMIT else COUNT_LIMIT)
            return sum(1 for _ in SpaceWalk(self.names, self.joined, self.domains, asks=asks).rows())
        except TooManyAsks:
            return None

    @cached_property
    def first(self) -> RowOutcome:
        """The first row in the order of the tunables' values; another one where that cannot be found in time.

        Cost: at most 1,220,000 asks of predicates beside those of single constraints, in about two seconds.
        """
        outcome = self._search(_FIRST_ASKS, self.domains)
        if outcome.sure:
            return outcome
        domains, refusing = narrowed_by_projections(self.joined, self.domains)
        if refusing is not None:
            return RowOutcome(None, refusing=(refusing,))
        outcome = self._search(_LONGER_ASKS, domains)
        return outcome if outcome.sure else self._search_by_chance(domains, random.Random(0))

    def draw(self, rng: random.Random) -> Mapping[str, Value] | None:
        """A random row; None if there is none, or none was found.

        The row is uniform if it is found by chance soon; otherwise a walk takes random values one by one.
        """
        if not all(self.domains.values()):
            return None
        for _ in range(_DRAWS):
            row = {name: rng.choice(self.domains[name]) for name in self.names}
            if all(constraint.kept_by(row) for constraint in self.joined):
                return row
        return self._search(_DRAW_ASKS, self.domains, rng=rng).row or self.first.row

    def can_complete(self, prefix: Mapping[str, Value]) -> bool:
        """True if some row begins with `prefix`, the values of the group's first tunables; False is never wrong."""
        outcome = self._search(_PREFIX_ASKS, self.domains, prefix)
        return outcome.row is not None or not outcome.sure

    def _search_by_chance(self, domains: Domains, rng: random.Random) -> RowOutcome:
        """A row by walks that take random values, and after the first also the tunables in random order."""
        names = list(self.names)
        for _ in range(_RESTARTS):
            outcome = self._search(_LONGER_ASKS, domains, rng=rng, names=names)
            if outcome.sure:
                return outcome
            rng.shuffle(names)
        return outcome

    def _search(
        self, most_asks: int, domains: Domains, prefix: Mapping[str, Value] | None = None, *,
        rng: random.Random | None = None, names: Sequence[str] = (),
    ) -> RowOutcome:  # fmt: skip
        walk = SpaceWalk(names or self.names, self.joined, domains, asks=Asks(most_asks), rng=rng)
        try:
            return RowOutcome(next(walk.rows(prefix), None), refusing=self.constraints)
        except TooManyAsks:
            return RowOutcome(None, sure=False, refusing=self.constraints)


class Completions:
    """Answers whether the values chosen so far, over all groups, can be completed in the group of the last one.

    It is asked only after a tunable whose group goes on later than at the next tunable: a walk finds out the rest by
    itself. Answers are remembered.
    """

    def __init__(self, names: Sequence[str], groups: Sequence[Group]) -> None:
        self._prefixes: dict[str, tuple[Group, tuple[str, ...]]] = {}
        self._answers = BoundedDict[tuple[str, str], bool](_MOST_PREFIXES)
        following = dict(pairwise(names))
        for group in groups:
            for at, name in enumerate(group.names[:-1], 1):
                if following[name] != group.names[at]:
                    self._prefixes[name] = (group, group.names[:at])

    def __call__(self, name: str, values: Mapping[str, Value]) -> bool:
        """True if the group of `name`, which was chosen last, has a row with the values chosen so far."""
        if name not in self._prefixes:
            return True
        group, names = self._prefixes[name]
        prefix = {each: values[each] for each in names}
        key = (name, repr(list(prefix.values())))  # the text tells True from 1
        if key not in self._answers:
            self._answers[key] = group.can_complete(prefix)
        return self._answers[key]


def groups_of(tunables: Mapping[str, Tunable], constraints: Sequence[Constraint]) -> tuple[Group, ...]:
    """The groups of a space's tunables, in the order of their first tunables."""
    joined = {name: {name} for name in tunables}
    for constraint in constraints:
        together = set().union(*(joined[name] for name in constraint.names))
        joined.update(dict.fromkeys(together, together))
    sets = {id(together): together for together in joined.values()}
    groups = []
    for together in sets.values():
        own = tuple(constraint for constraint in constraints if together.intersection(constraint.names))
        values = {name: tunable.values for name, tunable in tunables.items() if name in together}
        groups.append(Group(tuple(values), own, values))
    return tuple(groups)
