"""`triton-ops advise`: is a library, torch.compile, a Triton kernel or CUDA worth the work for a model?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from triton_ops.cli.compile_modes import factory_of
from triton_ops.cli.console import Json, Verbose, bold, only_data_on_stdout, paragraph, say, say_json, table, width
from triton_ops.compile_modes import advise

_SHOWN = 10


def advise_command(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:FACTORY", help="Returns (model, inputs); or a shipped model.")
    ],
    tried: Annotated[
        list[str] | None,
        typer.Option("--tried", metavar="WAY", help="library, torch.compile, Triton or CUDA, if tried; repeat it."),
    ] = None,
    training: Annotated[bool, typer.Option("--training", help="A call is forward and backward.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Profile a model, and say what is worth doing about its speed, and why."""
    with only_data_on_stdout():
        found = advise(factory_of(target), training=training, tried=tried or [])
    if as_json:
        say_json({"way": found.way, "reasons": list(found.reasons), "profile": asdict(found.profile)})
        return
    rows = [[op.name, f"{op.share:.1%}", str(op.calls), op.kind] for op in found.profile.ops[:_SHOWN]]
    header, *lines = table(("operator", "share", "calls", "kind"), rows, width(), ("share", "calls"))
    idle = "" if found.profile.idle is None else f", the GPU idle in {found.profile.idle:.0%}"
    said = [f"{found.profile.call_ms:.3f} ms a call{idle}", bold(header), *lines]
    say(*said, *map(bold, paragraph(f"{found.way}  ", "; ".join(found.reasons), width())))
