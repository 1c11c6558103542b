"""Winners that packages bring with them, in lockfiles: for the very problem, and for problems nearby.

An entry answers on its device only, and only for the kernel's present source. Triton, its assembler and the driver may
be others than those with which it was found: a winner of other versions is a better guess than an untuned config, and
what changed is said. Where a tune is asked for, only an entry of these very versions spares it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from triton_ops.cache import Key, LockEntry, shared_entries, shared_lockfiles
from triton_ops.dispatch.decision import SHIPPED, Found, worth_text
from triton_ops.dispatch.near import OTHER_VERSIONS

Place: TypeAlias = tuple[float, bool, str]
"""Orders what may be taken: how far its problem is, whether a package brings it, and an id."""


def shipped(key: Key, passed: list[str], *, drifted: bool) -> Iterator[tuple[Place, Found]]:
    """What lockfiles of packages have for the very problem of `key`, each with its place among what may be taken.

    Args:
        key: The problem that is asked for.
        passed: Takes, for each lockfile that does not answer, why not.
        drifted: Whether entries of other versions and drivers answer.
    """
    for lock in shared_lockfiles():
        pinned = lock.find(key)
        if pinned is None:
            _tell(passed, f"shipped: {lock.why_not(key)}")
        elif pinned.drift and not drifted:
            _tell(passed, f"shipped: there is a winner, but of other versions: {'; '.join(pinned.drift)}")
        else:
            entry, away = pinned.entry, pinned.entry.distance(key) + (OTHER_VERSIONS if pinned.drift else 0.0)
            why = "; ".join([f"shipped for {entry.label or 'this problem'}, {_measured(entry)}", *pinned.drift])
            yield (away, True, ""), Found(config=entry.config, rung=SHIPPED, why=why, record=entry.origin.record)


def _tell(passed: list[str], why: str) -> None:
    """Add a reason once: several packages share lockfiles, and most have nothing for a kernel."""
    if why not in passed:
        passed.append(why)


def nearby(key: Key) -> Iterator[tuple[LockEntry, Key, str]]:
    """The entries of packages for this kernel and device, each with its own key, and where it comes from in words."""
    for entry in shared_entries(key):
        yield entry, _key_of(entry, key), f"shipped, {_measured(entry)}"


def _key_of(entry: LockEntry, asked: Key) -> Key:
    """The key for which an entry was found, by the name that its device has here."""
    return replace(
        asked,
        problem=entry.problem,
        identity=entry.identity,
        device={**asked.device, "driver": entry.origin.driver},
        cache_state=asked.cache_state if entry.measured is None else entry.measured.cache_state,
        held_to={},
        label=entry.label,
    )


def _measured(entry: LockEntry) -> str:
    gain = None if entry.measured is None else entry.measured.gain
    worth = worth_text(gain, entry.config == entry.default, entry.origin.unproven)
    return f"measured {entry.origin.created or 'at a time that is not known'}{worth}"
