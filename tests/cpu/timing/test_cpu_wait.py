"""The time that a thread waited for a CPU is no part of a sample."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from triton_ops.timing import HostTimer, Launch, Sampler, timer
from triton_ops.timing.timer import ThreadCounts, no_counters, thread_counters, waited_ns

MS = 1_000_000


@pytest.mark.parametrize(
    ("before", "after", "waited"),
    [
        (ThreadCounts(0, 0), ThreadCounts(0, 0), 0),
        (ThreadCounts(5 * MS, 0), ThreadCounts(9 * MS, 0), 4 * MS),
        (ThreadCounts(0, 0), ThreadCounts(4 * MS, MS), 0),  # another thread of the process worked and may be the cause
        (ThreadCounts(0, 7 * MS), ThreadCounts(4 * MS, 7 * MS + 10_000), 4 * MS),
    ],
)
def test_only_waits_that_other_processes_cause_are_counted(before, after, waited):
    assert waited_ns(before, after, 10 * MS) == waited


def test_the_counters_of_a_thread_never_fall():
    with thread_counters() as counters:
        first = counters()
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            pass
        second = counters()
    assert second.waited_ns >= first.waited_ns
    assert second.others_ns >= first.others_ns - 20 * MS  # two clocks; one may move with the system's ticks only


def test_a_system_that_does_not_count_has_counters_of_zero(monkeypatch):
    monkeypatch.setattr("triton_ops.timing.timer._FILE", "/nowhere/schedstat")
    with thread_counters() as counters, no_counters() as none:
        assert counters() == none() == ThreadCounts()


class Waits:
    """A thread that loses its CPU for 4 ms in every second call, or while its counters are read."""

    def __init__(self, monkeypatch, *, in_calls):
        self.now, self.waited, self.calls, self.in_calls = 0, 0, 0, in_calls
        monkeypatch.setattr(timer, "no_counters", lambda: self)

    def __enter__(self):
        return self.read

    def __exit__(self, *_):
        return None

    def read(self):
        if not self.in_calls:
            self.lose()
        return ThreadCounts(self.waited)

    def lose(self):
        self.now += 4 * MS
        self.waited += 4 * MS

    def call(self):
        self.calls += 1
        self.now += MS
        if self.in_calls and self.calls % 2:
            self.lose()


@pytest.mark.parametrize("in_calls", [True, False])
def test_a_sample_has_neither_the_waits_in_it_nor_those_around_it(monkeypatch, in_calls):
    thread = Waits(monkeypatch, in_calls=in_calls)
    host = HostTimer(lambda: thread.now)
    assert host.prepare(Launch(thread.call), 1).take(host, 6) == [1.0] * 6


class FakeEvent:
    """An event whose time is what the device had done when it was recorded."""

    def __init__(self, device):
        self.device, self.at_ms = device, None

    def record(self, _stream):
        self.at_ms = self.device.done_ms + self.device.queued_ms

    def synchronize(self):
        self.device.done_ms, self.device.queued_ms = self.at_ms, 0.0

    def elapsed_time(self, later):
        return later.at_ms - self.at_ms


def test_calls_that_return_before_their_work_is_done_are_timed_between_two_events(monkeypatch):
    device = SimpleNamespace(done_ms=0.0, queued_ms=0.0)
    cuda = SimpleNamespace(
        Event=lambda enable_timing: FakeEvent(device), current_stream=lambda _name: None, synchronize=lambda _name: None
    )
    monkeypatch.setattr(timer, "require", lambda *_: SimpleNamespace(cuda=cuda))

    def call():
        device.queued_ms += 0.25

    sampler = Sampler.of_calls(call, "cuda:0", 5.0)
    assert sampler.launches * 0.25 >= 5.0
    assert sampler.queue(3)() == pytest.approx([0.25] * 3)
