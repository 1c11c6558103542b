"""What becomes of an entry of a lockfile that a model has chosen a config for, or that has stood a race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from triton_ops.base import Host
from triton_ops.records import EntryOrigin, LockedTiming, LockEntry, OriginKind, Record, Timing, time_now
from triton_ops.space import Config
from triton_ops.values import Key, Trial


def expecting(entry: LockEntry, config: Config, default: Config, why: str, identity: Mapping[str, str]) -> LockEntry:
    """The entry with a config that a model has chosen, for the kernel of an identity."""
    origin = EntryOrigin(kind=OriginKind.EXPECTED, detail=why, created=time_now(), versions=Host.versions())
    entry = replace(entry, bits="", same_bits=False)
    return replace(entry, config=config, default=default, measured=None, identity=dict(identity), origin=origin)


def after_race(
    entry: LockEntry, key: Key, config: Config, trial: Trial, default: Trial | None, repaired: str = ""
) -> LockEntry:
    """The entry with the config that a race has proven, by `trial`, with the versions and the driver of `key`.

    `repaired` is why it takes the place of another one; empty if it does not.
    """
    measured = LockedTiming(
        cache_state=key.cache_state if entry.measured is None else entry.measured.cache_state,
        mode=trial.best_measurement.mode, median_ms=trial.median_ms,
        default_ms=default.median_ms if default is not None and default.ok else None,
        gain=None if default is None else default.over(trial),
    )  # fmt: skip
    origin = replace(entry.origin, created=time_now(), driver=key.device.get("driver"), versions=Host.versions())
    if repaired or origin.expected:
        kind = OriginKind.REPAIRED if repaired else OriginKind.RACE
        origin = replace(origin, kind=kind, detail=repaired, form="")
    # An entry that answers any source of its kernel, as an imported one, goes on to do so.
    parts = {} if entry.source else Key.source_of(key.identity)
    identity = {name: text for name, text in key.identity.items() if name not in parts}
    return replace(entry, config=config, measured=measured, identity=identity, origin=origin, bits="")


def record_after(entry: LockEntry, record: Record, trial: Trial, default: Trial | None, why: str) -> Record:
    """The record of the tune, for the versions and the driver under which a race has proven this entry, by `trial`.

    `why` it raced is noted with the time. The kernel and the grid are those of the record.
    """
    own = Key.source_of(record.key.identity)
    device = {**record.key.device, "driver": entry.origin.driver}
    beside = default is not None and default.ok and default.config == record.default
    return replace(
        record, key=replace(record.key, identity={**entry.identity, **own}, device=device), winner=entry.config,
        timing=Timing.of(trial.best_measurement), mode=trial.best_measurement.mode, resources=trial.resources,
        default_timing=Timing.of(default.best_measurement) if default is not None and beside else None,
        raced_gain=None if entry.measured is None else entry.measured.gain, gain_interval=None, ties=(),
        confidence="ok", created=entry.origin.created, versions=dict(entry.origin.versions),
        contents=msgspec.UNSET, bits="",  # it raced on one content alone, and nobody has told its class
        notes=(*record.notes, f"{why}, {entry.origin.created}"),
    )  # fmt: skip
