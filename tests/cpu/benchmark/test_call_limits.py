"""Calls that last too long are ended, and an alarm of the caller's own stays as it was."""

import math
import signal
import threading

import pytest

from triton_ops.benchmark.call_limits import CallTooLongError, ended_after


@pytest.fixture
def rings():
    """The rings of an alarm of the caller's own, which is a minute away; the alarm before it comes back."""
    result = []
    handler = signal.signal(signal.SIGALRM, lambda *_: result.append("ring"))
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, 60.0)
    yield result
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left_s, every_s)


def test_a_call_that_lasts_too_long_is_ended_and_the_callers_alarm_goes_on(rings):
    with pytest.raises(CallTooLongError), ended_after(0.01):
        threading.Event().wait(60)
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
    signal.raise_signal(signal.SIGALRM)
    assert rings == ["ring"]


def test_a_call_in_time_changes_no_alarm(rings):
    with ended_after(30.0):
        assert signal.getitimer(signal.ITIMER_REAL)[0] <= 30.0
    assert 30.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
    signal.raise_signal(signal.SIGALRM)
    assert rings == ["ring"]


def test_where_there_was_no_alarm_there_is_none_after_the_call(rings):
    signal.setitimer(signal.ITIMER_REAL, 0)
    with ended_after(30.0):
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_without_a_limit_and_beside_the_main_thread_nothing_is_ended(rings):
    handler = signal.getsignal(signal.SIGALRM)
    with ended_after(math.inf):
        assert signal.getsignal(signal.SIGALRM) is handler
    handlers = []

    def beside():
        with ended_after(0.001):
            handlers.append(signal.getsignal(signal.SIGALRM))

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert handlers == [handler]
