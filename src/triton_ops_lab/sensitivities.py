"""The sensitivity of a kernel's time to its tunables, by measured spaces, or to one extent of its shape, by the model.

The logarithm of the time is fitted by a sum of one effect for each value of each tunable, so that configs need not be
on a grid. What such a sum does not explain is due to tunables that act together.

Two configs are compared only if they differ in nothing else, so that a jump is due to that step.

The config is compiled once, at the first shape. Blocks come from the declared work, or from the kernel's own grid,
which is read in processes without a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import ceil
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from triton_ops.backend import Operation
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import RecordingError, SettingsError, TargetError
from triton_ops.records import Run
from triton_ops.space import Config, Value
from triton_ops.values import Trial
from triton_ops_lab.expectation import Waves, explain, portrait
from triton_ops_lab.ranking import Expectation, Expecter, ModelQuestion
from triton_ops_lab.recording import Recording, recording_of

_LEAST_FALL = 0.1  # of the slots used, to count as a cliff
MOST_POINTS = 512
_UNDECLARED = "the kernel declares no tiles, and what is read at each shape is its grid alone"
MOST_READ = 64  # of a kernel whose grid must be read, about a second each


@dataclass(frozen=True)
class ShapePoint:
    """The config at one shape; expected time and share of the device's limit are None without a forecast."""

    extent: int
    waves: Waves
    expected_ms: float | None = None
    of_limit: float | None = None  # at that time


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One config over a series of shapes."""

    config: Config
    axis: str
    blocks_per_unit: int  # that one multiprocessor holds at a time
    points: tuple[ShapePoint, ...]
    silent: str = ""  # why there are no expected times; empty if there are

    @property
    def cliffs(self) -> list[tuple[ShapePoint, ShapePoint]]:
        """Neighbouring shapes between which a wave is added that is mostly empty."""
        return [
            (before, after)
            for before, after in pairwise(self.points)
            if ceil(after.waves.waves) > ceil(before.waves.waves) and after.waves.used < before.waves.used - _LEAST_FALL
        ]


def sweep(
    operation: Operation, config: Config, shape: Sequence[int], dtype: str | None, axis: str, extents: Sequence[int],
    spec: DeviceSpec,
) -> Sweep:  # fmt: skip
    """Follow a config while the extent `axis` of the shape takes rising values, on a device that need not be here.

    Raises:
        SettingsError: There are too many values for a grid that must be read.
        TargetError: Neither the blocks nor what they take can be told.
        ShapeMismatchError, UnsupportedDtypeError: There is no such extent, or the kernel cannot take a shape.

    Cost: two seconds, and where the grid must be read about a second for each shape.
    """
    shapes = _shapes(operation, shape, axis, extents)
    first = ModelQuestion.of(operation, shape=shapes[0], dtype=dtype)
    explained = explain(first, config, spec)
    figures = portrait(explained, spec)
    if explained.refused:
        message = f"config ({config}) cannot run on {spec.name}: {explained.refused}"
        raise TargetError(message, hint="take another config")
    if figures.residents is None or not figures.residents.blocks or figures.resources is None:
        why = explained.compiled.reason if explained.compiled is not None else explained.silent
        raise TargetError(f"how many blocks fit is not known: {why}", hint="triton-ops explain says what is")
    is_declared = first.declared and Machine.of(spec) is not None
    if not is_declared and len(shapes) > MOST_READ:
        message = f"{len(shapes)} shapes are too many for a kernel whose grid must be read"
        raise SettingsError(message, hint=f"take a larger step: {MOST_READ} shapes at most")
    at_once = figures.residents.blocks * spec.units
    points = []
    for extent, one in zip(extents, shapes, strict=True):
        expected = ModelQuestion.of(operation, shape=one, dtype=dtype)
        if is_declared:
            expectation = Expecter(expected, spec).of(explained.as_run, explained.compiled)
            points.append(_by_model(extent, expectation, spec, at_once))
        else:
            points.append(ShapePoint(extent, Waves(_programs(expected, config, spec), at_once)))
    return Sweep(
        config=config, axis=axis, blocks_per_unit=figures.residents.blocks, points=tuple(points),
        silent="" if is_declared else explained.silent or _UNDECLARED,
    )  # fmt: skip


def _shapes(operation: Operation, shape: Sequence[int], axis: str, extents: Sequence[int]) -> list[tuple[int, ...]]:
    place = operation.axis(axis)
    whole = operation.full_shape(tuple(shape) or None)
    return [(*whole[:place], extent, *whole[place + 1 :]) for extent in extents]


def _by_model(extent: int, expectation: Expectation, spec: DeviceSpec, at_once: int) -> ShapePoint:
    if (forecast := expectation.forecast) is None:
        raise TargetError(f"the model makes no forecast at {extent}", hint="triton-ops explain says more")
    blocks = max(1, round(forecast.waves * forecast.blocks_per_unit * spec.units))
    of_limit = expectation.lower_bound_ms / forecast.expected_ms
    return ShapePoint(extent, Waves(blocks, at_once), forecast.expected_ms, of_limit)


def _programs(expected: ModelQuestion, config: Config, spec: DeviceSpec) -> int:
    """The blocks of the config's largest launch, by its own grid."""
    with CompilePool(expected.compiler(spec), workers=1, reuse=True) as pool:
        work = pool.read(config).result()
    if not work.launches:
        raise TargetError(f"the grid is not known: {work.silent}", hint="triton-ops explain says what is")
    return max(launch.programs for launch in work.launches)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredSpace:
    """The configs of a recording, in its order."""

    values: dict[str, tuple[Value, ...]]  # numbers in rising order, others in the order of the space
    ordered: frozenset[str]  # with neighbouring values: those of numbers, and those that the space says are
    codes: dict[str, np.ndarray[Any, Any]]  # for each config the place of its value: int64 [configs]
    ms: np.ndarray[Any, Any]  # float64 [configs]; NaN for a config that did not run
    failed: np.ndarray[Any, Any]  # bool [configs]

    @property
    def ran(self) -> Any:
        """The configs that ran: bool [configs]."""
        return np.isfinite(self.ms)


def measured_space(recording: Recording) -> MeasuredSpace:
    """The configs of a recording as arrays; 1 s for 100,000 configs of ten tunables."""
    trials = recording.trials.values()
    tunables = recording.space.tunables
    values = {name: each.in_order for name, each in tunables.items()}
    ordered = frozenset(name for name, each in tunables.items() if each.ordered or each.of_numbers)
    codes: dict[str, np.ndarray[Any, Any]] = {}
    for name, several in values.items():
        codes_by_value: dict[Hashable, int] = {_key(value): code for code, value in enumerate(several)}
        places = (codes_by_value.setdefault(_key(config.get(name)), len(codes_by_value)) for config in recording.trials)
        codes[name] = np.fromiter(places, dtype=np.int64, count=len(recording.trials))
    ms = [trial.median_ms if trial.ok else np.nan for trial in trials]
    failed = np.array([trial.failed for trial in trials])
    return MeasuredSpace(values=values, ordered=ordered, codes=codes, ms=np.array(ms), failed=failed)


def _key(value: Value) -> Hashable:
    return type(value), value


_STEEP = 1.5  # times slower that count as a jump
_OFTEN = 0.25  # of the pairs in which it must be


@dataclass(frozen=True, kw_only=True)
class Cliff:
    """One step of one tunable that costs much; ratios are medians of the second time over the first, if any ran."""

    name: str
    before: Value
    after: Value
    pairs: int  # of configs that differ in this step alone, of which the first ran
    steep: int  # pairs of which the second is at least 1.5 times slower
    spills: int  # pairs of which only the second spills
    fails: int  # pairs of which the second failed
    slower: float | None
    slower_if_spilled: float | None


def cliffs(recording: Recording) -> list[Cliff]:
    """The steps that cost much, the most frequent first; both directions of a step count, each by itself.

    A file that has no figures of the compiler tells nothing of spills.
    """
    space = measured_space(recording)
    trials = list(recording.trials.values())
    codes = np.stack([*space.codes.values()], axis=1)
    jumps: list[Cliff] = []
    for place, (name, values) in enumerate(space.values.items()):
        if name not in space.ordered:
            continue
        by_value: dict[int, dict[bytes, Trial]] = {}
        for others, code, trial in zip(np.delete(codes, place, axis=1), codes[:, place], trials, strict=True):
            by_value.setdefault(int(code), {})[others.tobytes()] = trial
        for low, high in pairwise(range(len(values))):
            for before, after in ((low, high), (high, low)):
                others = by_value.get(after, {})
                pairs = [  # trials that differ in this step alone, of which the first ran
                    (trial, others[rest])
                    for rest, trial in by_value.get(before, {}).items()
                    if trial.ok and trial.median_ms > 0 and rest in others
                ]
                if (cliff := _cliff(pairs, name, values[before], values[after])) is not None:
                    jumps.append(cliff)
    return sorted(jumps, key=lambda one: (-one.spills, -one.steep / one.pairs, -one.fails))


def _cliff(pairs: Sequence[tuple[Trial, Trial]], name: str, before: Value, after: Value) -> Cliff | None:
    if not pairs:
        return None
    ratios = [second.median_ms / first.median_ms for first, second in pairs if second.ok]
    spilled = [(first, second) for first, second in pairs if _spills(second) and not _spills(first)]
    if_spilled = [second.median_ms / first.median_ms for first, second in spilled if second.ok]
    steep = sum(ratio >= _STEEP for ratio in ratios)
    fails = sum(second.failed for _, second in pairs)
    if not spilled and steep < max(1.0, _OFTEN * len(ratios)) and fails < max(1.0, _OFTEN * len(pairs)):
        return None
    return Cliff(
        name=name, before=before, after=after, pairs=len(pairs), steep=steep, spills=len(spilled), fails=fails,
        slower=median(ratios) if ratios else None, slower_if_spilled=median(if_spilled) if if_spilled else None,
    )  # fmt: skip


def _spills(trial: Trial) -> bool:
    return trial.resources is not None and trial.resources.wasteful


_Array: TypeAlias = "np.ndarray[Any, Any]"
_ROUNDS = 60  # of the fit; each tunable's effects are fitted to what the others leave
_CLOSE = 1e-9
_FEWEST = 3  # configs below which nothing is said


@dataclass(frozen=True, kw_only=True)
class ValueEffect:
    """The effect of one value of a tunable."""

    value: Value
    configs: int
    failed: int
    slower: float | None  # than the tunable's best value, by the fit: 0.1 is a tenth
    best_ms: float | None  # with this value; None if none ran
    loss: float | None  # if the tunable is fixed to this value: the same over the fastest of all, less 1


@dataclass(frozen=True)
class Knob:
    """The effect of a tunable on the time; numbers in rising order, other values in the order of the space."""

    name: str
    share: float  # of the variance of the logarithm of the time, by its effects
    effects: tuple[ValueEffect, ...]

    @property
    def best(self) -> ValueEffect:
        """The value with the least effect."""
        return min((one for one in self.effects if one.slower is not None), key=lambda one: one.slower or 0.0)

    @property
    def span(self) -> float:
        """The slowdown by the worst value over the best one, by the fit."""
        return max(one.slower for one in self.effects if one.slower is not None)

    @property
    def most_lost(self) -> float:
        """The loss if the tunable is fixed to its worst value, and all others are chosen anew."""
        return max(one.loss for one in self.effects if one.loss is not None)


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The tunables that matter in a measured space."""

    kernel: str
    device: str  # empty if the file does not say
    configs: int
    failed: int
    best: Config
    best_ms: float
    explained: float  # share of the variance of the logarithm of the time, by single tunables
    knobs: tuple[Knob, ...]  # with several values, the one that matters most first


def sensitivity(recording: Recording) -> Sensitivity:
    """Find the tunables that matter in a recording or run log.

    `RecordingError`: fewer than three configs ran, all ran equally long, or one took no time. Cost: 20 ms for a
    thousand configs, and 2 s for 100,000 of ten tunables.
    """
    space = measured_space(recording)
    mask = space.ran
    if (space.ms[mask] <= 0).any():
        raise RecordingError(f"{recording.file} has a config that took no time", hint="leave that config out")
    times = np.log(space.ms[mask])
    times -= times.mean() if len(times) else 0.0
    spread = float(times @ times)
    columns = {name: codes[mask] for name, codes in space.codes.items()}
    columns = {name: column for name, column in columns.items() if len(np.unique(column)) > 1}
    if len(times) < _FEWEST or spread <= _CLOSE**2 or not columns:
        raise RecordingError(
            f"{recording.file} has {len(times)} configs that ran in different times; nothing can be told from them",
            hint=f"give a file with {_FEWEST} or more",
        )
    effects, residuals = _fit(columns, times)
    knobs = [_knob(space, name, effects[name], spread) for name in columns]
    best = int(np.nanargmin(space.ms))
    return Sensitivity(
        kernel=recording.title, device=recording.device, configs=len(times), failed=int(space.failed.sum()),
        best=next(islice(recording.trials, best, None)), best_ms=recording.best_ms,
        explained=max(0.0, 1 - float(residuals @ residuals) / spread),
        knobs=tuple(sorted(knobs, key=lambda knob: -knob.share)),
    )  # fmt: skip


def sensitivity_of_run(run: Run) -> Sensitivity:
    """As of a run log; `RecordingError` where nothing can be told."""
    return sensitivity(recording_of(run))


def _fit(columns: Mapping[str, _Array], times: _Array) -> tuple[dict[str, _Array], _Array]:
    """The effect of each value of each tunable, and what is left of each time.

    One tunable after another is fitted to what the others leave, until no effect changes.
    """
    counts = {name: np.maximum(np.bincount(column), 1) for name, column in columns.items()}
    effects = {name: np.zeros(len(count)) for name, count in counts.items()}
    residuals = times.copy()
    for _ in range(_ROUNDS):
        largest = 0.0
        for name, column in columns.items():
            change = np.bincount(column, weights=residuals, minlength=len(counts[name])) / counts[name]
            effects[name] += change
            residuals -= change[column]
            largest = max(largest, float(np.abs(change).max()))
        if largest < _CLOSE:
            break
    return effects, residuals


def _knob(space: MeasuredSpace, name: str, effects: _Array, spread: float) -> Knob:
    several, codes = space.values[name], space.codes[name]
    counts = np.bincount(codes[space.ran], minlength=len(several))
    failed = np.bincount(codes[space.failed], minlength=len(several))
    best_ms = np.full(max(len(several), len(counts)), np.inf)
    np.minimum.at(best_ms, codes[space.ran], space.ms[space.ran])
    of_any = effects[np.flatnonzero(counts[: len(effects)])]
    values = []
    for code, value in enumerate(several):
        measured_ms = float(best_ms[code]) if counts[code] else None
        effect = ValueEffect(
            value=value, configs=int(counts[code]), failed=int(failed[code]), best_ms=measured_ms,
            slower=math.expm1(effects[code] - of_any.min()) if counts[code] else None,
            loss=None if measured_ms is None else measured_ms / float(best_ms.min()) - 1,
        )  # fmt: skip
        values.append(effect)
    own_effects = effects[: len(several)]  # a file may hold values that its space does not list
    return Knob(name, float(counts[: len(own_effects)] @ own_effects**2) / spread, tuple(values))
