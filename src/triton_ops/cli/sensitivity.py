"""`triton-ops sensitivity`: which tunables matter in a measured space, and where times jump."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.cli.console import Json, Verbose, bold, say, say_json, width
from triton_ops.cli.layout import listing, table
from triton_ops.landscape.cliffs import Cliff, cliffs
from triton_ops.landscape.sensitivity import Knob, Sensitivity, sensitivity
from triton_ops.replay.recording import read_recording

_HEADER = ("tunable", "share", "span", "fixed", "best", "by value: slower than the best value")
_JUMPS = ("step", "pairs", "slower", "steep", "spills", "if spilled", "fails")
_SHOWN = 12


def sensitivity_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Run logs, or recordings of whole spaces.")],
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say which tunables matter in a measured space, what each value costs, and at which steps times jump.

    Reads run logs of tunes, recordings of `triton-ops record`, and Kernel Tuner's cache files.
    """
    recordings = [read_recording(file) for file in files]
    found = [(sensitivity(one), cliffs(one)) for one in recordings]
    if as_json:
        say_json([_as_json(str(file), seen, jumps) for file, (seen, jumps) in zip(files, found, strict=True)])
        return
    for number, (seen, jumps) in enumerate(found):
        say(*([""] if number else []), *_lines(seen, jumps))


def _lines(seen: Sensitivity, jumps: list[Cliff]) -> list[str]:
    facts = {
        "space": f"{seen.kernel}, {seen.device or 'device not named'}",
        "configs": f"{seen.configs} ran, {seen.failed} failed",
        "fastest": f"{seen.best_ms:.4g} ms: {seen.best}",
        "explained": f"{seen.explained:.0%} of the differences by tunables alone, the rest by tunables together",
    }
    header, *rows = table(_HEADER, [_row(knob) for knob in seen.knobs], width(), _HEADER[1:4])
    lines = [*listing(facts, width()), bold(header), *rows]
    if jumps:
        header, *rows = table(_JUMPS, [_jump(one) for one in jumps[:_SHOWN]], width(), _JUMPS[1:])
        lines += [bold(header), *rows]
    return lines


def _row(knob: Knob) -> list[str]:
    by_value = ", ".join(
        f"{one.value}: {'none ran' if one.slower is None else f'+{one.slower:.0%}'}" for one in knob.effects
    )
    figures = [f"{knob.share:.0%}", f"+{knob.span:.0%}", f"+{knob.most_lost:.0%}"]
    return [knob.name, *figures, str(knob.best.value), by_value]


def _jump(one: Cliff) -> list[str]:
    def times(ratio: float | None) -> str:
        return "-" if ratio is None else f"{ratio:.2f}x"

    step = f"{one.name} {one.before} -> {one.after}"
    return [
        step, str(one.pairs), times(one.slower), str(one.steep), str(one.spills), times(one.slower_if_spilled),
        str(one.fails),
    ]  # fmt: skip


def _as_json(file: str, seen: Sensitivity, jumps: list[Cliff]) -> dict[str, Any]:
    return {
        "file": file, "kernel": seen.kernel, "device": seen.device, "configs": seen.configs, "failed": seen.failed,
        "best": dict(seen.best), "best_ms": seen.best_ms, "explained": seen.explained,
        "knobs": [
            {"name": knob.name, "share": knob.share, "span": knob.span, "most_lost": knob.most_lost,
             "best": knob.best.value, "values": [asdict(one) for one in knob.effects]}
            for knob in seen.knobs
        ],
        "cliffs": [asdict(one) for one in jumps],
    }  # fmt: skip
