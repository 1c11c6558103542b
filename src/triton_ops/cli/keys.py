"""`triton-ops keys`: which part of a key never mattered, which missing one did, and what the tunes cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from triton_ops.cli.console import CacheDir, Json, Verbose, bold, say, say_json, table, width
from triton_ops.cli.record_selection import Which, folder_of, matching, tell_nothing
from triton_ops.exceptions import SettingsError
from triton_ops.records import KernelAdvice, MeasuredRegret, PartAdvice, Record, advise, fields_of

_HEADER = ("part", "values", "compared", "verdict", "loss", "spared s", "advice")
_NUMBERS = ("values", "compared", "loss", "spared s")


def keys_command(
    which: Which = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="NAMES", help="The key that is asked about, such as M,N.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say from records which parts of a problem change the winner, and which only cost tunes."""
    named = None if key is None else [name.strip() for name in key.split(",")]
    if named is not None and not all(named):
        raise SettingsError(f"--key {key!r} has an empty name", hint="for example --key M,N")
    records = matching(which, cache_dir)
    _check_named(named or [], records)
    found = advise(records, MeasuredRegret(folder_of(cache_dir)), key=named)
    if as_json:
        say_json([_as_json(each) for each in found])
    elif not found:
        tell_nothing(which, cache_dir)
    for each in [] if as_json else found:
        say(*_report(each, width()))


def _check_named(named: Sequence[str], records: Sequence[Record]) -> None:
    """Raise if no problem has a field that is named."""
    fields = dict.fromkeys(field for record in records for field in fields_of(record.key.problem))
    if fields and (unknown := [name for name in named if name not in fields]):
        raise SettingsError(
            f"--key names {', '.join(unknown)}, which no recorded problem has", hint=f"fields are {', '.join(fields)}"
        )


def _report(found: KernelAdvice, columns: int | None) -> list[str]:
    head = (
        f"{found.kernel} on {found.device}: {_count(found.records, 'problem')}, {_count(found.winners, 'winner')}, "
        f"{found.elapsed_s:.1f} s of tuning"
    )
    if found.unproven:
        head += f"; {found.unproven} left out, whose winners are unproven"
    if not found.parts:
        lacking = "no part of the problem changed" if found.records > 1 else "of no two problems a winner is proven"
        return [bold(head), f"nothing to compare: {lacking}"]
    header, *lines = table(_HEADER, [_row(part) for part in found.parts], columns, _NUMBERS)
    return [bold(head), bold(header), *lines]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _row(part: PartAdvice) -> list[str]:
    loss = "-" if part.regret is None else f"{part.regret:.1%}"
    counts = [str(part.values), str(part.compared)]
    return [part.title, *counts, part.verdict, loss, f"{part.spared_s:.1f}", part.advice]


def _as_json(found: KernelAdvice) -> dict[str, Any]:
    parts = [{**msgspec.to_builtins(part), "advice": part.advice} for part in found.parts]
    return {**msgspec.to_builtins(found), "parts": parts}
