"""The run of a command, whose errors become lines on stderr and exit codes."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator, Sequence

import typer
from typer.core import TyperGroup

from triton_ops import settings
from triton_ops.exceptions import (
    CacheError,
    DeviceError,
    MissingDependencyError,
    NotLoadedError,
    RunLogError,
    TritonKernelError,
    TuningFailedError,
    UntunedError,
)
from triton_ops.terminal.console import ExitCode, State, tell, tell_failures, tell_trace, with_open_streams
from triton_ops.terminal.interrupts import INTERRUPTED, raised_when_interrupted, was_interrupted

_USAGE_ERROR = typer.BadParameter.__mro__[1]  # typer keeps click's class in different places from version to version
_CODES = {
    TuningFailedError: ExitCode.NONE_RAN, DeviceError: ExitCode.NO_DEVICE, MissingDependencyError: ExitCode.NO_DEVICE,
    CacheError: ExitCode.NO_RECORD, RunLogError: ExitCode.NO_RECORD, UntunedError: ExitCode.NO_RECORD,
    NotLoadedError: ExitCode.NOT_LOADED, TritonKernelError: ExitCode.BAD_INPUT, _USAGE_ERROR: ExitCode.BAD_INPUT,
}  # fmt: skip


def run(program: Callable[[], TyperGroup], arguments: Sequence[str], name: str, version: str) -> int:
    """Run one of the program's commands by the words after its name, write what it says, and return the exit code."""
    with_open_streams()
    with _messages():
        return _run(program, list(arguments), name, version)


def _run(program: Callable[[], TyperGroup], arguments: list[str], name: str, version: str) -> int:
    try:
        with raised_when_interrupted(__file__):
            commands = program()
            # Its `main` would end on Ctrl-C in silence.
            with commands.make_context(name, arguments, obj=version) as context:
                said = commands.invoke(context)
            code = 0 if said is None else said.written()
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
        return ExitCode.BAD_INPUT
    return code


@contextlib.contextmanager
def _messages() -> Iterator[None]:
    State.verbose = State.as_json = False
    State.renamed = ""
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
    if _folder_is_gone(error) or (isinstance(error, UntunedError) and State.renamed):  # a former name ends as it did
        return ExitCode.BAD_INPUT
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), ExitCode.INTERNAL_ERROR)


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
    elif State.verbose and not isinstance(error, _USAGE_ERROR):
        tell_trace("".join(traceback.format_exception(error)))
    if State.renamed:
        tell(State.renamed)
    tell(_text(error, code), "error", "red")
    return code


def _text(error: Exception, code: int) -> str:
    if isinstance(error, _USAGE_ERROR):
        context = getattr(error, "ctx", None)
        message = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
        return f"{message} (hint: {context.command_path if context else 'triton-ops'} --help)"
    if _folder_is_gone(error):
        return "the current folder was deleted, and a relative path begins there (hint: go to another folder)"
    if isinstance(error, MissingDependencyError) and error.name is not None:
        return f"this command needs {error.name}, which is not installed (hint: {error.hint})"
    if code != ExitCode.INTERNAL_ERROR:
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (hint: -v shows the trace)"


class _ToStderr(logging.Handler):
    """A log handler that writes each message as one line, `warning: …`."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(record.getMessage(), record.levelname.lower(), "yellow")
