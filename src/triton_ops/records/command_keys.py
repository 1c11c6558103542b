"""`triton-ops keys`: which part of a key never mattered, which missing one did, and what the tunes cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from triton_ops.exceptions import SettingsError
from triton_ops.records.command_show import Which, matching, tell_nothing
from triton_ops.records.key_advice import KernelAdvice, MeasuredRegret, PartAdvice, advise, fields_of
from triton_ops.records.record import Record
from triton_ops.terminal import CacheDir, Json, bold, folder_of, headed_table, say, say_json, width

_HEADER = ("part", "values", "compared", "verdict", "loss", "spared s", "advice")
_NUMBERS = ("values", "compared", "loss", "spared s")


def keys_command(
    which: Which = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="NAMES", help="The key that is asked about, such as M,N.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Say from records which parts of a problem change the winner, and which only cost tunes."""
    names = None if key is None else [name.strip() for name in key.split(",")]
    if names is not None and not all(names):
        raise SettingsError(f"--key {key!r} has an empty name", hint="for example --key M,N")
    records = matching(which, cache_dir)
    _check_names(names or [], records)
    kernels = advise(records, MeasuredRegret(folder_of(cache_dir)), key=names)
    if as_json:
        say_json([_as_json(advice) for advice in kernels])
        return
    if not kernels:
        tell_nothing(which, cache_dir)
    for advice in kernels:
        say(*_report(advice, width()))


def _check_names(names: Sequence[str], records: Sequence[Record]) -> None:
    """Raise if no problem has a field of such a name."""
    fields = dict.fromkeys(field for record in records for field in fields_of(record.key.problem))
    if fields and (unknown := [name for name in names if name not in fields]):
        raise SettingsError(
            f"--key names {', '.join(unknown)}, which no recorded problem has", hint=f"fields are {', '.join(fields)}"
        )


def _report(advice: KernelAdvice, columns: int | None) -> list[str]:
    head = (
        f"{advice.kernel} on {advice.device}: {_counted(advice.records, 'problem')}, "
        f"{_counted(advice.winners, 'winner')}, {advice.elapsed_s:.1f} s of tuning"
    )
    if advice.unproven:
        head += f"; {advice.unproven} left out, whose winners are unproven"
    if not advice.parts:
        reason = "no part of the problem changed" if advice.records > 1 else "of no two problems a winner is proven"
        return [bold(head), f"nothing to compare: {reason}"]
    return [bold(head), *headed_table(_HEADER, [_row(part) for part in advice.parts], columns, _NUMBERS)]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _row(part: PartAdvice) -> list[str]:
    loss = "-" if part.regret is None else f"{part.regret:.1%}"
    counts = [str(part.values), str(part.compared)]
    return [part.title, *counts, part.verdict, loss, f"{part.spared_s:.1f}", part.advice]


def _as_json(advice: KernelAdvice) -> dict[str, Any]:
    parts = [{**msgspec.to_builtins(part), "advice": part.advice} for part in advice.parts]
    return {**msgspec.to_builtins(advice), "parts": parts}
