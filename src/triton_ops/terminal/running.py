"""The run of a command, whose errors become lines on stderr and exit codes.

Exit codes:
    0    done
    1    no configuration ran
    2    bad input: usage, TARGET, space, shape, dtype, setting
    3    a device or a package that is needed is not there
    4    the cache, a lockfile or a run log cannot be used
    5    a check found something: a lockfile that would change, or an entry that fails
    6    a kernel that a file names is not loaded
    70   an error of this program; `-v` shows the trace
    130  interrupted; the best so far was printed, and the same command goes on
"""

from __future__ import annotations

import contextlib
import logging
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence

import typer
from typer.core import TyperGroup

from triton_ops import settings
from triton_ops.base import escaped
from triton_ops.exceptions import (
    CacheError,
    DeviceError,
    MissingDependencyError,
    NotLoadedError,
    RunLogError,
    TritonKernelError,
    TuningFailedError,
)
from triton_ops.terminal.console import tell, with_open_streams, write_to_stderr
from triton_ops.terminal.interrupts import INTERRUPTED, raised_when_interrupted, was_interrupted

CHECK_FAILED = 5
NOT_LOADED = 6
_INTERNAL_ERROR = 70
_USAGE_ERROR = typer.BadParameter.__mro__[1]  # typer keeps click's class in different places from version to version


class _State:
    verbose = False


def be_verbose(value: bool) -> None:
    """Note that `-v` is given."""
    _State.verbose = _State.verbose or value


def run(program: Callable[[], TyperGroup], arguments: Sequence[str], version: str) -> int:
    """Run one of the program's commands by the words after its name, and return the exit code."""
    with_open_streams()
    with _messages():
        return _run(program, list(arguments), version)


def _run(program: Callable[[], TyperGroup], arguments: list[str], version: str) -> int:
    try:
        with raised_when_interrupted(__file__):
            commands = program()
            # Its `main` would end on Ctrl-C in silence.
            with commands.make_context("triton-ops", arguments, obj=version) as context:
                code = commands.invoke(context)
        if was_interrupted() and code != INTERRUPTED:  # a candidate has caught it, and what ran it went on
            raise KeyboardInterrupt
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        tell("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: every error becomes one line and a code
        if was_interrupted():
            tell("interrupted")
            return INTERRUPTED
        if type(error).__name__ != "NoArgsIsHelpError":
            return _report(error)
        error.show()  # type: ignore[attr-defined]
        return 2
    return code if isinstance(code, int) else 0


@contextlib.contextmanager
def _messages() -> Iterator[None]:
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


def _exit_code(error: BaseException) -> int:
    if isinstance(error, TuningFailedError):
        return 1
    if isinstance(error, (DeviceError, MissingDependencyError)):
        return 3
    if isinstance(error, (CacheError, RunLogError)):
        return 4
    if isinstance(error, NotLoadedError):
        return NOT_LOADED
    bad_input = isinstance(error, (TritonKernelError, _USAGE_ERROR)) or _folder_is_gone(error)
    return 2 if bad_input else _INTERNAL_ERROR


def _folder_is_gone(error: BaseException) -> bool:
    """Tell whether a relative path failed since the folder in which the command was called was deleted."""
    return isinstance(error, FileNotFoundError) and settings.current_folder() is None


def _report(error: Exception) -> int:
    """Write an error as one line on stderr, after `-v` with its trace, and return the exit code."""
    code = _exit_code(error)
    if isinstance(error, TuningFailedError):
        failures = zip(error.failures, error.traces, strict=True)
        tell_failures(
            (" ".join(f"{name}={value}" for name, value in config.items()) or "(empty)", reason, trace)
            for (config, reason), trace in failures
        )
    elif _State.verbose and not isinstance(error, _USAGE_ERROR):
        _tell_trace("".join(traceback.format_exception(error)))
    tell(_text(error, code), "error", "red")
    return code


def is_verbose() -> bool:
    """Tell whether `-v` is given."""
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
    write_to_stderr("".join(f"{escaped(line)}\n" for line in lines))


def _text(error: Exception, code: int) -> str:
    if isinstance(error, _USAGE_ERROR):
        context = getattr(error, "ctx", None)
        message = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
        return f"{message} (hint: {context.command_path if context else 'triton-ops'} --help)"
    if _folder_is_gone(error):
        return "the current folder was deleted, and a relative path begins there (hint: go to another folder)"
    if code != _INTERNAL_ERROR:
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (hint: -v shows the trace)"


class _ToStderr(logging.Handler):
    """A log handler that writes each message as one line, `warning: …`."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(record.getMessage(), record.levelname.lower(), "yellow")
