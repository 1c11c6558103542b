"""`triton-ops cache`: list, remove, locate, export and import records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from triton_ops import device
from triton_ops.base import check_home, is_file
from triton_ops.cli.console import CacheDir, Json, Verbose, say, say_json, tell
from triton_ops.cli.record_selection import ID_SHOWN, Which, folder_of, matching, nothing_found, tell_nothing
from triton_ops.cli.show import show_command
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import Imported, Record, export_records, import_records, open_store

app = typer.Typer(
    help="List, remove, locate, export and import records.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command("ls", short_help="The same as `triton-ops show`.")(show_command)


@app.command("rm")
def remove(
    which: Which = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every record.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Remove records; files that are not ours stay."""
    chosen = _chosen(which, everything, cache_dir)
    removed: list[str] = []
    if chosen:
        store = open_store(folder_of(cache_dir))
        removed = [record.id for record in chosen if store.remove(record.id)]
    if as_json:
        say_json({"removed": removed})
        return
    if not chosen:
        tell_nothing(which, cache_dir)
    say(f"{len(removed)} removed")


@app.command("path")
def path(cache_dir: CacheDir = None, verbose: Verbose = False) -> None:  # noqa: ARG001
    """Print the folder of records."""
    folder = folder_of(cache_dir)
    check_home(folder)
    say(str(folder))


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; an existing file is replaced.")],
    which: Which = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001
) -> None:
    """Write records to one file with a checksum."""
    records = matching(which, cache_dir)
    if not records:  # an export without records would replace a good file
        raise CacheError(nothing_found(which, cache_dir), hint="`triton-ops show` lists what there is")
    count = export_records(records, file)
    if as_json:
        say_json({"exported": count, "file": str(file)})
    else:
        note = f"{count} {_records(count)} to {file}"
        (say if is_file(file) else tell)(note)  # stdout may be where the records went


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `cache export`.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Let the file's records take the place of others.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001
) -> None:
    """Take in the records of an exported file."""
    store = open_store(folder_of(cache_dir))
    if not store.writable:
        raise CacheError(f"{folder_of(cache_dir)} cannot be written", hint="name another folder with --cache-dir")
    done = import_records(file, store, replace=replace)
    if as_json:
        say_json(
            {
                "added": list(done.added), "replaced": list(done.replaced), "skipped": dict(done.skipped),
                "devices": dict(done.devices),
            }
        )  # fmt: skip
    else:
        say(str(done), *(f"  {entry}: {reason}" for entry, reason in done.skipped.items()), *_places(done))


def _chosen(which: str | None, everything: bool, cache_dir: str | None) -> list[Record]:
    """The records that `rm` removes; an ambiguous request is refused."""
    if (which is None) != everything:
        raise SettingsError("cache rm takes either KERNEL|ID or --all", hint="`triton-ops show` lists the records")
    chosen = matching(which, cache_dir)
    by_id = which is not None and all(record.key.kernel != which for record in chosen)
    if by_id and len(chosen) > 1:
        ids = ", ".join(record.id[:ID_SHOWN] for record in chosen)
        raise SettingsError(f"{len(chosen)} ids start with {which}: {ids}", hint="write more of the one you mean")
    return chosen


def _places(done: Imported) -> list[str]:
    """For each device with records that were taken, how many these are, and whether the device is found here."""
    here = {device.probe("cpu").name, *(spec.name for spec in device.gpus_without_torch())}
    return [
        f"  {count} {_records(count)} for {name}" + ("" if name in here else ", which is not found here")
        for name, count in Counter(done.devices.values()).items()
    ]


def _records(count: int) -> str:
    return "record" if count == 1 else "records"
