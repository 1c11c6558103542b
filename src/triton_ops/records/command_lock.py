"""`triton-ops lock`: write the winners of records into one file for git, or say how that file differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from triton_ops.base import counted
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records.command_show import Which, matching, nothing_found
from triton_ops.records.lock_making import LeftOut, LockChange, LockPlan, changes, lock_of, updated
from triton_ops.records.lockfile import DEFAULT_NAME, Lockfile, read_lockfile
from triton_ops.space import config_to_json
from triton_ops.terminal import CHECK_FAILED, CacheDir, Json, pairs, say, say_json, tell


def lock_command(
    which: Which = None,
    lockfile: Annotated[Path, typer.Option("--lockfile", metavar="FILE", help="The lockfile.")] = Path(DEFAULT_NAME),
    device_name: Annotated[
        str | None, typer.Option("--device-name", metavar="NAME", help="Only records of this device.")
    ] = None,
    bucket: Annotated[
        list[str] | None,
        typer.Option("--bucket", metavar="EXTENT=RULE", help="Where a winner holds too: M=pow2, M=measured@2, …"),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="NAME", help="An argument that makes no difference.")
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option("--alias", metavar="NAME=OTHER", help="A further name that counts as the device NAME."),
    ] = None,
    all_sources: Annotated[
        bool, typer.Option("--all-sources", help="Take records of earlier sources of a kernel, too.")
    ] = False,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Pin winners, too, that no comparison has proven.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Keep no entry that is in the file.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 5 if the file would change.")] = False,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="With --check, compare with this lockfile.")
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Accept edits by hand and merges: write the checksums anew.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> int:
    """Write the winners of records into a lockfile, from which programs can launch without ever tuning."""
    if refresh and (check or which or bucket or ignore or alias):
        raise SettingsError("--refresh stands alone", hint="refresh first, then lock")
    if against is not None and not check:
        raise SettingsError("--against is for --check", hint="add --check")
    plan = LockPlan(
        buckets=pairs(bucket, "--bucket", "M=pow2"), ignored=tuple(ignore or ()), all_sources=all_sources,
        unproven=allow_unproven,
        also={name: [other] for name, other in pairs(alias, "--alias", '"NVIDIA H200=NVIDIA GH200"').items()},
    )  # fmt: skip
    if refresh:
        return _refreshed(lockfile, as_json)
    with nullcontext() if check else Lockfile.editing(lockfile):
        before = read_lockfile(lockfile, or_empty=not check)
        after = (
            read_lockfile(against)
            if against is not None
            else _from_records(which, device_name, plan, Lockfile() if fresh else before, cache_dir)
        )
        if not check:
            after.write(lockfile)
    differences = changes(before, after)
    if as_json:
        say_json(_as_json(after, differences, lockfile))
    else:
        say(*map(str, differences), _summary(differences, after, lockfile, check))
    return CHECK_FAILED if check and differences else 0


def _from_records(
    which: str | None, device_name: str | None, plan: LockPlan, before: Lockfile, cache_dir: str | None
) -> Lockfile:
    records = matching(which, cache_dir)
    if device_name is not None:
        records = [record for record in records if record.key.device.get("name") == device_name]
    if not records:  # a lockfile without entries would replace a good one
        of_device = f" of {device_name}" if device_name else ""
        raise CacheError(f"{nothing_found(which, cache_dir)}{of_device}", hint="`triton-ops show` lists what there is")
    lock, rest = lock_of(records, plan)
    _tell_rest(rest, {entry.origin.tune for entry in before.entries})
    if not lock.entries and all(each.record.unproven for each in rest):
        raise CacheError(
            f"no winner is proven, and nothing is written; the newest: {rest[0].record.unproven}",
            hint="tune on, with more seconds or trials; or pin them all the same with --allow-unproven",
        )
    return updated(before, lock, rest, all_sources=plan.all_sources)


def _tell_rest(rest: Sequence[LeftOut], entries: Collection[tuple[str, str]]) -> None:
    """Say which records are left out: unproven ones each by its problem, others by their number.

    An unproven one that the lockfile has already is not taken out of it, and is told as such.
    """
    unproven = [each for each in rest if each.reason.startswith("unproven")]
    pinned = [each for each in unproven if (each.record.id, each.record.run) in entries]
    for each in unproven:
        key = each.record.key
        how = "stays pinned" if each in pinned else "left out"
        tell(f"{how}: {key.kernel} {key.label} on {key.device.get('name')}: {each.reason}", "warning", "yellow")
    if len(unproven) > len(pinned):
        tell(f"{counted(len(unproven) - len(pinned), 'winner')} not pinned; --allow-unproven pins unproven ones too")
    others = Counter((each.record.key.kernel, each.reason) for each in rest if each not in unproven)
    for (kernel, reason), count in others.items():
        tell(f"{count} of {kernel} left out: {reason}")


def _refreshed(lockfile: Path, as_json: bool) -> int:
    with Lockfile.editing(lockfile):
        lock, by_hand = Lockfile.accept_edits(lockfile)
        lock.write(lockfile)
    if as_json:
        say_json({"file": str(lockfile), "entries": len(lock.entries), "by_hand": [_entry(entry) for entry in by_hand]})
    else:
        edits = [f"by hand: {entry.kernel} {entry.label} on {entry.device}; ({entry.config})" for entry in by_hand]
        say(*edits, f"{lockfile}: {_counted(lock)}, checksums written anew")
    return 0


def _counted(lock: Lockfile) -> str:
    return f"{len(lock.entries)} {'entry' if len(lock.entries) == 1 else 'entries'}"


def _summary(differences: tuple[LockChange, ...], after: Lockfile, lockfile: Path, check: bool) -> str:
    counts = Counter(change.kind for change in differences)
    text = ", ".join(f"{counts[kind]} {kind}" for kind in ("added", "changed", "removed") if counts[kind])
    if check:
        return f"{lockfile}: {text} since" if differences else f"{lockfile} is up to date: {_counted(after)}"
    return f"{lockfile}: {_counted(after)}, {text or 'no change'}"


def _as_json(after: Lockfile, differences: tuple[LockChange, ...], lockfile: Path) -> dict[str, Any]:
    rows = [{"kind": each.kind, "entry": _entry(each.entry), "fields": list(each.fields)} for each in differences]
    return {"file": str(lockfile), "entries": len(after.entries), "digest": after.digest, "changes": rows}


def _entry(entry: Any) -> Any:
    return msgspec.to_builtins(entry, enc_hook=config_to_json)


def merge_into(lockfile: Path, new: Lockfile) -> int:
    """Add entries to a lockfile, where those that are there already stay, and return how many were added."""
    with Lockfile.editing(lockfile):
        before = read_lockfile(lockfile, or_empty=True)
        after = Lockfile.merged([before, new])
        after.write(lockfile)
    return len(after.entries) - len(before.entries)
