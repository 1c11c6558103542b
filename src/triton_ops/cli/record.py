"""`triton-ops record`: measure a whole space, so that searches can be judged on it without the device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triton_ops.cli.console import Json, Verbose, only_data_on_stdout, say, say_json, stderr
from triton_ops.cli.problem import operation_of, parse_shapes, parse_space
from triton_ops.cli.target import load_target
from triton_ops.exceptions import SettingsError
from triton_ops.replay.record import record, write_recording
from triton_ops.runner.progress import ProgressBar


def record_command(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A shipped kernel, module:object, or file.py:object.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it: FILE.json.gz.")],
    shape: Annotated[
        str | None,
        typer.Option("--shape", metavar="MxN", help="The problem; for a function one per argument: MxN,N."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="DTYPE", help="Such as bf16, fp16, fp32, fp8.")
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option("--space", metavar="NAME=V,V", help="Values of a tunable; repeat it, or give a JSON file."),
    ] = None,
    passes: Annotated[
        int, typer.Option("--passes", metavar="N", min=1, help="How often the whole space is measured.")
    ] = 2,
    device: Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")] = None,
    warm: Annotated[bool, typer.Option("--warm", help="On a GPU, leave L2 as the launch before left it.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Measure every config of TARGET's space for one problem, and write a recording for `triton-ops replay`."""
    if not out.name.endswith(".json.gz"):
        raise SettingsError(f"--out is {out}; a recording's name ends in .json.gz", hint=f"write {out}.json.gz")
    if not out.absolute().parent.is_dir():
        raise SettingsError(f"{out.absolute().parent} is no folder", hint="make it first")
    shapes, values = parse_shapes(shape), parse_space(space or [])
    with only_data_on_stdout():
        operation, narrowed, extents, chosen_dtype = operation_of(load_target(target), values, shapes, dtype)
        content = record(
            operation, narrowed, extents, chosen_dtype,
            passes=passes, device=device, cold=not warm, listener=ProgressBar(stderr()),
        )  # fmt: skip
    write_recording(out, content)
    ok = sum(row["status"] == "ok" for row in content["rows"])
    if as_json:
        say_json({"file": str(out), "configs": len(content["rows"]), "ok": ok, "passes": passes})
    else:
        say(f"{out}: {len(content['rows'])} configs, {ok} of them ran, {passes} passes")
