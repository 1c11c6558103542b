"""Commands on the content of a cache folder: `triton-ops cache` on records, `misses` on problems without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from triton_ops import device
from triton_ops.base import check_home, is_file
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records.bundle import export_records, import_records
from triton_ops.records.command_show import ID_SHOWN, Which, matching, nothing_found, show_command, tell_nothing
from triton_ops.records.directory import open_store
from triton_ops.records.misses import Miss, Misses
from triton_ops.records.record import Record
from triton_ops.terminal import CacheDir, Json, folder_of, group, headed_table, say, say_json, tell, width

_MISSES_HEADER = ("id", "count", "expected ms", "kernel", "device", "last", "problem")
_MISSES_NUMBERS = ("count", "expected ms")
cache_command = group("List, remove, locate, export and import records.")
cache_command.command("ls", short_help="The same as `triton-ops show`.")(show_command)


@cache_command.command("rm")
def remove(
    which: Which = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every record.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Remove records; files that are not ours stay."""
    records = _to_remove(which, everything, cache_dir)
    ids: list[str] = []
    if records:
        store = open_store(folder_of(cache_dir))
        ids = [record.id for record in records if store.remove(record.id)]
    if as_json:
        say_json({"removed": ids})
        return
    if not records:
        tell_nothing(which, cache_dir)
    say(f"{len(ids)} removed")


@cache_command.command("path")
def path(cache_dir: CacheDir = None) -> None:
    """Print the folder of records."""
    folder = folder_of(cache_dir)
    check_home(folder)
    say(str(folder))


@cache_command.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; an existing file is replaced.")],
    which: Which = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Write records to one file with a checksum."""
    records = matching(which, cache_dir)
    if not records:  # an export without records would replace a good file
        raise CacheError(nothing_found(which, cache_dir), hint="`triton-ops show` lists what there is")
    count = export_records(records, file)
    if as_json:
        say_json({"exported": count, "file": str(file)})
    else:
        (say if is_file(file) else tell)(f"{_records(count)} to {file}")  # stdout may be where the records went


@cache_command.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `cache export`.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Let the file's records take the place of others.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Take in the records of an exported file."""
    store = open_store(folder_of(cache_dir))
    if not store.writable:
        raise CacheError(f"{folder_of(cache_dir)} cannot be written", hint="name another folder with --cache-dir")
    imported = import_records(file, store, replace=replace)
    if as_json:
        say_json({
            "added": list(imported.added), "replaced": list(imported.replaced), "skipped": dict(imported.skipped),
            "devices": dict(imported.devices),
        })  # fmt: skip
    else:
        say(
            str(imported),
            *(f"  {entry}: {reason}" for entry, reason in imported.skipped.items()),
            *_places(imported.devices.values()),
        )


def _to_remove(which: str | None, everything: bool, cache_dir: str | None) -> list[Record]:
    """The records that `rm` removes; an ambiguous request is refused."""
    if (which is None) != everything:
        raise SettingsError("cache rm takes either KERNEL|ID or --all", hint="`triton-ops show` lists the records")
    records = matching(which, cache_dir)
    by_id = which is not None and all(record.key.kernel != which for record in records)
    if by_id and len(records) > 1:
        ids = ", ".join(record.id[:ID_SHOWN] for record in records)
        raise SettingsError(f"{len(records)} ids start with {which}: {ids}", hint="write more of the one you mean")
    return records


def _places(devices: Iterable[str]) -> list[str]:
    """For each device with records that were taken, how many these are, and whether the device is found here."""
    names = {device.probe("cpu").name, *(spec.name for spec in device.gpus_without_torch())}
    return [
        f"  {_records(count)} for {name}" + ("" if name in names else ", which is not found here")
        for name, count in Counter(devices).items()
    ]


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"


def misses_command(
    clear: Annotated[bool, typer.Option("--clear", help="Empty the list.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """List the problems that nothing answered, those first that cost most; `tune --from-misses` tunes them."""
    folder = folder_of(cache_dir)
    check_home(folder)
    misses = Misses(folder).clear() if clear and folder.is_dir() else Misses(folder).read()
    if as_json:
        say_json([miss_json(miss) for miss in misses])
    elif not misses:
        tell(f"there are no misses in {folder}")
    else:
        say(*headed_table(_MISSES_HEADER, [_miss_row(miss) for miss in misses], width(), _MISSES_NUMBERS))
    if clear:
        tell(f"{len(misses)} removed")


def miss_json(miss: Miss) -> dict[str, Any]:
    """A miss as JSON values."""
    return {
        "id": miss.key.id, "key": msgspec.to_builtins(miss.key), "count": miss.count,
        "expected_ms": miss.expected_ms, "first": miss.first, "last": miss.last,
        "call": None if miss.call is None else msgspec.to_builtins(miss.call),
    }  # fmt: skip


def _miss_row(miss: Miss) -> list[str]:
    return [
        miss.key.id[:ID_SHOWN],
        str(miss.count),
        "-" if miss.expected_ms is None else f"{miss.expected_ms:.4g}",
        miss.key.kernel,
        str(miss.key.device.get("name", "-")),
        miss.last.replace("+00:00", "Z"),
        miss.key.label or "-",
    ]
