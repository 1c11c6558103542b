"""Configs as rows of numbers, made from the tunables alone, so that near rows mean similar effects.

Numbers keep their order and, if all are positive, their ratios: half of a column is the rank among the values and half
the logarithm, because sizes of 32, 64, 128 act by ratio while a list such as 1, 2, 3, 250 is mostly an order. Whole
numbers that are not all powers of two get a second column for how often two divides them, because hardware depends on
alignment as well as size (112 and 128 are near in size and far apart in effect). Other values get one column per value;
more than sixteen values share sixteen columns, and any two of them differ in about half of these. All columns lie in 0
to 1; a tunable with one value has no column.

Four figures of a compiled config tell more of its speed than its tunables do: registers and spilled bytes per thread,
shared memory per block, and the number of blocks that a multiprocessor then holds at a time. The figures become columns
beside those of the tunables. For a config that is not compiled, the figures are estimated from the compiled configs by
a regression on the tunables, because the compiler's figures are mostly products of powers of the tunables.

Of two configs that are the same program, one needs to be measured. Equal figures alone do not mean an equal program: on
recorded spaces the times of configs that agree in all four figures differ by up to 8 %.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.space import Config, ConfigSpace, Tunable, Value
from triton_ops.values import Compiled

Floats: TypeAlias = NDArray[np.float64]

_MOST_LABELS = 16  # most columns of one tunable, because each column makes the surrogate slower
_HIGHEST_POWER = 6  # factors of two beyond 64 change no alignment that hardware uses


class Encoder:
    """The columns of one space: `columns` of them, 0 for a space of one config.

    Each has the number of its scale, where the columns of words of one tunable have one scale, and the number of its
    tunable, of those with several values. `flags` are the scales of tunables that are on or off.
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
        """One row per config, each entry in 0 to 1; an unlisted number lies between others, a word at 0.5."""
        if not self._axes or not configs:
            return np.zeros((len(configs), self.columns))
        return np.hstack([[axis.code(config[name]) for config in configs] for name, axis in self._axes.items()])


class _Axis:
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
        self._codes = {_key(value): self._code(value, at) for at, value in enumerate(tunable.values)}

    def code(self, value: Value) -> tuple[float, ...]:
        code = self._codes.get(_key(value))
        return self._code(value, None) if code is None else code

    def _code(self, value: Value, position: int | None) -> tuple[float, ...]:
        if not self._numbers and position is not None:
            return tuple(self._labels[position].tolist())
        if not self._numbers or not _is_number(value):
            return (0.5,) * self.width
        size = _scale(float(value), self._numbers, self._ranks)  # type: ignore[arg-type]
        return (size, _twos(value) / _HIGHEST_POWER) if self._divisible else (size,)


def _labels(count: int) -> Floats:
    """One row per label, with about the same distance between any two rows; shape (count, 16 at most)."""
    if count <= _MOST_LABELS:
        return np.eye(count)
    numbers = np.random.default_rng(count).permutation(max(count, 1 << _MOST_LABELS))[:count]
    labels: Floats = (numbers[:, None] >> np.arange(_MOST_LABELS) & 1) / 2
    return labels


def _key(value: Value) -> tuple[type, Value]:
    return type(value), value  # the type separates True from 1, which are one key to a dict


def _is_flag(tunable: Tunable) -> bool:
    return len(tunable) == 2 and set(tunable.values) == {0, 1}  # False equals 0 and True 1


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _scale(value: float, among: list[float], ranks: Floats) -> float:
    at = bisect_left(among, value)  # far quicker than to interpolate among all of many values
    exact = at < len(among) and among[at] == value
    rank = float(ranks[at]) if exact else float(np.interp(value, among, ranks))
    if among[0] <= 0:
        return rank
    low, high = math.log(among[0]), math.log(among[-1])
    ratio = (math.log(min(max(value, among[0]), among[-1])) - low) / (high - low)
    return (rank + ratio) / 2


def _divisibility_matters(values: Sequence[Value]) -> bool:
    whole = [v for v in values if isinstance(v, int) and v > 0]
    return len(whole) == len(values) > 2 and any(v & (v - 1) for v in whole)


def _twos(value: Value) -> int:
    """The number of times that two divides `value`, at most six; 0 unless `value` is a whole number above 0."""
    if not isinstance(value, int) or value <= 0:
        return 0
    return min((value & -value).bit_length() - 1, _HIGHEST_POWER)


COLUMNS = 4
_FEWEST = 6  # compiled configs that the regression needs
_PENALTY = 0.01  # ridge penalty of the regression's coefficients, for columns from 0 to 1
_CROSSED = 12  # products of two columns are taken for at most so many columns


class CompilerColumns:
    """The compiled configs, each with its columns, in the order in which they were added."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self._at: dict[Config, int] = {}
        self._rows: list[Floats] = []  # the columns of the tunables
        self._figures: list[Floats] = []  # the columns of the compiler's figures
        self._launch: dict[Config, str] = {}
        self._same: dict[str, list[Config]] = {}
        self._fitted: Floats | None = None

    def places(self, configs: Sequence[Config]) -> NDArray[np.intp]:
        """The position of each config in the attribute `configs`; -1 for a config that was not compiled."""
        return np.array([self._at.get(config, -1) for config in configs], dtype=np.intp)

    @property
    def width(self) -> int:
        """The number of the compiler's columns: 0 until six configs are compiled."""
        return COLUMNS if len(self.configs) >= _FEWEST else 0

    def take(self, preview: Compiled, row: Floats) -> None:
        """Add a config that can be launched and whose registers are known, with the row of its tunables."""
        if preview.config in self._at:
            return
        self._at[preview.config] = len(self.configs)
        self.configs.append(preview.config)
        self._rows.append(row)
        self._figures.append(_columns(preview))
        self._fitted = None
        if preview.launch is not None:
            self._launch[preview.config] = preview.launch
            self._same.setdefault(preview.launch, []).append(preview.config)

    def same_program(self, config: Config) -> list[Config]:
        """The other compiled configs that are the same program as `config`."""
        launch = self._launch.get(config)
        return [] if launch is None else [other for other in self._same[launch] if other != config]

    def rows(self, rows: Floats, places: NDArray[np.intp]) -> Floats:
        """The rows of configs' tunables, followed by the compiler's figures, known or estimated."""
        if not self.width or not len(rows):
            return np.hstack([rows, np.zeros((len(rows), self.width))]) if self.width else rows
        figures = np.clip(_terms(rows) @ self._coefficients(), -0.25, 1.25)
        mask = places >= 0
        figures[mask] = np.array(self._figures)[places[mask]]
        return np.hstack([rows, figures])

    def _coefficients(self) -> Floats:
        if self._fitted is None:
            terms, figures = _terms(np.array(self._rows)), np.array(self._figures)
            penalty = _PENALTY * np.eye(terms.shape[1])
            penalty[0, 0] = 1e-9  # the constant term is not penalised
            coefficients: Floats = np.linalg.solve(terms.T @ terms + penalty, terms.T @ figures).astype(np.float64)
            self._fitted = coefficients
        return self._fitted


def wasteful(preview: Compiled) -> bool:
    """True if a config that can be launched comes last, because a rule defers it or it spills."""
    return preview.deferred or (preview.resources is not None and preview.resources.wasteful)


def _columns(preview: Compiled) -> Floats:
    """The logarithms of the four figures, each scaled to about 0 to 1 over the range of all devices."""
    resources = preview.resources
    registers = spilled = memory = 0
    if resources is not None:
        registers, spilled, memory = resources.registers or 0, resources.spill_bytes or 0, resources.shared_bytes or 0
    return np.array(
        [
            math.log2(max(registers, 16) / 16) / 4,
            min(math.log2(1 + spilled / 4) / 8, 1.0),
            math.log2(max(memory, 1)) / 18,
            math.log2(max(preview.resident or 1, 1)) / 5,
        ]
    )


def _terms(rows: Floats) -> Floats:
    """The terms of the regression: 1, each column, its square, and the products of two columns if there are few."""
    count, width = rows.shape
    one, two = np.triu_indices(width) if width <= _CROSSED else (np.arange(width), np.arange(width))
    return np.hstack([np.ones((count, 1)), rows, rows[:, one] * rows[:, two]])
