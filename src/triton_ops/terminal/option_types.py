"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops import settings
from triton_ops._paths import expanded
from triton_ops.base import StoredFile
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.terminal.running import be_verbose


def option(name: str, text: str, metavar: str | None = None, **settings: Any) -> Any:
    """An option of a command, with its help and the name of its value; without one it is a flag."""
    return typer.Option(name, metavar=metavar, help=text, **settings)


Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show every failed config, and the trace of an error.",
        callback=be_verbose,
        expose_value=False,
    ),
]
Shape = Annotated[str | None, option("--shape", "The problem; for a function one per argument: MxN,N.", "MxN")]
Dtype = Annotated[str | None, option("--dtype", "Such as bf16, fp16, fp32, fp8.", "DTYPE")]
Space = Annotated[
    list[str] | None, option("--space", "Values of a tunable; repeat it, or give a JSON file.", "NAME=V,V")
]
Device = Annotated[str | None, option("--device", "cpu, cuda or cuda:N.", "DEVICE")]
Json = Annotated[bool, option("--json", "Print one JSON document to stdout, and no table.")]
CacheDir = Annotated[str | None, option("--cache-dir", "Folder of records; default TRITON_OPS_CACHE_DIR.", "DIR")]
OneShape = Annotated[str | None, option("--shape", "The problem.", "MxN")]
NoWait = Annotated[bool, option("--no-wait", "End with an error if another process measures on the GPU.")]


def group(help_text: str, name: str | None = None, epilog: str | None = None) -> typer.Typer:
    """A group of commands, with errors and help as all commands have them."""
    return typer.Typer(
        name=name, help=help_text, epilog=epilog, no_args_is_help=True, add_completion=False,
        pretty_exceptions_enable=False, rich_markup_mode=None,
    )  # fmt: skip


def program_version(context: typer.Context) -> str:
    """The version of the program that runs a command, which it has given to the first context."""
    return str(context.find_root().obj)


def folder_of(cache_dir: str | Path | None) -> Path:
    """The folder of records of a command, which need not exist; `CacheError` if the path or a parent is a file."""
    folder = (settings.cache_dir() if cache_dir is None else expanded(cache_dir)).absolute()
    for path in (folder, *folder.parents):
        if StoredFile(path).exists:
            raise CacheError(f"{folder} cannot be a cache folder: {path} is a file", hint="name another folder")
    return folder


def pairs(texts: list[str] | None, option: str, example: str) -> dict[str, str]:
    """The values of an option that is NAME=VALUE; `SettingsError` if one is not, or names a name again."""
    values: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals and value.strip()) or name.strip() in values:
            raise SettingsError(f"{option} {text!r} is not NAME=VALUE with each name once", hint=f"{option} {example}")
        values[name.strip()] = value.strip()
    return values
