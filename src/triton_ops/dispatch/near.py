"""How near the problem of a known winner is to another problem of the same kernel and device."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from triton_ops.cache import Key

FARTHEST = 1.0  # |log2| of the ratios of all extents together: a winner is borrowed over a factor of two
OTHER_VERSIONS = FARTHEST / 1024  # of two winners for equal problems that of these versions is nearer


def distance(key: Key, other: Key, loose: Collection[str], *, near: bool) -> float | None:
    """How far the problem of `other` is from that of `key`; None if its winner cannot be borrowed.

    Args:
        key: The problem that is asked for.
        other: The problem of a winner.
        loose: Names in the problems in which they may differ.
        near: Whether extents and versions may differ; if not, only the `loose` names may.

    Returns:
        |log2| of the ratios of all extents together: 1 for a factor of two.
    """
    if other.device.get("name") != key.device.get("name") or other.device.get("arch") != key.device.get("arch"):
        return None
    if other.identity.get("source") != key.identity.get("source") or other.problem.keys() != key.problem.keys():
        return None
    strict = dict(other.identity) == dict(key.identity) and dict(other.device) == dict(key.device)
    strict = strict and (other.cache_state, dict(other.held_to)) == (key.cache_state, dict(key.held_to))
    if not (strict or near):
        return None
    pairs: set[tuple[int, int]] = set()  # equal pairs count once: M is an argument, and an extent of two tensors
    for name, mine in key.problem.items():
        found = set() if name in loose else _pairs(mine, other.problem[name])
        if found is None or (found and not near):
            return None
        pairs |= found
    total = sum(abs(math.log2(mine / theirs)) for mine, theirs in pairs)
    total += 0.0 if strict else OTHER_VERSIONS
    return total if total <= FARTHEST + 2 * OTHER_VERSIONS else None


def _pairs(mine: Any, theirs: Any) -> set[tuple[int, int]] | None:
    """The numbers in which two arguments differ; None if they differ in anything else, or in 0 or 1."""
    if type(mine) is type(theirs) and mine == theirs:
        return set()
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping) and mine.keys() == theirs.keys():
        each = [_pairs(mine[name], theirs[name]) for name in mine if name != "stride"]
        each.append(None if _steps(mine) != _steps(theirs) else set())
    elif isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(mine) == len(theirs):
        each = [_pairs(one, other) for one, other in zip(mine, theirs, strict=True)]
    else:
        numbers = all(type(value) is int and value > 1 for value in (mine, theirs))
        return {(mine, theirs)} if numbers else None
    return None if None in each else set().union(*(found for found in each if found is not None))


def _steps(facts: Mapping[str, Any]) -> list[Any]:
    """The strides that say how memory is laid out; others follow from the extents."""
    return [step if step in (0, 1) else None for step in facts.get("stride", ())]
