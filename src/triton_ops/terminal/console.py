"""Lines of a command: data goes to stdout, messages go to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from triton_ops import settings
from triton_ops.base import CodeFolder, NamedFile, escaped, storable
from triton_ops.exceptions import SettingsError

_GAP = "  "
_BOLD = re.compile(r"(\x1b\[[01]m)")
_LEAST = 24  # columns for text in a narrow window, since one or two words per line cannot be read


def paragraph(head: str, text: str, width: int | None) -> list[str]:
    """`head` and `text`, wrapped between words below its first line to `width` columns; None is no limit."""
    if width is None:
        return [(head + text).rstrip()]
    room = max(width - len(head), _LEAST)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    indent = " " * len(head)
    return [((indent if number else head) + line).rstrip() for number, line in enumerate(lines)]


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, right: Collection[str] = ()
) -> list[str]:
    """The lines of a table, of which only the last column is wrapped; `right` names columns aligned to the right.

    Empty strings as a header make a table without one; a width of None is no limit.
    """
    sizes = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, *rows] if any(header) else rows:
        cells = [
            cell.rjust(size) if name in right else cell.ljust(size)
            for cell, size, name in zip(row[:-1], sizes, header, strict=False)
        ]
        lines += paragraph("".join(cell + _GAP for cell in cells), row[-1], width)
    return lines


def fits(lines: Sequence[str], width: int | None) -> bool:
    """Tell whether no line is wider than `width`."""
    return width is None or all(len(line) <= width for line in lines)


def listing(facts: Mapping[str, str], width: int | None) -> list[str]:
    """A table of two columns without header: names on the left, facts on the right."""
    return table(["", ""], list(facts.items()), width)


def headed_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None, right: Collection[str] = ()
) -> list[str]:
    """The lines of `table`, the header in bold."""
    first, *lines = table(header, rows, columns, right)
    return [bold(first), *lines]


def with_open_streams() -> None:
    """Open closed standard streams on nothing, so that writes to them do no harm and no file takes their numbers."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115


def say(*lines: str) -> None:
    """Write data lines to stdout. If the reader has gone away, as `head` does, the command ends without an error."""
    _print("".join(f"{printable(line)}\n" for line in lines))


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python flushes stdout when it exits, and ends with a code of its own where that fails.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit from None
        raise


def say_json(content: Any) -> None:
    """Write one indented JSON document to stdout; a number that JSON does not have becomes null."""
    _print(json.dumps(storable(content), indent=2, allow_nan=False) + "\n")  # has no character outside of ASCII


def printable(text: str) -> str:
    """`text` without what a terminal would obey, except for the start and the end of bold text."""
    parts = _BOLD.split(text)  # what is between two changes of weight, and the changes, in turn
    parts[::2] = map(escaped, parts[::2])
    return "".join(parts)


def bold(text: str) -> str:
    """`text` for stdout: bold on a terminal, plain in files and pipes and if `NO_COLOR` is set."""
    return typer.style(text, bold=True) if sys.stdout.isatty() and settings.colours() else text


def width() -> int | None:
    """The columns of stdout; None for a file or a pipe, in which lines are not wrapped."""
    if sys.stdout.isatty() or settings.columns() is not None:
        return settings.columns() or shutil.get_terminal_size().columns
    return None


def tell(message: str, head: str = "", colour: str = "") -> None:
    """Write a message as one line on stderr after a coloured `head`; a progress bar stays below the line."""
    text = escaped(" ".join(message.split()))
    before = f"{head}: " if head else ""
    if before and sys.stderr.isatty() and settings.colours():
        before = typer.style(before, fg=colour)
    write_to_stderr(f"{before}{text}\n")


def write_to_stderr(text: str) -> None:
    """Write to the current `sys.stderr`: a progress bar replaces it, and prints messages above the bar."""
    sys.stderr.write(text)
    sys.stderr.flush()


def agrees(question: str, hint: str) -> bool:
    """Ask the user on the terminal; `SettingsError` without one, whose `hint` names the option that does without."""
    if not sys.stdin.isatty():
        raise SettingsError(f"stdin is no terminal to ask on: {question}", hint=hint)
    return typer.confirm(escaped(question), err=True)


@contextlib.contextmanager
def only_data_on_stdout() -> Iterator[None]:
    """Inside the block, the output of a target, a compiler or their processes goes to stderr.

    From its beginning Triton and torch load no compiled code in this process that another user could have written.
    """
    for variable, (folder, name) in settings.code_folders().items():
        if (own := CodeFolder(folder).trusted(name)) != folder:
            settings.set_folder(variable, str(own))
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # if one of the two is closed, nothing needs to be redirected
            stdout = os.dup(1)
            stack.callback(os.close, stdout)
            os.dup2(2, 1)
            stack.callback(os.dup2, stdout, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def write_output(path: Path, content: str | Sequence[str], hint: str) -> None:
    """Write a file that an option names, lines as `say` does; `SettingsError` if it cannot be written."""
    try:
        text = content if isinstance(content, str) else "".join(f"{printable(line)}\n" for line in content)
        NamedFile(path).write(text)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}", hint=hint) from error
