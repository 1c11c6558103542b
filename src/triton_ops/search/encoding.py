"""Configs as rows of numbers, made from the tunables alone, so that near rows mean similar effects.

Numbers keep their order and, if all are positive, their ratios: half of a column is the rank among the values and half
the logarithm, because sizes of 32, 64, 128 act by ratio while a list such as 1, 2, 3, 250 is mostly an order. Whole
numbers that are not all powers of two get a second column for how often two divides them, because hardware depends on
alignment as well as size (112 and 128 are near in size and far apart in effect). Other values get one column per value;
more than sixteen values share sixteen columns, and any two of them differ in about half of these. All columns lie in 0
to 1; a tunable with one value has no column.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.space import ConfigSpace, Tunable, Value

Floats: TypeAlias = NDArray[np.float64]

_MOST_LABELS = 16  # most columns of one tunable, because each column makes the surrogate slower
_HIGHEST_POWER = 6  # factors of two beyond 64 change no alignment that hardware uses


class Encoder:
    """The columns of one space.

    Attributes:
        columns: Number of columns; 0 for a space of one config.
        scales: For each column the number of its scale; the columns of words of one tunable have one scale.
        tunables: For each column the number of its tunable, of those with several values.
        flags: The numbers of the scales of tunables that are on or off, as False and True or 0 and 1.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._axes = {name: _Axis(tunable) for name, tunable in space.tunables.items() if len(tunable) > 1}
        self.columns = sum(axis.width for axis in self._axes.values())
        own = [[*range(axis.width)] if axis.numeric else [0] * axis.width for axis in self._axes.values()]
        before = accumulate((max(scales) + 1 for scales in own), initial=0)
        self.scales = [first + scale for first, scales in zip(before, own, strict=False) for scale in scales]
        flags = {number for number, name in enumerate(self._axes) if _is_flag(space.tunables[name])}
        self.tunables = [number for number, axis in enumerate(self._axes.values()) for _ in range(axis.width)]
        self.flags = {scale for scale, of in zip(self.scales, self.tunables, strict=True) if of in flags}

    def rows(self, configs: Sequence[Mapping[str, Any]]) -> Floats:
        """One row per config; an unlisted number lies between its neighbours, another unlisted value at 0.5.

        Returns:
            Shape (number of configs, `columns`), each entry in 0 to 1.
        """
        if not self._axes or not configs:
            return np.zeros((len(configs), self.columns))
        return np.hstack([[axis.coded(config[name]) for config in configs] for name, axis in self._axes.items()])


class _Axis:
    """The columns of one tunable."""

    def __init__(self, tunable: Tunable) -> None:
        self._numbers = sorted({float(v) for v in tunable.values if _is_number(v)})  # type: ignore[arg-type]
        self.numeric = len(self._numbers) == len(tunable)
        if self.numeric:
            self._divisible = _divisibility_matters(tunable.values)
            self.width = 1 + self._divisible
        else:
            self._numbers, self._divisible = [], False
            self._labels = _labels(len(tunable))
            self.width = self._labels.shape[1]
        self._ranks = np.linspace(0.0, 1.0, len(self._numbers)) if self._numbers else np.zeros(0)
        self._known = {_key(value): self._code(value, at) for at, value in enumerate(tunable.values)}

    def coded(self, value: Value) -> tuple[float, ...]:
        found = self._known.get(_key(value))
        return self._code(value, None) if found is None else found

    def _code(self, value: Value, position: int | None) -> tuple[float, ...]:
        if not self._numbers and position is not None:
            return tuple(self._labels[position].tolist())
        if not self._numbers or not _is_number(value):
            return (0.5,) * self.width
        size = _scaled(float(value), self._numbers, self._ranks)  # type: ignore[arg-type]
        return (size, _twos(value) / _HIGHEST_POWER) if self._divisible else (size,)


def _labels(count: int) -> Floats:
    """One row per label, with about the same distance between any two rows; shape (count, 16 at most)."""
    if count <= _MOST_LABELS:
        return np.eye(count)
    numbers = np.random.default_rng(count).permutation(max(count, 1 << _MOST_LABELS))[:count]
    found: Floats = (numbers[:, None] >> np.arange(_MOST_LABELS) & 1) / 2
    return found


def _key(value: Value) -> tuple[type, Value]:
    return type(value), value  # the type separates True from 1, which are one key to a dict


def _is_flag(tunable: Tunable) -> bool:
    return len(tunable) == 2 and set(tunable.values) == {0, 1}  # False equals 0 and True 1


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _scaled(value: float, among: list[float], ranks: Floats) -> float:
    at = bisect_left(among, value)  # far quicker than to interpolate among all of many values
    known = at < len(among) and among[at] == value
    rank = float(ranks[at]) if known else float(np.interp(value, among, ranks))
    if among[0] <= 0:
        return rank
    low, high = math.log(among[0]), math.log(among[-1])
    ratio = (math.log(min(max(value, among[0]), among[-1])) - low) / (high - low)
    return (rank + ratio) / 2


def _divisibility_matters(values: Sequence[Value]) -> bool:
    whole = [v for v in values if isinstance(v, int) and v > 0]
    return len(whole) == len(values) > 2 and any(v & (v - 1) for v in whole)


def _twos(value: Value) -> int:
    """How often two divides `value`, at most six times; 0 unless `value` is a whole number above 0."""
    if not isinstance(value, int) or value <= 0:
        return 0
    return min((value & -value).bit_length() - 1, _HIGHEST_POWER)
