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
    """A command with its name and short help; the module of the same name in this package holds the rest.

    In the module's name and its function's, `_` stands for `-`.

    The module has either `app`, a group of commands, or a function `NAME_command`. It may also have a class `Command`,
    which replaces Typer's class for that function.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which takes the place of this one."""
        assert self.name is not None
        return imported(self.name).make_context(info_name, args, parent, **extra)


def imported(name: str) -> Any:
    """The imported command or group of commands, in the form of the parser on which Typer is built."""
    python_name = name.replace("-", "_")
    module = import_module(f"triton_ops.cli.{python_name}")
    if hasattr(module, "app"):
        return unconverted(typer.main.get_command(module.app))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name, cls=getattr(module, "Command", None))(getattr(module, f"{python_name}_command"))
    return unconverted(typer.main.get_command(single))


class _Unchanged:
    """The conversion for values to which the parser has already given the right type: it changes nothing."""

    @staticmethod
    def coerce(value: Any, **_context: Any) -> Any:
        """Return the value itself: a text, the boolean of a flag, or None."""
        return value


def unconverted(command: Any) -> Any:
    """The same command, changed so that pydantic does not convert its texts and flags.

    Typer 0.29 converts every value with an adapter of pydantic, even a text into a text. The import of pydantic would
    take half of the time of `triton-ops show`. Versions of Typer without pydantic ignore the attribute set here.
    """
    for inner in getattr(command, "commands", {}).values():
        unconverted(inner)
    for parameter in command.get_params(typer.Context(command)):  # with `--help`
        if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, bool):
            parameter.get_runtime_param = _Unchanged
    return command
