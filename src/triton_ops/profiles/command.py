"""The command line of Nsight Compute that profiles a program as it is read here, and running it.

Clocks are left alone (`--clock-control none`): locking them needs privileges, touches every user of the GPU, and the
times would be those of another clock. Source: the documentation of the Nsight Compute CLI.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_ops._files import read_file
from triton_ops.exceptions import MissingDependencyError, ProfileError, SettingsError

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
    """What to profile.

    Attributes:
        program: The program and its arguments.
        metrics: The set of metrics: `basic`, `roofline`, `detailed` or `full`. What decides is added to each.
        kernel: A regular expression for the names of kernels; empty profiles all.
        skip: Launches that are left out at first.
        launches: Launches that are profiled; None profiles all.
        out: The file that gets the CSV.
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


def ncu_command(request: NcuRequest, ncu: str = "ncu") -> list[str]:
    """The command line that profiles a program of Triton kernels, child processes included.

    Args:
        request: What to profile.
        ncu: The profiler.
    """
    words = [ncu, "--set", request.metrics, "--target-processes", "all", "--clock-control", "none"]
    for section in _SECTIONS:
        words += ["--section", section]
    if not request.from_start:
        words += ["--profile-from-start", "off"]
    if request.kernel:
        words += ["--kernel-name", f"regex:{request.kernel}"]
    if request.skip:
        words += ["--launch-skip", str(request.skip)]
    if request.launches is not None:
        words += ["--launch-count", str(request.launches)]
    return [*words, "--csv", "--page", "raw", "--log-file", request.out, *request.program]


def find_ncu() -> str:
    """The profiler on this machine.

    Raises:
        MissingDependencyError: There is none.
    """
    found = shutil.which("ncu") or next((place for place in _PLACES if Path(place).is_file()), None)
    if found is None:
        raise MissingDependencyError(
            "Nsight Compute is not here: there is no `ncu` on the PATH, nor in a CUDA toolkit",
            hint="it comes with CUDA's toolkit; `triton-ops profile command` prints the line for a machine that has it",
        )
    return found


def run_ncu(request: NcuRequest) -> Path:
    """Profile a program; returns the file with the CSV.

    Cost: the program is run once, and each profiled launch dozens of times.

    Raises:
        MissingDependencyError: There is no profiler here.
        ProfileError: The profiler failed; the error says why, as far as it told.
    """
    done = subprocess.run(ncu_command(request, find_ncu()), check=False, stdout=_STDERR)
    out = Path(request.out)
    try:
        text = read_file(out, _LARGEST_BYTES).decode("utf-8", errors="replace")
    except OSError:
        text = ""
    for mark, said, hint in _SAID:
        if mark in text:
            raise ProfileError(f"ncu wrote no profile: {said}", hint=hint)
    if done.returncode and '"Kernel Name"' not in text:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
        said = f"ncu ended with code {done.returncode}: {last[:200]}"
        raise ProfileError(said, hint="run the program without ncu first")
    return out
