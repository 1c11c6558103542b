"""The time limit of a test, in seconds in which the machine had a CPU for it.

Other programs on the machine, as other runs of these tests, make a test slower and hang nothing. A second in which
twice as many programs want to run as there are CPUs therefore counts half.
"""

import os
import signal
import time

import pytest

MOST = 5  # times the limit: a test that hangs ends and is named before a run of all tests would be given up
ENOUGH_S = 3600.0  # to wait for what must come: if it does not, the limit of the test ends it
_SOON_S = 1.0


def crowding():
    """How many programs there were for each CPU in the last minutes, 1 or more."""
    try:
        programs = max(os.getloadavg()[:2])
    except OSError:  # the system does not say
        return 1.0
    return max(1.0, programs / (os.cpu_count() or 1))


class SharedLimit:
    """A limit that passes slower the more programs there are.

    Args:
        limit_s: Seconds on a machine with a CPU for every program.
        clock: Monotonic seconds.
        programs: How many programs there are for each CPU.
    """

    def __init__(self, limit_s, clock=time.monotonic, programs=crowding):
        self._limit_s, self._clock, self._programs = limit_s, clock, programs
        self._counted_s, self._last_s = 0.0, clock()
        self._ends_s = self._last_s + MOST * limit_s

    def left_s(self):
        """Seconds of the clock after which to ask again; 0 if the limit has passed."""
        now_s, programs = self._clock(), self._programs()
        self._counted_s += (now_s - self._last_s) / programs
        self._last_s = now_s
        left_s = min((self._limit_s - self._counted_s) * programs, self._ends_s - now_s)
        return left_s if left_s > min(_SOON_S, 0.1 * self._limit_s) else 0.0


def eventually(condition, what=lambda: "it did not come true", limit_s=60.0):
    """Wait until a condition holds, for so many seconds in which there was a CPU for it; `what` is said after them."""
    limit = SharedLimit(limit_s)
    while not condition():
        assert limit.left_s(), what()
        time.sleep(0.02)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item, settings):
    """Have what pytest-timeout does after the limit done after the limit that other programs leave."""
    result = yield
    ends = signal.getsignal(signal.SIGALRM)
    if settings.method == "signal" and callable(ends):
        limit = SharedLimit(settings.timeout)

        def handler(number, frame):
            __tracebackhide__ = True
            if left_s := limit.left_s():
                signal.setitimer(signal.ITIMER_REAL, left_s)
            else:
                ends(number, frame)

        signal.signal(signal.SIGALRM, handler)
    return result
