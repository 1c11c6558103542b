"""The gate between what a tune does without its device, such as compiling, and what it measures there.

A tune of one problem has no gate. Where many problems are tuned, the next one is compiled while one is measured, and
waits at its gate; and a tune in a thread of its own, which Ctrl-C does not reach, is ended at its gate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

from triton_ops.tuner.proposals import FirstConfigs

_LOOK_S = 0.2  # between two looks whether the tune is to end, while compilers are waited for


@dataclass(frozen=True)
class Leave:
    """The terms on which a tune gets its device.

    It became the tune's at `since_s`, by `time.monotonic()`: what was prepared before, beside another tune, its budget
    does not count. `limit_s` is a further limit for the tune. With `overlaps` a trial may begin in another process
    before the search and the listener know of the one before, which is on disk; Ctrl-C then waits for the trial.
    """

    since_s: float = 0.0
    limit_s: float | None = None
    overlaps: bool = False


class Gate:
    """The gate of one tune: closed while it is prepared, open when the device is its own, or locked for good.

    `ready` is called when enough of the tune is prepared, and when all is, which its argument tells; in any thread.
    A tune that is to end hears of it by a `KeyboardInterrupt` of each method that it calls.
    """

    def __init__(self, ready: Callable[[bool], None] = lambda _: None) -> None:
        self._changed, self._ready = threading.Condition(), ready
        self._leave: Leave | None = None
        self._ended = False

    def wait(self, prepared: FirstConfigs | None = None) -> Leave:
        """Wait until the tune is let in, which may be before enough is prepared; None says that all is."""
        if prepared is None:
            self._ready(True)
        else:
            prepared.enough.add_done_callback(lambda _: self._ready(False))
            prepared.whole.add_done_callback(lambda _: self._ready(True))
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._leave is not None)
            self.check()
            assert self._leave is not None
            return self._leave

    def hold(self, seconds: float) -> None:
        """Wait for so many seconds, or until the tune is let in or is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._leave is not None, timeout=seconds)

    def check(self) -> None:
        """Do nothing, as long as the tune may go on."""
        if self._ended:
            raise KeyboardInterrupt

    def let_in(self, limit_s: float | None, *, overlaps: bool = True) -> None:
        """Let the tune have the device, for at most so many seconds."""
        with self._changed:
            self._leave = Leave(time.monotonic(), limit_s, overlaps)
            self._changed.notify_all()

    def end(self) -> None:
        """Have the tune end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def wait_for_one(gate: Gate, futures: Sequence[Future[Any]]) -> None:
    """Wait until one of some futures is done, unless the tune is to end."""
    while not wait(futures, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done:
        gate.check()


def nothing_yet(gate: Gate) -> bool:
    """Answer that nothing could be measured yet, unless the tune is to end."""
    gate.check()
    return False
