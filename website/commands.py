"""The page of every command and option, made from the commands themselves."""

from __future__ import annotations

import inspect
import re
from typing import Any

from triton_ops.cli.app import imported, program

_HEAD = """# Every command and option

This page is made from the commands themselves and says what `--help` says. What the commands print and write, and what
the options mean in detail, is in [the command line](cli.md).
"""


def commands_page() -> str:
    """Markdown with a section for each command. A command or option without a help text is a ValueError."""
    parts = [_HEAD]
    for name in program().commands:
        parts += _sections(f"triton-ops {name}", imported(name))
    return "\n".join(parts)


def _sections(name: str, command: Any) -> list[str]:
    if not command.help:
        raise ValueError(f"{name} has no help text")
    inner = getattr(command, "commands", {})
    head = f"## {name}\n\n{inspect.cleandoc(command.help)}\n"
    if inner:
        return [head, *(part for each, found in inner.items() for part in _sections(f"{name} {each}", found))]
    return [head, f"```text\n{_usage(name, command)}\n```\n", _table(name, command)]


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
