"""`triton-ops exchange`: carry winners between lockfiles and the tables of other engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import Lockfile, LockPlan, read_lockfile
from triton_ops.ship.formats import FORMATS, format_named
from triton_ops.ship.table import Names, Table
from triton_ops.terminal import Json, group, pairs, say, say_json, tell

exchange_command = group("Carry winners between lockfiles and the tables of other engines.")
FormatName = Annotated[str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")]
Kernel = Annotated[str, typer.Option("--kernel", metavar="NAME", help="The kernel's name in records.")]
Rows = Annotated[
    list[str] | None, typer.Option("--row", metavar="EXTENT", help="What names a row, such as M; repeat it.")
]
Facts = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="What the engine looks a table up by.")
]
Renamed = Annotated[
    list[str] | None, typer.Option("--rename", metavar="OURS=THEIRS", help="What the engine calls a tunable.")
]
LockOption = Annotated[Path, typer.Option("--lockfile", metavar="FILE", help="The lockfile.")]


@exchange_command.command("export")
def export(
    format_name: FormatName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the engine looks for its tables.")],
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="NAME", help="The kernel's name in records.")
    ] = None,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
    run: Annotated[
        Path | None, typer.Option("--run", metavar="FILE", help="A run log, all of whose configs are written.")
    ] = None,
    row: Rows = None,
    facts: Facts = None,
    rename: Renamed = None,
    device_alias: Annotated[
        str | None, typer.Option("--device-alias", metavar="NAME", help="The device's alias in the lockfile.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the entries of a kernel as a table, and check that the engine would find each of them."""
    if (kernel is None) == (run is None):
        raise SettingsError("export takes either --kernel or --run", hint="triton-ops exchange export --help")
    form, values, names = format_named(format_name), _values(facts, "--set"), _names(row, rename)
    table = (
        Table.of_lockfile(read_lockfile(lockfile), kernel, device_alias, names, values)
        if kernel is not None
        else Table.of_run(run or Path(), names, values)
    )
    path = form.write(table, folder)
    best = table.best()
    faults = [each.at for each in best if not each.launches_as(form.look_up(folder, table.facts, each.at))]
    if faults:
        raise CacheError(f"{path} is written, and the engine would not find {faults[0]} in it", hint="check the facts")
    if as_json:
        say_json({"file": str(path), "rows": len(best), "facts": dict(table.facts)})
    else:
        say(f"{len(best)} rows to {path}, each found by the engine's own rule")


@exchange_command.command("import")
def import_(
    format_name: FormatName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table.")],
    kernel: Kernel,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
    row: Rows = None,
    facts: Facts = None,
    rename: Renamed = None,
    argument: Annotated[
        list[str] | None, typer.Option("--argument", metavar="NAME=VALUE", help="A further argument of each problem.")
    ] = None,
    bucket: Annotated[
        list[str] | None, typer.Option("--bucket", metavar="EXTENT=RULE", help="As of `triton-ops lock`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Take the fastest configs of a table into a lockfile; entries that are there already stay."""
    names = _names(row, rename)
    plan = LockPlan(buckets=pairs(bucket, "--bucket", "M=measured@2"))
    table = _with_extents(format_named(format_name).read(file), names, file)
    table = replace(table, facts={**table.facts, **_values(facts, "--set")})
    source = f"{format_name}: {file.name}"
    new = table.lockfile(kernel, names, _values(argument, "--argument"), source, plan)
    count = new.add_to(lockfile)
    if as_json:
        say_json({"file": str(lockfile), "rows": len(new.entries), "added": count, "facts": dict(table.facts)})
    else:
        say(f"{len(new.entries)} rows read, {count} added to {lockfile}")


@exchange_command.command("look-up")
def look_up(
    format_name: FormatName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the engine looks for its tables.")],
    at: Annotated[list[str] | None, typer.Option("--at", metavar="VALUE", help="The row, in order; repeat it.")] = None,
    facts: Facts = None,
    as_json: Json = False,
) -> None:
    """Print the config that the engine would take, by its own rule."""
    config = format_named(format_name).look_up(folder, _values(facts, "--set"), [_value(text) for text in at or []])
    if config is None:
        raise CacheError(f"{format_name} finds nothing in {folder}", hint="check the facts: --set NAME=VALUE")
    if as_json:
        say_json(dict(config))
    else:
        say(str(config))


def _names(row: list[str] | None, rename: list[str] | None) -> Names:
    return Names(tuple(row or ()), pairs(rename, "--rename", "BM=BLOCK_SIZE_M"))


def _with_extents(table: Table, names: Names, file: Path) -> Table:
    """The table without the config that is for no extents, where the others are for some."""
    rows = tuple(row for row in table.rows if row.at)
    if not names.rows or not rows or len(rows) == len(table.rows):
        return table
    tell(f"left out: the default config of {file.name}, which is for no extents")
    return replace(table, rows=rows)


def _values(texts: list[str] | None, option: str) -> dict[str, Any]:
    return {name: _value(text) for name, text in pairs(texts, option, "E=8").items()}


def _value(text: str) -> Any:
    if text.lstrip("-").isdecimal():
        return int(text)
    if not text.isprintable():
        raise SettingsError(f"{text!r} is no value", hint="write letters and digits")
    return {"true": True, "false": False}.get(text, text)
