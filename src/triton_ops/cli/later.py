"""Commands whose modules are imported when they are called.

`triton-ops show` needs no search, no compiler and no timer; importing them for every command would take most of the
time that the quick commands take (benchmarks/cli_start.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand


class ImportedLater(TyperCommand):
    """A command known by its name and short help; the module of that name in this package has the rest.

    The module has either `app`, a group of commands, or a function `NAME_command`, and for that function a class
    `Command` if it is not Typer's own.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which is what runs from here on."""
        assert self.name is not None
        return imported(self.name).make_context(info_name, args, parent, **extra)


def imported(name: str) -> Any:
    """The command itself, or the group of commands, as the parser below Typer takes it."""
    module = import_module(f"triton_ops.cli.{name}")
    if hasattr(module, "app"):
        return unconverted(typer.main.get_command(module.app))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name, cls=getattr(module, "Command", None))(getattr(module, f"{name}_command"))
    return unconverted(typer.main.get_command(single))


class _AsItIs:
    """The conversion of a value that the parser has already given the right type."""

    @staticmethod
    def coerce(value: Any, **_context: Any) -> Any:
        """The value itself: a text, a flag's true or false, or None."""
        return value


def unconverted(command: Any) -> Any:
    """The same command, whose texts and flags are taken without pydantic.

    Typer 0.29 converts every value with an adapter of pydantic's, a text into a text, too; importing pydantic for that
    would be half of the time that `triton-ops show` takes. Versions without pydantic never ask for what is set here.
    """
    for inner in getattr(command, "commands", {}).values():
        unconverted(inner)
    for parameter in command.get_params(typer.Context(command)):  # with `--help`
        if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, bool):
            parameter.get_runtime_param = _AsItIs
    return command
