"""What a lockfile has that another one has not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from triton_ops.base import canonical_json
from triton_ops.records import LockEntry, Lockfile
from triton_ops.space import Config


@dataclass(frozen=True)
class LockChange:
    """One entry that differs, as it is in the newer lockfile; if it was removed, as it was."""

    kind: Literal["added", "removed", "changed"]
    entry: LockEntry
    fields: tuple[str, ...] = ()  # each as `field: before | after`

    def __str__(self) -> str:
        entry = self.entry
        what = f"{self.kind}: {entry.kernel} {entry.label} on {entry.device}".replace("  ", " ")
        return "; ".join([what, *(self.fields or (f"({entry.config})",))])


def changes(before: Lockfile, after: Lockfile) -> tuple[LockChange, ...]:
    """The entries in which two lockfiles differ, in the order of entries.

    Times and origins of an entry whose config stayed are no change; of a device the aliases are.
    """
    old, new = _by_problem(before), _by_problem(after)
    differences: list[LockChange] = []
    for place in sorted({*old, *new}):
        was, now = old.get(place), new.get(place)
        if now is None:
            differences.append(LockChange("removed", old[place]))
        elif was is None:
            differences.append(LockChange("added", now))
        elif fields := _fields(was, now):
            differences.append(LockChange("changed", now, fields))
    return tuple(differences)


def _by_problem(lock: Lockfile) -> dict[tuple[Any, ...], LockEntry]:
    """The entries by what they are for; several of one problem, of different sources, by their number."""
    entries: dict[tuple[Any, ...], LockEntry] = {}
    for entry in lock.entries:
        problem = (*entry.place[:3], canonical_json(dict(entry.problem)))
        number = next(number for number in count() if (*problem, number) not in entries)
        entries[(*problem, number)] = entry
    return entries


def _fields(was: LockEntry, now: LockEntry) -> tuple[str, ...]:
    one, other = (_comparison(entry) for entry in (was, now))
    return tuple(f"{name}: {one[name]} | {other[name]}" for name in one if one[name] != other[name])


def _comparison(entry: LockEntry) -> Mapping[str, Any]:
    """What makes two entries differ: not the times and origins of equal winners."""
    return {
        "config": _in_order(entry.config), "ranges": [str(each) for each in entry.ranges],
        "ignored": list(entry.ignored), "default": None if entry.default is None else _in_order(entry.default),
        "identity": dict(entry.identity), "expected": entry.origin.expected, "same_bits": entry.same_bits,
    }  # fmt: skip


def _in_order(config: Config) -> str:
    """A config's text with its names sorted, as a file has them: a record has them in the order of its space."""
    return str(Config({name: config[name] for name in sorted(config)}))
