"""What changed from one lockfile to another, entry by entry and field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import msgspec

from triton_ops._hashing import canonical_json
from triton_ops.cache.lock_entry import LockEntry
from triton_ops.cache.lockfile import Lockfile
from triton_ops.space import Config
from triton_ops.space.config import config_to_json

_TOLD = (
    "config",
    "ranges",
    "ignored",
    "default",
    "identity",
)  # the times and the origin of equal winners are no change


@dataclass(frozen=True)
class Change:
    """One entry that differs.

    Attributes:
        kind: `added`, `removed` or `changed`.
        entry: The entry as it is in the newer lockfile; if it was removed, as it was.
        fields: What changed, each as `field: before | after`.
    """

    kind: Literal["added", "removed", "changed"]
    entry: LockEntry
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        entry = self.entry
        what = f"{self.kind}: {entry.kernel} {entry.label} on {entry.device}".replace("  ", " ")
        return "; ".join([what, *(self.fields or (f"({entry.config})",))])


def changes(before: Lockfile, after: Lockfile) -> tuple[Change, ...]:
    """The entries in which two lockfiles differ, in the order of entries.

    Times and origins of an entry whose config stayed are no change; of a device the aliases are.
    """
    old, new = _by_problem(before), _by_problem(after)
    found: list[Change] = []
    for place in sorted({*old, *new}):
        was, now = old.get(place), new.get(place)
        if was is None or now is None:
            found.append(Change("removed", was) if now is None and was is not None else Change("added", new[place]))
        elif fields := _fields(was, now):
            found.append(Change("changed", now, fields))
    return tuple(found)


def _by_problem(lock: Lockfile) -> dict[tuple[Any, ...], LockEntry]:
    """The entries by what they are for; several of one problem, of different sources, by their number."""
    found: dict[tuple[Any, ...], LockEntry] = {}
    for entry in lock.entries:
        problem = (*entry.place[:3], canonical_json(dict(entry.problem)))
        number = next(number for number in count() if (*problem, number) not in found)
        found[(*problem, number)] = entry
    return found


def _fields(was: LockEntry, now: LockEntry) -> tuple[str, ...]:
    one, other = (_told(entry) for entry in (was, now))
    return tuple(f"{name}: {one[name]} | {other[name]}" for name in one if one[name] != other[name])


def _told(entry: LockEntry) -> Mapping[str, Any]:
    plain = msgspec.to_builtins(entry, enc_hook=config_to_json)
    shown = {name: plain[name] for name in _TOLD}
    default = None if entry.default is None else _in_order(entry.default)
    ranges = [str(each) for each in entry.ranges]
    return {**shown, "config": _in_order(entry.config), "default": default, "ranges": ranges}


def _in_order(config: Config) -> str:
    """A config's text with its names sorted, as a file has them: a record has them in the order of its space."""
    return str(Config({name: config[name] for name in sorted(config)}))
