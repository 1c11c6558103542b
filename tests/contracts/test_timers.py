"""The contract of all timers, on each timer that runs without a GPU; tests/gpu has the timers of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.simulated_device import Noise, SimulatedDevice, SimulatedTimer
from triton_ops.timing import HostTimer, Launch, Timer

SILENT = Noise(sample=0, spikes=0, drift=0, carry=0, process=0)


@dataclass
class Stage:
    """A timer, and launches whose time and calls are known."""

    timer: Timer
    spend: Callable[[float], Any]
    now_ms: Callable[[], float]
    calls: list[str] = field(default_factory=list)

    def launch(self, ms: float, name: str = "", reset_ms: float | None = None) -> Launch:
        def call() -> None:
            self.calls.append(name)
            self.spend(ms)

        def reset() -> None:
            self.calls.append("reset")
            self.spend(reset_ms or 0.0)

        return Launch(call, None if reset_ms is None else reset)


def host() -> Stage:
    now = [0]

    def spend(ms: float) -> None:
        now[0] += round(ms * 1e6)

    return Stage(HostTimer(lambda: now[0]), spend, lambda: now[0] / 1e6)


def simulated() -> Stage:
    device = SimulatedDevice(SILENT)
    return Stage(SimulatedTimer(device), device.work, lambda: device.now_s * 1e3)


@pytest.fixture(params=[host, simulated], ids=lambda made: made.__name__)
def stage(request) -> Stage:
    return request.param()


def test_the_mode_is_one_word_that_stays(stage):
    before = stage.timer.mode
    stage.timer.prepare(stage.launch(1.0)).take(stage.timer, 2)
    assert stage.timer.mode == before
    assert before
    assert before == before.strip().lower()
    assert " " not in before


@pytest.mark.parametrize("ms", [0.002, 0.05, 3.0, 40.0])
def test_samples_are_milliseconds_per_launch(stage, ms):
    sampler = stage.timer.prepare(stage.launch(ms))
    assert sampler.take(stage.timer, 3) == pytest.approx([ms] * 3, rel=0.01)


@pytest.mark.parametrize(("launches", "count"), [(1, 1), (1, 5), (7, 3)])
def test_a_sample_is_exactly_as_many_launches_as_asked_for(stage, launches, count):
    sampler = stage.timer.prepare(stage.launch(0.3), launches)
    assert sampler.launches == launches
    stage.calls.clear()
    assert len(sampler.take(stage.timer, count)) == count
    assert len(stage.calls) == launches * count


def test_no_samples_are_no_calls(stage):
    sampler = stage.timer.prepare(stage.launch(0.3), 4)
    assert stage.calls == []
    assert sampler.take(stage.timer, 0) == []
    assert stage.calls == []


def test_a_shorter_launch_gets_more_launches_until_the_clock_can_read_it(stage):
    launches = [stage.timer.prepare(stage.launch(ms)).launches for ms in (0.001, 0.01, 0.1, 10.0)]
    assert launches == sorted(launches, reverse=True)
    assert launches[0] > 100
    assert launches[-1] == 1


def test_finding_the_number_of_launches_runs_no_more_launches_than_needed(stage):
    before = stage.now_ms()
    sampler = stage.timer.prepare(stage.launch(0.01))
    assert stage.now_ms() - before < 30.0
    assert 0 < len(stage.calls) < 3 * sampler.launches


def test_samples_are_done_when_the_round_is_left_and_may_be_read_later(stage):
    first = stage.timer.prepare(stage.launch(1.0, "first"), 1)
    second = stage.timer.prepare(stage.launch(2.0, "second"), 1)
    stage.calls.clear()
    with stage.timer.round():
        queued = [first.queue(2), second.queue(1), first.queue(1)]
    assert stage.calls == ["first", "first", "second", "first"]
    with stage.timer.round():
        later = second.queue(1)
    assert later() == pytest.approx([2.0])
    assert [pending() for pending in reversed(queued)] == [
        pytest.approx([1.0]),
        pytest.approx([2.0]),
        pytest.approx([1.0, 1.0]),
    ]
    assert queued[0]() == queued[0]()
    assert len(stage.calls) == 5


def test_an_empty_round_is_no_error(stage):
    with stage.timer.round():
        pass
    assert stage.calls == []


def test_a_reset_runs_before_every_sample_and_is_not_timed(stage):
    sampler = stage.timer.prepare(stage.launch(1.0, "call", reset_ms=50.0))
    assert sampler.launches == 1
    stage.calls.clear()
    assert sampler.take(stage.timer, 3) == pytest.approx([1.0] * 3)
    assert stage.calls == ["reset", "call"] * 3


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_error_of_a_launch_is_raised_and_the_timer_still_works(stage, error):
    def fail() -> None:
        raise error

    failing = stage.timer.prepare(Launch(fail), 1)
    with pytest.raises(error), stage.timer.round():
        failing.queue(1)
    with pytest.raises(error):
        stage.timer.prepare(Launch(fail))
    assert stage.timer.prepare(stage.launch(1.0)).take(stage.timer, 2) == pytest.approx([1.0] * 2)


def test_a_launch_that_fails_leaves_the_rest_of_its_round_alone(stage):
    good = stage.timer.prepare(stage.launch(1.0), 1)
    failing = stage.timer.prepare(Launch(lambda: 1 // 0), 1)
    with stage.timer.round():
        before = good.queue(1)
        with pytest.raises(ZeroDivisionError):
            failing.queue(2)
        after = good.queue(2)
    assert (before(), after()) == (pytest.approx([1.0]), pytest.approx([1.0] * 2))


def test_samplers_of_one_timer_are_independent(stage):
    long, short = stage.timer.prepare(stage.launch(8.0)), stage.timer.prepare(stage.launch(0.004))
    for _ in range(3):
        assert short.take(stage.timer, 1) == pytest.approx([0.004], rel=0.01)
        assert long.take(stage.timer, 1) == pytest.approx([8.0], rel=0.01)
