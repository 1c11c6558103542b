"""One config over a series of shapes: waves, the empty places of the last one, and the shapes that add a wave.

The config is compiled once, at the first shape. Blocks come from the declared work, or from the kernel's own grid,
which is read in processes without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from triton_ops.backend import Operation
from triton_ops.compilation import CompilePool
from triton_ops.cost_model import Model
from triton_ops.device import Calibration, DeviceSpec, Machine, Waves, machine_of
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.lab.expectation import explain, portrait
from triton_ops.lab.ranking import Expected, ahead_of, expected_of
from triton_ops.space import Config
from triton_ops.values import Resources

_LEAST_FALL = 0.1  # of the places used, to count as a cliff
MOST_POINTS = 512
_UNDECLARED = "the kernel declares no tiles, and what is read at each shape is its grid alone"
MOST_READ = 64  # of a kernel whose grid must be read, about a second each


@dataclass(frozen=True)
class ShapePoint:
    """The config at one shape.

    Attributes:
        waves: How often the launch fills the device.
        expected_ms: The expected time; None without a forecast.
        of_limit: Share of the device's limit at that time; None without a forecast.
    """

    extent: int
    waves: Waves
    expected_ms: float | None = None
    of_limit: float | None = None


@dataclass(frozen=True)
class ShapeCliff:
    """Two neighbouring shapes between which a wave is added that is mostly empty."""

    before: ShapePoint
    after: ShapePoint


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One config over a series of shapes.

    Attributes:
        blocks_per_unit: Blocks that one multiprocessor holds at a time.
        silent: Why there are no expected times; empty if there are.
    """

    config: Config
    axis: str
    blocks_per_unit: int
    points: tuple[ShapePoint, ...]
    silent: str = ""

    @property
    def cliffs(self) -> list[ShapeCliff]:
        """The places where a wave is added and much of it is empty."""
        return [
            ShapeCliff(before, after)
            for before, after in pairwise(self.points)
            if ceil(after.waves.waves) > ceil(before.waves.waves) and after.waves.used < before.waves.used - _LEAST_FALL
        ]


def sweep(
    operation: Operation, config: Config, shape: Sequence[int], dtype: str | None, axis: str, extents: Sequence[int],
    spec: DeviceSpec, calibration: Calibration | None = None,
) -> Sweep:  # fmt: skip
    """Follow a config while one extent of the shape is varied.

    Args:
        operation: The operation, whose kernel Triton compiles.
        config: The config, the same at all shapes.
        shape: The extents; that of `axis` is replaced.
        dtype: The dtype; None takes the operation's default.
        axis: The name of the extent to vary.
        extents: Its values, rising.
        spec: The device, which need not be here.
        calibration: What was measured on it.

    Raises:
        SettingsError: There is no such extent, or there are too many values or none.
        TargetError: Neither the blocks nor what they take can be told.
        ShapeMismatchError, UnsupportedDtypeError: The kernel cannot take a shape.

    Cost: two seconds, and where the grid must be read about a second for each shape.
    """
    shapes = _shapes(operation, shape, axis, extents)
    machine = machine_of(spec, calibration)
    first = expected_of(operation, shape=shapes[0], dtype=dtype)
    explained = explain(first, config, spec, machine)
    figures = portrait(explained, first.work, config, spec, calibration=calibration)
    if explained.refused:
        raise TargetError(
            f"config ({config}) cannot run on {spec.name}: {explained.refused}", hint="take another config"
        )
    if figures.residents is None or not figures.residents.blocks or figures.resources is None:
        why = explained.compiled.reason if explained.compiled is not None else explained.silent
        raise TargetError(f"how many blocks fit cannot be told: {why}", hint="triton-ops explain says more")
    is_declared = first.declared and machine is not None
    if not is_declared and len(shapes) > MOST_READ:
        raise SettingsError(
            f"{len(shapes)} shapes are too many for a kernel whose grid must be read", hint=f"at most {MOST_READ}"
        )
    at_once = figures.residents.blocks * spec.units
    points = []
    for extent, one in zip(extents, shapes, strict=True):
        expected = expected_of(operation, shape=one, dtype=dtype)
        if is_declared and machine is not None:
            points.append(_by_model(extent, expected, config, machine, figures.resources, at_once))
        else:
            points.append(ShapePoint(extent, Waves(_programs(expected, config, spec), at_once)))
    return Sweep(
        config=config,
        axis=axis,
        blocks_per_unit=figures.residents.blocks,
        points=tuple(points),
        silent="" if is_declared else explained.silent or _UNDECLARED,
    )


def _shapes(operation: Operation, shape: Sequence[int], axis: str, extents: Sequence[int]) -> list[tuple[int, ...]]:
    names = operation.extents
    if axis not in names:
        raise SettingsError(f"{operation.name} has no extent {axis}", hint=f"it has {', '.join(names)}")
    if not 2 <= len(extents) <= MOST_POINTS or any(b <= a for a, b in pairwise(extents)) or min(extents) < 1:
        raise SettingsError(
            f"{len(extents)} values of {axis} are no series; it takes 2 to {MOST_POINTS} that rise from 1 or more",
            hint=f"such as --vary {axis}=1024:8192:256",
        )
    place = names.index(axis)
    whole = operation.full_shape(tuple(shape) or None)
    return [(*whole[:place], extent, *whole[place + 1 :]) for extent in extents]


def _by_model(
    extent: int, expected: Expected, config: Config, machine: Machine, resources: Resources, at_once: int
) -> ShapePoint:
    assert expected.work is not None
    forecast = Model(expected.work, machine).explain(config, resources)
    if forecast is None:
        raise TargetError(f"the model makes no forecast at {extent}", hint="triton-ops explain says more")
    blocks = max(1, round(forecast.waves * forecast.blocks_per_unit * machine.units))
    expected_ms = forecast.expected_ms
    return ShapePoint(extent, Waves(blocks, at_once), expected_ms, forecast.lower_bound_ms / expected_ms)


def _programs(expected: Expected, config: Config, spec: DeviceSpec) -> int:
    """The blocks of the config's largest launch, by its own grid."""
    ahead = ahead_of(expected, spec)
    if isinstance(ahead, str):
        raise TargetError(f"the grid cannot be told: {ahead}", hint="name an Operation with a TritonKernel")
    with CompilePool(ahead, workers=1, reuse=True) as pool:
        work = pool.read(config).result()
    if not work.launches:
        raise TargetError(f"the grid cannot be told: {work.silent}", hint="triton-ops explain says more")
    return max(launch.programs for launch in work.launches)
