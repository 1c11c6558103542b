"""`triton-ops record`: measure a whole space, so that searches can be judged on it without the device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triton_ops.base import is_folder
from triton_ops.cli.console import (
    Device,
    Dtype,
    Json,
    Shape,
    Space,
    TargetName,
    Verbose,
    only_data_on_stdout,
    say,
    say_json,
    tell,
)
from triton_ops.cli.interrupts import INTERRUPTED
from triton_ops.cli.problem import operation_of, parse_shapes, parse_space
from triton_ops.cli.target import load_target
from triton_ops.cli.terminal import stderr
from triton_ops.exceptions import SettingsError
from triton_ops.lab import record, write_recording
from triton_ops.tuner import ProgressBar


def record_command(
    target: TargetName,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it: FILE.json.gz.")],
    shape: Shape = None,
    dtype: Dtype = None,
    space: Space = None,
    passes: Annotated[
        int, typer.Option("--passes", metavar="N", min=1, help="How often the whole space is measured.")
    ] = 2,
    device: Device = None,
    warm: Annotated[bool, typer.Option("--warm", help="On a GPU, leave L2 as the launch before left it.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Measure every config of TARGET's space for one problem, and write a recording for `triton-ops replay`."""
    if not out.name.endswith(".json.gz"):
        raise SettingsError(f"--out is {out}; a recording's name ends in .json.gz", hint=f"write {out}.json.gz")
    if not is_folder(out.absolute().parent):
        raise SettingsError(f"{out.absolute().parent} is no folder", hint="make it first")
    shapes, values = parse_shapes(shape), parse_space(space or [])
    try:
        with only_data_on_stdout():
            operation, narrowed, extents, chosen_dtype = operation_of(load_target(target), values, shapes, dtype)
            content = record(
                operation, narrowed, extents, chosen_dtype,
                passes=passes, device=device, cold=not warm, listener=ProgressBar(stderr()),
            )  # fmt: skip
    except KeyboardInterrupt:
        tell(f"interrupted: {out} is not written, since a part of a recording is of no use")
        raise typer.Exit(INTERRUPTED) from None
    write_recording(out, content)
    ok = sum(row["status"] == "ok" for row in content["rows"])
    if as_json:
        say_json({"file": str(out), "configs": len(content["rows"]), "ok": ok, "passes": passes})
    else:
        say(f"{out}: {len(content['rows'])} configs, {ok} of them ran, {passes} passes")
