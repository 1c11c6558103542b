"""The end of a call that lasts too long, from inside the thread that makes it."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_S = 1.0  # after which a call that has caught the exception, or that was compiling, is looked at again
_ONE_TIME = ("torch._inductor", "torch._dynamo.convert_frame", "triton.compiler", "numba.", "importlib.", "importlib")


class CallTooLongError(BaseException):
    """A call has lasted for longer than it may; no ordinary handler of the call's own code catches it."""


@contextmanager
def ended_after(limit_s: float) -> Iterator[None]:
    """Raise a `CallTooLongError` in what is inside once it has lasted so long; compiling and importing do not count.

    Only the main thread can be reached, and only when it runs Python code: a call into a library is waited for.
    """
    handler = signal.getsignal(signal.SIGALRM)
    if math.isinf(limit_s) or threading.current_thread() is not threading.main_thread() or handler is None:
        yield
        return

    def look(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's signature
        if _works_ahead(frame):
            signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
        else:
            raise CallTooLongError

    begun_s = time.monotonic()
    signal.signal(signal.SIGALRM, look)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:  # somebody else's alarm, such as that of a test's time limit
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (time.monotonic() - begun_s), 1e-3), every_s)


def _works_ahead(frame: FrameType | None) -> bool:
    """Tell whether some caller of a frame does what only a first call does."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_ONE_TIME):
            return True
        frame = frame.f_back
    return False
