"""Lockfiles from records: which winners are pinned, and where each also holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from triton_ops.base import canonical_json, warn
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import SettingsError
from triton_ops.records.lock_entry import EntryOrigin, LockedDevice, LockedTiming, LockEntry
from triton_ops.records.lockfile import Lockfile, lock_for
from triton_ops.records.record import Record
from triton_ops.values import BucketRule, Key, Mapper, Nearest

MEASURED = "measured"  # the rule whose points are the problems that were measured
_CAP = 2.0  # a winner holds for extents up to so many times beyond the outermost points


@dataclass(frozen=True)
class LeftOut:
    """A record that a lockfile does not take, and why."""

    record: Record
    reason: str


@dataclass(frozen=True, kw_only=True)
class LockPlan:
    """The way from records to entries.

    The `buckets` give names of extents, separated by commas, the rule by which a winner also holds for other values: a
    text as of `rule_of`, or `measured`, or `measured@2` with the cap: the nearest value that has a record. A single
    name stands for every extent that has its value in all records of the kernel.
    """

    buckets: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()  # arguments that make no difference
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)  # further names that count as a device
    all_sources: bool = False  # records of earlier sources of a kernel are taken too
    unproven: bool = False  # records are taken whose winner is unproven
    same_bits: bool = False  # calls keep to the classes of the winners, as they do to one that was asked for

    def __post_init__(self) -> None:
        self.rules({})  # wrong texts are refused before any work
        if self.same_bits and self.buckets:
            message = f"a class of bits is told for one problem, and for no range of {', '.join(self.buckets)}"
            hint = "leave the range out, and tune each extent: `explain classes --vary` says at which one a class is"
            raise SettingsError(message, hint=hint)

    def rules(self, points: Mapping[str, Sequence[int]]) -> Mapper:
        """The mapper, with the given points where the rule is `measured`; SettingsError if a text names no rule."""
        rules = {names: _rule(text, points.get(names, (1,))) for names, text in self.buckets.items()}
        return Mapper.of(rules, self.ignored)

    def device_of(self, spec: DeviceSpec) -> LockedDevice:
        """A device in the form that a lockfile has it in; SettingsError if `also` names another one."""
        (device,) = _devices([_identity_of(Key.facts_of(spec))], self).values()
        return device

    def with_ranges(self, entries: Iterable[LockEntry]) -> list[LockEntry]:
        """The entries with ranges by the plan's rules; its other parts are not used."""
        families: dict[tuple[Any, ...], list[LockEntry]] = {}
        for entry in entries:
            alike = entry.kernel, entry.device, canonical_json(entry.source), tuple(Mapper.extents_of(entry.problem))
            families.setdefault(alike, []).append(entry)
        return [pinned for family in families.values() for pinned in _family_with_ranges(family, self)]


def lock_of(records: Iterable[Record], plan: LockPlan | None = None) -> tuple[Lockfile, tuple[LeftOut, ...]]:
    """The lockfile of some records, and the records that it does not take.

    Of several records of one problem the one of cold caches is taken, and of these the newest. Of a kernel whose source
    has changed only the records of the newest source are. A winner that is unproven is not pinned. A plan that names a
    device or an extent that no record has is refused.
    """
    plan = plan or LockPlan()
    newest = sorted(records, key=lambda record: (record.key.cache_state == "cold", record.created), reverse=True)
    by_place: dict[tuple[Any, ...], LockEntry] = {}
    left_out: list[LeftOut] = []
    devices = _devices((_identity_of(record.key.device) for record in newest), plan)
    sources = _sources(newest)
    for record in newest:
        entry = _entry(record, devices, plan)
        if (reason := _why_left(record, entry, sources, by_place, plan)) is None:
            by_place[entry.place] = entry
        else:
            left_out.append(LeftOut(record, reason))
    pinned = list(by_place.values())
    _check_names(pinned, plan)
    return lock_for(devices.values(), plan.with_ranges(pinned)), tuple(left_out)


def updated(old: Lockfile, new: Lockfile, *, all_sources: bool = False) -> Lockfile:
    """The entries of `new`, and those of `old` that they do not replace.

    An entry is replaced by one for the same problem on the same device, and by any of the same kernel whose source is
    another, unless `all_sources` is set; one of the same tune that has raced since keeps all but its ranges.
    """
    sources: dict[str, list[dict[str, str]]] = {}
    for entry in new.entries:
        sources.setdefault(entry.kernel, []).append(entry.source)
    renamed = {_facts(device): device.alias for device in new.devices}
    aliases = {device.alias: renamed.get(_facts(device), device.alias) for device in old.devices}
    stays = [
        replace(entry, device=aliases[entry.device])
        for entry in old.entries
        if all_sources or entry.kernel not in sources or entry.source in sources[entry.kernel]
    ]
    raced = {_problem_of(entry): entry for entry in stays}
    new = replace(new, entries=tuple(_newer(entry, raced.get(_problem_of(entry))) for entry in new.entries))
    places = {_problem_of(entry) for entry in new.entries}
    stays = [entry for entry in stays if _problem_of(entry) not in places]
    devices = tuple(replace(device, alias=aliases[device.alias]) for device in old.devices)
    both = Lockfile.merged([new, Lockfile(devices, tuple(stays))])
    return lock_for(both.devices, both.entries)


def _newer(entry: LockEntry, old: LockEntry | None) -> LockEntry:
    if (kept := old is not None and old.same_bits) and entry.bits != old.bits:
        warn("%s %s keeps its config: the newest winner is not of the class that is pinned", old.kernel, old.label)
        return old
    entry = replace(entry, same_bits=entry.same_bits or kept)
    if old is None or old.origin.tune != entry.origin.tune or old.origin.created <= entry.origin.created:
        return entry
    raced = () if entry.same_bits else ("config", "measured", "identity", "origin", "bits")  # whose class is not told
    return replace(entry, **{name: getattr(old, name) for name in raced})


def _entry(record: Record, devices: Mapping[tuple[Any, ...], LockedDevice], plan: LockPlan) -> LockEntry:
    key, default_ms = record.key, record.default_timing
    entry = LockEntry.asked(key, record.call)
    measured = LockedTiming(
        cache_state=key.cache_state, mode=record.mode, median_ms=record.timing.median_ms,
        default_ms=None if default_ms is None else default_ms.median_ms, gain=None if record.unproven else record.gain,
    )  # fmt: skip
    return replace(
        entry, device=devices[_identity_of(key.device)].alias, config=record.winner, default=record.default,
        measured=measured if record.timing.samples or not record.step else None,
        ignored=tuple(sorted({*entry.ignored, *(name for name in plan.ignored if name in entry.problem)})),
        identity=dict(key.identity), origin=EntryOrigin.of(record), bits=record.bits,
        same_bits=bool(record.bits and (plan.same_bits or key.bits)),
    )  # fmt: skip


def _why_left(
    record: Record,
    entry: LockEntry,
    sources: Mapping[str, dict[str, str]],
    entries: Mapping[tuple[Any, ...], LockEntry],
    plan: LockPlan,
) -> str | None:
    if record.key.unknown is not None:
        return f"its kernel cannot be told from others: {record.key.unknown}"
    if record.unproven and not plan.unproven:
        return f"unproven: {record.unproven}"
    if plan.same_bits and not record.bits:
        return "its class of bits is not told"
    if not plan.all_sources and entry.source != sources[entry.kernel]:
        return "its kernel has changed since: a newer record has another source"
    if entry.place in entries:
        return "another record is of the same problem"
    return None


def _sources(newest: Sequence[Record]) -> dict[str, dict[str, str]]:
    """The source of the record of each kernel that was made last, whatever its cache state."""
    # The newest of a kernel is met last, and so stays.
    records = sorted(newest, key=attrgetter("created"), reverse=True)
    return {each.key.kernel: Key.source_of(each.key.identity) for each in reversed(records)}


_FACTS = ("kind", "name", "arch", "units", "threads")
_facts = attrgetter(*_FACTS)


def _identity_of(device: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(map(device.get, _FACTS))


def _devices(facts_of_all: Iterable[tuple[Any, ...]], plan: LockPlan) -> dict[tuple[Any, ...], LockedDevice]:
    devices: dict[tuple[Any, ...], LockedDevice] = {}
    # Aliases must not depend on the order of records.
    for facts in sorted({*facts_of_all}, key=canonical_json):
        kind, name, arch, units, threads = facts
        alias = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-") or "device"
        if any(each.alias == alias for each in devices.values()):
            alias += f"-{len(devices)}"
        devices[facts] = LockedDevice(
            alias=alias, kind=str(kind), name=str(name), arch=arch, units=units, threads=threads,
            also=tuple(plan.also.get(str(name), ())),
        )  # fmt: skip
    if unknown := ", ".join(sorted(set(plan.also) - {device.name for device in devices.values()})):
        names = ", ".join(sorted(device.name for device in devices.values()))
        raise SettingsError(f"no record is of {unknown}; records are of {names or 'none'}", hint="correct its name")
    return devices


def _check_names(entries: Sequence[LockEntry], plan: LockPlan) -> None:
    """Refuse rules that are about nothing: a name that is misspelt would leave every entry without its range."""
    extents = {name for entry in entries for name in Mapper.extents_of(entry.problem)}
    arguments = {name for entry in entries for name in entry.problem}
    names = {name.strip() for text in plan.buckets for name in text.split(",")}
    for what, strange, there in (
        ("extent", names - extents, extents),
        ("argument", {*plan.ignored} - arguments, arguments),
    ):
        if entries and strange:
            words = ", ".join(map(repr, sorted(strange)))
            message = f"no entry has the {what} {words}; they have {', '.join(sorted(there))}"
            raise SettingsError(message, hint="correct the name, or leave it out")


def _family_with_ranges(alike: list[LockEntry], plan: LockPlan) -> list[LockEntry]:
    """Entries of one kernel and device with ranges by the plan; a rule whose extents they do not have makes none."""
    extents = [Mapper.extents_of(entry.problem) for entry in alike]
    tied = {text: names for text in plan.buckets if (names := _tied_extents(text, extents))}
    points: dict[tuple[str, str], set[int]] = {}
    for entry, values in zip(alike, extents, strict=True):
        for text, names in tied.items():
            points.setdefault((text, _rest(entry, names)), set()).add(values[names[0]])
    entries = []
    for entry in alike:
        own = {text: sorted(points[text, _rest(entry, names)]) for text, names in tied.items()}
        rules = {text: rule for text, (_, rule) in zip(plan.buckets, plan.rules(own).buckets, strict=True)}
        mapper = Mapper(tuple((names, rules[text]) for text, names in tied.items()))
        entries.append(replace(entry, ranges=(*entry.ranges, *mapper.ranges(entry.problem))))
    return entries


def _tied_extents(text: str, alike: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """The extents that a rule is about: those named, or for a single name all that have its value in every problem."""
    names = tuple(name.strip() for name in text.split(","))
    if any(name not in alike[0] for name in names):
        return ()
    if len(names) > 1:
        return names
    return tuple(name for name in alike[0] if all(each[name] == each[names[0]] for each in alike))


def _rest(entry: LockEntry, tied: tuple[str, ...]) -> str:
    """The part that is equal in problems which differ in these extents only."""
    return canonical_json(Mapper.rest_of(entry.problem, tied))


def _problem_of(entry: LockEntry) -> tuple[Any, ...]:
    return entry.kernel, entry.device, canonical_json([dict(entry.problem), entry.source])


def _rule(text: str, points: Sequence[int]) -> str | BucketRule:
    kind, at, cap = text.strip().partition("@")
    if kind != MEASURED:
        return text
    with SettingsError.when(f"{text!r} is no rule for buckets", f"write {MEASURED}@1.5", ValueError):
        return Nearest(tuple(points), float(cap) if at else _CAP)
