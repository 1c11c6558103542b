"""The failures of candidates, each with the status that the trial ends in."""

from __future__ import annotations

import errno

from triton_ops.exceptions import CacheError
from triton_ops.trial import Status

_RESOURCES = ("OutOfResources", "OutOfMemoryError")
_COMPILE = (
    "CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError", "MLIRError",
)  # fmt: skip
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
_LONGEST_TEXT = 400


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


def one_line(error: BaseException) -> str:
    """`Class: message` in one line of at most 400 characters: the first and last lines carry the meaning."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' … '.join(dict.fromkeys([*lines[:1], *lines[-1:]]))}".rstrip(": ")
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
