"""Rates of this GPU as small kernels measure them, which `triton-ops calibrate` keeps for the model.

Only torch is used: copies, tiny kernels and the vendor's matrix product. Times come from CUDA events, and the best of
a few repeats counts: the model needs the rate of an undisturbed device.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from triton_ops.base import require, warn
from triton_ops.device import Calibration, gpu_missing, probe
from triton_ops.exceptions import DeviceError
from triton_ops.timing import CaptureError, EmptyCaptureError, EventTimer, GraphTimer, Launch, Timer

_REPEATS = 5
_COPY_FACTOR = 20  # times L2: a repeated copy finds none of its data in L2
_LEAST_COPY_BYTES = 256 << 20
_IN_L2 = (0.1, 0.15, 0.2, 0.25)  # of L2 for source and target each; on an H200 copies of up to 0.25 stay in L2
_COPIES = 20
_MATRIX = 8192  # extents of the products: tens of waves
_MATRIX_DTYPES = ("bfloat16", "float16", "float8_e4m3fn")
_LAUNCHES = 30
_SYNCS = 50


def calibrate(device: str | None = None) -> Calibration:
    """Measure the GPU `device`; None is the current one. `DeviceError` if there is none.

    Two to four seconds, and about 1.5 GB of device memory. Power-hungry: the chip may reach its power limit.
    """
    if (reason := gpu_missing()) is not None:
        message = f"there is no GPU to calibrate: {reason}"
        raise DeviceError(message, device or "cuda", "cuda or cuda:N", hint=DeviceError.NO_GPU)
    if device == "cpu":
        raise DeviceError("a CPU cannot be calibrated", device, "cuda or cuda:N", hint="use --device cuda")
    spec = probe(device or "cuda")
    torch = require("torch", "calibrating a GPU")
    l2_bytes = spec.l2_bytes or (40 << 20)  # as an A100 has
    with torch.cuda.device(torch.device(device or "cuda")), torch.inference_mode():
        return Calibration(
            device=spec.name,
            driver=spec.driver,
            dram_gbps=_figure("dram_gbps", partial(_dram_gbps, torch, l2_bytes)),
            l2_gbps=_figure("l2_gbps", partial(_l2_gbps, torch, l2_bytes)),
            launch_us=_figure("launch_us", partial(_launch_us, torch)),
            sync_us=_figure("sync_us", partial(_sync_us, torch)),
            mma_tflops={
                name: rate
                for name in _MATRIX_DTYPES
                if (rate := _figure(f"mma_tflops of {name}", partial(_mma_tflops, torch, name))) is not None
            },
        )


def _figure(what: str, measure: Callable[[], float | None]) -> float | None:
    """One figure; None and a warning where this device or torch cannot give the figure: the others still count."""
    try:
        return measure()
    except (RuntimeError, AttributeError, CaptureError, EmptyCaptureError) as error:  # out of memory is a RuntimeError
        warn("%s was not measured: %s", what, " ".join(str(error).split())[:200])
        return None


def _dram_gbps(torch: Any, l2_bytes: int) -> float:
    size_bytes = max(_COPY_FACTOR * l2_bytes // 2, _LEAST_COPY_BYTES)
    return 2 * size_bytes / (_copy_ms(torch, size_bytes) * 1e6)


def _l2_gbps(torch: Any, l2_bytes: int) -> float | None:
    """Bytes read and written by a copy inside L2, 10^9 per second.

    The rate is the slope of time over size, so that the constant cost of a launch drops out.
    """
    sizes = [int(l2_bytes * share) // 1024 * 1024 for share in _IN_L2]
    ms_per_byte = statistics.linear_regression(sizes, [_copy_ms(torch, size) for size in sizes]).slope
    return 2 / (ms_per_byte * 1e6) if ms_per_byte > 0 else None


def _copy_ms(torch: Any, size_bytes: int) -> float:
    """Milliseconds of one device-to-device copy, in a graph: the host's launch time is not measured."""
    source = torch.ones(size_bytes // 4, dtype=torch.float32, device="cuda")
    return _best_ms(GraphTimer(cold=False), partial(torch.empty_like(source).copy_, source), _COPIES)


def _launch_us(torch: Any) -> float:
    """Microseconds between the events around one tiny kernel, queued behind a delay: no timed launch is shorter."""
    timer = EventTimer(cache="warm")
    sampler = timer.prepare(Launch(partial(torch.zeros(1, device="cuda").add_, 1)).started())
    return 1e3 * statistics.median(sampler.take(timer, 1)[0] for _ in range(_LAUNCHES))


def _sync_us(torch: Any) -> float:
    one = torch.zeros(1, device="cuda")
    times = []
    for _ in range(_SYNCS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        one.add_(1)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def _mma_tflops(torch: Any, dtype: str) -> float | None:
    """Rate of the vendor's matrix product on random data, 10^12 operations per second."""
    # On zeros a chip draws less power, and so keeps a higher clock.
    random = torch.randn(_MATRIX, _MATRIX, device="cuda", dtype=torch.bfloat16)
    if dtype.startswith("float8"):
        if not hasattr(torch, dtype) or torch.cuda.get_device_capability() < (8, 9):
            return None
        a = random.to(getattr(torch, dtype))
        b = random.to(getattr(torch, dtype)).t()  # column-major, as `_scaled_mm` requires
        scale = torch.ones((), device="cuda", dtype=torch.float32)
        # Private (torch 2.13); the public `torch.nn.functional.scaled_mm` is newer.
        product = partial(torch._scaled_mm, a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    else:
        matrix = random.to(getattr(torch, dtype))
        product = partial(torch.mm, matrix, matrix, out=torch.empty_like(matrix))
    return float(2 * _MATRIX**3 / (_best_ms(EventTimer(cache="warm"), product, 5) * 1e9))


def _best_ms(timer: Timer, call: Callable[[], Any], launches: int) -> float:
    return min(timer.prepare(Launch(call).started(), launches).take(timer, _REPEATS))
