"""NVIDIA's GPUs: sensors by a stand-in for NVML, devices by a CUDA driver that is built for the test."""

import gc
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import libcuda
from tests.nvml import HW_THERMAL, POWER_CAP, UUIDS, FakeNvml, gpu
from triton_ops.device import VENDORS, Reading
from triton_ops.device import vendors as nvidia
from triton_ops.device.vendors import find_handle, open_sensors
from triton_ops.exceptions import DeviceError, MissingDependencyError

SOURCE = Path(__file__).parents[3] / "src"

# Readings


def test_a_reading_has_nvmls_values_in_plain_units():
    result = open_sensors(FakeNvml(mask=POWER_CAP | 1), "cuda:0", gpu()).read()
    assert result == Reading(
        reasons=("idle", "power_cap"), clock_mhz=1980, memory_mhz=3201, power_w=350.5, temperature_c=45
    )


@pytest.mark.parametrize(
    ("name", "field"), [("sm", "clock_mhz"), ("memory", "memory_mhz"), ("mw", "power_w"), ("c", "temperature_c")]
)
def test_a_value_that_a_gpu_does_not_tell_is_none(name, field):
    nvml = FakeNvml(**{name: FakeNvml.NotSupportedError("Not Supported")}, mask=HW_THERMAL)
    result = open_sensors(nvml, "cuda:0", gpu()).read()
    assert result.reasons == ("hw_thermal",)
    fields = ("clock_mhz", "memory_mhz", "power_w", "temperature_c")
    assert [name for name in fields if getattr(result, name) is None] == [field]


def test_unknown_reasons_are_named_by_their_bit():
    result = open_sensors(FakeNvml(mask=1 << 40 | 0x200 | 0x2), "cuda:0", gpu()).read()
    assert result.reasons == ("app_clocks", "board_limit", "bit_40")


def test_the_words_are_in_the_order_of_nvmls_bits():
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
        assert open_sensors(nvml, "cuda:0", gpu()).read().reasons == (word,)


def test_the_stand_in_has_the_functions_of_the_real_nvml():
    pynvml = pytest.importorskip("pynvml")
    for name, function in inspect.getmembers(FakeNvml, inspect.isfunction):
        if name.startswith("nvml"):
            expected = len(inspect.signature(function).parameters) - 1
            assert len(inspect.signature(getattr(pynvml, name)).parameters) == expected, name
    for name in ("NVML_CLOCK_SM", "NVML_TEMPERATURE_GPU"):
        assert getattr(pynvml, name) == getattr(FakeNvml, name)


def test_a_failure_after_opening_is_a_device_error():
    nvml = FakeNvml()
    sensors = open_sensors(nvml, "cuda:0", gpu())
    nvml.says["mask"] = FakeNvml.NVMLError("GPU is lost")
    with pytest.raises(DeviceError, match="NVML failed: GPU is lost"):
        sensors.read()


def test_nvml_is_shut_down_once():
    nvml = FakeNvml(shutdown=FakeNvml.NVMLError("Uninitialized"))
    sensors = open_sensors(nvml, "cuda:0", gpu())
    assert nvml.users == 1
    sensors.close()
    sensors.close()
    del sensors
    gc.collect()
    assert nvml.users == 0


@pytest.mark.parametrize(
    ("says", "error", "words"),
    [
        ({"init": FakeNvml.NVMLError("NVML Shared Library Not Found")}, DeviceError, "Shared Library Not Found"),
        ({"mask": FakeNvml.NotSupportedError("Not Supported")}, DeviceError, "held back: Not Supported"),
        ({"mask": FakeNvml.NotSupportedError()}, DeviceError, "held back: NotSupportedError"),
        ({"uuids": None}, TypeError, "NoneType"),  # an unforeseen failure
    ],
)
def test_an_unusable_nvml_is_shut_down_and_reported(says, error, words):
    nvml = FakeNvml(**says)
    with pytest.raises(error, match=words):
        open_sensors(nvml, "cuda:0", gpu())
    gc.collect()
    assert nvml.users == 0


# Which GPU


@pytest.mark.parametrize("number", [0, 1])
def test_a_gpu_is_found_by_uuid_however_cuda_numbers_it(number):
    nvml = FakeNvml()
    for name in ("cuda", "cuda:0", "cuda:1"):
        assert find_handle(nvml, name, gpu(number)) == number
    assert find_handle(nvml, "cuda", gpu(number, uuid=f"GPU-{UUIDS[number]}")) == number
    assert nvml.calls == [f"GPU-{UUIDS[number]}"] * 4


@pytest.mark.parametrize("number", [0, 1])
def test_a_gpu_without_uuid_is_found_by_its_place_on_the_bus(number):
    nvml = FakeNvml(uuids=[])  # a slice of a GPU has a UUID that NVML does not know by this name
    assert find_handle(nvml, "cuda:0", gpu(number)) == number
    old = gpu(number)
    del old.uuid  # torch before 2.5
    assert find_handle(nvml, "cuda:0", old) == number


@pytest.mark.parametrize(
    "properties", [SimpleNamespace(), SimpleNamespace(uuid="33333333-cccc"), gpu(pci_bus_id=9, uuid="x")]
)
def test_a_gpu_is_never_found_by_its_number_alone(properties):
    nvml = FakeNvml()
    with pytest.raises(DeviceError, match="does not find cuda:0"):
        open_sensors(nvml, "cuda:0", properties)
    assert nvml.users == 0


@pytest.fixture
def renumbered(monkeypatch):
    """A process in which CUDA numbers NVML's GPUs differently."""
    devices = {"cuda:0": gpu(1), "cuda:1": gpu(0)}
    seen = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=devices.__getitem__))
    nvml = FakeNvml()
    monkeypatch.setattr(nvidia, "require", lambda name, purpose: seen if name == "torch" else nvml)
    return nvml


def test_cuda_visible_devices_renumbers_and_the_sensors_follow(renumbered):
    VENDORS["cuda"].sensors("cuda:0").close()
    VENDORS["cuda"].sensors("cuda:1").close()
    assert renumbered.calls == [f"GPU-{UUIDS[1]}", f"GPU-{UUIDS[0]}"]


def test_without_pynvml_the_error_says_how_to_get_it(monkeypatch):
    real = nvidia.require
    seen = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda name: gpu()))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvidia, "require", lambda name, purpose: seen if name == "torch" else real(name, purpose))
    with pytest.raises(MissingDependencyError, match="pip install nvidia-ml-py"):
        VENDORS["cuda"].sensors("cuda:0")


def test_no_setting_of_a_device_is_written_but_a_clock_that_somebody_asks_to_lock():
    texts = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    assert re.findall(r"nvmlDeviceSet\w+|\blocked_clocks\(", texts) == [
        "locked_clocks(",
        "nvmlDeviceSetGpuLockedClocks",
    ]


# Devices without torch


@pytest.mark.parametrize(
    ("text", "oldest"),
    [
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", 13000),
        ('cuda = "12.8"\nhip = None\n', 12000),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n", None),
        ("debug = False\n", None),
    ],
)
def test_what_torch_was_built_for_is_read_from_its_version(text, oldest, tmp_path, monkeypatch):
    (tmp_path / "version.py").write_text(text)
    result = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(nvidia, "find_spec", lambda _: result)
    assert nvidia._oldest_driver_for_torch() == oldest
    (tmp_path / "version.py").unlink()
    assert nvidia._oldest_driver_for_torch() is None


ASKED = """
from triton_ops.device import vendors as nvidia

nvidia._oldest_driver_for_torch = lambda: {wanted}
for spec in nvidia.Nvidia.describe():
    print(spec.name, spec.arch, spec.units, spec.memory_bytes, spec.l2_bytes, spec.shared_bytes_per_block)
"""


def asked(folder, wanted):
    """The GPUs that a new process finds with the driver in `folder`, and a torch built for this version."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED.format(wanted=wanted)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "LD_LIBRARY_PATH": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="the driver's name on another platform")
def test_the_driver_is_asked_for_what_a_build_for_it_finds(tmp_path):
    folder = libcuda.build(tmp_path, 12040)
    assert asked(folder, 12000) == ["A sm_7576 16 1000 38 97", "B sm_7576 16 1000 38 97"]
    assert asked(folder, 13000) == [], "this driver is too old for that torch"
    assert asked(folder, None) == [], "a build for CPUs"


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="the driver's name on another platform")
def test_a_driver_that_refuses_a_question_leaves_it_to_torch(tmp_path):
    assert asked(libcuda.build(tmp_path, broken=True), 12000) == []


# A lock that somebody asks for


def test_a_clock_is_locked_while_a_block_runs_however_it_ends():
    nvml = FakeNvml(running=[os.getpid()])
    sensors = open_sensors(nvml, "cuda:0", gpu())
    assert ("lock", 1500, 1500) not in nvml.calls  # to read sensors locks nothing
    locking = sensors.locked_clocks(1500)
    locking.__enter__()
    assert nvml.calls[-1] == ("lock", 1500, 1500)
    assert not locking.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert nvml.calls[-1] == "unlock"


@pytest.mark.parametrize("running", [[], [1], [1, os.getpid()]])
def test_a_clock_of_a_gpu_that_others_use_or_may_use_is_not_locked(running):
    nvml = FakeNvml(running=running)
    with pytest.raises(DeviceError, match="not locked"), open_sensors(nvml, "cuda:0", gpu()).locked_clocks(1500):
        pass
    assert not {"unlock", ("lock", 1500, 1500)} & {*nvml.calls}


def test_nvml_may_refuse_to_lock_a_clock():
    nvml = FakeNvml(running=[os.getpid()], lock=FakeNvml.NVMLError("Insufficient Permissions"))
    sensors = open_sensors(nvml, "cuda:0", gpu())
    with pytest.raises(DeviceError, match="cannot be locked at 1500 MHz: Insufficient"), sensors.locked_clocks(1500):
        pass
    assert "unlock" not in nvml.calls
