"""Rests between stretches of work, so that a GPU stays below its power limit and at its highest clock.

At the power limit the clock follows the power that all arms draw together, so an arm that draws little power is slowed
by its neighbours that draw much. On an H200, configs of one matrix product then measured up to 10 % off their times
alone relative to each other, and the noise of a round tripled. With rests as long as the work, levels held within 1 %
for as long as was watched, and ranks agreed with those of each config running alone (docs/measured_facts.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DUTY = 0.5  # share of the time; an H200 reaches its power limit after 50 to 75 ms without a rest, and never at 0.5
BURST_MS = 25.0  # longest work without a rest: a third to a half of the time in which an H200 reaches its limit


class Pace:
    """Keeps the share of time that a device works at `duty` or below, by a rest after each stretch of work.

    Time in which the host compiles or captures and the device is idle counts as rest.

    Args:
        duty: Largest share of the time that the device works; 1 means no rest.
        clock: Returns monotonic seconds.
        sleep: Waits for a number of seconds.

    Raises:
        ValueError: `duty` is not in (0, 1].
    """

    def __init__(
        self,
        duty: float = DUTY,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0 < duty <= 1:
            raise ValueError(f"the share of time that a device works must be in (0, 1], not {duty}")
        self._per_s = 1 / duty - 1  # seconds of rest owed for a second of work
        self._clock = clock
        self._sleep = sleep
        self._owed_s = 0.0
        self._end = clock()

    @contextmanager
    def stretch(self, idle_s: float = 0.0) -> Iterator[None]:
        """A stretch of work; the remaining rest of the previous stretch is taken first.

        Args:
            idle_s: Seconds of the stretch in which the device does next to nothing, such as a delay that it spends in
                one thread. They are rest.
        """
        left_s = self._owed_s - (self._clock() - self._end)
        if left_s > 0:
            self._sleep(left_s)
        start = self._clock()
        try:
            yield
        finally:
            self._end = self._clock()
            self._owed_s = (self._end - start - idle_s) * self._per_s - idle_s
