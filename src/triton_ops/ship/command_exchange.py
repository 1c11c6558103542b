"""`triton-ops exchange`: carry winners between lockfiles and the tables of other engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import Lockfile, LockPlan
from triton_ops.request import TypedProblem
from triton_ops.ship.formats import FORMATS, format_named
from triton_ops.ship.table import Names, Table
from triton_ops.terminal import Facts, option, tell

FormatName = Annotated[str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")]
Kernel = Annotated[str, option("--kernel", "The kernel's name in records.", "NAME")]
Rows = Annotated[list[str] | None, option("--row", "What names a row, such as M; repeat it.", "EXTENT")]
TableFacts = Annotated[list[str] | None, option("--set", "What the engine looks a table up by.", "NAME=VALUE")]
Renamed = Annotated[list[str] | None, option("--rename", "What the engine calls a tunable.", "OURS=THEIRS")]
LockOption = Annotated[Path, option("--lockfile", "The lockfile.", "FILE")]


def export_command(
    format_name: FormatName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the engine looks for its tables.")],
    kernel: Annotated[str | None, option("--kernel", "The kernel's name in records.", "NAME")] = None,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
    run: Annotated[Path | None, option("--run", "A run log, all of whose configs are written.", "FILE")] = None,
    row: Rows = None,
    facts: TableFacts = None,
    rename: Renamed = None,
    device_alias: Annotated[str | None, option("--device-alias", "The device's alias in the lockfile.", "NAME")] = None,
) -> Facts:
    """Write the entries of a kernel as a table, and check that the engine would find each of them."""
    if (kernel is None) == (run is None):
        raise SettingsError("export takes either --kernel or --run", hint="triton-ops exchange export --help")
    form, values, names = format_named(format_name), _values(facts, "--set"), _names(row, rename)
    table = (
        Table.of_lockfile(Lockfile.read(lockfile), kernel, device_alias, names, values)
        if kernel is not None
        else Table.of_run(run or Path(), names, values)
    )
    path = form.write(table, folder)
    best = table.best()
    faults = [each.at for each in best if not each.launches_as(form.look_up(folder, table.facts, each.at))]
    if faults:
        raise CacheError(f"{path} is written, and the engine would not find {faults[0]} in it", hint="check the facts")
    data = {"file": str(path), "rows": len(best), "facts": dict(table.facts)}
    return Facts("exported table", data).lines(f"{len(best)} rows to {path}, each found by the engine's own rule")


def import_command(
    format_name: FormatName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table.")],
    kernel: Kernel,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
    row: Rows = None,
    facts: TableFacts = None,
    rename: Renamed = None,
    argument: Annotated[
        list[str] | None, option("--argument", "A further argument of each problem.", "NAME=VALUE")
    ] = None,
    bucket: Annotated[list[str] | None, option("--bucket", "As of `triton-ops lock`.", "EXTENT=RULE")] = None,
) -> Facts:
    """Take the fastest configs of a table into a lockfile; entries that are there already stay."""
    names = _names(row, rename)
    plan = LockPlan(buckets=TypedProblem.pairs(bucket, "--bucket", "M=measured@2"))
    table = _with_extents(format_named(format_name).read(file), names, file)
    table = replace(table, facts={**table.facts, **_values(facts, "--set")})
    source = f"{format_name}: {file.name}"
    new = table.lockfile(kernel, names, _values(argument, "--argument"), source, plan)
    count = new.add_to(lockfile)
    data = {"file": str(lockfile), "rows": len(new.entries), "added": count, "facts": dict(table.facts)}
    return Facts("imported table", data).lines(f"{len(new.entries)} rows read, {count} added to {lockfile}")


def look_up_command(
    format_name: FormatName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the engine looks for its tables.")],
    at: Annotated[list[str] | None, option("--at", "The row, in order; repeat it.", "VALUE")] = None,
    facts: TableFacts = None,
) -> Facts:
    """Print the config that the engine would take, by its own rule."""
    config = format_named(format_name).look_up(folder, _values(facts, "--set"), [_value(text) for text in at or []])
    if config is None:
        raise CacheError(f"{format_name} finds nothing in {folder}", hint="check the facts: --set NAME=VALUE")
    return Facts("looked up", {"config": dict(config)}).lines(str(config))


def _names(row: list[str] | None, rename: list[str] | None) -> Names:
    return Names(tuple(row or ()), TypedProblem.pairs(rename, "--rename", "BM=BLOCK_SIZE_M"))


def _with_extents(table: Table, names: Names, file: Path) -> Table:
    """The table without the config that is for no extents, where the others are for some."""
    rows = tuple(row for row in table.rows if row.at)
    if not names.rows or not rows or len(rows) == len(table.rows):
        return table
    tell(f"left out: the default config of {file.name}, which is for no extents")
    return replace(table, rows=rows)


def _values(texts: list[str] | None, option: str) -> dict[str, Any]:
    return {name: _value(text) for name, text in TypedProblem.pairs(texts, option, "E=8").items()}


def _value(text: str) -> Any:
    if text.lstrip("-").isdecimal():
        return int(text)
    if not text.isprintable():
        raise SettingsError(f"{text!r} is no value", hint="write letters and digits")
    return {"true": True, "false": False}.get(text, text)
