"""Options that several commands have, and the folder that one of them names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from triton_ops import base, settings
from triton_ops.exceptions import CacheError
from triton_ops.terminal.console import State


def option(names: str, text: str, metavar: str | None = None, **further: Any) -> Any:
    """An option of a command by its names, with its help and the name of its value; without one it is a flag.

    A name without dashes is that of an argument, as its metavar.
    """
    if not names.startswith("-"):
        return typer.Argument(metavar=names, help=text, **further)
    return typer.Option(*names.split(), metavar=metavar, help=text, **further)


def _be_verbose(value: bool) -> None:
    State.verbose = State.verbose or value


def _print_json(value: bool) -> bool:
    State.as_json = State.as_json or value
    return value


_JSON = "Print one JSON document to stdout, and no table."
_VERBOSE = "Show every failed config, and the trace of an error."
Verbose = Annotated[bool, option("--verbose -v", _VERBOSE, callback=_be_verbose, expose_value=False)]
SharedJson = Annotated[bool, option("--json", _JSON, callback=_print_json, expose_value=False)]
"""The option that every command has; `Typed.Json` is that of a command that has to know of it."""


class Typed:
    """The options that several commands have, as the types of their parameters."""

    Json: TypeAlias = Annotated[bool, option("--json", _JSON, callback=_print_json)]
    Shape: TypeAlias = Annotated[
        str | None, option("--shape", "The problem; for a function one per argument: MxN,N.", "MxN")
    ]
    Dtype: TypeAlias = Annotated[str | None, option("--dtype", "Such as bf16, fp16, fp32, fp8.", "DTYPE")]
    Space: TypeAlias = Annotated[
        list[str] | None, option("--space", "Values of a tunable; repeat it, or give a JSON file.", "NAME=V,V")
    ]
    Arg: TypeAlias = Annotated[
        list[str] | None,
        option("--arg", "An argument: 64x32:bf16, [0,9]:int32, FILE.npy, PLACE:NAME, 1e-5; repeat it.", "NAME=VALUE"),
    ]
    Gpu: TypeAlias = Annotated[
        str | None, option("--gpu", "A GPU that need not be here: 'NVIDIA H200', H200, or sm_90.", "NAME")
    ]
    Device: TypeAlias = Annotated[str | None, option("--device", "cpu, cuda or cuda:N.", "DEVICE")]
    CacheDir: TypeAlias = Annotated[str | None, option("--cache-dir", settings.HELP_OF_CACHE_DIR, "DIR")]


def with_options(value: type[Any], *names: str, **texts: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have a command take the fields of a dataclass as options, in the place of its parameter `options`.

    The command is called with the whole value. Only fields whose metadata say what is typed become options, and only
    those of `names` if there are any. `texts` are the help of fields that mean something else here.
    """
    described = {each.name: each for each in fields(value) if each.metadata and (not names or each.name in names)}
    opposites = [name for name, each in described.items() if each.metadata["flag"].startswith("--no-")]

    def parameter(name: str) -> Parameter:
        default, typed = described[name].default, described[name].metadata
        default = False if name in opposites else default
        kind = typed["type"] | None if default is None else typed["type"]
        described_as = option(typed["flag"], texts.get(name, typed["help"]), typed["metavar"])
        return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, described_as])

    def changed(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def whole(**typed: Any) -> Any:
            values = {name: typed.pop(name) for name in described}
            return command(**typed, options=value(**{**values, **{name: not values[name] for name in opposites}}))

        own = signature(command, eval_str=True)
        parameters: list[Parameter] = []
        for each in own.parameters.values():
            parameters += map(parameter, described) if each.name == "options" else [each]
        parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
        whole.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        whole.__annotations__ = {each.name: each.annotation for each in parameters}
        return whole

    return changed


def folder_of(cache_dir: str | Path | None) -> Path:
    """The folder of records of a command, which need not exist; `CacheError` if the path or a parent is a file."""
    folder = (settings.cache_dir() if cache_dir is None else settings.expanded(cache_dir)).absolute()
    for path in (folder, *folder.parents):
        if base.StoredFile(path).exists:
            raise CacheError(f"{folder} cannot be a cache folder: {path} is a file", hint="name another folder")
    return folder
