"""`triton-ops lock`: write the winners of records into one file for git, or say how that file differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from triton_ops import ship
from triton_ops.base import counted
from triton_ops.cli.cache import Which, nothing_found
from triton_ops.cli.lock_changes import LockChange, changes
from triton_ops.device import DeviceSpec, device_spec
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import (
    LeftOut,
    LockEntry,
    Lockfile,
    LockPlan,
    Misses,
    kernel_names,
    lock_of,
    matching,
    updated,
)
from triton_ops.settings import shown
from triton_ops.terminal import ExitCode, Facts, folder_of, option, tell
from triton_ops.typed import parse_pairs


def lock_command(
    which: Which = None,
    lockfile: Annotated[str, option("--lockfile", "The lockfile, or its URL.", "FILE")] = Lockfile.DEFAULT_NAME,
    gpu: Annotated[str | None, option("--gpu", "Only records of the GPU or the CPU of this name.", "NAME")] = None,
    bucket: Annotated[
        list[str] | None, option("--bucket", "How far a winner holds: M=pow2, M=measured@2, …", "EXTENT=RULE")
    ] = None,
    ignore: Annotated[list[str] | None, option("--ignore", "An argument that changes no winner.", "NAME")] = None,
    alias: Annotated[
        list[str] | None, option("--alias", "A further name that counts as the device NAME.", "NAME=OTHER")
    ] = None,
    all_sources: Annotated[bool, option("--all-sources", "Take records of earlier sources of a kernel, too.")] = False,
    allow_unproven: Annotated[
        bool, option("--allow-unproven", "Pin winners, too, that no comparison has proven.")
    ] = False,
    fresh: Annotated[bool, option("--fresh", "Keep no entry that is in the file.")] = False,
    expected: Annotated[
        bool, option("--expected", "Add configs of which the model is sure for --gpu, which need not be here.")
    ] = False,
    kernels: Annotated[
        list[str] | None,
        option("--kernels", "With --expected, a file, module or TARGET to load; repeat it.", "KERNELS"),
    ] = None,
    measured_only: Annotated[
        bool, option("--measured-only", "Keep no entry that is only expected; with --check, exit 5 for one.")
    ] = False,
    same_bits: Annotated[bool, option("--same-bits", "Have calls keep to the classes of the winners' bits.")] = False,
    check: Annotated[bool, option("--check", "Write nothing; exit 5 if the file would change.")] = False,
    against: Annotated[
        str | None, option("--against", "With --check, compare with this lockfile, or one of a URL.", "FILE")
    ] = None,
    sign: Annotated[Path | None, option("--sign", "Sign it by the Ed25519 private key in this file.", "KEY")] = None,
    refresh: Annotated[bool, option("--refresh", "Accept edits by hand and merges: write the checksums anew.")] = False,
    cache_dir: str | None = None,
) -> Facts:
    """Write the winners of records into a lockfile, from which programs can launch without ever tuning.

    Of several records of one problem the newest with cold caches is taken, and of a kernel only those of its newest
    source. A winner that no comparison has proven is not pinned, and a warning says why. Entries stay, unless a record
    is of the same problem and device, or of another source of the kernel; what `lock verify --repair` made of one stays
    until a newer tune.

    --check takes the selection and rules of the command that wrote the file; without any records it compares
    nothing. Exit code 5: the file would change; 4: no winner of the selection is proven.
    """
    for refused, why, hint in (
        (refresh and (check or which or bucket or ignore or alias or expected or measured_only or same_bits),
         "--refresh stands alone", "refresh first, then lock"),
        (against is not None and not check, "--against is for --check", "add --check"),
        (expected and (measured_only or ignore or against or not gpu),
         "--expected needs --gpu, and excludes --measured-only, --ignore and --against",
         "for example: lock --expected --gpu 'NVIDIA A100-SXM4-80GB' --kernels matmul"),
        (kernels and not expected, "--kernels is for --expected", "records name their kernels"),
    ):  # fmt: skip
        if refused:
            raise SettingsError(why, hint=hint)
    names = parse_pairs(alias, "--alias", '"NVIDIA H200=NVIDIA GH200"')
    plan = LockPlan(
        buckets=parse_pairs(bucket, "--bucket", "M=pow2"), ignored=tuple(ignore or ()), all_sources=all_sources,
        unproven=allow_unproven, same_bits=same_bits, also={name: [other] for name, other in names.items()},
    )  # fmt: skip
    if refresh:  # before the file is read, which refuses edits
        return _refreshed(lockfile, sign)
    # A check writes nothing, and needs no right to lock the folder.
    with nullcontext() if check else Lockfile.editing(lockfile):
        before = Lockfile.read(lockfile, or_empty=not check)
        pinned = Lockfile() if fresh else before
        if against is not None:
            after = Lockfile.read(against)
        elif expected:
            after = _with_expected(which, str(gpu), plan, pinned, cache_dir, kernels or ())
        elif (check or measured_only) and not matching(None, folder_of(cache_dir)):
            after = before
        else:
            after = _from_records(which, gpu, plan, pinned, cache_dir)
        after = after.without(lambda entry: measured_only and entry.origin.expected)
        if not check:
            after.write(lockfile, sign)
    differences = changes(before, after)
    lockfile = shown(lockfile)
    about = {"file": lockfile, "entries": len(after.entries), "digest": after.digest}
    facts = Facts("lock", {**about, "changes": differences})
    facts.code = ExitCode.CHECK_FAILED if check and differences else ExitCode.DONE
    if after is before:  # there was nothing to compare with
        return facts.lines(
            f"{lockfile} is undamaged, and compared with nothing, since {nothing_found(None, cache_dir)}; "
            f"`triton-ops lock verify --static` checks {_counted(before)} without records"
        )
    return facts.lines(*map(str, differences), _summary_line(differences, after, lockfile, check))


def _from_records(
    which: str | None, device_name: str | None, plan: LockPlan, before: Lockfile, cache_dir: str | None
) -> Lockfile:
    records = matching(which, folder_of(cache_dir))
    if device_name is not None:
        records = [record for record in records if DeviceSpec.is_meant(device_name, record.key.device)]
    if not records:  # a lockfile without entries would replace a good one
        of_device = f" of {device_name}" if device_name else ""
        message = f"{nothing_found(which, cache_dir)}{of_device}"
        raise CacheError(message, hint="`triton-ops cache show` lists what there is")
    lock, rest = lock_of(records, plan)
    _tell_rest(rest, {entry.origin.tune for entry in before.entries})
    if not lock.entries and all(each.record.unproven for each in rest):
        message = f"no winner is proven, and nothing is written; the newest: {rest[0].record.unproven}"
        hint = "tune on, with more seconds or trials; or pin them all the same with --allow-unproven"
        raise CacheError(message, hint=hint)
    return updated(before, lock, all_sources=plan.all_sources)


def _with_expected(
    which: str | None, gpu: str, plan: LockPlan, before: Lockfile, cache_dir: str | None, kernels: Sequence[str]
) -> Lockfile:
    """The lockfile with what a model expects on a device, for the problems of its entries, of records and of misses."""
    spec = device_spec(gpu)
    device = plan.device_of(spec)
    # Of these records the problems count, and not the winners.
    records, _ = lock_of(matching(None, folder_of(cache_dir)), LockPlan(unproven=True))
    misses = [LockEntry.asked(miss.key, miss.call) for miss in Misses(folder_of(cache_dir)).read()]
    problems = [*before.entries, *plan.with_ranges([*records.entries, *misses])]
    selection = [entry for entry in problems if which is None or entry.kernel in kernel_names(which)]
    entries = ship.expect_winners(device, spec, selection, before, kernels)
    if not (entries or selection or kernels):
        message = f"no problem{f' of {which}' if which else ''} is known: none is in the lockfile, in records or missed"
        raise CacheError(message, hint="name kernels whose operations have named problems: --kernels matmul")
    # Of the same device everything that was expected before is expected anew.
    aliases = {one.alias for one in before.devices if replace(one, alias=device.alias, also=device.also) == device}
    stays = before.without(lambda entry: entry.origin.expected and entry.device in aliases)
    return updated(stays, Lockfile((device,), tuple(entries)), all_sources=plan.all_sources)


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
    for (kernel, reason), number in others.items():
        tell(f"{number} of {kernel} left out: {reason}")


def _refreshed(lockfile: str, sign: Path | None) -> Facts:
    with Lockfile.editing(lockfile):
        lock, by_hand = Lockfile.accept_edits(lockfile)
        lock.write(lockfile, sign)
    edits = [f"by hand: {entry.kernel} {entry.label} on {entry.device}; ({entry.config})" for entry in by_hand]
    facts = Facts("lock", {"file": lockfile, "entries": len(lock.entries), "by_hand": by_hand})
    return facts.lines(*edits, f"{lockfile}: {_counted(lock)}, checksums written anew")


def _counted(lock: Lockfile) -> str:
    return counted(len(lock.entries), "entry")


def _summary_line(differences: tuple[LockChange, ...], after: Lockfile, lockfile: str, check: bool) -> str:
    counts = Counter(change.kind for change in differences)
    text = ", ".join(f"{counts[kind]} {kind}" for kind in ("added", "changed", "removed") if counts[kind])
    if check:
        return f"{lockfile}: {text} since" if differences else f"{lockfile} is up to date: {_counted(after)}"
    return f"{lockfile}: {_counted(after)}, {text or 'no change'}"
