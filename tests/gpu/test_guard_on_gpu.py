"""The watch over a real GPU, which is only read."""

import statistics
import time

import pytest

from triton_ops._optional import require
from triton_ops.hardware.nvidia import find_handle
from triton_ops.measure.guard import SensorGuard, guard_for

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pytest.fixture
def watched():
    found = guard_for("cuda:0")
    if not isinstance(found, SensorGuard):
        pytest.skip(found.summary().reason)
    return found


def test_nvml_finds_the_gpu_that_torch_uses(watched):
    nvml, properties = require("pynvml", "this test"), torch.cuda.get_device_properties(0)
    handle = find_handle(nvml, "cuda:0", properties)  # the guard keeps NVML initialised
    assert nvml.nvmlDeviceGetName(handle) == properties.name
    assert nvml.nvmlDeviceGetUUID(handle).endswith(str(properties.uuid))


def test_a_reading_takes_a_few_milliseconds_at_most(watched):
    took = []
    for _ in range(100):
        start = time.perf_counter()
        watched._sensors.read()  # not a round, which could wait
        took.append(time.perf_counter() - start)
    assert statistics.median(took) < 5e-3  # 2.3 ms on an H200 in a virtual machine


def test_a_gpu_at_work_is_seen_at_work(watched):
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    for _ in range(3):
        for _ in range(100):  # about 0.15 s on an H200
            a @ a
        torch.cuda.synchronize()
        watched.round_ok()
    summary = watched.summary()
    assert summary.guarded
    assert summary.rounds == 3
    for reading in watched.readings:
        assert reading.clock_mhz is None or 100 < reading.clock_mhz < 5000
        assert reading.temperature_c is None or 0 < reading.temperature_c < 120
        assert reading.power_w is None or 10 < reading.power_w < 2000
