"""SIGTERM ends a tune as Ctrl-C does, with everything cleaned up, and then the process as it would have."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TerminatedError(BaseException):
    """SIGTERM has come; not an `Exception`, so that no handler of candidates' failures takes it."""


@contextmanager
def cleaned_up_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM unwinds the stack before it ends the process, so that workers end and locks are freed.

    Only where it would end the process at once: a handler of the caller's own is left in place, and so is everything
    outside of the main thread, which alone may handle signals.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _unwind)
    try:
        yield
    except TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _unwind(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is called with
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the cleaning short
    raise TerminatedError
