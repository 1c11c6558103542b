"""Rounds behind a delay on a device whose clock and host are simulated: what the host costs is in no time."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from triton_ops.measure import gpu
from triton_ops.measure.graph import estimate_ms
from triton_ops.measure.timer import Launch

CYCLES_PER_MS = 1_900_000


class Device:
    """A stream that works off what is queued, in order, and a host that needs time to queue each call."""

    def __init__(self):
        self.host_ms = self.free_ms = 0.0

    def queue(self, took_ms, host_ms=0.0):
        """Queue work, and return when it is done."""
        self.host_ms += host_ms
        self.free_ms = max(self.free_ms, self.host_ms) + took_ms
        return self.free_ms

    def event(self, enable_timing=False):
        return Event(self)

    def synchronize(self):
        self.host_ms = max(self.host_ms, self.free_ms)


class Event:
    def __init__(self, device):
        self.device, self.at_ms = device, 0.0

    def record(self):
        self.at_ms = self.device.queue(0.0)

    def query(self):
        return self.at_ms <= self.device.host_ms

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


@pytest.fixture
def device(monkeypatch):
    made = Device()
    cuda = SimpleNamespace(
        device=lambda _: nullcontext(), Event=made.event, synchronize=made.synchronize,
        _sleep=lambda cycles: made.queue(cycles / CYCLES_PER_MS),
    )  # fmt: skip
    torch = SimpleNamespace(cuda=cuda, device=lambda name: name)
    monkeypatch.setattr(gpu, "require", lambda *_: torch)
    return made


def launch(device, took_ms, host_ms):
    return Launch(lambda: device.queue(took_ms, host_ms))


@pytest.mark.parametrize("host_ms", [0.0, 0.005, 0.1, 1.0, 5.0])
def test_the_estimate_of_a_short_kernel_is_free_of_the_hosts_time(device, host_ms):
    queue = gpu.DelayedQueue("cuda", duty=1)
    assert estimate_ms(queue, launch(device, 0.015, host_ms)) == pytest.approx(0.015)


def test_an_estimate_ends_where_the_host_never_stays_ahead(device):
    queue = gpu.DelayedQueue("cuda", duty=1)
    calls = []

    def waits():
        calls.append(None)
        device.queue(0.015)
        device.synchronize()
        device.host_ms += 20.0

    assert estimate_ms(queue, Launch(waits)) > 0.015
    assert len(calls) <= 5 * 12


def test_a_round_says_whether_the_device_waited_for_the_host(device):
    queue = gpu.DelayedQueue("cuda", duty=1)
    rounds = []
    for _ in range(4):
        with queue.round():
            queue.event()
            launch(device, 0.01, 0.3).call()
        rounds.append(queue.again)
    assert rounds == [True, True, False, False]


def test_a_round_without_work_is_not_repeated(device):
    queue = gpu.DelayedQueue("cuda", duty=1)
    with queue.round():
        device.host_ms += 1.0
    assert not queue.again
