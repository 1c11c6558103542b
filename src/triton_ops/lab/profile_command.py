"""The command line of Nsight Compute that profiles a program as it is read here, and running it.

Clocks are left alone (`--clock-control none`): locking them needs privileges, touches every user of the GPU, and the
times would be those of another clock. Source: the documentation of the Nsight Compute CLI.

Each step says whether the next is worth it: a time alone may be fast enough, torch's profiler names the kernels and how
long the device waits between them, and Nsight Compute's counters say what limits one kernel.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.base import read_file, require
from triton_ops.compile_modes import profiler
from triton_ops.device import current_device
from triton_ops.exceptions import MissingDependencyError, ProfileError, SettingsError

CALLS = 5
WARM_MS, SAMPLED_MS = 25.0, 100.0


@dataclass(frozen=True)
class FlowStep:
    """One step of the flow.

    Attributes:
        name: `time`, `profiler` or `counters`.
        what: What it does.
        command: Its command line; empty for a step within this process.
    """

    name: str
    what: str
    command: tuple[str, ...] = ()


def steps(target: str, command: list[str]) -> tuple[FlowStep, ...]:
    """The steps for a target, of which nothing is imported."""
    return (
        FlowStep("time", f"time {target}: {WARM_MS:g} ms of warm-up, {SAMPLED_MS:g} ms of samples, as do_bench"),
        FlowStep(
            "profiler", f"run it {CALLS} times under torch.profiler: kernels by their share, and where the GPU waits"
        ),
        FlowStep("counters", "run it under Nsight Compute: what limits each kernel", tuple(command)),
    )


@dataclass(frozen=True)
class CallPart:
    """A kernel, or on a CPU an operator.

    Attributes:
        share: Its share of the time of all, from 0 to 1.
        calls: How often it runs in one call.
        mean_ms: How long one takes.
    """

    name: str
    share: float
    calls: float
    mean_ms: float


def parts_of(call: Callable[[], Any], device_name: str) -> tuple[CallPart, ...]:
    """The kernels or operators of a call by torch's profiler, the most expensive first.

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
    device_type = torch.autograd.DeviceType.CUDA if gpu else torch.autograd.DeviceType.CPU
    took_us = {
        event.key: (float(event.self_device_time_total if gpu else event.self_cpu_time_total), int(event.count))
        for event in recorded.key_averages()
        if event.device_type == device_type
    }
    whole_us = sum(us for us, _ in took_us.values()) or 1.0
    parts = [CallPart(name, us / whole_us, n / CALLS, us / n / 1e3) for name, (us, n) in took_us.items() if us > 0]
    return tuple(sorted(parts, key=lambda part: -part.share))


def idle_share(parts: tuple[CallPart, ...], call_ms: float) -> float:
    """The share of a call in which no kernel ran; 0 where kernels overlap."""
    return max(0.0, 1.0 - sum(part.calls * part.mean_ms for part in parts) / max(call_ms, 1e-9))


SETS = ("basic", "roofline", "detailed", "full")
_SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy", "SchedulerStats", "WarpStateStats", "MemoryWorkloadAnalysis")
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
_LARGEST_BYTES = 256 << 20
_STDERR = 2  # where the program's own output goes: stdout is for data
_SAID = (
    ("ERR_NVGPUCTRPERM", "it has no permission to read the GPU's counters",
     "run as root, or see https://developer.nvidia.com/ERR_NVGPUCTRPERM"),
    ("LibraryNotLoaded", "the profiler's library cannot be loaded, as in some sandboxes", "run it outside of one"),
    ("No kernels were profiled", "no kernel was profiled", "check --kernel, --skip and that the program launches it"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NcuRequest:
    """A program to profile, and the way to do it.

    Attributes:
        metrics: The set of metrics: `basic`, `roofline`, `detailed` or `full`. What decides is added to each.
        kernel: A regular expression for the names of kernels; empty profiles all.
        skip: Launches that are left out at first.
        launches: Launches that are profiled; None profiles all.
        from_start: Whether the whole program is profiled; else from where it calls `cudaProfilerStart`.
    """

    program: Sequence[str]
    metrics: str = "roofline"
    kernel: str = ""
    skip: int = 0
    launches: int | None = None
    out: str = "profile.csv"
    from_start: bool = True

    def __post_init__(self) -> None:
        if not self.program:
            raise SettingsError("there is no program to profile", hint="put it last: -- python my_script.py")
        if self.metrics not in SETS:
            raise SettingsError(f"there is no set {self.metrics!r}", hint=f"one of {', '.join(SETS)}")
        if self.skip < 0 or (self.launches is not None and self.launches < 1):
            raise SettingsError(
                f"{self.launches} launches after {self.skip} are none to profile", hint="such as --launches 3 --skip 10"
            )

    def command(self, ncu: str = "ncu") -> list[str]:
        """The command line that profiles the program with its child processes."""
        words = [ncu, "--set", self.metrics, "--target-processes", "all", "--clock-control", "none"]
        for section in _SECTIONS:
            words += ["--section", section]
        if not self.from_start:
            words += ["--profile-from-start", "off"]
        if self.kernel:
            words += ["--kernel-name", f"regex:{self.kernel}"]
        if self.skip:
            words += ["--launch-skip", str(self.skip)]
        if self.launches is not None:
            words += ["--launch-count", str(self.launches)]
        return [*words, "--csv", "--page", "raw", "--log-file", self.out, *self.program]

    def run(self) -> Path:
        """Profile a program; returns the file with the CSV.

        Cost: the program is run once, and each profiled launch dozens of times.

        Raises:
            MissingDependencyError: There is no profiler here.
            ProfileError: The profiler failed; the error says why, as far as it told.
        """
        process = subprocess.run(self.command(find_ncu()), check=False, stdout=_STDERR)
        out = Path(self.out)
        try:
            text = read_file(out, _LARGEST_BYTES).decode("utf-8", errors="replace")
        except OSError:
            text = ""
        for mark, reason, hint in _SAID:
            if mark in text:
                raise ProfileError(f"ncu wrote no profile: {reason}", hint=hint)
        if process.returncode and '"Kernel Name"' not in text:
            last = next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
            reason = f"ncu ended with code {process.returncode}: {last[:200]}"
            raise ProfileError(reason, hint="run the program without ncu first")
        return out


def find_ncu() -> str:
    """The profiler on this machine.

    Raises:
        MissingDependencyError: There is none.
    """
    program = shutil.which("ncu") or next((place for place in _PLACES if Path(place).is_file()), None)
    if program is None:
        raise MissingDependencyError(
            "Nsight Compute is not here: there is no `ncu` on the PATH, nor in a CUDA toolkit",
            hint="it comes with CUDA's toolkit; `triton-ops profile command` prints the line for a machine that has it",
        )
    return program
