"""From a time to its reason in three steps: how long a call takes, what it spends that on, and what limits that.

Each step says whether the next is worth it: a time alone may be fast enough, torch's profiler names the kernels and how
long the device waits between them, and Nsight Compute's counters say what limits one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_ops._optional import require
from triton_ops.compile_modes.counting import profiler
from triton_ops.hardware import current_device

CALLS = 5
WARM_MS, SAMPLED_MS = 25.0, 100.0


@dataclass(frozen=True)
class Step:
    """One step of the flow.

    Attributes:
        name: `time`, `profiler` or `counters`.
        what: What it does.
        command: Its command line; empty for a step within this process.
    """

    name: str
    what: str
    command: tuple[str, ...] = ()


def steps(target: str, command: list[str]) -> tuple[Step, ...]:
    """The steps for a target, of which nothing is imported.

    Args:
        target: Its name on the command line.
        command: Nsight Compute's command line.
    """
    return (
        Step("time", f"time {target}: {WARM_MS:g} ms of warm-up, {SAMPLED_MS:g} ms of samples, as do_bench"),
        Step("profiler", f"run it {CALLS} times under torch.profiler: kernels by their share, and where the GPU waits"),
        Step("counters", "run it under Nsight Compute: what limits each kernel", tuple(command)),
    )


@dataclass(frozen=True)
class Part:
    """A kernel, or on a CPU an operator.

    Attributes:
        name: Its name.
        share: Its share of the time of all, from 0 to 1.
        calls: How often it runs in one call.
        mean_ms: How long one takes.
    """

    name: str
    share: float
    calls: float
    mean_ms: float


def parts_of(call: Callable[[], Any], device_name: str) -> tuple[Part, ...]:
    """What a call spends its time on by torch's profiler, the most expensive first.

    Args:
        call: What is profiled; it has run before.
        device_name: Torch's name of the device.
    """
    torch: Any = require("torch", "profiling a call")
    gpu = device_name.startswith("cuda")
    with current_device(device_name), profiler(device_name) as recorded:
        for _ in range(CALLS):
            call()
        if gpu:
            torch.cuda.synchronize()
    wanted = torch.autograd.DeviceType.CUDA if gpu else torch.autograd.DeviceType.CPU
    took_us = {
        event.key: (float(event.self_device_time_total if gpu else event.self_cpu_time_total), int(event.count))
        for event in recorded.key_averages()
        if event.device_type == wanted
    }
    whole_us = sum(us for us, _ in took_us.values()) or 1.0
    found = [Part(name, us / whole_us, n / CALLS, us / n / 1e3) for name, (us, n) in took_us.items() if us > 0]
    return tuple(sorted(found, key=lambda part: -part.share))


def idle_share(parts: tuple[Part, ...], call_ms: float) -> float:
    """The share of a call in which no kernel ran; 0 where kernels overlap."""
    return max(0.0, 1.0 - sum(part.calls * part.mean_ms for part in parts) / max(call_ms, 1e-9))
