"""Between lockfiles and tables: which extents name a row, and what tunables are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.buckets import extents_of
from triton_ops.cache import LockedDevice, LockEntry, Lockfile, LockPlan, Measured, Origin, with_ranges
from triton_ops.exceptions import SettingsError
from triton_ops.exchange.table import Row, Table
from triton_ops.space import Config
from triton_ops.tensors import ITEM_BYTES

_KINDS = {"NVIDIA": "cuda", "AMD": "hip"}


@dataclass(frozen=True)
class Names:
    """What the two sides call the same things.

    Attributes:
        rows: The extents of a problem that stand for a row, in order, such as `("M",)`.
        renamed: This package's name of a tunable to the engine's.
    """

    rows: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def outwards(self, config: Config) -> Config:
        """A config with the engine's names."""
        return Config({self.renamed.get(name, name): value for name, value in config.items()})

    def inwards(self, config: Config) -> Config:
        """A config with this package's names."""
        back = {theirs: ours for ours, theirs in self.renamed.items()}
        return Config({back.get(name, name): value for name, value in config.items()})


def table_of(lock: Lockfile, kernel: str, device: str | None, names: Names, facts: Mapping[str, Any]) -> Table:
    """The entries of a kernel on a device as a table. The device's name is a fact, unless it is given.

    Args:
        lock: The lockfile.
        kernel: The kernel's name.
        device: The device's alias; None where all entries of the kernel are of one.
        names: What names a row, and the tunables.
        facts: What the engine looks the table up by.

    Raises:
        SettingsError: There is no such entry, entries of several devices, an entry without an extent of `names`, or two
            entries for one row.
    """
    entries = [e for e in lock.entries if e.kernel == kernel and device in (None, e.device)]
    if not entries:
        known = ", ".join(sorted({f"{entry.kernel} on {entry.device}" for entry in lock.entries})) or "nothing"
        where = "" if device is None else f" on {device}"
        raise SettingsError(f"the lockfile has no entry of {kernel}{where}", hint=f"it has entries of {known}")
    aliases = {entry.device for entry in entries}
    if len(aliases) > 1:
        raise SettingsError(
            f"the entries of {kernel} are of the devices: {', '.join(sorted(aliases))}", hint="--device-alias NAME"
        )
    name = next(each.name for each in lock.devices if each.alias in aliases)
    rows = tuple(_row(entry, names) for entry in entries)
    if len({row.at for row in rows}) < len(rows):
        raise SettingsError(
            f"several entries of {kernel} are for one row of {', '.join(names.rows) or 'no extents'}",
            hint="name more extents: --row M --row N",
        )
    return Table({"device_name": name, "kernel_name": kernel.rpartition(":")[2], **facts}, rows)


def lockfile_of(
    table: Table, kernel: str, names: Names, arguments: Mapping[str, Any], source: str, plan: LockPlan | None = None
) -> Lockfile:
    """The fastest configs of a table as a lockfile; they answer any source of the kernel.

    Args:
        table: The table.
        kernel: The name that the kernel has here.
        names: What names a row, and the tunables.
        arguments: Further arguments of each problem, which the table has in its name only.
        source: Where the table comes from, in words.
        plan: How far each config holds.

    Raises:
        SettingsError: The number of extents is not that of the table's keys, or the table names no device.
    """
    device = _device(table)
    entries = []
    for row in table.best():
        at = [value for value in row.at if not _is_dtype(value)]
        if len(at) != len(names.rows):
            raise SettingsError(
                f"a row of the table is for {list(row.at)}, and {len(names.rows)} extents are named",
                hint="name one extent for each value: --row M",
            )
        entries.append(
            _entry(row, kernel, device, {**dict(zip(names.rows, at, strict=True)), **arguments}, names, source)
        )
    return Lockfile((device,), tuple(with_ranges(entries, plan or LockPlan())))


def _row(entry: LockEntry, names: Names) -> Row:
    extents = {**extents_of(entry.problem), **{n: v for n, v in entry.problem.items() if isinstance(v, (str, bool))}}
    missing = [name for name in names.rows if name not in extents]
    if missing:
        raise SettingsError(
            f"{entry.kernel} {entry.label} has no {', '.join(missing)}; it has {', '.join(extents)}",
            hint="name its extents: --row M",
        )
    at = tuple(extents[name] for name in names.rows)
    return Row(at, names.outwards(entry.config), median_ms=entry.measured.median_ms if entry.measured else None)


def _entry(
    row: Row, kernel: str, device: LockedDevice, problem: Mapping[str, Any], names: Names, source: str
) -> LockEntry:
    measured = None if row.median_ms is None else Measured(cache_state="warm", mode="imported", median_ms=row.median_ms)
    return LockEntry(
        kernel=kernel,
        device=device.alias,
        label=" ".join(f"{name}={value}" for name, value in problem.items()),
        config=names.inwards(row.config),
        measured=measured,
        problem=dict(problem),
        origin=Origin(source=source),
    )


def _device(table: Table) -> LockedDevice:
    name = table.facts.get("device_name")
    if not name:
        raise SettingsError("the table names no device", hint='--set "device_name=NVIDIA H200"')
    words = str(name).replace("_", " ")
    return LockedDevice(alias=str(name).lower().replace("_", "-").replace(" ", "-"), kind=_kind(words), name=words)


def _kind(name: str) -> str:
    return next((kind for vendor, kind in _KINDS.items() if vendor in name), "cuda")


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value.removeprefix("torch.") in ITEM_BYTES


def with_facts(table: Table, facts: Mapping[str, Any]) -> Table:
    """The table with further facts, which replace those of the same name."""
    return replace(table, facts={**table.facts, **facts})
