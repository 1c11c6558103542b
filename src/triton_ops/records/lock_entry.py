"""One entry of a lockfile: the config that a kernel launches with on a device, for one problem or a range of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, ClassVar

from triton_ops.base import Count, Frozen, NotNegative, Plain, cached_property, canonical_json
from triton_ops.records.record import NotedCall, Record
from triton_ops.space import Config
from triton_ops.values import Argument, Key, Mapper, Range


class OriginKind(Enum):
    """The kinds of an entry's origin, each with the text that begins the `source` of an entry in a file."""

    RECORD = "record"
    UNPROVEN = "record, unproven: "  # and why
    STEP = "record, raced in the step "  # and its name
    RACE = "race"  # of a config that was expected before
    EXPECTED = "expected: "  # and by what
    REPAIRED = "repaired: "  # and why
    BY_HAND = "edited by hand, and accepted"
    TABLE = ""  # of another engine: the name of the table's format, and the file; or the engine that it was tuned in

    @classmethod
    def of(cls, source: str) -> OriginKind:
        """The kind that a `source` is of; what is of no other is a table."""
        kinds = (
            kind for kind in cls if source == kind.value or (kind.value[-1:] == " " and source.startswith(kind.value))
        )
        return next(kinds, cls.TABLE)


@dataclass(frozen=True, kw_only=True)
class LockedDevice:
    """A device for which a lockfile has entries."""

    alias: str  # by which entries refer to it
    kind: str  # `cuda`, `hip` or `cpu`
    name: str  # the vendor's
    arch: str | None = None  # such as `sm_90`
    units: Count | None = None  # multiprocessors, compute units or CPU cores; None takes any, as for imported tables
    threads: Count | None = None  # that a CPU's kernels may use; None for GPUs
    also: tuple[str, ...] = ()  # further names that count as it, of the same architecture and of any number of units

    def why_not(self, device: Mapping[str, Any]) -> str | None:
        """The reason why a key's device is another one; None if it is this one, by any spelling of its name."""
        if device.get("kind") != self.kind:
            return f"it is of kind {device.get('kind')}, not {self.kind}"
        if self.arch is not None and device.get("arch") != self.arch:
            return f"its architecture is {device.get('arch')}, not {self.arch}"
        name = _bare(str(device.get("name", "")))
        if name in map(_bare, self.also):
            return None
        if name != _bare(self.name):
            return f"it is {device.get('name')}, not {' or '.join((self.name, *self.also))}"
        for what, own in (("units", self.units), ("threads", self.threads)):
            if own is not None and device.get(what) != own:
                return f"it has {device.get(what)} {what}, not {own}"
        return None


@dataclass(frozen=True, kw_only=True)
class LockedTiming:
    """The times with which a winner won, in milliseconds per launch."""

    cache_state: str  # `cold` or `warm`, as was asked for
    mode: str  # clock and state of the caches in which it was timed
    median_ms: NotNegative
    default_ms: NotNegative | None = None  # None if it was not measured
    gain: NotNegative | None = None  # the default's time over the winner's, round by round where that is known


@dataclass(frozen=True, kw_only=True)
class EntryOrigin:
    """The source of an entry, in short."""

    _IN_FILE: ClassVar[tuple[str, ...]] = ("record", "run", "created", "driver", "versions")

    kind: OriginKind = OriginKind.RECORD
    detail: str = ""  # what its kind leaves open, such as the step's name, or the file of a table
    form: str = ""  # the format of the engine's table; empty for any other kind
    record: str = ""  # its id, or that of the first winner of a repaired entry; empty if there is none
    run: str = ""  # id of the run log of that tune; empty if none was kept
    created: str = ""  # when the winner was found, or last stood a race, UTC
    driver: Plain = None  # of the device; None if it is not known
    versions: Mapping[str, str] = field(default_factory=dict)  # Python's, and of what decides how fast a kernel is

    def __post_init__(self) -> None:
        Frozen.fields(self, "versions")

    @classmethod
    def of(cls, record: Record) -> EntryOrigin:
        """The origin of a record's winner."""
        kind, detail = OriginKind.RECORD, ""
        if why := record.unproven:
            kind, detail = OriginKind.UNPROVEN, why
        elif record.step:
            kind, detail = OriginKind.STEP, record.step
        return cls(
            kind=kind, detail=detail, record=record.id, run=record.run, created=record.created,
            driver=record.key.device.get("driver"), versions=record.versions,
        )  # fmt: skip

    @classmethod
    def fields_of(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The fields by what a file has, whose `source` tells kind, detail and form; TypeError if that is no text."""
        if not isinstance(source := stored.get("source", OriginKind.RECORD.value), str):
            raise TypeError(f"the source of an origin is {source!r}, and no text")
        kind = OriginKind.of(source)
        form, colon, detail = source.partition(": ") if kind is OriginKind.TABLE else ("", "", "")
        if not (form and colon):
            form, detail = "", source.removeprefix(kind.value)
        rest = {name: stored[name] for name in cls._IN_FILE if name in stored}
        return {**rest, "kind": kind.value, "detail": detail, "form": form}

    @property
    def in_file(self) -> dict[str, Any]:
        """The fields as a file has them."""
        others = {name: getattr(self, name) for name in self._IN_FILE}
        return {**others, "source": self.source, "versions": dict(self.versions)}

    @property
    def source(self) -> str:
        """The text that tells people where the entry comes from."""
        return f"{self.kind.value}{self.form}{': ' if self.form else ''}{self.detail}"

    @property
    def tune(self) -> tuple[str, str]:
        """The record and the run that the winner comes from."""
        return self.record, self.run

    @property
    def unproven(self) -> str:
        """The reason why the winner is unproven, where it was pinned all the same; empty for any other."""
        return self.detail if self.kind is OriginKind.UNPROVEN else ""

    @property
    def step(self) -> str:
        """The name of the step in which the winner was raced in place; empty for any other."""
        return self.detail if self.kind is OriginKind.STEP else ""

    @property
    def expected(self) -> bool:
        """True if a model has chosen the config, which nobody has measured."""
        return self.kind is OriginKind.EXPECTED


@dataclass(frozen=True, kw_only=True)
class LockEntry:
    """The config that one kernel launches with."""

    kernel: str  # as in keys
    device: str  # its alias
    label: str = ""  # the problem in short, for people
    config: Config
    default: Config | None = None  # of the kernel when this one was found; None if it is not known
    measured: LockedTiming | None = None  # None if it is not known, as in imported tables, or of a step alone
    problem: Mapping[str, Argument]  # for which the config was found, as in keys
    ranges: tuple[Range, ...] = ()  # of extents in which a problem may differ from `problem`
    ignored: tuple[str, ...] = ()  # arguments that make no difference
    identity: Mapping[str, str] = field(default_factory=dict)  # as in keys; empty takes any kernel of this name
    origin: EntryOrigin = field(default_factory=EntryOrigin)
    bits: str = ""  # the class of configs that give its bits; empty if it is not told
    same_bits: bool = False  # whether launches, on any device and for any extents, keep to that class
    call: NotedCall | str | None = None  # of a decorated kernel, or why it cannot be made again; None if none was noted

    def __post_init__(self) -> None:
        if ranges := Mapper.unkeyed(self.problem)[1]:
            raise ValueError(f"the problem of {self.kernel} has the range {ranges[0]}, which belongs into `ranges`")
        Frozen.fields(self, "problem", "identity")

    @classmethod
    def asked(cls, key: Key, call: NotedCall | str | None = None) -> LockEntry:
        """The entry of a problem for which no config is known."""
        problem, ranges, ignored = Mapper.unkeyed(key.problem)
        return cls(
            kernel=key.kernel, device=str(key.device.get("name")), label=key.label, config=Config(), problem=problem,
            ranges=ranges, ignored=tuple(sorted(ignored)), call=call,
        )  # fmt: skip

    @cached_property
    def place(self) -> tuple[Any, ...]:
        """The order of the entries of a file: kernel, device, extents as numbers, then everything that is looked up.

        Extents are in the order of their names, as a file has them: a problem from a record has the kernel's order.
        """
        sizes = tuple(extent for _, extent in sorted(Mapper.extents_of(self.problem).items()))
        return self.kernel, self.device, sizes, canonical_json([dict(self.problem), list(self.ignored), self.source])

    @property
    def in_file(self) -> dict[str, Any]:
        """The fields as a file has them."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"origin": self.origin.in_file}

    @property
    def source(self) -> dict[str, str]:
        """The fingerprints that must be equal for the config to fit: of the kernel, its grid and its forms."""
        return Key.source_of(self.identity)

    def why_not(self, key: Key) -> str | None:
        """The reason why this entry, of the kernel and device of `key`, does not answer it; None if it does."""
        if names := Key.changes_since(self.identity, key.identity):
            return f"the kernel's {' and '.join(names)} changed since"
        return why_outside(self.problem, key.problem, self.ranges, self.ignored)

    def why_other_bits(self, key: Key) -> str | None:
        """The reason why a call of `key` may get other bits than it, or the entry, asks for; None if it does not.

        A class is told of compiled code: of the very problem, by these versions.
        """
        if not (key.bits or self.same_bits):
            return None
        if key.bits and self.bits != key.bits:
            return f"its class of bits is {self.bits or 'not told'}, not {key.bits}"
        if not self.is_exact(key):
            return "its class of bits was told for another problem"
        changed = self.drift(replace(key, device={"driver": self.origin.driver}))  # which changes no compiled code
        return f"its class of bits was told by other versions: {'; '.join(changed)}" if changed else None

    def apart(self, key: Key) -> float | None:
        """The sum of |log2| of the ratios of all extents to those of `key`; None if more than extents differs."""
        mine, theirs = ({n: v for n, v in each.items() if ":" not in n} for each in (self.problem, key.problem))
        one, other = Mapper.extents_of(mine), Mapper.extents_of(theirs)
        if not _same(Mapper.rest_of(mine, one), Mapper.rest_of(theirs, other)):
            return None
        return sum(abs(math.log2(max(one[name], 1) / max(other[name], 1))) for name in one)

    def is_exact(self, key: Key) -> bool:
        """True if the entry was found for the very problem of `key`."""
        return why_outside(self.problem, key.problem, (), self.ignored) is None

    def distance(self, key: Key) -> float:
        """The sum of |log2| of the ratios of this problem's extents in ranges to those of `key`, which it answers."""
        mine, theirs = Mapper.extents_of(self.problem), Mapper.extents_of(key.problem)
        pairs = [(max(mine[each.extents[0]], 1), max(theirs[each.extents[0]], 1)) for each in self.ranges]
        return sum(abs(math.log2(a / b)) for a, b in pairs)

    def drift(self, key: Key) -> tuple[str, ...]:
        """Versions and the driver that differ from when the config was found, each as `name: then | now`."""
        then = {name: text for name, text in self.identity.items() if name not in self.source}
        if self.origin.driver is not None:
            then["driver"] = str(self.origin.driver)
        now = {**key.identity, "driver": str(key.device.get("driver"))}
        return tuple(f"{name}: {old} | {now.get(name)}" for name, old in sorted(then.items()) if now.get(name) != old)


def _bare(name: str) -> str:
    # Drivers and engines spell one device with blanks, hyphens or underlines.
    return "".join(filter(str.isalnum, name.casefold()))


def why_outside(
    problem: Mapping[str, Any], other: Mapping[str, Any], ranges: Sequence[Range] = (), ignored: Collection[str] = ()
) -> str | None:
    """The reason why what holds for `problem` does not hold for `other`, as one sentence; None if it does.

    The `other` is a problem as it is, never the one that a bucket would make of it. The extents of one range must be
    equal in it; ignored arguments may differ in any way, or be missing.
    """
    mine, theirs = ({n: v for n, v in each.items() if n not in ignored} for each in (problem, other))
    if mine.keys() != theirs.keys():
        return f"its arguments are {', '.join(theirs) or 'none'}, not {', '.join(mine) or 'none'}"
    extents = Mapper.extents_of(theirs)
    for each in ranges:
        values = {extents.get(name) for name in each.extents}
        if len(values) != 1 or None in values:
            texts = sorted("missing" if value is None else str(value) for value in values)
            return f"{', '.join(each.extents)} are not one whole number, but {' and '.join(texts)}"
        if not each.low <= extents[each.extents[0]] <= each.high:
            return f"{each.extents[0]} is {extents[each.extents[0]]}, and the range goes {each}"
    free = {name for each in ranges for name in each.extents} & Mapper.extents_of(mine).keys()
    mine, theirs = Mapper.rest_of(mine, free), Mapper.rest_of(theirs, free)
    different = [name for name, value in mine.items() if not _same(value, theirs[name])]
    return f"{different[0]} is {theirs[different[0]]}, not {mine[different[0]]}" if different else None


def _same(one: Any, other: Any) -> bool:
    """True if two values are equal as JSON, where `true` is no 1; tuples count as lists."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)
