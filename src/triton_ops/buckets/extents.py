"""The whole numbers in a problem that a bucket may be about, and the rest of the problem that must be equal.

A problem is taken in the form that keys and files have: argument name to scalar, or to the shape, dtype, strides and
alignment of a tensor. An extent is named `a[0]` where it is an axis of the tensor `a`, and by the argument's name where
it is a whole number, such as `M`. What stands under `NAME:class` is a kind of argument, and no extent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def extents_of(problem: Mapping[str, Any]) -> dict[str, int]:
    """Every extent of a problem by its name; booleans are none."""
    found: dict[str, int] = {}
    for name, given in problem.items():
        if isinstance(given, Mapping):
            found.update({f"{name}[{axis}]": extent for axis, extent in enumerate(given.get("shape", ()))})
        elif isinstance(given, int) and not isinstance(given, bool) and ":" not in name:
            found[name] = given
    return found


def rest_of(problem: Mapping[str, Any], free: Collection[str]) -> dict[str, Any]:
    """The problem without the extents named in `free`.

    Each such extent becomes null. The strides of a tensor with such an axis follow from its extents, so only their
    kind remains: 0, 1, or null for any other.
    """
    return {name: _rest(name, given, free) for name, given in problem.items()}


def _rest(name: str, given: Any, free: Collection[str]) -> Any:
    if not isinstance(given, Mapping):
        return None if name in free else given
    shape = given.get("shape", ())
    kept = [None if f"{name}[{axis}]" in free else extent for axis, extent in enumerate(shape)]
    if None not in kept:
        return given
    return {**given, "shape": kept, "stride": [step if step in (0, 1) else None for step in given.get("stride", ())]}


def with_extents(problem: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """The problem with other values of some extents; the strides of a row-major tensor follow its shape."""
    return {name: _with(name, given, values) for name, given in problem.items()}


def _with(name: str, given: Any, values: Mapping[str, int]) -> Any:
    if not isinstance(given, Mapping) or "shape" not in given:
        return values.get(name, given)
    shape = [values.get(f"{name}[{axis}]", extent) for axis, extent in enumerate(given["shape"])]
    if shape == list(given["shape"]):
        return given
    stride: list[int] = []
    step = 1
    for extent in reversed(shape):
        stride.insert(0, step)
        step *= max(extent, 1)
    return {**given, "shape": shape, "stride": stride if given["stride"][-1:] == [1] else given["stride"]}
