"""Rounds behind a delay on a device whose clock and host are simulated: what the host costs is in no time."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from triton_ops.timing import Launch, gpu_timers
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer, _new_tensors, _places, estimate_ms

CYCLES_PER_MS = 1_900_000


class Device:
    """A stream that works off what is queued, in order, and a host that needs time to queue each call."""

    def __init__(self):
        self.host_ms = self.free_ms = 0.0
        self.sums = 0

    def sum(self, *_, out):
        """A sum of rows, which takes 8 us."""
        self.sums += 1
        self.queue(0.008)

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

    def synchronize(self):
        self.device.host_ms = max(self.device.host_ms, self.at_ms)

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


@pytest.fixture
def device(monkeypatch):
    made = Device()
    cuda = SimpleNamespace(
        device=lambda _: nullcontext(), Event=made.event, synchronize=made.synchronize,
        _sleep=lambda cycles: made.queue(cycles / CYCLES_PER_MS),
    )  # fmt: skip
    torch = SimpleNamespace(
        cuda=cuda, device=lambda name: name, sum=made.sum, zeros=lambda *_, **__: None, float32="float32",
        inference_mode=lambda _: nullcontext(),
    )  # fmt: skip
    monkeypatch.setattr(gpu_timers, "require", lambda *_: torch)
    return made


def launch(device, took_ms, host_ms):
    return Launch(lambda: device.queue(took_ms, host_ms))


@pytest.mark.parametrize("host_ms", [0.0, 0.005, 0.1, 1.0, 5.0])
def test_the_estimate_of_a_short_kernel_is_free_of_the_hosts_time(device, host_ms):
    queue = gpu_timers.DelayedQueue("cuda", duty=1)
    assert estimate_ms(queue, launch(device, 0.015, host_ms)) == pytest.approx(0.015)


@pytest.mark.parametrize(("took_ms", "host_ms"), [(1000.0, 0.05), (0.015, 1000.0)])
def test_calls_that_take_longer_than_any_delay_are_not_repeated(device, took_ms, host_ms):
    queue, calls = gpu_timers.DelayedQueue("cuda", duty=1), []
    given = launch(device, took_ms, host_ms)

    def call():
        calls.append(None)
        given.call()

    assert estimate_ms(queue, Launch(call)) >= 999.0
    assert len(calls) == 1


def test_an_estimate_ends_where_the_host_never_stays_ahead(device):
    queue = gpu_timers.DelayedQueue("cuda", duty=1)
    calls = []

    def waits():
        calls.append(None)
        device.queue(0.015)
        device.synchronize()
        device.host_ms += 20.0

    assert estimate_ms(queue, Launch(waits)) > 0.015
    assert len(calls) <= 5 * 12


def test_a_round_says_whether_the_device_waited_for_the_host(device):
    queue = gpu_timers.DelayedQueue("cuda", duty=1)
    rounds = []
    for _ in range(4):
        with queue.round():
            queue.event()
            launch(device, 0.01, 0.3).call()
        rounds.append(queue.again)
    assert rounds == [True, True, False, False]


def test_a_round_without_work_is_not_repeated(device):
    queue = gpu_timers.DelayedQueue("cuda", duty=1)
    with queue.round():
        device.host_ms += 1.0
    assert not queue.again


@pytest.mark.parametrize(("host_ms", "work_ms"), [(0.01, 0.25), (0.2, 0.25), (0.4, 0.25)])
def test_samples_of_a_later_round_hold_no_wait_for_the_host(device, host_ms, work_ms):
    timer = EventTimer("cuda", cache="warm", duty=1)
    sampler = timer.prepare(launch(device, work_ms, host_ms))
    rounds = [sampler.take(timer, 20) for _ in range(8)]
    assert rounds[-1] == pytest.approx([work_ms] * 20)


def test_the_delay_does_not_grow_where_the_work_itself_keeps_the_host_ahead(device):
    """A hundred launches of 0.05 ms on the host and 0.2 ms on the device: each is queued before the last has ended."""
    timer = EventTimer("cuda", cache="warm", duty=1)
    sampler = timer.prepare(launch(device, 0.2, 0.05))
    for _ in range(4):
        before_ms = device.host_ms
        assert sampler.take(timer, 100) == pytest.approx([0.2] * 100)
        assert device.host_ms - before_ms < 100 * 0.2 + 0.2


class Captured:
    """A graph of launches."""

    def __init__(self, device, took_ms):
        self.device, self.took_ms = device, took_ms

    def replay(self):
        self.device.queue(self.took_ms)


@pytest.fixture
def graphs(device, monkeypatch):
    """Graphs of 0.3 ms that return the call's results, and the list of how many launches each has."""
    made = []

    def captured(_, calls, unrolled):
        made.append(unrolled)
        return Captured(device, 0.3), []

    monkeypatch.setattr(GraphTimer, "_captured", captured)
    monkeypatch.setattr(GraphTimer, "_check", lambda *_: None)
    monkeypatch.setattr(gpu_timers, "_tensors", lambda *_: [])
    return made


def test_a_launch_is_captured_once_and_sampled_by_replays(device, graphs):
    timer = GraphTimer("cuda", duty=1)
    sampler = timer.prepare(launch(device, 0.02, 0.0), 10)
    assert sampler.take(timer, 3) == pytest.approx([0.03] * 3)
    assert graphs == [10]


@pytest.mark.parametrize("timer_of", [GraphTimer, EventTimer])
def test_other_blocks_run_before_each_cold_sample_and_are_in_no_time(device, graphs, timer_of):
    timer = timer_of("cuda", cold=True, duty=1) if timer_of is GraphTimer else timer_of("cuda", cache="cold", duty=1)
    given = Launch(launch(device, 0.3, 0.0).call, others=(launch(device, 0.3, 0.0).call,))
    sampler = timer.prepare(given, 1)
    before = device.sums
    assert sampler.take(timer, 5) == pytest.approx([0.3] * 5)
    assert device.sums - before == 5


@pytest.mark.parametrize("timer_of", [GraphTimer, EventTimer])
def test_what_is_timed_warm_has_nothing_run_before_it(device, graphs, timer_of):
    timer = timer_of("cuda", cold=False, duty=1) if timer_of is GraphTimer else timer_of("cuda", cache="warm", duty=1)
    timer.prepare(launch(device, 0.3, 0.0), 1).take(timer, 5)
    assert device.sums == 0


def test_a_sampler_keeps_the_memory_of_its_launchs_arguments(device, graphs):
    class Tensor:
        pass

    def samplers():
        x, y = Tensor(), Tensor()
        calls = [lambda x=each: device.queue(0.3) and x for each in (x, y)]
        timer = GraphTimer("cuda", duty=1)
        return timer.prepare(Launch(calls[0], others=(calls[1],)), 2), weakref.ref(x), weakref.ref(y)

    sampler, *arguments = samplers()
    gc.collect()
    assert all(argument() is not None for argument in arguments)
    del sampler
    gc.collect()
    assert all(argument() is None for argument in arguments)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_sums_before_a_sample_are_the_same_whatever_torch_is_set_to(dtype):
    torch = pytest.importorskip("torch")
    before, queue = torch.get_default_dtype(), gpu_timers.DelayedQueue("cpu")
    try:
        torch.set_default_dtype(getattr(torch, dtype))
        with torch.inference_mode():
            queue.unsettle()
        queue.unsettle()
        rows, _ = queue._rows_and_sums
        assert (rows.dtype, rows.nbytes) == (torch.float32, 16 << 20)
    finally:
        torch.set_default_dtype(before)


def test_results_without_memory_of_their_own_are_none_of_a_graph():
    torch = pytest.importorskip("torch")
    dense = torch.ones(3)
    sparse = torch.eye(3).to_sparse()
    assert gpu_timers._tensors(torch, (dense, sparse, None, [sparse, 1])) == [dense]


def test_what_a_launch_returns_as_it_was_is_no_result_of_its_graph():
    torch = pytest.importorskip("torch")
    given = torch.zeros(8)
    first, again = (given + 1, given[2:]), (given + 1, given[2:])
    assert _new_tensors(again, _places(first)) == [again[0]]
    assert _new_tensors(again, _places(())) == [*again]
