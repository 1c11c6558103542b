"""SIGTERM ends a tune as Ctrl-C does, with everything cleaned up, and then ends the process as usual."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TerminatedError(BaseException):
    """SIGTERM has arrived. The class is not an `Exception`, so that no handler of candidates' failures catches it."""

    @classmethod
    @contextmanager
    def cleaned_up(cls) -> Iterator[None]:
        """While the context is open, SIGTERM unwinds the stack before the process ends: workers end, locks are freed.

        Nothing is changed where the caller has a handler for SIGTERM, or outside of the main thread, which alone may
        set handlers.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTERM, _unwind)
        try:
            yield
        except cls:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            raise
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _unwind(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the cleaning short
    raise TerminatedError
