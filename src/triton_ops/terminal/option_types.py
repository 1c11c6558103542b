"""Options that several commands have, and the folder that one of them names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

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


_OPPOSITE = "--no-"
_JSON = "Print one JSON document to stdout, and no table."
_VERBOSE = "Show every failed config, and the trace of an error."
Verbose = Annotated[bool, option("--verbose -v", _VERBOSE, callback=_be_verbose, expose_value=False)]
SharedJson = Annotated[bool, option("--json", _JSON, callback=_print_json, expose_value=False)]
"""The option that every command has; a parameter `as_json` is that of a command that has to know of it."""
_SHARED = {
    "text": option("TARGET", "A shipped kernel, module:object, or file.py:object."),
    "as_json": option("--json", _JSON, callback=_print_json),
    "shape": option("--shape", "The problem; for a function one per argument: MxN,N.", "MxN"),
    "dtype": option("--dtype", "Such as bf16, fp16, fp32, fp8.", "DTYPE"),
    "space": option("--space", "Values of a tunable; repeat it, or give a JSON file.", "NAME=V,V"),
    "arg": option(
        "--arg", "An argument: 64x32:bf16, [0,9]:int32, FILE.npy, PLACE:NAME, 1e-5; repeat it.", "NAME=VALUE"
    ),
    "config": option(
        "--config", "Values of tunables; repeat it, or NAME=V,NAME=V. The rest as in the default.", "NAME=V"
    ),
    "gpu": option("--gpu", "A GPU that need not be here: 'NVIDIA H200', H200, or sm_90.", "NAME"),
    "device": option("--device", "cpu, cuda or cuda:N.", "DEVICE"),
    "cache_dir": option("--cache-dir", settings.HELP_OF_CACHE_DIR, "DIR"),
}
"""The options that several commands have, by the names of their parameters, which need not describe them."""


def as_typed(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as it is typed: shared options by their names, and options in the place of each value of several.

    A parameter without an option of its own is the shared one of its name. One that is `Annotated[CLASS, NAMES]` is a
    whole value, with the names of options in one text, empty for all, and perhaps `dict(NAME=HELP)` of those that mean
    something else here. The command is called with the value. It is made of these options, and of the command's own
    that have a name of the class.
    """
    # Annotations are texts by `from __future__ import annotations`.
    own, known = signature(command, eval_str=True), _parameters(command)
    wholes = {each.name: _Whole(*get_args(each.annotation)) for each in known.values()
              if isinstance(next(iter(get_args(each.annotation)[1:]), None), str)}  # fmt: skip
    inner = {name: each for one in wholes.values() for name, each in one.typed.items()}

    @wraps(command)
    def whole(**typed: Any) -> Any:
        rest = {name: value for name, value in typed.items() if name not in inner}
        return command(**rest, **{name: each.value(typed) for name, each in wholes.items()})

    parameters: list[Parameter] = []
    for each in known.values():
        parameters += wholes[each.name].typed.values() if each.name in wholes else [each]
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    whole.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    whole.__annotations__ = {each.name: each.annotation for each in parameters}
    return whole


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """A function's parameters by name, of which each that is a shared option is described as one."""
    known = dict(signature(function, eval_str=True).parameters)
    for name in known.keys() & _SHARED.keys():
        if not hasattr(known[name].annotation, "__metadata__"):
            known[name] = known[name].replace(annotation=Annotated[known[name].annotation, _SHARED[name]])
    return known


class _Whole:
    """A value whose parts are typed: the parameters of its class's `of`, else the fields whose metadata say so."""

    def __init__(self, kind: Any, names: str, texts: Mapping[str, str] = MappingProxyType({})) -> None:
        described = {each.name: each for each in fields(kind) if each.metadata}
        own = {name: _parameter(each) for name, each in described.items()}
        self._make: Callable[..., Any] = kind if own else kind.of
        self._known: Mapping[str, Parameter] = own or _parameters(self._make)
        self._opposites = [name for name, each in described.items() if each.metadata["flag"].startswith(_OPPOSITE)]
        self.typed = {name: self._known[name] for name in names.split() or self._known}
        self.typed |= {name: _worded(self.typed[name], text) for name, text in texts.items()}

    def value(self, typed: Mapping[str, Any]) -> Any:
        """The value, of the options that are its own; the others have their defaults. CacheError as of `folder_of`."""
        own = {name: value for name, value in typed.items() if name in self._known}
        if "cache_dir" in own:
            folder_of(own["cache_dir"])
        return self._make(**{**own, **{name: not own[name] for name in self._opposites if name in own}})


def _worded(parameter: Parameter, text: str) -> Parameter:
    # A copy, since other commands share the option.
    described = copy(parameter.annotation.__metadata__[0])
    described.help = text
    return parameter.replace(annotation=Annotated[parameter.annotation.__origin__, described])


def _parameter(described: Field[Any]) -> Parameter:
    """The option of a field; a flag that is its opposite is off by default."""
    typed = described.metadata
    default = False if typed["flag"].startswith(_OPPOSITE) else described.default
    kind = typed["type"] | None if default is None else typed["type"]
    text = option(typed["flag"], typed["help"], typed["metavar"])
    return Parameter(described.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, text])


def folder_of(cache_dir: str | Path | None) -> Path:
    """The folder of records of a command, which need not exist; `CacheError` if the path or a parent is a file."""
    folder = (settings.cache_dir() if cache_dir is None else settings.expanded(cache_dir)).absolute()
    for path in (folder, *folder.parents):
        if base.StoredFile(path).exists:
            raise CacheError(f"{folder} cannot be a cache folder: {path} is a file", hint="name another folder")
    return folder
