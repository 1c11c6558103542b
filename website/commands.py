"""The page of every command and option, made from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from triton_ops.cli.app import PROGRAM
from triton_ops.exceptions import MissingDependencyError
from triton_ops.terminal.program import imported

_HEAD = """# Every command and option

This page is made from the commands themselves and says what `--help` says. What holds for all of them is in [the
command line](cli.md).
"""
_COMPLETION = (f"{PROGRAM.name} completion", PROGRAM.root.commands["completion"])  # `--help` names it below its list


def commands_page() -> str:
    """Markdown with a section for each command. A command or option without a help text is a ValueError."""
    return "\n".join([_HEAD, *_sections(PROGRAM.name, PROGRAM.root), *_command(*_COMPLETION)])


def _sections(above: str, group: Any) -> Iterator[str]:
    """The sections of what stands below a group: of a command, of its views, and of a group with its commands."""
    for word, each in group.commands.items():
        name = f"{above} {word}"
        if each.hidden:
            continue
        if not hasattr(each, "commands"):
            yield from _command(name, each)
        elif hasattr(each, "itself"):
            yield from _command(name, each.itself)
            yield from _sections(name, each)
        else:
            yield from (_head(name, each), *_sections(name, each))


def _command(name: str, place: Any) -> tuple[str, ...]:
    try:
        command = imported(place)
    except MissingDependencyError as error:  # a command of another distribution, which need not be here
        return (f"## {name}\n\n{place.short_help} It is another distribution's: {error.hint}.\n",)
    return _head(name, command), f"```text\n{_usage(name, command)}\n```\n", _table(name, command)


def _head(name: str, command: Any) -> str:
    if not command.help:
        raise ValueError(f"{name} has no help text")
    return f"## {name}\n\n{inspect.cleandoc(command.help)}\n"


def _usage(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=name)
    return " ".join([name, *command.collect_usage_pieces(context)])


def _table(name: str, command: Any) -> str:
    rows = ["| | |", "|---|---|"]
    for parameter in command.params:
        record = parameter.get_help_record(command.context_class(command, info_name=name))
        if getattr(parameter, "hidden", False):
            continue
        if record is None or not record[1]:
            raise ValueError(f"{name}: {parameter.name} has no help text")
        rows.append(f"| `{_cell(re.sub(r' <.*>$', '', record[0]))}` | {_cell(record[1])} |")  # without its Python type
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
