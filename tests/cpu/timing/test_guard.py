"""The guard of a GPU, on a stand-in for NVML whose answers a test sets."""

import gc
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.nvml import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, POWER_CAP, SW_THERMAL, FakeNvml, gpu
from triton_ops.device import VENDORS, DeviceSpec
from triton_ops.device.vendors import open_sensors
from triton_ops.timing import Arm, GuardSummary, RacePolicy, Rounds, Sampler, guard_for
from triton_ops.timing import timer as guard
from triton_ops.timing.timer import SensorGuard


class Clock:
    """A clock whose seconds pass only in `sleep`."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def watch(nvml, clock=None):
    clock = clock or Clock()
    return SensorGuard(open_sensors(nvml, "cuda:0", gpu()), sleep=clock.sleep)


def said_of_clocks(watched):
    """The summary without what it says of other processes, which `test_others.py` looks at."""
    return replace(watched.summary(), others_unknown="")


def rounds(watched, nvml, masks):
    """Whether each round counted, when it ended with those reasons."""
    kept = []
    for mask in masks:
        nvml.says["mask"] = mask
        kept.append(watched.round_ok())
    return kept


def test_reasons_are_listed_in_one_order_and_unknown_ones_last():
    nvml = FakeNvml()
    watched = watch(nvml)
    rounds(watched, nvml, [1 << 40 | 0x200 | 0x2, 1])
    assert watched.summary().regimes == ("app_clocks", "board_limit", "bit_40")


def test_only_the_latest_readings_are_kept():
    nvml = FakeNvml()
    watched = watch(nvml)
    for sm in range(1000, 1600):
        nvml.says["sm"] = sm
        watched.round_ok()
    assert [reading.clock_mhz for reading in watched.readings] == list(range(1088, 1600))
    assert watched.summary().rounds == 600


# Rounds


def test_good_rounds_and_capped_rounds_count():
    nvml, clock = FakeNvml(), Clock()
    watched = watch(nvml, clock)
    assert all(rounds(watched, nvml, [0, POWER_CAP, POWER_CAP | 1, 0x10]))
    assert clock.slept == []
    assert said_of_clocks(watched) == GuardSummary(
        guarded=True,
        rounds=4,
        regimes=("power_cap", "sync_boost"),
        clock_mhz=(1980, 1980),
        memory_mhz=(3201, 3201),
        power_w=(350.5, 350.5),
        temperature_c=(45, 45),
    )


@pytest.mark.parametrize("mask", [HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE, HW_THERMAL | POWER_CAP])
def test_a_slowed_round_is_lost_and_the_next_one_waits(mask):
    nvml, clock = FakeNvml(), Clock()
    watched = watch(nvml, clock)
    assert rounds(watched, nvml, [0] * 5 + [mask] + [0] * 5) == [True] * 5 + [False] + [True] * 5
    assert clock.slept == [0.25]
    summary = watched.summary()
    assert (summary.rounds, summary.discarded, summary.status, summary.confidence) == (11, 1, "ok", "ok")
    assert summary.confidence_reason == ""


def test_waits_grow_and_start_anew_after_a_good_round():
    nvml, clock = FakeNvml(), Clock()
    watched = watch(nvml, clock)
    assert rounds(watched, nvml, [HW_THERMAL] * 3 + [0] + [HW_THERMAL, 0]) == [False] * 3 + [True, False, True]
    assert clock.slept == [0.25, 1.0, 4.0, 0.25]
    assert watched.summary().status == "ok"


def test_after_three_waits_the_race_goes_on_and_says_throttled():
    nvml, clock = FakeNvml(), Clock()
    watched = watch(nvml, clock)
    masks = [POWER_BRAKE] * 5 + [0, POWER_BRAKE, POWER_BRAKE]
    assert rounds(watched, nvml, masks) == [False] * 3 + [True] * 5
    assert clock.slept == [0.25, 1.0, 4.0]
    summary = watched.summary()
    assert (summary.status, summary.confidence, summary.discarded) == ("throttled", "low", 3)
    assert "power_brake" in summary.confidence_reason
    assert "3 waits" in summary.confidence_reason


@pytest.mark.parametrize(("good", "confidence"), [(4, "ok"), (3, "low")])
def test_more_than_a_fifth_of_the_rounds_lost_is_low_confidence(good, confidence):
    nvml = FakeNvml()
    watched = watch(nvml)
    rounds(watched, nvml, [SW_THERMAL] + [0] * good)
    summary = watched.summary()
    assert summary.confidence == confidence
    assert summary.confidence_reason == ("" if confidence == "ok" else "1 of 4 rounds were lost to sw_thermal")


def test_a_guard_without_rounds_has_an_empty_summary():
    assert said_of_clocks(watch(FakeNvml())) == GuardSummary(guarded=True)


def test_clock_changes_are_counted_and_the_rounds_kept():
    nvml = FakeNvml()
    watched = watch(nvml)
    for sm in (1000, 1030, 999, 1028, 1100):
        nvml.says["sm"] = sm
        assert watched.round_ok()
    summary = watched.summary()
    assert summary.clock_changes == 2  # 1030 to 999 is 3.01 %, 1028 to 1100 is 7 %; the others are at most 3 %
    assert summary.clock_mhz == (999, 1100)
    assert summary.confidence == "ok"
    nvml.says["memory"] = 2619
    assert watched.round_ok()
    assert (watched.summary().clock_changes, watched.summary().memory_mhz) == (3, (2619, 3201))


def test_a_clock_is_not_compared_across_a_wait():
    nvml = FakeNvml()
    watched = watch(nvml)
    for sm, mask in ((1980, 0), (900, HW_SLOWDOWN), (1980, 0), (1500, 0)):
        nvml.says["sm"] = sm
        rounds(watched, nvml, [mask])
    assert watched.summary().clock_changes == 2  # into the slowdown, and the last


def steady(ms):
    return Arm(Sampler(lambda count: lambda: [ms] * count))


@pytest.mark.parametrize("masks", [[HW_THERMAL], [HW_THERMAL, 0], [0]])
def test_a_race_ends_whatever_the_gpu_does(masks):
    nvml, clock = FakeNvml(), Clock()
    watched = watch(nvml, clock)

    def keep():
        nvml.says["mask"] = masks[watched.summary().rounds % len(masks)]
        return watched.round_ok()

    arms = [steady(1.0), steady(2.0)]
    timer = SimpleNamespace(round=nullcontext)
    Rounds(timer=timer, keep=keep, clock=clock).race(arms, RacePolicy())
    assert len(arms[0].visits) == len(arms[1].visits) >= 2
    summary = watched.summary()
    assert summary.rounds - summary.discarded == len(arms[0].visits)


# Devices that cannot be watched


def test_a_cpu_is_not_watched_and_the_summary_says_so():
    result = guard_for("cpu")
    assert not isinstance(result, SensorGuard)
    assert all(result.round_ok() for _ in range(3))
    assert result.readings == ()
    summary = result.summary()
    assert (summary.guarded, summary.rounds, summary.discarded, summary.confidence) == (False, 3, 0, "ok")
    assert "the clocks of cpu are not watched" in summary.reason
    assert summary.confidence_reason == f"not watched: {summary.reason}"


def test_a_gpu_that_is_not_there_is_a_reason_not_an_error():
    assert guard_for("cuda:977").summary().guarded is False


def test_a_gpu_of_a_vendor_without_a_file_here_is_not_watched(monkeypatch):
    monkeypatch.setattr(guard, "probe", lambda name: DeviceSpec(kind="hip", name="GPU", arch="gfx942", units=304))
    assert "only those of cuda devices are" in guard_for("cuda:0").summary().reason


class Unusable:
    """A vendor whose sensors cannot be opened."""

    def sensors(self, device_name):
        raise TypeError(f"{device_name} is None")  # an unforeseen failure


def test_any_failure_to_open_sensors_is_a_reason_and_not_an_error(monkeypatch):
    monkeypatch.setattr(guard, "probe", lambda name: DeviceSpec(kind="cuda", name="GPU", arch="sm_90", units=132))
    monkeypatch.setitem(VENDORS, "cuda", Unusable())
    assert guard_for("cuda:0").summary().reason == "cuda:0 is None"


@pytest.mark.parametrize("name", ["mask", "sm", "c"])
def test_an_nvml_failure_during_a_race_ends_the_watch_with_one_warning(name):
    nvml = FakeNvml()
    watched = watch(nvml)
    rounds(watched, nvml, [POWER_CAP, 0])
    nvml.says[name] = FakeNvml.NVMLError("GPU is lost")
    with pytest.warns(RuntimeWarning, match="no longer watched.*round 3: NVML failed: GPU is lost") as caught:
        assert watched.round_ok()
    assert caught[0].filename == __file__
    assert watched.round_ok()
    assert len(watched.readings) == 2
    summary = watched.summary()
    assert (summary.guarded, summary.rounds, summary.regimes) == (False, 4, ("power_cap",))
    assert "GPU is lost" in summary.reason
    assert "GPU is lost" in summary.confidence_reason


def test_nvml_is_shut_down_when_the_guard_is_collected():
    nvml = FakeNvml(shutdown=FakeNvml.NVMLError("Uninitialized"))
    watched = watch(nvml)
    assert nvml.users == 1
    del watched
    gc.collect()
    assert nvml.users == 0


def test_a_reading_takes_little_host_time():
    nvml = FakeNvml()
    watched = watch(nvml)
    start_s = time.process_time()
    for _ in range(1000):
        watched.round_ok()
    assert time.process_time() - start_s < 1.0  # s: below 1 ms each, before NVML's own time
