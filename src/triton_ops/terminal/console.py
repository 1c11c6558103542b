"""Lines of a command: data goes to stdout, messages go to stderr."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, TextIO

import typer

from triton_ops import settings
from triton_ops.base import CodeFolder, bar_console, escaped, require

LEAST = 24  # columns for text in a narrow window, since one or two words per line cannot be read
_BELOW = " " * 4
_BOLD = re.compile(r"(\x1b\[[01]m)")


class ExitCode(IntEnum):
    """What a command ends with."""

    DONE = 0
    NONE_RAN = 1  # no configuration ran, or all others than one failed
    BAD_INPUT = 2  # usage, TARGET, space, shape, dtype, setting
    NO_DEVICE = 3  # or a package that is needed is not there
    NO_RECORD = 4  # the cache, a lockfile or a run log cannot be used, or holds nothing of what was asked for
    CHECK_FAILED = 5  # a lockfile that would change, an entry that fails, a wrong result
    NOT_LOADED = 6  # a kernel that a file names
    NOTHING_READ = 7  # no kernel is in what was to be checked
    NOT_KNOWN = 8  # nothing was found, and too little was compared to tell
    INTERNAL_ERROR = 70  # an error of this program; `-v` shows the trace
    INTERRUPTED = 130  # the best so far was printed, and the same command goes on


class State:
    """What holds for the whole command: options that all commands have, and where the output of others goes.

    `verbose` has every failure told, `as_json` one JSON document printed. `redirected` gives stdout back to the data.
    """

    runs = False
    verbose = False
    as_json = False
    redirected: contextlib.ExitStack | None = None

    @classmethod
    @contextlib.contextmanager
    def of_command(cls) -> Iterator[None]:
        """Begin anew for the command that runs inside the block."""
        cls.runs, cls.verbose, cls.as_json = True, False, False
        try:
            yield
        finally:
            cls.runs = False
            _give_back()


def open_streams() -> None:
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
    with data_on_stdout():
        try:
            sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
            sys.stdout.flush()
        except OSError as error:
            # Python flushes stdout when it exits, and ends with a code of its own where that fails.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise typer.Exit from None
            raise


def printable(text: str) -> str:
    """`text` without what a terminal would obey, except for the start and the end of bold text."""
    parts = _BOLD.split(text)  # what is between two changes of weight, and the changes, in turn
    parts[::2] = map(escaped, parts[::2])
    return "".join(parts)


def unstyled(text: str) -> str:
    """`text` without bold, for a file."""
    return _BOLD.sub("", text)


def tell(message: str, head: str = "", colour: str = "") -> None:
    """Write a message on stderr after a coloured `head`, one line where it fits; a progress bar stays below it."""
    before = f"{head}: " if head else ""
    columns = width(sys.stderr) if sys.stderr.isatty() else None
    lines = "\n".join(paragraph(before, escaped(" ".join(message.split())), columns))
    if before and sys.stderr.isatty() and settings.colours():
        lines = typer.style(before, fg=colour) + lines[len(before) :]
    write_to_stderr(f"{lines}\n")


def paragraph(head: str, text: str, width: int | None) -> list[str]:
    """`head` and `text`, wrapped between words below its first line to `width` columns; None is no limit.

    All of the text stands below a head that leaves no room for it.
    """
    if width is None:
        return [(head + text).rstrip()]
    longest = max(map(len, text.split()), default=0)
    if head.strip() and width - len(head) < min(len(text), max(longest, LEAST)) and longest <= width - len(_BELOW):
        return [head.rstrip(), *paragraph(_BELOW, text, width)]
    room = max(width - len(head), LEAST)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    indent = " " * len(head)
    return [((indent if number else head) + line).rstrip() for number, line in enumerate(lines)]


def width(stream: TextIO) -> int | None:
    """The columns of a stream; None for a file or a pipe, in which lines are not wrapped."""
    if (columns := settings.columns()) is not None or not stream.isatty():
        return columns
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


def write_to_stderr(text: str) -> None:
    """Write to the current `sys.stderr`: a progress bar replaces it, and prints messages above the bar."""
    sys.stderr.write(text)
    sys.stderr.flush()


def only_data_on_stdout() -> None:
    """Until the command ends, the output of a target, a compiler or their processes goes to stderr.

    From now on Triton and torch load no compiled code in this process that another user could have written. A TARGET
    that is loaded has this done; outside of a command nothing is done.
    """
    if not State.runs or State.redirected is not None:
        return
    # Torch's folder is in /tmp by default (pytorch/pytorch#121122), where another user can make it first.
    for variable, (folder, name) in settings.code_folders().items():
        if (own := CodeFolder(folder).trusted(name)) != folder:
            settings.set_variable(variable, str(own))
    _redirect()


def _redirect() -> None:
    sys.stdout.flush()
    State.redirected = contextlib.ExitStack()
    with contextlib.suppress(OSError):  # if one of the two is closed, nothing needs to be redirected
        # By number as well: compilers and child processes write past `sys.stdout`.
        stdout = os.dup(1)
        State.redirected.callback(os.close, stdout)
        os.dup2(2, 1)
        State.redirected.callback(os.dup2, stdout, 1)
    State.redirected.enter_context(contextlib.redirect_stdout(sys.stderr))


def _give_back() -> None:
    if State.redirected is not None:
        State.redirected.close()
        State.redirected = None


@contextlib.contextmanager
def data_on_stdout() -> Iterator[None]:
    """Inside the block, what is written to stdout gets there."""
    was_redirected = State.redirected is not None
    _give_back()
    try:
        yield
    finally:
        if was_redirected:
            _redirect()


def followed(items: Iterable[Any], count: int, what: str) -> Iterator[Any]:
    """Pass items on; while one is waited for, a bar in a terminal says how many have come."""
    if (console := bar_console()) is None:
        yield from items
        return
    bar = require("rich.progress", "a progress bar").Progress(console=console, transient=True)
    task, waited = bar.add_task(f"{count} {what}", total=count), iter(items)
    while True:
        with bar:  # it takes what is written to stdout, and so ends before an item is used
            item = next(waited, bar)
        if item is bar:
            return
        bar.advance(task)
        yield item


def tell_failures(failures: Iterable[tuple[str, str, str]]) -> None:
    """Write every failed config with its reason, and below it where that was raised, if `-v` is given."""
    if State.verbose:
        for config, reason, trace in failures:
            tell(f"({config}) {reason}")
            tell_trace("".join(f"    {line}\n" for line in trace.splitlines()))


def tell_trace(text: str) -> None:
    """Write the lines of a trace, which may hold what a candidate, a file or another machine has put into it."""
    lines = text.rstrip("\n").split("\n") if text else []
    write_to_stderr("".join(f"{escaped(line)}\n" for line in lines))
