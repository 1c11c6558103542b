"""The watch over a GPU and the clock lock, on an NVML that says what a test tells it to."""

# ruff: noqa: N802 - the fake has NVML's names

import gc
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.exceptions import DeviceError, MissingDependencyError, SettingsError
from triton_ops.hardware import DeviceSpec
from triton_ops.measure import Arm, RacePolicy, Sampler, clocks, guard, race
from triton_ops.measure.clocks import locked_clocks
from triton_ops.measure.guard import GuardSummary, NvmlGuard, Unguarded, guard_for, open_device

PROJECT = Path(__file__).parents[2]
POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
UUIDS = ("11111111-aaaa", "22222222-bbbb")  # as torch gives them, in the order of NVML's numbers
PLACES = ("00000000:3b:00.0", "0000000a:86:01.0")


class FakeNvml:
    """Two GPUs; `says` is what NVML answers by name, an exception is raised."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    class NotSupportedError(NVMLError):
        pass

    class NoPermissionError(NVMLError):
        pass

    def __init__(self, **says):
        self.says = {"mask": 0, "sm": 1980, "memory": 3201, "mw": 350_500, "c": 45, "mj": 10**9} | says
        self.calls = []
        self.users = 0
        self.locked = {}

    def _say(self, name, default=None):
        answer = self.says.get(name, default)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def nvmlInit(self):
        self._say("init")
        self.users += 1

    def nvmlShutdown(self):
        self.users -= 1
        self._say("shutdown")

    def _by(self, names, name):
        self.calls.append(name)
        if name not in names:
            raise self.NVMLError("Not Found")
        return names.index(name)

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return self._by(self.says.get("uuids", [f"GPU-{known}" for known in UUIDS]), uuid)

    def nvmlDeviceGetHandleByPciBusId(self, place):
        return self._by(PLACES, place)

    def nvmlDeviceGetUUID(self, handle):
        return self._say("uuid", UUIDS[handle])

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self._say("mask")

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return self._say({1: "sm", 2: "memory"}[kind])

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._say("mw")

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self._say("c")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self._say("mj")

    def nvmlDeviceSetGpuLockedClocks(self, handle, least, most):
        self._say("set")
        assert self.users > 0
        self.calls.append(("set", handle, least, most))
        self._print("set")

    def nvmlDeviceResetGpuLockedClocks(self, handle):
        self._say("reset")
        assert self.users > 0
        self.calls.append(("reset", handle))
        self._print("reset")

    def _print(self, word):
        if self.says.get("loud"):
            sys.stdout.write(f"{word}\n")
            sys.stdout.flush()

    @property
    def resets(self):
        return [call[1] for call in self.calls if call[0] == "reset"]


class Clock:
    """Seconds that pass only in sleep."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def gpu(number=0, **changes):
    """Torch's properties of NVML's GPU `number`."""
    facts = {"uuid": UUIDS[number], "pci_domain_id": (0, 10)[number], "pci_bus_id": (0x3B, 0x86)[number]}
    return SimpleNamespace(**(facts | {"pci_device_id": number} | changes))


def watch(nvml, clock=None):
    clock = clock or Clock()
    found = guard_for("cuda:0", nvml=nvml, properties=gpu(), sleep=clock.sleep, clock=clock)
    assert isinstance(found, NvmlGuard), found
    return found


def rounds(watched, nvml, masks):
    """Whether each round counted, when it ended with those reasons."""
    kept = []
    for mask in masks:
        nvml.says["mask"] = mask
        kept.append(watched.round_ok())
    return kept


# Readings


def test_a_reading_has_all_that_nvml_tells_in_plain_units():
    nvml, clock = FakeNvml(mask=POWER_CAP | 1), Clock()
    watched = watch(nvml, clock)
    assert watched.readings == ()
    assert watched.round_ok()
    (reading,) = watched.readings
    assert reading == guard.Reading(100.0, ("idle", "power_cap"), 1980, 3201, 350.5, 45, 10**9)


@pytest.mark.parametrize("name", ["sm", "memory", "mw", "c", "mj"])
def test_what_a_gpu_does_not_tell_is_none_and_the_rest_is_watched(name):
    nvml = FakeNvml(**{name: FakeNvml.NotSupportedError("Not Supported")})
    watched = watch(nvml)
    assert rounds(watched, nvml, [0, HW_THERMAL]) == [True, False]
    field = {"sm": "sm_clock_mhz", "memory": "memory_clock_mhz", "mw": "power_w", "c": "temperature_c"}
    assert getattr(watched.readings[0], field.get(name, "energy_mj")) is None
    summary = watched.summary()
    assert summary.guarded
    assert [summary.sm_clock_mhz, summary.power_w, summary.temperature_c].count(None) == (name in ("sm", "mw", "c"))


def test_unknown_reasons_are_named_by_their_bit():
    nvml = FakeNvml()
    watched = watch(nvml)
    rounds(watched, nvml, [1 << 40 | 0x200 | 0x2, 1])
    assert watched.readings[0].reasons == ("app_clocks", "board_limit", "bit_40")
    assert watched.readings[1].reasons == ("idle",)
    assert watched.summary().regimes == ("app_clocks", "board_limit", "bit_40")


def test_the_words_are_those_of_nvmls_bits():
    pynvml = pytest.importorskip("pynvml")
    for name, word in {
        "GpuIdle": "idle",
        "ApplicationsClocksSetting": "app_clocks",
        "SwPowerCap": "power_cap",
        "HwSlowdown": "hw_slowdown",
        "SyncBoost": "sync_boost",
        "SwThermalSlowdown": "sw_thermal",
        "HwThermalSlowdown": "hw_thermal",
        "HwPowerBrakeSlowdown": "power_brake",
        "DisplayClockSetting": "display_clocks",
    }.items():
        nvml = FakeNvml(mask=getattr(pynvml, f"nvmlClocksEventReason{name}"))
        watched = watch(nvml)
        watched.round_ok()
        assert watched.readings[0].reasons == (word,)


def test_the_fake_has_the_functions_of_the_real_one():
    pynvml = pytest.importorskip("pynvml")
    for name, function in inspect.getmembers(FakeNvml, inspect.isfunction):
        if name.startswith("nvml"):
            wanted = len(inspect.signature(function).parameters) - 1
            assert len(inspect.signature(getattr(pynvml, name)).parameters) == wanted, name
    for name in ("NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_TEMPERATURE_GPU"):
        assert getattr(pynvml, name) == getattr(FakeNvml, name)


def test_old_readings_are_forgotten():
    nvml = FakeNvml()
    watched = watch(nvml)
    for sm in range(1000, 1600):
        nvml.says["sm"] = sm
        watched.round_ok()
    assert [reading.sm_clock_mhz for reading in watched.readings] == list(range(1088, 1600))
    assert watched.summary().rounds == 600


# Rounds


def test_good_rounds_and_capped_rounds_count():
    nvml, clock = FakeNvml(), Clock()
    watched = watch(nvml, clock)
    assert all(rounds(watched, nvml, [0, POWER_CAP, POWER_CAP | 1, 0x10]))
    assert clock.slept == []
    assert watched.summary() == GuardSummary(
        guarded=True,
        rounds=4,
        regimes=("power_cap", "sync_boost"),
        sm_clock_mhz=(1980, 1980),
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


def test_a_guard_that_saw_no_round_says_so():
    assert watch(FakeNvml()).summary() == GuardSummary(guarded=True)


def test_clock_changes_are_counted_and_the_rounds_kept():
    nvml = FakeNvml()
    watched = watch(nvml)
    for sm in (1000, 1030, 999, 1028, 1100):
        nvml.says["sm"] = sm
        assert watched.round_ok()
    summary = watched.summary()
    assert summary.clock_changes == 2  # 1030 to 999 is 3.01 %, 1028 to 1100 is 7 %; the others are at most 3 %
    assert summary.sm_clock_mhz == (999, 1100)
    assert summary.confidence == "ok"


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
    race(arms, timer, RacePolicy(), random.Random(0), keep_round=keep, clock=clock)
    assert len(arms[0].blocks) == len(arms[1].blocks) >= 2
    summary = watched.summary()
    assert summary.rounds - summary.discarded == len(arms[0].blocks)


# Which GPU


@pytest.mark.parametrize("number", [0, 1])
def test_a_gpu_is_found_by_uuid_however_cuda_numbers_it(number):
    nvml = FakeNvml()
    for name in ("cuda", "cuda:0", "cuda:1"):
        assert open_device(name, nvml=nvml, properties=gpu(number)) == (nvml, number)
    assert open_device("cuda", nvml=nvml, properties=gpu(number, uuid=f"GPU-{UUIDS[number]}")) == (nvml, number)
    assert nvml.calls == [f"GPU-{UUIDS[number]}"] * 4


@pytest.mark.parametrize("number", [0, 1])
def test_else_by_its_place_on_the_bus(number):
    nvml = FakeNvml(uuids=[])  # a slice of a GPU has a UUID that NVML does not know by this name
    assert open_device("cuda:0", nvml=nvml, properties=gpu(number)) == (nvml, number)
    old = gpu(number)
    del old.uuid  # torch before 2.5
    assert open_device("cuda:0", nvml=nvml, properties=old) == (nvml, number)


@pytest.mark.parametrize(
    "properties", [SimpleNamespace(), SimpleNamespace(uuid="33333333-cccc"), gpu(pci_bus_id=9, uuid="x")]
)
def test_never_by_its_number_alone(properties):
    nvml = FakeNvml()
    with pytest.raises(DeviceError, match="does not find cuda:0"):
        open_device("cuda:0", nvml=nvml, properties=properties)
    assert nvml.users == 0
    found = guard_for("cuda:0", nvml=nvml, properties=properties)
    assert isinstance(found, Unguarded)
    assert "cuda:0" in found.summary().reason


def fake_torch(monkeypatch, **devices):
    """A process that sees these GPUs under CUDA's numbers."""
    monkeypatch.setattr(guard, "probe", lambda name: DeviceSpec(kind="cuda", name="GPU", arch="sm_90", units=132))
    seen = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda name: devices[name.replace(":", "")]))
    real = guard.require
    monkeypatch.setattr(guard, "require", lambda name, purpose: seen if name == "torch" else real(name, purpose))


def test_cuda_visible_devices_renumbers_and_the_guard_follows(monkeypatch):
    fake_torch(monkeypatch, cuda0=gpu(1), cuda1=gpu(0))
    nvml = FakeNvml()
    assert open_device("cuda:0", nvml=nvml) == (nvml, 1)
    assert open_device("cuda:1", nvml=nvml) == (nvml, 0)


def test_torch_is_asked_by_name_through_the_probe():
    assert guard_for("cuda:977", nvml=FakeNvml()).summary().guarded is False
    with pytest.raises(DeviceError, match="977"):
        open_device("cuda:977", nvml=FakeNvml())


# Nobody watches


def test_a_cpu_is_not_watched_and_that_is_said():
    found = guard_for("cpu")
    assert isinstance(found, Unguarded)
    assert all(found.round_ok() for _ in range(3))
    assert found.readings == ()
    summary = found.summary()
    assert (summary.guarded, summary.rounds, summary.discarded, summary.confidence) == (False, 3, 0, "ok")
    assert "the clocks of cpu are not read" in summary.reason
    assert summary.confidence_reason == f"not watched: {summary.reason}"
    with pytest.raises(DeviceError, match="cpu"):
        open_device("cpu", nvml=FakeNvml())


def test_without_pynvml_the_race_runs_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = guard_for("cuda:0", properties=gpu())
    assert isinstance(found, Unguarded)
    assert "pip install nvidia-ml-py" in found.reason
    with pytest.raises(MissingDependencyError), locked_clocks("cuda:0", 1500, properties=gpu()):
        pass


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"init": FakeNvml.NVMLError("NVML Shared Library Not Found")}, "Shared Library Not Found"),
        ({"mask": FakeNvml.NotSupportedError("Not Supported")}, "held back: Not Supported"),
        ({"mask": FakeNvml.NotSupportedError()}, "held back: NotSupportedError"),
        ({"uuids": None}, "NoneType"),  # what nobody thought of
    ],
)
def test_an_nvml_that_cannot_be_used_is_a_reason_not_an_error(says, words):
    nvml = FakeNvml(**says)
    found = guard_for("cuda:0", nvml=nvml, properties=gpu())
    assert isinstance(found, Unguarded)
    assert words in found.reason
    gc.collect()
    assert nvml.users == 0


@pytest.mark.parametrize("name", ["mask", "sm", "mj"])
def test_an_nvml_that_fails_on_the_way_ends_the_watch_with_one_warning(name):
    nvml = FakeNvml()
    watched = watch(nvml)
    rounds(watched, nvml, [POWER_CAP, 0])
    nvml.says[name] = FakeNvml.NVMLError("GPU is lost")
    with pytest.warns(RuntimeWarning, match="no longer watched.*round 3: GPU is lost") as caught:
        assert watched.round_ok()
    assert caught[0].filename == __file__
    assert watched.round_ok()
    assert len(watched.readings) == 2
    summary = watched.summary()
    assert (summary.guarded, summary.rounds, summary.regimes) == (False, 4, ("power_cap",))
    assert "GPU is lost" in summary.reason
    assert "GPU is lost" in summary.confidence_reason


def test_nvml_is_given_back_when_the_guard_is_gone():
    nvml = FakeNvml(shutdown=FakeNvml.NVMLError("Uninitialized"))
    watched = watch(nvml)
    assert nvml.users == 1
    del watched
    gc.collect()
    assert nvml.users == 0


# The clock lock


@pytest.fixture(autouse=True)
def _nothing_stays_locked():
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    yield
    assert not clocks._held
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]


def lock(nvml, number=0, mhz=1500):
    return locked_clocks(f"cuda:{number}", mhz, nvml=nvml, properties=gpu(number))


def test_a_lock_holds_for_the_block():
    nvml = FakeNvml()
    with lock(nvml, 1):
        assert nvml.calls[-1] == ("set", 1, 1500, 1500)
    assert nvml.resets == [1]
    assert nvml.users == 0
    gone = weakref.ref(nvml)
    del nvml
    gc.collect()
    assert gone() is None  # nothing is left to do at exit


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_lock_ends_with_the_block_however_it_is_left(error):
    nvml = FakeNvml()
    with pytest.raises(error), lock(nvml):
        raise error
    assert nvml.resets == [0]
    assert nvml.users == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_deadly_signal_leaves_the_block_first(name):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # `nohup` would have it ignored
    try:
        nvml = FakeNvml()
        with pytest.raises(SystemExit) as raised, lock(nvml):
            signal.raise_signal(number)
        assert raised.value.code == 128 + number
        assert nvml.resets == [0]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_handler_that_is_there_stays():
    caught = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    try:
        nvml = FakeNvml()
        with lock(nvml):
            signal.raise_signal(signal.SIGTERM)
            assert nvml.resets == []  # that handler has chosen to go on
        assert nvml.resets == [0]
        signal.raise_signal(signal.SIGTERM)
        assert caught == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_set_inside_the_block_stays():
    before = signal.getsignal(signal.SIGTERM)
    try:
        with lock(FakeNvml()):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_two_gpus_can_be_locked_at_once_and_a_signal_frees_both():
    nvml = FakeNvml()
    with pytest.raises(SystemExit), lock(nvml, 0), lock(nvml, 1, mhz=1200):
        signal.raise_signal(signal.SIGTERM)
    assert nvml.resets == [1, 0]
    assert nvml.users == 0


def test_one_gpu_cannot_be_locked_twice():
    nvml = FakeNvml()
    with lock(nvml):
        with pytest.raises(DeviceError, match="already"), lock(nvml, mhz=1200):
            raise AssertionError
        assert nvml.resets == []
        assert nvml.users == 1
    assert nvml.resets == [0]


def test_a_lock_from_another_thread():
    nvml = FakeNvml()

    def work():
        with lock(nvml):
            handlers.append(signal.getsignal(signal.SIGTERM))

    handlers = [signal.getsignal(signal.SIGTERM)]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert nvml.resets == [0]
    assert handlers[0] is handlers[1]


@pytest.mark.parametrize("name", ["set", "uuid"])
def test_a_refusal_is_typed_and_says_what_it_needs(name):
    nvml = FakeNvml(**{name: FakeNvml.NoPermissionError("Insufficient Permissions")})
    with pytest.raises(DeviceError, match="1500 MHz: Insufficient Permissions") as raised, lock(nvml):
        raise AssertionError
    assert "root" in raised.value.hint
    assert "every user" in raised.value.hint
    assert isinstance(raised.value.__cause__, FakeNvml.NoPermissionError)
    assert nvml.resets == []  # nothing was locked
    assert nvml.users == 0


def test_an_interrupt_in_the_middle_of_locking_unlocks():
    nvml = FakeNvml(set=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), lock(nvml):
        raise AssertionError
    assert nvml.resets == [0]


@pytest.mark.parametrize("mhz", [0, -1])
def test_a_clock_must_be_positive(mhz):
    nvml = FakeNvml()
    with pytest.raises(SettingsError, match=f"{mhz} MHz"), lock(nvml, mhz=mhz):
        raise AssertionError
    assert nvml.calls == []


def test_a_gpu_that_is_not_there_cannot_be_locked():
    nvml = FakeNvml(init=FakeNvml.NVMLError("Driver Not Loaded"))
    with pytest.raises(DeviceError, match="Driver Not Loaded"), lock(nvml):
        raise AssertionError


def in_a_process(body, send=None):
    """Exit status and lines of a process with a lock in it."""
    head = (
        "import os, signal, sys, time, warnings\n"
        "from tests.cpu.test_guard import FakeNvml, gpu\n"
        "from triton_ops.measure.clocks import locked_clocks\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # whatever started the tests may ignore it
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "nvml = FakeNvml(loud=True)\n"
        "lock = locked_clocks('cuda:0', 1500, nvml=nvml, properties=gpu())\n"
    )
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "src")])
    with subprocess.Popen(
        [sys.executable, "-c", head + body],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines = []
        if send is not None:
            while not lines or lines[-1] != "ready":
                lines.append(process.stdout.readline().strip())
                assert lines[-1], process.stderr.read()
            process.send_signal(send)
        out, err = process.communicate(timeout=60)
    return process.returncode, lines + out.split(), err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_killed_process_unlocks(number):
    status, lines, _ = in_a_process("with lock:\n    print('ready', flush=True)\n    time.sleep(60)", number)
    assert lines == ["set", "ready", "reset"]
    assert status == (128 + number if number != signal.SIGINT else -signal.SIGINT)


def test_a_process_that_never_leaves_the_block_unlocks_at_its_end():
    assert in_a_process("lock.__enter__()\nsys.exit(3)")[:2] == (3, ["set", "reset"])


def test_a_fork_leaves_the_lock_to_its_parent():
    body = (
        "with lock:\n"
        "    child = os.fork()\n"
        "    if child == 0: sys.exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print('waited', flush=True)\n"
    )
    assert in_a_process(body)[:2] == (0, ["set", "waited", "reset"])


def test_a_refused_unlock_is_told_and_tried_again_at_the_end():
    body = (
        "with lock:\n"
        "    nvml.says['reset'] = nvml.NVMLError('Unknown Error')\n"
        "print('left', flush=True)\n"
        "del nvml.says['reset']\n"
    )
    status, lines, err = in_a_process(body)
    assert (status, lines) == (0, ["set", "left", "reset"])
    assert "may still be locked: Unknown Error" in err
    assert "nvidia-smi --reset-gpu-clocks" in err


def test_nothing_in_the_package_locks_clocks():
    for path in (PROJECT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "clocks.py":
            assert "locked_clocks(" not in text, path
            assert "nvmlDeviceSet" not in text, path


def test_a_reading_costs_the_host_little():
    nvml = FakeNvml()
    watched = watch(nvml)
    started = time.perf_counter()
    for _ in range(1000):
        watched.round_ok()
    assert time.perf_counter() - started < 1.0  # s: below 1 ms each, before NVML's own time
