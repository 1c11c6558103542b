"""Rests between stretches of work, so that a GPU stays below its power limit and at its highest clock.

At the limit a comparison measures the mix of what is compared: the clock follows the power that all arms draw together,
so a thrifty arm pays for a hungry one beside it. On an H200 configs of one matrix product then ranked up to 10 % from
where each ranks by itself, and the noise of a round tripled; with rests as long as the work, levels held within 1 %
for as long as was watched, and ranks agreed with those of each config running alone (docs/measured_facts.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DUTY = 0.5  # the limit of an H200 sets in after 50 to 75 ms without a rest, and never at this share of the time
BURST_MS = 25.0  # work without a rest; a third of that


class Pace:
    """Keeps the share of time that a device works, over its stretches, at `duty` or below.

    Time that passes anyway, while the host compiles or captures, counts as rest.

    Args:
        duty: Share of the time; 1 never rests.
        clock: Seconds, monotonic.
        sleep: Waits for seconds.

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
        self._ended = clock()

    @contextmanager
    def stretch(self) -> Iterator[None]:
        """A stretch of work; what is left of the rest after the one before is taken first."""
        left_s = self._owed_s - (self._clock() - self._ended)
        if left_s > 0:
            self._sleep(left_s)
        begun = self._clock()
        try:
            yield
        finally:
            self._ended = self._clock()
            self._owed_s = (self._ended - begun) * self._per_s
