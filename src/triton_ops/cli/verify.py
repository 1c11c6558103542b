"""`triton-ops verify`: does every entry of a lockfile still hold, and is nothing faster?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from triton_ops.cli.console import (
    CHECK_FAILED,
    NOT_LOADED,
    Device,
    Json,
    Verbose,
    bold,
    only_data_on_stdout,
    say,
    say_json,
    table,
    width,
)
from triton_ops.cli.target import load_kernels
from triton_ops.cli.terminal import stderr
from triton_ops.device import probe
from triton_ops.exceptions import DeviceError, SettingsError
from triton_ops.records import DEFAULT_NAME, read_lockfile
from triton_ops.ship import Targets, Verdict, verify
from triton_ops.space import config_to_json
from triton_ops.tuner import ProgressBar, result_json

_HEADER = ("outcome", "kernel", "problem", "device", "config")
_NOTHING = "no entry could be measured, for the reasons above"


def verify_command(
    lockfile: Annotated[Path, typer.Argument(metavar="LOCKFILE", help="The lockfile.")] = Path(DEFAULT_NAME),
    kernels: Annotated[
        list[str] | None,
        typer.Option("--kernels", "--target", metavar="KERNELS", help="A file, module or TARGET to load; repeat it."),
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", metavar="NAME", help="Only entries of this kernel.")] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Only what needs no device: parsed, found, in its space, compiled.")
    ] = False,
    most_neighbours: Annotated[
        int, typer.Option("--neighbours", metavar="N", help="Neighbours that are measured beside each entry.")
    ] = 8,
    held_out: Annotated[
        int, typer.Option("--held-out", metavar="N", help="Measure at N further values of each range, too.")
    ] = 0,
    device: Device = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the order and the inputs.")] = 0,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> int:
    """Check every entry of LOCKFILE, and measure it against the default and its neighbours; exit 5 if one fails."""
    if most_neighbours < 0:
        raise SettingsError(
            f"--neighbours is {most_neighbours}; it must be 0 or more", hint="0 measures the default only"
        )
    if held_out < 0:
        raise SettingsError(f"--held-out is {held_out}; it must be 0 or more", hint="leave it out for none")
    lock = read_lockfile(lockfile)
    with only_data_on_stdout():
        targets = Targets(load_kernels(kernels or ()).values())
        here = None if static else probe(device)
        options: dict[str, Any] = {"seed": seed, "listener": ProgressBar(stderr())}
        found = list(
            verify(
                lock, targets, here, device=device, kernel=kernel,
                most_neighbours=most_neighbours, held_out=held_out, **options,
            )
        )  # fmt: skip
    if kernel is not None and not found:
        raise SettingsError(f"{lockfile} has no entry of {kernel}", hint="`triton-ops lock --check` lists what differs")
    if as_json:
        say_json([_as_json(each) for each in found])
    else:
        say(*_report(found, width()))
    if any(each.failed for each in found):
        return CHECK_FAILED
    if any(each.outcome == "not loaded" for each in found):
        return NOT_LOADED
    if not static and found and all(each.outcome == "not measured" for each in found):
        raise DeviceError(_NOTHING, hint="run it where the device is and has room, or with --static")
    return 0


def _report(found: list[Verdict], columns: int | None) -> list[str]:
    if not found:
        return ["0 entries"]
    rows = [_row(each) for each in found]
    header, *lines = table(_HEADER, rows, columns)
    counts = Counter(each.outcome for each in found)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    summary = f"{len(found)} {'entry' if len(found) == 1 else 'entries'}: {said}"
    regrets = [each.regret for each in found if each.at and each.regret is not None]
    held_out = [f"largest regret at {len(regrets)} held-out sizes: {max(regrets):.1%}"] if regrets else []
    return [bold(header), *lines, summary, *held_out]


def _row(each: Verdict) -> list[str]:
    entry = each.entry
    why = f": {each.reason}" if each.reason else ""
    return [
        each.outcome,
        entry.kernel,
        " at ".join(filter(None, (entry.label or "-", each.at))),
        entry.device,
        f"{entry.config}{why}",
    ]


def _as_json(each: Verdict) -> dict[str, Any]:
    result = None if each.result is None else result_json(each.result)
    entry = msgspec.to_builtins(each.entry, enc_hook=config_to_json)
    told = {"outcome": each.outcome, "reason": each.reason, "at": each.at, "regret": each.regret}
    return {**told, "entry": entry, "result": result}
