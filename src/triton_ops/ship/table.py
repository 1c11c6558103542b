"""A table of tuned configs in no engine's format, and the role of a format."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from triton_ops.base import DamagedError, NamedFile, Sealed
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import CacheError, SettingsError, SpaceError
from triton_ops.records import EntryOrigin, LockedDevice, LockedTiming, LockEntry, Lockfile, LockPlan, OriginKind, Run
from triton_ops.ship.rows import ANY_ROW, RowRule
from triton_ops.space import CONFIG_FIELDS, Config
from triton_ops.values import ITEM_BYTES, Mapper

OPTIONS = {**CONFIG_FIELDS, "pre_hook": None}
"""The fields of a `triton.Config` beside its tunables, with their defaults."""

_LARGEST_BYTES = 64 << 20
_LARGEST_NUMBER = 1 << 63
_OTHER_KINDS = {
    "cpu": {"cpu", "xeon", "epyc"}, "cuda": {"tesla", "titan", "quadro", "rtx", "nvgpu"}, "xpu": {"intel", "arc"},
    "npu": {"ascend"}, "musa": {"mtt"},
}  # fmt: skip
_NOT_FINITE = re.compile(rb"-?\bInfinity\b|\bNaN\b")


@dataclass(frozen=True)
class TableRow:
    """One config of a table, with the engine's names."""

    at: tuple[Any, ...]  # what it is for, such as `(16,)`, a number of tokens; empty where the table is of one problem
    config: Config
    _: KW_ONLY
    median_ms: float | None = None  # None if the table has none
    cost: tuple[float, ...] = ()  # by which configs for the same are compared, the least is best; empty is the median
    failure: str = ""  # in the words of `Status`, or why it cannot be compared; empty if it did not fail
    filed: str = ""  # under which name the engine finds it, where that is not made of `at` each time

    def launches_as(self, entry: Mapping[str, Any]) -> bool:
        """True if a config that was looked up launches as the row's does: equal, save for options left to Triton."""
        return all(entry.get(name, OPTIONS.get(name)) == value for name, value in self.config.items())

    @property
    def rank(self) -> tuple[float, ...]:
        """The cost; without one the median, and after all others what has neither."""
        return self.cost or (math.inf if self.median_ms is None else self.median_ms,)

    @property
    def name(self) -> str:
        """What the row is for, in words."""
        return " ".join(map(str, self.at)) or "the default"

    @property
    def dtypes(self) -> tuple[Any, ...]:
        """The values of its key that are dtypes, by this package's names or by torch's."""
        return tuple(value for value in self.at if str(value).removeprefix("torch.") in ITEM_BYTES)


@dataclass(frozen=True)
class Table:
    """Tuned configs of one kernel."""

    FACTS: ClassVar[tuple[str, ...]] = ("kernel_name", "device_name", "kind")  # that a table of any format may have

    facts: Mapping[str, Any] = field(default_factory=dict)  # what the engine looks it up by, such as `E`, `N`, `dtype`
    rows: tuple[TableRow, ...] = ()
    _: KW_ONLY
    remarks: tuple[str, ...] = ()  # what its reader did not understand or left out, each as a sentence with its count
    unused: Mapping[str, Any] = field(default_factory=dict)  # what is known of the file, and decides nothing

    @property
    def notes(self) -> list[str]:
        """All that is to be said of the table, each as a sentence."""
        return [*self.remarks, *(f"{name} is not used: {value}" for name, value in self.unused.items())]

    def best(self) -> tuple[TableRow, ...]:
        """For each `at` the config of the least rank among those that did not fail."""
        rows: dict[str, TableRow] = {}
        for row in self.rows:
            name = json.dumps(row.at)  # True, 1 and 1.0 would be one key
            if not row.failure and (name not in rows or row.rank < rows[name].rank):
                rows[name] = row
        return tuple(rows.values())

    def nearest(self, size: int) -> TableRow:
        """The row whose number is nearest to a size; of two the one that stands first."""
        return min(self.rows, key=lambda row: abs(row.at[0] - size))

    @classmethod
    def by_size(cls, facts: Mapping[str, Any], rows: Iterable[tuple[int, Mapping[str, Any], float | None]]) -> Table:
        """A table whose rows are for one number each, with a config and its median in milliseconds."""
        return cls(facts, tuple(TableRow((size,), Config(config), median_ms=ms) for size, config, ms in rows))

    @classmethod
    def of_lockfile(
        cls,
        lock: Lockfile,
        kernel: str,
        device: str | None,
        names: Names,
        facts: Mapping[str, Any],
        tables: Mapping[str, Mapping[str, Any]],
    ) -> Table:
        """The measured entries of a kernel on a device as a table. Facts without the device's name get it.

        The device goes by its alias; it is None where all entries of the kernel are of one. `tables` has the facts of
        each table that entries were imported from, by the entries' source: facts that are not given are taken from it.
        SettingsError: there is no such entry, there are entries of several devices or tables, one without an extent of
        `names`, or two for one row.
        """
        measured = [entry for entry in lock.entries if entry.kernel == kernel and not entry.origin.expected]
        entries = [entry for entry in measured if device in (None, entry.device)]
        if not entries:
            words = ", ".join(sorted({f"{entry.kernel} on {entry.device}" for entry in lock.entries})) or "nothing"
            where = "" if device is None else f" on {device}"
            raise SettingsError(f"the lockfile has no entry of {kernel}{where}", hint=f"it has entries of {words}")
        aliases = {entry.device for entry in entries}
        if len(aliases) > 1:
            message = f"the entries of {kernel} are of several devices: {', '.join(sorted(aliases))}"
            raise SettingsError(message, hint="name one: --device-alias NAME")
        name = next(each.name for each in lock.devices if each.alias in aliases)
        entries, imported = _of_one_table(entries, facts, tables)
        rows = tuple(_row(entry, names) for entry in entries)
        if len({row.at for row in rows}) < len(rows):
            message = f"several entries of {kernel} are for one row of {', '.join(names.rows) or 'no extents'}"
            raise SettingsError(message, hint="name more extents: --row M --row N")
        return cls({"device_name": name, "kernel_name": kernel.rpartition(":")[2], **imported, **facts}, rows)

    @classmethod
    def of_run(cls, path: Path, names: Names, facts: Mapping[str, Any]) -> Table:
        """The trials of a run as a table, in the order tried; the device's and the kernel's name are facts."""
        run = Run.read(path)
        key = run.head.key
        values = {**key.problem, **Mapper.extents_of(key.problem)}
        if missing := [name for name in names.rows if name not in values]:
            raise SettingsError(f"the run's problem has no {', '.join(missing)}", hint=f"it has {', '.join(values)}")
        at = tuple(values[name] for name in names.rows)
        rows = tuple(
            TableRow(at, names.outwards(config), median_ms=trial.median_ms if trial.ok else None,
                failure="" if trial.ok else trial.status.value)
            for config, trial in run.trials.items()
            if trial.ok or trial.failed
        )  # fmt: skip
        kernel = key.kernel.rpartition(":")[2]
        return cls({"device_name": key.device.get("name"), "kernel_name": kernel, **facts}, rows)

    def for_rows(self, names: Names) -> Table:
        """The rows that have a value for each of some extents: without dtypes that nobody named, and without a default.

        Tunables have this package's names. What is left out is among the remarks.
        """
        count, remarks, keyed = len(names.rows), list(self.remarks), tuple(row for row in self.rows if row.at)
        rows = keyed if count and keyed else self.rows
        if len(rows) < len(self.rows):
            remarks.append("left out: the default config, which is for no extents")
        bare = [tuple(value for value in row.at if value not in row.dtypes) for row in rows]
        if any(len(row.at) != count == len(at) for row, at in zip(rows, bare, strict=True)):
            texts = ", ".join(dict.fromkeys(str(value) for row in rows for value in row.dtypes))
            remarks.append(f"left out: the dtypes in the keys, {texts}")
            if len({*map(json.dumps, bare)}) < len({json.dumps(row.at) for row in rows}):
                raise SettingsError(f"rows differ in dtypes alone: {texts}", hint="name the dtypes: --row x")
            rows = tuple(replace(row, at=at) for row, at in zip(rows, bare, strict=True))
        if others := [row.name for row in rows if not all(map(_is_argument, row.at))]:
            remarks.append(f"left out: {len(others)} rows for what a lockfile cannot hold, such as {others[0]}")
            rows = tuple(row for row in rows if all(map(_is_argument, row.at)))
        rows = tuple(replace(row, config=names.inwards(row.config)) for row in rows)
        return replace(self, rows=rows, remarks=tuple(remarks))

    def lockfile(
        self, kernel: str, names: Sequence[str], arguments: Mapping[str, Any], source: str, *, form: str = "",
        plan: LockPlan | None = None,
    ) -> Lockfile:  # fmt: skip
        """The fastest configs as a lockfile; they answer any source of the kernel.

        The names are those of the extents that stand for a row. Further arguments of each problem are those which the
        table has in its name only. The source is a file of that format, or in words what has made the table. The plan
        says how far each config holds. SettingsError: the number of extents is not that of the table's keys, or the
        table names no device.
        """
        device, entries = _device(self), []
        origin = EntryOrigin(kind=OriginKind.TABLE, form=form, detail=source)
        for row in self.best():
            if len(row.at) != len(names):
                message = f"a row of the table is for {list(row.at)}, and {len(names)} extents are named"
                each, whole = "name one extent for each value: --row M", "name its one problem: --argument M=64"
                raise SettingsError(message, hint=each if row.at else whole)
            problem = {**dict(zip(names, row.at, strict=True)), **arguments}
            ms, label = row.median_ms, " ".join(f"{name}={value}" for name, value in problem.items())
            entries.append(LockEntry(  # which answers any source of the kernel
                kernel=kernel, device=device.alias, label=label, config=row.config, problem=problem, origin=origin,
                measured=None if ms is None else LockedTiming(cache_state="warm", mode="imported", median_ms=ms),
            ))  # fmt: skip
        return Lockfile((device,), tuple((plan or LockPlan()).with_ranges(entries)))


class Format(Protocol):
    """The files of one engine's tables."""

    facts: tuple[str, ...]  # the names of what it looks a table up by, all that `--set` may name
    row: tuple[str, ...]  # what stands for a row where nobody says; empty where only the kernel knows
    rule: RowRule = ANY_ROW  # of its configs

    def content(self, table: Table) -> Mapping[str, Any]:
        """The JSON object of a table, as the engine reads it; SettingsError if it cannot have the table."""
        ...

    def text(self, table: Table) -> str:
        """The text of a table's file; SettingsError as of `content`."""
        for row in table.rows:
            if not row.failure and (why := self.rule.why_not(row.config)):
                raise SettingsError(f"the engine would refuse ({row.config}): {why}", hint="--rename OURS=THEIRS")
        return json.dumps(self.content(table), indent=4) + "\n"

    def file_below(self, folder: Path, facts: Mapping[str, Any]) -> Path:
        """The file below `folder` in which the engine looks first; SettingsError for facts that lead out of it."""
        path = self.places(folder, facts)[0]
        if not path.is_relative_to(folder) or ".." in path.relative_to(folder).parts:
            raise SettingsError(f"the table would be written to {path}", hint="correct the facts that name it: --set")
        return path

    def write(self, table: Table, folder: Path) -> Path:
        """Write a table where the engine looks for it below `folder`, and return the file."""
        text, path = self.text(table), self.file_below(folder, table.facts)
        with CacheError.when(f"{path} cannot be written", hint="name another folder"):
            path.parent.mkdir(parents=True, exist_ok=True)
            NamedFile(path).write(text)
        return path

    def read(self, path: Path) -> Table:
        """The table in a file, with the facts of its name and folder; CacheError if it is not of this format.

        What is not understood is among the table's remarks.
        """
        ...

    def named(self, path: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """The facts in the name of a file and of its folder; CacheError if it has one that the format has not."""
        return {}

    def doubt(self, folder: Path, facts: Mapping[str, Any], *, named: bool) -> str:  # noqa: ARG002
        """The reason why the engine may not find the table, as a sentence; empty if there is none.

        The name of a device is no such reason if somebody `named` it.
        """
        return ""

    def partner(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """The facts of the other table that the engine needs beside the one of these facts; empty for none."""
        return {}

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The files of a table, in the order in which the engine looks for them."""
        ...

    def choose(self, table: Table, facts: Mapping[str, Any], at: Sequence[Any]) -> TableRow | None:
        """The row that the engine takes from the first file that is there; None for none."""
        ...

    def look_up(self, folder: Path, facts: Mapping[str, Any], at: Sequence[Any]) -> tuple[Path, TableRow] | None:
        """The row that the engine would take below a folder or of a table, by its own rule, and its file; or None."""
        paths = [folder] if folder.is_file() else self.places(folder, facts)
        path = next((path for path in paths if path.is_file()), None)
        row = None if path is None else self.choose(self.read(path), facts, at)
        return None if path is None or row is None else (path, row)

    @staticmethod
    def needed(facts: Mapping[str, Any], *names: str) -> list[Any]:
        """The values of facts that an engine cannot do without; SettingsError if one is missing."""
        missing = [name for name in names if facts.get(name) in (None, "")]
        if missing:
            raise SettingsError(f"the table needs {', '.join(missing)}", hint=f"--set {missing[0]}=VALUE")
        return [facts[name] for name in names]

    @staticmethod
    def object_in(path: Path) -> dict[str, Any]:
        """The JSON object in a file, gzipped or not, with the `Infinity` and `NaN` that Python's `json` writes.

        CacheError: it cannot be read, or holds none.
        """
        with CacheError.when(f"{path} cannot be read", hint="name a table"):
            text = NamedFile(path).read(_LARGEST_BYTES, unpack=True)
        with CacheError.when(f"{path} is no table", "check the path", DamagedError, ValueError):
            # Judged with zeros for the numbers that JSON does not have, which Python's own reader takes.
            Sealed.parsed(_NOT_FINITE.sub(b"0", text))
            content: dict[str, Any] = json.loads(text)
        return content

    def row_in(self, size: int, value: Any, path: Path) -> TableRow:
        """The row for a number, whose config is in decoded JSON; CacheError if it is none by the rule of the table."""
        return TableRow((size,), config_in(value, path, self.rule))


def config_in(value: Any, path: Path, rule: RowRule | None = None) -> Config:
    """A config in decoded JSON; CacheError if it is none, or is refused by the rule; without a rule any is taken."""
    with CacheError.when(f"{path} is no table", "check the path", SpaceError):
        config = Config.from_json(value)
    if rule is not None and (why := rule.why_not(config)):
        raise CacheError(f"{path} has a config that cannot be taken: {why}", hint="correct it, or leave it out")
    return config


def _is_argument(value: Any) -> bool:
    """True for a number, text, flag or null, as an argument of a lockfile's problem is."""
    if isinstance(value, (int, float)):
        return -_LARGEST_NUMBER <= value < _LARGEST_NUMBER
    return value is None or isinstance(value, str)


@dataclass(frozen=True)
class Names:
    """The names that two sides have for the same things."""

    rows: tuple[str, ...] = ()  # the extents of a problem that stand for a row, in order, such as `("M",)`
    renamed: Mapping[str, str] = field(default_factory=dict)  # this package's name of a tunable to the engine's

    def outwards(self, config: Config) -> Config:
        """A config with the engine's names."""
        return Config({self.renamed.get(name, name): value for name, value in config.items()})

    def inwards(self, config: Config) -> Config:
        """A config of the engine with this package's names."""
        ours = {theirs: ours for ours, theirs in self.renamed.items()}
        return Config({ours.get(name, name): value for name, value in config.items()})


def _of_one_table(
    entries: list[LockEntry], facts: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]
) -> tuple[list[LockEntry], Mapping[str, Any]]:
    """The entries of one table, with its facts; those that were not imported belong to any.

    SettingsError: the entries are of several tables that have those of the facts in which they differ, or of none.
    """
    origins = {entry.origin.source: tables[entry.origin.source] for entry in entries if entry.origin.source in tables}
    differing = [name for name in facts if len({table.get(name) or None for table in origins.values()}) > 1]
    others = {s for s, table in origins.items() if any((table.get(n) or None) != (facts[n] or None) for n in differing)}
    sources = sorted(origins.keys() - others)
    rest = [entry for entry in entries if entry.origin.source not in others]
    if len(sources) > 1 or not rest:
        what = f"the entries are of {'several' if sources else 'other'} tables"
        raise SettingsError(f"{what}: {', '.join(sources or sorted(origins))}", hint="--set E=8, or another fact")
    return rest, origins[sources[0]] if sources else {}


def _row(entry: LockEntry, names: Names) -> TableRow:
    words = {name: value for name, value in entry.problem.items() if isinstance(value, (str, bool))}
    extents = {**Mapper.extents_of(entry.problem), **words}
    missing = [name for name in names.rows if name not in extents]
    if missing:
        message = f"{entry.kernel} {entry.label} has no {', '.join(missing)}; it has {', '.join(extents)}"
        raise SettingsError(message, hint="name its extents: --row M")
    at = tuple(extents[name] for name in names.rows)
    return TableRow(at, names.outwards(entry.config), median_ms=entry.measured.median_ms if entry.measured else None)


def _device(table: Table) -> LockedDevice:
    if not (name := table.facts.get("device_name")):
        raise SettingsError("the table names no device", hint='--set "device_name=NVIDIA H200"')
    words = str(name).replace("_", " ")
    kind = table.facts.get("kind") or kind_called(words)
    if kind not in ("hip", *_OTHER_KINDS):
        message = f"the name {words} does not tell its kind" if kind is None else f"there is no kind {kind}"
        raise SettingsError(message, hint="--set kind=cuda, or hip, xpu, npu, musa, cpu")
    return LockedDevice(alias=str(name).lower().replace("_", "-").replace(" ", "-"), kind=kind, name=words)


def kind_called(name: str) -> str | None:
    """The kind of a device by the words of its name, first those of processors, whose vendors make GPUs too."""
    words = set(re.findall(r"[a-z]+", name.lower()))
    vendor = DeviceSpec.vendor_of_name(" ".join(words))
    other = next((kind for kind, brands in _OTHER_KINDS.items() if words & brands), None)
    return vendor.kind if vendor and other != "cpu" else other
