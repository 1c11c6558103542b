"""Ctrl-C: one line on stderr and exit code 130, at whatever moment it comes.

Before a command begins, and while a module is imported, the program ends at once: nothing is lost, and an exception
within an import can come out as another one, or be lost. Otherwise the first Ctrl-C raises KeyboardInterrupt, so that
the best so far is told and everything is cleaned up. Another one soon after it is taken for the same, since it would
cut that short; a later one ends the program at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

INTERRUPTED = 130
_SAME_S = 3.0  # another Ctrl-C within so many seconds is taken for the same
_IMPORTS = "<frozen importlib."
_SHOWN_CURSOR = b"\x1b[?25h"  # a progress bar hides it
_state = SimpleNamespace(first_s=None, program="")


def end_at_once_when_interrupted() -> None:
    """Have Ctrl-C end this process at once, from now on; nothing changes where it is ignored or handled by others."""
    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    if is_main and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGINT, _end)
        sys.unraisablehook = _unraisable


@contextlib.contextmanager
def raised_when_interrupted(program: str) -> Iterator[None]:
    """While the context is open, Ctrl-C raises KeyboardInterrupt, once; only where it ended the process before."""
    _state.program = program
    if signal.getsignal(signal.SIGINT) is not _end:
        yield
        return
    signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end)


def was_interrupted() -> bool:
    """Tell whether Ctrl-C has raised KeyboardInterrupt, which may have come out as another exception."""
    return _state.first_s is not None


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's signature
    """The handler outside of commands, where a first Ctrl-C was told by now."""
    if not was_interrupted():
        _exit("interrupted\n")
    elif not _is_the_same():
        _exit("")


def _raise(number: int, frame: FrameType | None) -> None:
    """The handler while a command runs."""
    if not was_interrupted() and not _within_import(frame):
        _state.first_s = time.monotonic()
        signal.default_int_handler(number, frame)
    elif not was_interrupted() or not _is_the_same():
        _exit("interrupted\n")


def _is_the_same() -> bool:
    return bool(time.monotonic() - _state.first_s <= _SAME_S)


def _exit(line: str) -> None:
    # Not by `sys.stderr` or `sys.exit`: the code that is interrupted may hold a lock, or catch what is raised.
    with contextlib.suppress(OSError):
        os.write(2, (_SHOWN_CURSOR if os.isatty(2) else b"") + line.encode())
    os._exit(INTERRUPTED)


def _within_import(frame: FrameType | None) -> bool:
    """Tell whether a module is imported by the command, in whose import this program may itself be."""
    while frame is not None and frame.f_code.co_filename != _state.program:
        if frame.f_code.co_filename.startswith(_IMPORTS):
            return True
        frame = frame.f_back
    return False


def _unraisable(unraisable: Any) -> None:
    """KeyboardInterrupt where Python would print it and go on, as in a finalizer, ends the process."""
    if unraisable.exc_type is KeyboardInterrupt:
        _exit("interrupted\n")
    sys.__unraisablehook__(unraisable)
