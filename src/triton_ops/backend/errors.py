"""The failures of candidates, each with the status that the trial ends in."""

from __future__ import annotations

import contextlib
import errno
import functools
import traceback
from itertools import dropwhile
from pathlib import Path

from triton_ops.base import escaped
from triton_ops.exceptions import CacheError
from triton_ops.values import Status

_RESOURCES = ("OutOfResources", "OutOfMemoryError")
_COMPILE = (
    "CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError", "MLIRError",
)  # fmt: skip
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
_LONGEST_TEXT = 400
_LONGEST_TRACE = 8_000
_OWN_FOLDER = str(Path(__file__).parents[1])
_AROUND = tuple(module.__file__ or "" for module in (contextlib, functools))  # they call what they are given


class CandidateError(Exception):
    """One config failed while it was compiled or loaded; the tune goes on.

    Attributes:
        status: The status in which the config's trial ends.
    """

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> tuple[type[CandidateError], tuple[Status, str]]:
        return type(self), (self.status, str(self.args[0]))


def candidate_error(error: BaseException, phase: Status) -> CandidateError:
    """`error` as a candidate's failure.

    Told by the exception's class names, so that nothing of Triton or torch need be imported to sort it; an error
    of no known class ends in the status of the phase it happened in.
    """
    if isinstance(error, CandidateError):
        return error
    names = {cls.__name__ for cls in type(error).__mro__}
    status = phase
    if names.intersection(_RESOURCES) or isinstance(error, MemoryError):
        status = Status.RESOURCES
    elif names.intersection(_COMPILE):
        status = Status.COMPILE
    return CandidateError(status, one_line(error))


def not_of_the_config(error: BaseException, cache: str) -> CacheError | None:
    """A compiler's failure to write its files, which every other config would have too; None for any other.

    Args:
        error: What the compiler raised.
        cache: The folder of its disk cache.
    """
    if not isinstance(error, OSError):
        return None
    missing = error.errno == errno.ENOENT and str(error.filename or "").startswith(cache)
    if error.errno not in _UNWRITABLE and not missing:
        return None
    return CacheError(
        f"the compiler cannot write its files: {error}; its disk cache is {cache}",
        hint="make room there, or name another folder with TRITON_CACHE_DIR",
    )


def trace_of(error: BaseException) -> str:
    """The trace of a candidate's failure from the first frame of the user's or a library's code on.

    It is empty if there is no such frame. Of a long trace the last 8,000 characters are kept.
    """
    if isinstance(error, CandidateError) and error.__cause__ is not None:
        error = error.__cause__
    trace = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = trace
    frames = 0
    while part is not None:
        part.stack = traceback.StackSummary.from_list(_from_the_callable_on(list(part.stack)))
        frames += len(part.stack)
        part = part.__cause__ or part.__context__
    return "".join(trace.format())[-_LONGEST_TRACE:] if frames else ""


def _from_the_callable_on(stack: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    around = (_OWN_FOLDER, *filter(None, _AROUND))
    return list(dropwhile(lambda frame: frame.filename.startswith(around), stack))


def one_line(error: BaseException) -> str:
    """`Class: message` in one line of at most 400 characters: the first and last lines carry the meaning.

    A line that only points at a place of the line above it, with `^` and `~`, carries none.

    Triton's compiler wraps an error once for each function that it was in, with the place of the call and no message;
    the line is then of the error that was wrapped.
    """
    while str(error).rstrip().endswith("^") and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" \t^~")]
    text = escaped(f"{type(error).__name__}: {' … '.join(dict.fromkeys([*lines[:1], *lines[-1:]]))}".rstrip(": "))
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
