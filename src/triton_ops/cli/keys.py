"""`triton-ops lock keys`: the parts of a problem that change the winner, from records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from triton_ops.base import counted
from triton_ops.cli.cache import Which, tell_nothing
from triton_ops.cli.key_advice import KernelAdvice, MeasuredRegret, PartAdvice, advise, fields_of
from triton_ops.exceptions import SettingsError
from triton_ops.records import Record, matching
from triton_ops.terminal import Facts, folder_of, option

_HEADER = ("part", "values", "compared", "verdict", "loss", "spared s", "advice")
_NUMBERS = ("values", "compared", "loss", "spared s")


def keys_command(
    which: Which = None,
    key: Annotated[str | None, option("--key", "A key to judge, such as M,N.", "NAMES")] = None,
    cache_dir: str | None = None,
) -> Facts:
    """Say from records which parts of a problem change the winner, and which only cost tunes.

    Records are compared in pairs that differ in one part of the problem only. A part did not matter if some config
    was among the fastest of both, or if one's winner is within 2 % of the other's best. `loss` is the
    largest share by which one winner is slower where it serves both, and `spared s` the seconds of tuning that a key
    without the part would spare. Unproven winners do not count.
    """
    names = None if key is None else [name.strip() for name in key.split(",")]
    if names is not None and not all(names):
        raise SettingsError(f"--key {key!r} has an empty name", hint="for example --key M,N")
    records = matching(which, folder_of(cache_dir))
    _check_names(names or [], records)
    kernels = advise(records, MeasuredRegret(folder_of(cache_dir)), key=names)
    facts = Facts("keys", list(map(_as_json, kernels)))
    for advice in kernels:
        head = (
            f"{advice.kernel} on {advice.device}: {counted(advice.records, 'problem')}, "
            f"{counted(advice.winners, 'winner')}, {advice.elapsed_s:.1f} s of tuning"
        )
        if advice.unproven:
            head += f"; {advice.unproven} left out, whose winners are unproven"
        if not advice.parts:
            reason = "no part of the problem changed" if advice.records > 1 else "of no two problems a winner is proven"
            facts.text(head, bold=True).text(f"nothing to compare: {reason}")
        else:
            facts.text(head, bold=True).table(_HEADER, list(map(_row, advice.parts)), _NUMBERS)
    return facts if kernels else tell_nothing(facts, which, cache_dir)


def _check_names(names: Sequence[str], records: Sequence[Record]) -> None:
    fields = dict.fromkeys(field for record in records for field in fields_of(record.key.problem))
    if fields and (unknown := [name for name in names if name not in fields]):
        message = f"--key names {', '.join(unknown)}, which no recorded problem has"
        raise SettingsError(message, hint=f"fields are {', '.join(fields)}")


def _row(part: PartAdvice) -> list[str]:
    loss = "-" if part.regret is None else f"{part.regret:.1%}"
    counts = [str(part.values), str(part.compared)]
    return [part.title, *counts, part.verdict, loss, f"{part.spared_s:.1f}", part.advice]


def _as_json(advice: KernelAdvice) -> dict[str, Any]:
    parts = [{**msgspec.to_builtins(part), "advice": part.advice} for part in advice.parts]
    return {**msgspec.to_builtins(advice), "parts": parts}
