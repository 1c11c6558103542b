"""Who else uses a GPU is noticed and said, on a stand-in for NVML whose answers a test sets."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

from tests.nvml import FakeNvml, gpu, use
from triton_ops import ConfigSpace, Operation, settings, time_ms, tune
from triton_ops.base import Folder, Process
from triton_ops.benchmark import timing
from triton_ops.device import Others
from triton_ops.device.probing import takes_turns
from triton_ops.device.vendors import open_sensors
from triton_ops.dispatch.operations import decided
from triton_ops.evaluation import station
from triton_ops.records import recall
from triton_ops.timing import rounds as timing_rounds
from triton_ops.timing.timer import SensorGuard

ME, OTHER = os.getpid(), 999_999_999  # no system has so many processes


def add_up(n, step):
    return sum(sum(range(at, n, step)) for at in range(step))


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


def others_of(nvml, clock, ours=()):
    return Others(open_sensors(nvml, "cuda:0", gpu()), clock=clock, is_ours=lambda pid: pid in {ME, *ours})


def test_another_process_is_named_once_this_one_is_seen_under_its_own_number(clock):
    nvml = FakeNvml(uses=[use(OTHER, 40, 1_000.2)])
    others = others_of(nvml, clock)
    clock.now += 0.5
    assert (others.seen(), "in a container" in others.unknown) == ((), True)
    nvml.says["uses"] = [use(ME, 90, 1_000.7), use(OTHER, 30, 1_000.7)]
    clock.now += 0.5
    assert [(each.pid, each.share) for each in others.seen()] == [(OTHER, 0.4)]
    assert others.unknown == ""
    clock.now += 0.5
    assert others.seen() == ()  # there is no later sample
    assert nvml.calls[-1] == 1_000_700_000


def test_the_driver_is_asked_ten_times_a_second_at_most(clock):
    nvml = FakeNvml(uses=[use(ME, 90, 1_000.05), use(OTHER, 40, 1_000.05)])
    others = others_of(nvml, clock)
    clock.now += 0.09
    assert (others.seen(), len(nvml.calls)) == ((), 1)  # to find the GPU
    clock.now += 0.02
    assert len(others.seen()) == 1


def test_own_processes_and_small_shares_do_not_count(clock):
    nvml = FakeNvml(uses=[use(ME, 90, 1_000.1), use(4, 80, 1_000.1), use(OTHER, 4, 1_000.1)])
    others = others_of(nvml, clock, ours=[4])
    clock.now += 1
    assert others.seen() == ()


@pytest.mark.parametrize("failure", [FakeNvml.NotSupportedError("Not Supported"), FakeNvml.NVMLError("GPU is lost")])
def test_a_gpu_that_tells_nothing_of_processes_is_asked_once(failure, clock):
    nvml = FakeNvml(uses=failure)
    others = others_of(nvml, clock)
    for _ in range(3):
        clock.now += 1
        assert others.seen() == ()
    assert (len(nvml.calls), str(failure) in others.unknown) == (2, True)


@pytest.mark.processes
def test_this_process_its_parents_ended_ones_and_those_that_take_turns_are_no_others(tmp_path, monkeypatch, clock):
    monkeypatch.setenv("TRITON_OPS_LOCK_DIR", str(tmp_path / "locks"))
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    marked = settings.for_child({}, "mark")
    with contextlib.ExitStack() as started:
        worker, stranger = (
            started.enter_context(subprocess.Popen(waits, stdin=subprocess.PIPE, env=env)) for env in (marked, None)
        )
        pids = [ME, os.getppid(), OTHER, worker.pid, stranger.pid]
        nvml = FakeNvml(uses=[use(pid, 50, 1_000.1) for pid in pids])
        others = Others(open_sensors(nvml, "cuda:0", gpu()), clock=clock)
        _until(lambda: b"TRITON_OPS_FAMILY" in Process(worker.pid).environment)
        clock.now += 1
        assert [each.pid for each in others.seen()] == [stranger.pid]
    assert not takes_turns(ME)
    with Folder(Folder(settings.lock_dir()).ensure()).locked("GPU-1.lock"):
        assert takes_turns(ME)


@pytest.mark.processes
def test_the_program_that_a_worker_is_no_child_of_is_no_other(monkeypatch, clock):
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as program:
        for family, others in (("", [program.pid]), (f"a1.1 b2.{program.pid}", [])):
            monkeypatch.setenv("TRITON_OPS_FAMILY", family)
            nvml = FakeNvml(uses=[use(pid, 50, clock.now + 0.1) for pid in (ME, program.pid)])
            seen = Others(open_sensors(nvml, "cuda:0", gpu()), clock=clock)
            clock.now += 1
            assert [each.pid for each in seen.seen()] == others
        program.communicate()


def _until(true):
    while not true():
        time.sleep(0.01)


# The guard of a race


def guarded(nvml, clock, since_s=None):
    sensors = open_sensors(nvml, "cuda:0", gpu())
    others = Others(sensors, since_s, clock=clock, is_ours=lambda pid: pid == ME)
    return SensorGuard(sensors, sleep=clock.sleep, others=others)


def rounds(guard, nvml, clock, busy):
    """Whether each round counted; in a busy one another process worked as well."""
    kept = []
    for other in busy:
        clock.now += 0.5
        nvml.says["uses"] = [use(ME, 90, clock.now), *([use(OTHER, 60, clock.now)] if other else [])]
        kept.append(guard.round_ok())
    return kept


def test_rounds_beside_another_process_are_discarded_and_waited_for(clock):
    nvml = FakeNvml()
    guard = guarded(nvml, clock)
    assert rounds(guard, nvml, clock, [False, True, False, False]) == [True, False, True, True]
    result = guard.summary()
    assert (result.status, result.discarded, result.confidence, result.others_unknown) == ("ok", 1, "low", "")
    assert result.others == f"process {OTHER} (of another user) used 60% of the GPU"
    assert result.confidence_reason == f"1 of 4 rounds were lost to {result.others}"


def test_a_process_that_does_not_go_away_leaves_the_race_shared(clock):
    nvml = FakeNvml()
    guard = guarded(nvml, clock)
    assert rounds(guard, nvml, clock, [True] * 6) == [False] * 3 + [True] * 3
    result = guard.summary()
    assert (result.status, result.confidence) == ("shared", "low")
    assert "still after 3 waits" in result.confidence_reason


def test_use_that_is_told_only_after_a_short_race_leaves_it_shared(clock):
    nvml = FakeNvml()
    guard = guarded(nvml, clock)
    assert rounds(guard, nvml, clock, [False, False]) == [True, True]
    assert guard.summary().status == "ok"
    clock.now += 0.5
    nvml.says["uses"] = [use(ME, 90, clock.now), use(OTHER, 60, clock.now)]
    result = guard.summary()
    assert (result.status, result.confidence, result.discarded) == ("shared", "low", 0)
    assert result.confidence_reason == f"{result.others}, which the driver told only after the last round"
    assert result.others == f"process {OTHER} (of another user) used 60% of the GPU"
    clock.now += 0.5
    assert guard.summary() == result


def test_use_before_the_race_is_said_and_costs_no_round(clock):
    nvml = FakeNvml(uses=[use(ME, 80, 998.0), use(OTHER, 70, 998.0)])
    guard = guarded(nvml, clock, since_s=990.0)
    assert rounds(guard, nvml, clock, [False]) == [True]
    result = guard.summary()
    assert (result.others, result.others_before) == ("", f"process {OTHER} (of another user) used 70% of the GPU")
    assert result.confidence == "ok"


def share_races(busy, clock, monkeypatch):
    """Let a tune's race be on a GPU that another process uses before it and, if `busy`, to its end."""
    nvml = FakeNvml()

    class Guard(SensorGuard):
        def round_ok(self):
            clock.now += 0.5
            nvml.says["uses"] = [use(ME, 90, clock.now), *([use(OTHER, 60, clock.now)] if busy else [])]
            return super().round_ok()

    def guard_for(_device_name, since_s):
        nvml.says["uses"] = [use(ME, 90, 1_000.0), use(OTHER, 20, 1_000.0)]
        sensors = open_sensors(nvml, "cuda:0", gpu())
        others = Others(sensors, 990.0, clock=clock, is_ours=lambda pid: pid == ME)
        return Guard(sensors, sleep=clock.sleep, others=others)

    monkeypatch.setattr(station, "guard_for", guard_for)
    monkeypatch.setattr(timing_rounds, "guard_for", guard_for)


@pytest.mark.parametrize("busy", [True, False])
def test_nothing_is_recorded_from_a_gpu_that_is_shared_to_the_end(busy, clock, monkeypatch):
    share_races(busy, clock, monkeypatch)
    result = tune(add_up, kwargs={"n": 64}, space={"step": [1, 2]})
    message = "; ".join(result.notes)
    assert f"process {OTHER} (of another user) used 20% of the GPU while configs were tried" in message
    assert ("is not remembered, since" in message, "used 60% of the GPU" in message) == (busy, busy)
    known = recall(add_up, kwargs={"n": 64}, space={"step": [1, 2]})
    assert (known is None, result.guard["status"]) == (busy, "shared" if busy else "ok")
    assert result.record == ("" if busy else known.id)


@pytest.mark.parametrize("busy", [True, False])
def test_times_say_who_else_used_the_gpu(busy, clock, monkeypatch):
    share_races(busy, clock, monkeypatch)
    monkeypatch.setattr(timing, "_MOST_TIMES_BUDGET", 10_000)  # a busy host ends no measurement early
    result = time_ms(add_up, args=(64, 2), warmup_ms=0, rep_ms=20)
    assert (result.guard.status, result.guard.discarded) == (("shared", 3) if busy else ("ok", 0))
    assert ("used 60% of the GPU" in result.confidence) is busy
    assert "low confidence" in str(result) or not busy  # a busy host can be another cause
    assert result.notes == (f"process {OTHER} (of another user) used 20% of the GPU while the calls were warmed up",)


@pytest.mark.parametrize("busy", [True, False])
def test_a_decision_names_the_record_of_its_tune_only_if_there_is_one(busy, clock, monkeypatch):
    share_races(busy, clock, monkeypatch)
    operation = Operation("add_up", add_up, ConfigSpace({"step": [1, 2]}), lambda n: {"n": n}, device="cpu")
    result = decided(operation, {"n": 64}, on_miss="tune").found
    assert (result.rung, "not remembered" in result.why) == ("tuned", busy)
    known = recall(operation, kwargs={"n": 64})
    assert result.record == ("" if busy else known.id)
