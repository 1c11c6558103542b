"""The first line of a run log: the problem, the config space, the effort, the device and the versions, all in clear.

A report is made from a run log alone, and a replay takes the config space and the problem from this line.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

import msgspec

from triton_ops._cpus import usable_cpus
from triton_ops._ranges import Amount, Extent, Nested, Rate
from triton_ops.backend.source import source_fingerprint
from triton_ops.cache import Key
from triton_ops.hardware import Calibration, DeviceSpec
from triton_ops.hardware.roofline import Ceiling, Roofline, roofline
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.task.effort import Effort
from triton_ops.task.task import Task

SCHEMA_VERSION = 2  # 1: one file for all runs of a problem; 2: one file for each run


class ConstraintFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint in words. Its predicate cannot be stored; `source` is a fingerprint of the predicate's source."""

    name: str
    reason: str
    names: tuple[str, ...]
    source: str = ""


class SpaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The config space that was searched.

    Attributes:
        fingerprint: The fingerprint that records hold of the same config space.
        tunables: Name to values, in order.
        constraints: The rules that its configs keep.
        default: The default config as declared; None if the first valid config was the default.
        listed: The configs of an explicit list; None if the config space is the product of its tunables.
    """

    fingerprint: str
    tunables: dict[str, list[Any]]
    constraints: tuple[ConstraintFacts, ...] = ()
    default: Config | None = None
    listed: tuple[Config, ...] | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of packages, the host and the device of a run."""

    versions: dict[str, str]
    host: dict[str, Nested]
    device: dict[str, Nested]


class CeilingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of the device, as `hardware.roofline.Ceiling`: GB/s of memory, or TFLOP/s of a dtype."""

    name: str
    peak: Rate
    measured: Rate | None = None

    def ceiling(self) -> Ceiling:
        """The limit."""
        return Ceiling(self.name, self.peak, self.measured)


class RoofFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The declared work of the problem, beside what the device can do, as `hardware.roofline.Roofline`."""

    flops: Amount
    bytes: Amount
    memory: CeilingFacts | None = None
    units: CeilingFacts | None = None

    def roofline(self) -> Roofline:
        """The roofline."""
        memory, units = (None if one is None else one.ceiling() for one in (self.memory, self.units))
        return Roofline(flops=self.flops, bytes=self.bytes, memory=memory, units=units)


class Head(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="run"):
    """The first line of a run log.

    Attributes:
        schema_version: The form of the whole file.
        id: The run's id, which is the file's name without its ending.
        key_id: The id of the key to which the trials belong.
        key: That key in clear: kernel, problem with its label, identity, device.
        shape: Extents of an operation's problem; None where the caller's own arguments were given.
        dtype: Dtype of an operation's problem, as asked for.
        started: When the run started, by UTC, ISO 8601 with microseconds; the times in further lines count from then.
        environment: Where the run took place.
        space: The config space that was searched.
        effort: The effort with all its numbers.
        searcher: The searcher's name.
        seed: The seed of everything random in the run.
        roof: The problem's work beside the device's limits; None if no work was declared.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    key_id: str
    key: Key
    shape: tuple[Extent, ...] | None = None
    dtype: str | None = None
    started: str
    environment: Environment
    space: SpaceFacts
    effort: dict[str, Nested]
    searcher: str
    seed: int
    roof: RoofFacts | None = None


def head_of(
    run_id: str,
    key: Key,
    task: Task,
    effort: Effort,
    *,
    seed: int,
    versions: Mapping[str, str],
    started: datetime,
    calibration: Calibration | None = None,
) -> Head:
    """The first line of the run log of a run that starts now; `calibration` is what was measured on the device."""
    named = task.named
    return Head(
        id=run_id,
        key_id=key.id,
        key=key,
        shape=None if named is None else tuple(named.operation.full_shape(named.shape)),
        dtype=None if named is None else named.dtype,
        started=started.astimezone(timezone.utc).isoformat(timespec="microseconds"),
        environment=Environment(versions=dict(versions), host=_host(), device=_device(task.device)),
        space=_space(task.space),
        effort=msgspec.to_builtins(effort, enc_hook=str),
        searcher=effort.search_name,
        seed=seed,
        roof=_roof(task, calibration),
    )  # fmt: skip


def _roof(task: Task, calibration: Calibration | None) -> RoofFacts | None:
    work = task.work
    if work is None or not (work.flops or work.bytes):
        return None
    dtype = work.dtype or next((spec.dtype for spec in task.problem.specs.values()), "float32")
    found = roofline(
        task.device, flops=work.flops, bytes_=work.bytes, dtype=dtype, products=bool(work.flops),
        calibration=calibration,
    )  # fmt: skip
    memory, units = (None if one is None else CeilingFacts(**asdict(one)) for one in (found.memory, found.units))
    return RoofFacts(flops=found.flops, bytes=found.bytes, memory=memory, units=units)


def _host() -> dict[str, Any]:
    return {"system": platform.platform(), "machine": platform.machine(), "cpus": usable_cpus()}


def _device(device: DeviceSpec) -> dict[str, Any]:
    return {name: value for name, value in asdict(device).items() if value not in (None, {})}


def _space(space: ConfigSpace) -> SpaceFacts:
    return SpaceFacts(
        fingerprint=space.fingerprint,
        tunables={name: list(tunable.values) for name, tunable in space.tunables.items()},
        constraints=tuple(map(_constraint, space.constraints)),
        default=space.default,
        listed=space.listed,
    )


def _constraint(constraint: Constraint) -> ConstraintFacts:
    return ConstraintFacts(
        name=constraint.name,
        reason=constraint.reason,
        names=constraint.names,
        source=source_fingerprint(constraint.predicate),
    )
