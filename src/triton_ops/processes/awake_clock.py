"""A clock for time limits that stands still while this process is paused.

A container that is paused, a job that is suspended and a group that is stopped take no time from any process in them,
but the system's clocks go on. A limit that passed meanwhile says nothing of the process that is waited for. The clock
is therefore looked at again and again, and what lies between two looks counts at most a second.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

_LOOK_S = 0.5  # between two looks at the clock while something is waited for
_MOST_S = 1.0  # that count between two looks; on a busy machine a look comes late


class AwakeClock:
    """Seconds in which this process ran since the clock was made.

    Args:
        clock: Seconds of the system's clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._seconds = 0.0

    def now(self) -> float:
        """The seconds so far; to be asked for at least every half second."""
        time_s = self._clock()
        self._seconds += min(time_s - self._last, _MOST_S)
        self._last = time_s
        return self._seconds

    def wait(self, ready: select.poll, until: float) -> bool:
        """Wait until a descriptor is ready, or until the clock shows `until`; whether one is ready."""
        while not ready.poll(1e3 * max(0.0, min(until - self.now(), _LOOK_S))):
            if self.now() >= until:
                return False
        return True
