"""Winners for the package, from the records that `benchmarks.shipped.kernels_gpu --cache-dir FOLDER` leaves.

    python -m benchmarks.shipped.package_data FOLDER [FOLDER ...]  # take the records' winners into the package
    python -m benchmarks.shipped.package_data --check              # exit 1 if a kernel of an entry has changed since
    python -m benchmarks.shipped.package_data --rekey KERNEL [KERNEL ...]  # keep entries over a change, as below

A lockfile for each device stands in src/triton_ops_kernels/winners, as `triton-ops lock` writes it: sorted, an entry in
a few lines, without paths or names of the machine. It takes the records of named problems whose winner was checked
against the reference, was measured with cold caches, and lies in the operation's own space. Entries that are there
already stay where no record replaces them; those of an earlier source of a kernel, which no call would take, are
removed. No GPU is needed.

A shipped kernel is known by its name and its content, and not by where its parts lie. `--rekey` is for a change of the
content that leaves the order of configs as it was, such as another message or a cast that compiles to the same code: it
keeps the entries of a kernel, which any other change makes void. Configs that the space no longer has stay void.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import triton_ops_kernels as kernels
from triton_ops.cli.lock_changes import changes
from triton_ops.device import DeviceSpec
from triton_ops.records import RECORDS, DirectoryStore, LockEntry, Lockfile, LockPlan, Record, lock_of, updated
from triton_ops.space import Config
from triton_ops.values import Key

ALIASES: dict[str, tuple[str, ...]] = {}
"""For a device's name others of the same chip, memory and power limit. Others are not taken for it: a winner for one
bandwidth need not win at another."""
_NOWHERE = DeviceSpec(kind="cuda", name="", arch="", units=0)


@cache
def named_problems(name: str) -> dict[str, dict]:
    """The named problems of a kernel as they stand in keys."""
    operation = kernels.load(name)
    return {
        label: dict(Key.of(operation.problem(shape, dtype), {}, _NOWHERE).problem)
        for label, (shape, dtype) in operation.problems.items()
    }


def allowed(kernel: str, problem: Mapping[str, object], config: Config) -> bool:
    """Whether a config lies in the operation's own space for a named problem, from which calls take it."""
    operation = kernels.load(kernel)
    label = next(label for label, each in named_problems(kernel).items() if each == dict(problem))
    return operation.space_for(operation.problem(*operation.problems[label])).why_not(config) is None


def why_not(record: Record) -> str | None:
    """Why a record's winner is not for the package; None if it is."""
    key = record.key
    if key.kernel not in kernels.names():
        return "it is of no shipped kernel"
    if key.problem not in named_problems(key.kernel).values():
        return "its problem has no name"
    if Key.changes_since(key.identity, kernels.load(key.kernel).kernel.identity):
        return "the kernel has changed since"
    if key.cache_state != "cold" or key.held_to:
        return "it was measured with warm caches, or judged by a caller's own rule"
    if not allowed(key.kernel, key.problem, record.winner):
        return "its winner is of another space"
    if record.verified.reference is None:
        return "its winner was not checked against the reference"
    return None if record.confidence == "ok" else f"its comparison is doubtful: {record.confidence}"


def of_this_source(lock: Lockfile) -> Lockfile:
    """The entries whose kernel is as it was when their winner was found."""
    current = {name: kernels.load(name).kernel.identity for name in kernels.names()}
    entries = [
        entry
        for entry in lock.entries
        if entry.kernel in current and not Key.changes_since(entry.identity, current[entry.kernel])
    ]
    used = {entry.device for entry in entries}
    return Lockfile(tuple(device for device in lock.devices if device.alias in used), tuple(entries))


def rekeyed(entry: LockEntry) -> LockEntry:
    """An entry as one of its kernel's present source; itself if its config is none of the kernel's."""
    if not allowed(entry.kernel, entry.problem, entry.config):
        return entry
    now = kernels.load(entry.kernel).kernel.identity
    versions = {name: entry.identity[name] for name in now if name in entry.identity}
    return replace(entry, identity={**versions, **Key.source_of(now)})


def rekey(names: Collection[str], folder: Path) -> Iterator[str]:
    """Give the entries of kernels their present source; yields the entries that changed, line by line."""
    for path in sorted(folder.glob("*.lock.json")):
        lock = Lockfile.read(path)
        entries = tuple(rekeyed(entry) if entry.kernel in names else entry for entry in lock.entries)
        replace(lock, entries=entries).write(path)
        pairs = zip(lock.entries, entries, strict=True)
        yield from (f"{path.name}: {new.kernel} {new.label}" for old, new in pairs if new != old)


def path_of(device: str, folder: Path) -> Path:
    """The lockfile of a device."""
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')}.lock.json"


def taken(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records for the package by device; why others are left out goes to stderr."""
    by_device: dict[str, list[Record]] = {}
    for record in records:
        reason = why_not(record)
        if reason is None:
            by_device.setdefault(str(record.key.device["name"]), []).append(record)
        else:
            print(f"left out: {record.key.kernel} {record.key.label}: {reason}", file=sys.stderr)
    return by_device


def write(records: Iterable[Record], folder: Path) -> Iterator[str]:
    """Take the winners of records into the lockfiles of a folder; yields what was done, line by line."""
    for device, own in sorted(taken(records).items()):
        path = path_of(device, folder)
        before = Lockfile.read(path) if path.is_file() else Lockfile()
        also = {device: ALIASES[device]} if device in ALIASES else {}
        lock, refused = lock_of(own, LockPlan(also=also))
        for each in refused:
            print(f"left out: {each.record.key.kernel} {each.record.key.label}: {each.reason}", file=sys.stderr)
        after = updated(of_this_source(before), lock)
        folder.mkdir(parents=True, exist_ok=True)
        without_runs(after).write(path)
        yield from (f"{path.name}: {change}" for change in changes(before, after))
        yield from missing(after, device)


def without_runs(lock: Lockfile) -> Lockfile:
    """The entries without the ids of run logs, which stay on the machine that made them."""
    return Lockfile(lock.devices, tuple(replace(entry, origin=replace(entry.origin, run="")) for entry in lock.entries))


def missing(lock: Lockfile, device: str) -> Iterator[str]:
    """The named problems for which a lockfile has no winner."""
    for name in kernels.names():
        problems = [entry.problem for entry in lock.entries if entry.kernel == name]
        for label, problem in named_problems(name).items():
            if problem not in problems:
                yield f"{device}: no winner for {name} {label}"


def stale(folder: Path) -> list[str]:
    """The entries that no call would take, since their kernel has changed."""
    labels = []
    for path in sorted(folder.glob("*.lock.json")):
        lock = Lockfile.read(path)
        entries = of_this_source(lock).entries
        labels += [f"{path.name}: {each.kernel} {each.label}" for each in lock.entries if each not in entries]
    return labels


def main(arguments: list[str] | None = None) -> int:
    """Do what is asked for; the exit code is 1 if a check finds entries that no call would take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of records")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rekey", nargs="+", choices=kernels.names(), default=(), metavar="KERNEL")
    parser.add_argument("--winners", type=Path, default=kernels.WINNERS, help="folder of the package's lockfiles")
    options = parser.parse_args(arguments)
    if options.check:
        old = stale(options.winners)
        print("\n".join(old) or "every entry is of its kernel's present source")
        return 1 if old else 0
    if options.rekey:
        print("\n".join(rekey(options.rekey, options.winners)) or "every entry was of the present source")
        return 0
    records = [record for folder in options.folders for record in DirectoryStore(folder, RECORDS, read_only=True)]
    if not records:
        parser.error("no records there")
    for line in write(records, options.winners):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
