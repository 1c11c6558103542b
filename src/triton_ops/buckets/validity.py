"""Ranges of extents in which the winner of one problem is also taken for others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops._ranges import Extent
from triton_ops.buckets.extents import extents_of, rest_of


@dataclass(frozen=True)
class Range:
    """The values that some extents, equal among themselves, may have.

    Attributes:
        extents: Names of extents that must all have one value, such as `M`, `a[0]` and `c[0]`.
        low: The least value.
        high: The largest value.

    Raises:
        ValueError: There is no extent, or `low` is above `high`.
    """

    extents: tuple[str, ...]
    low: Extent
    high: Extent

    def __post_init__(self) -> None:
        if not self.extents:
            raise ValueError("a range names no extent")
        if not 0 <= self.low <= self.high:
            raise ValueError(f"the range of {', '.join(self.extents)} is empty: {self.low} to {self.high}")

    def __str__(self) -> str:
        return f"{'='.join(self.extents)} from {self.low} to {self.high}"


def why_outside(
    found: Mapping[str, Any],
    asked: Mapping[str, Any],
    ranges: Sequence[Range] = (),
    ignored: Collection[str] = (),
) -> str | None:
    """Why what holds for the problem `found` does not hold for `asked`, as one sentence; None if it does.

    Args:
        found: The problem for which something is known, as in a key.
        asked: The problem as it is, never the one that a bucket would make of it.
        ranges: The extents that may differ, each with its range; the extents of one range must be equal in `asked`.
        ignored: Arguments that may differ in any way, or be missing.
    """
    mine, theirs = ({n: v for n, v in problem.items() if n not in ignored} for problem in (found, asked))
    if mine.keys() != theirs.keys():
        return f"its arguments are {', '.join(theirs) or 'none'}, not {', '.join(mine) or 'none'}"
    extents = extents_of(theirs)
    for each in ranges:
        values = {extents.get(name) for name in each.extents}
        if len(values) != 1 or None in values:
            return f"{', '.join(each.extents)} are not one whole number, but {_texts(values)}"
        if not each.low <= extents[each.extents[0]] <= each.high:
            return f"{each.extents[0]} is {extents[each.extents[0]]}, and the range goes {each}"
    free = {name for each in ranges for name in each.extents}
    return _difference(rest_of(mine, free), rest_of(theirs, free))


def log_distance(found: Mapping[str, Any], asked: Mapping[str, Any], ranges: Sequence[Range]) -> float:
    """How far apart two problems are in the extents of `ranges`: the sum of |log2| of their ratios."""
    mine, theirs = extents_of(found), extents_of(asked)
    pairs = [(max(mine[each.extents[0]], 1), max(theirs[each.extents[0]], 1)) for each in ranges]
    return sum(abs(math.log2(a / b)) for a, b in pairs)


def _difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    for name, value in mine.items():
        if not _same(value, theirs[name]):
            return f"{name} is {theirs[name]}, not {value}"
    return None


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON, where `true` is no 1; tuples count as lists."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _texts(values: Collection[Any]) -> str:
    return " and ".join(sorted("missing" if value is None else str(value) for value in values))
