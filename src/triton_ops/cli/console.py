"""The output of the command line: data goes to stdout, messages go to stderr, and errors become exit codes.

Exit codes:
    0    done
    1    no configuration ran
    2    bad input: usage, TARGET, space, shape, dtype, setting
    3    a device or a package that is needed is not there
    4    the cache, a lockfile or a run log cannot be used
    5    a check found something: a lockfile that would change, or an entry that fails
    70   an error of this program; `-v` shows the trace
    130  interrupted; the best so far was printed, and the same command goes on
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops import settings
from triton_ops.base import code_folder, escaped, storable
from triton_ops.exceptions import (
    CacheError,
    DeviceError,
    MissingDependencyError,
    NotLoadedError,
    RunLogError,
    SettingsError,
    TritonKernelError,
    TuningFailedError,
)
from triton_ops.space import Config

GAP = "  "
_LEAST = 24  # columns for text in a narrow window, since one or two words per line cannot be read


def paragraph(head: str, text: str, width: int | None) -> list[str]:
    """`head` and `text` in one line, or in several lines with `text` wrapped below its first line.

    Args:
        head: The beginning of the first line, which is never wrapped.
        text: The text, which is wrapped between words only.
        width: The columns of a line; None is no limit.
    """
    if width is None:
        return [(head + text).rstrip()]
    room = max(width - len(head), _LEAST)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    indent = " " * len(head)
    return [((indent if number else head) + line).rstrip() for number, line in enumerate(lines)]


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, right: Collection[str] = ()
) -> list[str]:
    """The lines of a table, with the header first; only the last column is wrapped.

    Args:
        header: Names of the columns; empty strings make a table without header.
        rows: The rows, each with one text per column.
        width: The columns of a line; None is no limit.
        right: Names of the columns that are aligned to the right, as numbers are.
    """
    sizes = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, *rows] if any(header) else rows:
        cells = [
            cell.rjust(size) if name in right else cell.ljust(size)
            for cell, size, name in zip(row[:-1], sizes, header, strict=False)
        ]
        lines += paragraph("".join(cell + GAP for cell in cells), row[-1], width)
    return lines


def fits(lines: Sequence[str], width: int | None) -> bool:
    """Whether no line is wider than `width`."""
    return width is None or all(len(line) <= width for line in lines)


def listing(facts: Mapping[str, str], width: int | None) -> list[str]:
    """A table of two columns without header: names on the left, facts on the right."""
    return table(["", ""], list(facts.items()), width)


CHECK_FAILED = 5
NOT_LOADED = 6
INTERNAL_ERROR = 70
_BOLD = re.compile(r"(\x1b\[[01]m)")
_USAGE_ERROR = typer.BadParameter.__mro__[1]  # typer keeps click's class in different places from version to version


class _State:
    verbose = False


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
    _write(f"{_coloured(f'{head}: ', colour)}{text}\n" if head else f"{text}\n")


def _write(text: str) -> None:
    """Write to the current `sys.stderr`: a progress bar replaces it, and prints messages above the bar."""
    sys.stderr.write(text)
    sys.stderr.flush()


def _coloured(text: str, colour: str) -> str:
    return typer.style(text, fg=colour) if sys.stderr.isatty() and settings.colours() else text


def agrees(question: str, hint: str) -> bool:
    """Ask the user on the terminal.

    Raises:
        SettingsError: There is no terminal on which to ask; `hint` names the option that does without.
    """
    if not sys.stdin.isatty():
        raise SettingsError(f"stdin is no terminal to ask on: {question}", hint=hint)
    return typer.confirm(escaped(question), err=True)


@contextlib.contextmanager
def messages() -> Iterator[None]:
    """Inside the block, warnings of this package are lines on stderr; `-v` is reset when the block begins."""
    _State.verbose = False
    log, handler = logging.getLogger("triton_ops"), _ToStderr()
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before


@contextlib.contextmanager
def only_data_on_stdout() -> Iterator[None]:
    """Inside the block, the output of a target, a compiler or their processes goes to stderr.

    From its beginning Triton and torch load no compiled code in this process that another user could have written.
    """
    for variable, (folder, name) in settings.code_folders().items():
        if (own := code_folder(folder, name)) != folder:
            settings.set_folder(variable, str(own))
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # if one of the two is closed, nothing needs to be redirected
            kept = os.dup(1)
            stack.callback(os.close, kept)
            os.dup2(2, 1)
            stack.callback(os.dup2, kept, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def exit_code(error: BaseException) -> int:
    """The documented exit code of an error."""
    if isinstance(error, TuningFailedError):
        return 1
    if isinstance(error, (DeviceError, MissingDependencyError)):
        return 3
    if isinstance(error, (CacheError, RunLogError)):
        return 4
    if isinstance(error, NotLoadedError):
        return NOT_LOADED
    known = isinstance(error, (TritonKernelError, _USAGE_ERROR)) or _folder_is_gone(error)
    return 2 if known else INTERNAL_ERROR


def _folder_is_gone(error: BaseException) -> bool:
    """Whether a relative path could not be used, since the folder in which the command was called was deleted."""
    return isinstance(error, FileNotFoundError) and settings.current_folder() is None


def report(error: Exception) -> int:
    """Write an error as one line on stderr, after `-v` with its trace, and return the exit code."""
    code = exit_code(error)
    if isinstance(error, TuningFailedError):
        told = zip(error.failures, error.traces, strict=True)
        tell_failures((str(Config(config)), reason, trace) for (config, reason), trace in told)
    elif _State.verbose and not isinstance(error, _USAGE_ERROR):
        _tell_trace("".join(traceback.format_exception(error)))
    tell(_text(error, code), "error", "red")
    return code


def is_verbose() -> bool:
    """Whether `-v` is given."""
    return _State.verbose


def tell_failures(failures: Iterable[tuple[str, str, str]]) -> None:
    """Write every failed config with its reason, and below it where that was raised, if `-v` is given."""
    if _State.verbose:
        for config, reason, trace in failures:
            tell(f"({config}) {reason}")
            _tell_trace(textwrap.indent(trace, "    "))


def _tell_trace(text: str) -> None:
    """Write the lines of a trace, which may hold what a candidate, a file or another machine has put into it."""
    lines = text.rstrip("\n").split("\n") if text else []
    _write("".join(f"{escaped(line)}\n" for line in lines))


def _text(error: Exception, code: int) -> str:
    if isinstance(error, _USAGE_ERROR):
        context = getattr(error, "ctx", None)
        said = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
        return f"{said} (hint: {context.command_path if context else 'triton-ops'} --help)"
    if _folder_is_gone(error):
        return "the current folder was deleted, and a relative path begins there (hint: go to another folder)"
    if code != INTERNAL_ERROR:
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (hint: -v shows the trace)"


class _ToStderr(logging.Handler):
    """A log handler that writes each message as one line, `warning: …`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message of a log record."""
        tell(record.getMessage(), record.levelname.lower(), "yellow")


def _be_verbose(value: bool) -> None:
    _State.verbose = _State.verbose or value


Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show every failed config, and the trace of an error.", callback=_be_verbose),
]
TargetName = Annotated[
    str, typer.Argument(metavar="TARGET", help="A shipped kernel, module:object, or file.py:object.")
]
Shape = Annotated[
    str | None, typer.Option("--shape", metavar="MxN", help="The problem; for a function one per argument: MxN,N.")
]
Dtype = Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="Such as bf16, fp16, fp32, fp8.")]
Space = Annotated[
    list[str] | None,
    typer.Option("--space", metavar="NAME=V,V", help="Values of a tunable; repeat it, or give a JSON file."),
]
Device = Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout, and no table.")]
CacheDir = Annotated[
    str | None,
    typer.Option("--cache-dir", metavar="DIR", help="Folder of records; default TRITON_OPS_CACHE_DIR."),
]
