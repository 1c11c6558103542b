"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from triton_ops.terminal.console import State


def option(name: str, text: str, metavar: str | None = None, **settings: Any) -> Any:
    """An option of a command, with its help and the name of its value; without one it is a flag."""
    return typer.Option(name, metavar=metavar, help=text, **settings)


def _be_verbose(value: bool) -> None:
    State.verbose = State.verbose or value


def _print_json(value: bool) -> bool:
    State.as_json = State.as_json or value
    return value


_JSON = "Print one JSON document to stdout, and no table."
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show every failed config, and the trace of an error.",
        callback=_be_verbose,
        expose_value=False,
    ),
]
SharedJson = Annotated[bool, option("--json", _JSON, callback=_print_json, expose_value=False)]
"""The option that every command has; `Json` is that of a command that has to know of it."""
Json = Annotated[bool, option("--json", _JSON, callback=_print_json)]
Shape = Annotated[str | None, option("--shape", "The problem; for a function one per argument: MxN,N.", "MxN")]
Dtype = Annotated[str | None, option("--dtype", "Such as bf16, fp16, fp32, fp8.", "DTYPE")]
Space = Annotated[
    list[str] | None, option("--space", "Values of a tunable; repeat it, or give a JSON file.", "NAME=V,V")
]
Arg = Annotated[
    list[str] | None,
    option("--arg", "An argument: 64x32:bf16, [0,9]:int32, FILE.npy, PLACE:NAME, 1e-5; repeat it.", "NAME=VALUE"),
]
Gpu = Annotated[str | None, option("--gpu", "A GPU that need not be here: 'NVIDIA H200', H200, or sm_90.", "NAME")]
Device = Annotated[str | None, option("--device", "cpu, cuda or cuda:N.", "DEVICE")]
CacheDir = Annotated[str | None, option("--cache-dir", "Folder of records; default TRITON_OPS_CACHE_DIR.", "DIR")]
NoWait = Annotated[bool, option("--no-wait", "End with an error if another process measures on the GPU.")]
