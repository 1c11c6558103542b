"""`triton-ops explain profile`: what limits kernels by a profile, and the command that makes one with Nsight Compute.

Clocks are left alone (`--clock-control none`): locking them needs privileges, touches every user of the GPU, and the
times would be those of another clock. Source: the documentation of the Nsight Compute CLI.

Each step says whether the next is worth it: a time alone may be fast enough, torch's profiler names the kernels and how
long the device waits between them, and Nsight Compute's counters say what limits one kernel.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from triton_ops.backend import Arguments, Operation
from triton_ops.base import require
from triton_ops.benchmark import profile_of, time_ms
from triton_ops.device import TorchDevice
from triton_ops.exceptions import MissingDependencyError, ProfileError, SettingsError, TargetError
from triton_ops.request import device_for
from triton_ops.terminal import Facts, option, tell
from triton_ops.typed import TypedTarget
from triton_ops.values import dtype_name
from triton_ops_lab.kernel_verdicts import KernelProfile, ProfiledKernel, ProfileReport, read_profile
from triton_ops_lab.ptxas_log import read_ptxas

CALLS = 5
WARM_MS, SAMPLED_MS = 25.0, 100.0


def _steps(target: str, command: list[str]) -> list[dict[str, Any]]:
    """The steps for a target, of which nothing is imported; those within this process have no command."""
    time = f"time {target}: {WARM_MS:g} ms of warm-up, {SAMPLED_MS:g} ms of samples, as do_bench"
    run = f"run it {CALLS} times under torch.profiler: kernels by their share, and where the GPU waits"
    return [
        {"name": "time", "what": time, "command": []},
        {"name": "profiler", "what": run, "command": []},
        {"name": "counters", "what": "run it under Nsight Compute: what limits each kernel", "command": command},
    ]


@dataclass(frozen=True)
class CallPart:
    """A kernel, or on a CPU an operator, with its share of the time and its runs in one call."""

    name: str
    share: float
    calls: float
    mean_ms: float


def parts_of(call: Callable[[], Any], device_name: str) -> tuple[CallPart, ...]:
    """The kernels or operators of a call, which has run before, by torch's profiler, the most expensive first."""
    torch: Any = require("torch", "profiling a call")
    gpu = device_name.startswith("cuda")
    with TorchDevice(device_name).current():
        recorded = profile_of(call, device_name, CALLS)
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
_STDERR = 2  # where the program's own output goes: stdout is for data


@dataclass(frozen=True, kw_only=True)
class NcuRequest:
    """A program to profile, and the way to do it."""

    program: Sequence[str]
    metrics: str = "roofline"  # the set: one of `SETS`; what decides is added to each
    kernel: str = ""  # a regular expression for names of kernels; empty profiles all
    skip: int = 0  # launches left out at first
    launches: int | None = None  # that are profiled; None profiles all
    out: str = "profile.csv"
    from_start: bool = True  # False: from where the program calls `cudaProfilerStart`

    def __post_init__(self) -> None:
        if not self.program:
            raise SettingsError("there is no program to profile", hint="put it last: -- python my_script.py")
        if self.metrics not in SETS:
            raise SettingsError(f"there is no set {self.metrics!r}", hint=f"one of {', '.join(SETS)}")
        if self.skip < 0 or (self.launches is not None and self.launches < 1):
            message = f"--skip is {self.skip} and --launches {self.launches}; they must be 0 or more and 1 or more"
            raise SettingsError(message, hint="such as --skip 10 --launches 3")

    def command(self, ncu: str = "ncu") -> list[str]:
        """The command line that profiles the program with its child processes."""
        words = [ncu, "--set", self.metrics, "--target-processes", "all", "--clock-control", "none"]
        words += [word for section in _SECTIONS for word in ("--section", section)]
        options = {
            "--profile-from-start": None if self.from_start else "off",
            "--kernel-name": f"regex:{self.kernel}" if self.kernel else None,
            "--launch-skip": self.skip or None, "--launch-count": self.launches,
        }  # fmt: skip
        words += [str(word) for name, value in options.items() if value is not None for word in (name, value)]
        return [*words, "--csv", "--page", "raw", "--log-file", self.out, *self.program]

    def run(self) -> Path:
        """Profile a program, which runs once, and each profiled launch dozens of times; returns the CSV's file."""
        process = subprocess.run(self.command(find_ncu()), check=False, stdout=_STDERR)
        if process.returncode:
            tell(f"ncu ended with code {process.returncode}", "warning", "yellow")
        return Path(self.out)


def find_ncu() -> str:
    """The profiler on this machine; `MissingDependencyError` if there is none."""
    program = shutil.which("ncu") or next((place for place in _PLACES if Path(place).is_file()), None)
    if program is None:
        message = "Nsight Compute is not here: there is no `ncu` on the PATH, nor in a CUDA toolkit"
        hint = "it comes with CUDA's toolkit; `triton-ops explain profile command` prints the line to run elsewhere"
        raise MissingDependencyError(message, hint=hint)
    return program


_SHOWN = 10
_PART_NAME = 60  # characters of a part's name in the table
_KERNEL_NAME = 48  # characters of a kernel's name in the table
_HEADER = ("kernel", "share", "launches", "us", "compute", "memory", "occupancy", "verdict")
_ASSEMBLED = ("kernel", "target", "registers", "frame", "stored", "loaded", "verdict")
Kernel = Annotated[str, option("--kernel", "Only kernels with this in their names.", "REGEX")]
Tried = Annotated[
    list[str] | None, option("--tried", "library, torch.compile, Triton or CUDA, if tried; repeat it.", "WAY")
]
Flops = Annotated[float, option("--flops", "Operations of one launch, if they were not counted.", "N", min=0.0)]
FlopsDtype = Annotated[str | None, option("--dtype", "Of the operands of --flops.", "DTYPE")]
Program = Annotated[list[str], option("PROGRAM...", "The program to profile, after `--`.")]
Metrics = Annotated[str, option("--set", f"One of {', '.join(SETS)}.", "SET")]
Skip = Annotated[int, option("--skip", "Launches to skip at the start.", "N")]
Launches = Annotated[int | None, option("--launches", "Launches to profile; default all.", "N")]
FewLaunches = Annotated[int, option("--launches", "Launches that the counters are of.", "N")]
Target = Annotated[TypedTarget, "text shape dtype", {"text": "An operation, or a function that needs no arguments."}]
Out = Annotated[str, option("--out", "The file that gets the CSV.", "FILE")]


@dataclass(frozen=True)
class Called:
    """A call for a profiler to look at, of an operation or of a function that needs no arguments."""

    target: TypedTarget
    device: str | None = None

    @property
    def program(self) -> list[str]:
        """The command line that calls it some times."""
        shape = ",".join("x".join(map(str, one)) for one in self.target.problem.shapes)
        options = {"--shape": shape, "--dtype": self.target.problem.dtype, "--device": self.device}
        words = [word for name, value in options.items() if value for word in (name, value)]
        return [sys.executable, "-m", "triton_ops", "explain", "profile", "call", self.target.text, *words]

    def loaded(self) -> tuple[Callable[..., Any], Mapping[str, Any], str]:
        """The function, its arguments, and torch's name of the device; `TargetError` where arguments are not known."""
        target = self.target
        if isinstance(function := target.load(), Operation):
            operation, _, shape, dtype = target.tuned(function)
            device = device_for(self.device, operation.device, operation.name)
            arguments = operation.materialise(operation.problem(shape, dtype), device).keyword
            return lambda **values: operation(**values), arguments, device  # a kernel would be timed with one config
        names = Arguments.required(function)
        if names or target.problem.shapes or target.problem.dtype:
            lack = f"needs {', '.join(names)}" if names else "has no shape and no dtype to choose"
            raise TargetError(f"{target.text} {lack}", hint="name an Operation, or a function that needs no arguments")
        return function, {}, device_for(self.device, "any", target.text)

    def run(self, calls: int) -> None:
        """Call it once, so that it is compiled, and then so often; a profiler is told where that begins and ends."""
        function, arguments, device = self.loaded()
        cuda = require("torch", "telling the profiler").cuda if device.startswith("cuda") else None
        with TorchDevice(device).current():
            function(**arguments)
            if cuda is not None:
                cuda.synchronize()
                cuda.profiler.start()
            for _ in range(calls):
                function(**arguments)
            if cuda is not None:
                cuda.synchronize()
                cuda.profiler.stop()


def _flow_of(
    called: Called, request: NcuRequest
) -> tuple[Any, tuple[CallPart, ...], float | None, ProfileReport | str]:
    """The times, the parts, the share of a call in which a GPU waits, and a report on counters or why there is none."""
    function, arguments, device = called.loaded()
    tell("1 of 3: the time")
    times = time_ms(function, kwargs=arguments, warmup_ms=WARM_MS, rep_ms=SAMPLED_MS, device=device)
    tell("2 of 3: torch.profiler")
    parts = parts_of(lambda: function(**arguments), device)
    if not device.startswith("cuda"):
        return times, parts, None, "Nsight Compute counts on NVIDIA's GPUs, and this ran on a CPU"
    idle = idle_share(parts, times.median_ms)
    tell("3 of 3: Nsight Compute")
    try:
        return times, parts, idle, read_profile(request.run(), kernel=request.kernel)
    except (MissingDependencyError, ProfileError) as error:
        return times, parts, idle, f"{error.message}; {error.hint}" if error.hint else error.message


def add_calls(facts: Facts, times: str, parts: Sequence[CallPart], idle: float | None) -> Facts:
    """Add the first two steps."""
    time, *notes = times.splitlines()
    facts.text(time, "time      ").lines(*(f"          {note}" for note in notes), "")
    rows = [
        [part.name[:_PART_NAME], f"{part.share:.1%}", f"{part.calls:g}", f"{part.mean_ms * 1e3:,.2f}"]
        for part in parts[:_SHOWN]
    ]
    facts.table(("profiler", "share", "calls", "us"), rows, ("share", "calls", "us"))
    return facts if idle is None else facts.lines(f"the GPU waits in {idle:.0%} of a call")


def flow_command(
    target: Target,
    device: str | None = None,
    metrics: Metrics = "roofline",
    kernel: Kernel = "",
    launches: FewLaunches = 20,
    out: Out = "profile.csv",
    dry_run: Annotated[bool, option("--dry-run", "Print the steps, and take none.")] = False,
) -> Facts:
    """Time TARGET, name its kernels, and say what limits each.

    Three steps: the time as do_bench takes it, torch.profiler, and Nsight Compute.

    On a CPU, and where `ncu` is missing or may not count, the first two steps are reported, and why there is no
    third.
    """
    subject = Called(target, device)
    request = NcuRequest(
        program=subject.program, metrics=metrics, kernel=kernel, launches=launches, out=out, from_start=False
    )
    if dry_run:
        plan = _steps(target.text, request.command())
        facts = Facts("explain profile flow", {"steps": plan})
        for number, step in enumerate(plan, start=1):
            command = [f"   {shlex.join(step['command'])}"] if step["command"] else []
            facts.lines(f"{number}  {step['name']:<9} {step['what']}", *command)
        return facts
    times, parts, idle, report = _flow_of(subject, request)
    missing = report if isinstance(report, str) else None
    quantiles_ms = dict(zip(("median_ms", "p20_ms", "p80_ms"), times.quantiles_ms, strict=True))
    data = {
        "time": {**quantiles_ms, **Facts.members(times, "mode", "confidence", "notes")}, "parts": parts, "idle": idle,
        "missing": missing, "counters": None if isinstance(report, str) else _as_json(report, {}),
    }  # fmt: skip
    facts = add_calls(Facts("explain profile flow", data), str(times), parts, idle).lines("")
    return facts.text(report, "counters  ") if isinstance(report, str) else _add_report(facts, report, {})


def read_command(
    file: Annotated[Path, option("FILE", "What `ncu` printed, or what rocprof or Proton wrote.")],
    kernel: Kernel = "",
    gpu: str | None = None,
    flops: Flops = 0.0,
    dtype: FlopsDtype = None,
    tried: Tried = None,
) -> Facts:
    """Say of every kernel in a profile what limits it, with the numbers, and what to try next.

    No GPU is needed. Exit code 2: the file is no profile, and the error says what it is.
    """
    report = read_profile(file, kernel=kernel, tried=tried or [])
    about = {"gpu": gpu, "flops": flops, "dtype": dtype_name(dtype) if dtype else ""}
    return _add_report(Facts("explain profile", _as_json(report, about)), report, about)


def ptxas_command(
    file: Annotated[Path, option("FILE", "What `ptxas -v` printed, perhaps among other lines.")],
) -> Facts:
    """Say which kernels spill or do not fit, from what NVIDIA's assembler printed.

    TRITON_DUMP_PTXAS_LOG=1 with TRITON_ALWAYS_COMPILE=1, or nvcc's -Xptxas -v, makes such a file. Verdicts are
    `spills`, `frame` (local memory without spilled registers), `refused`, `fits`, and `unknown` where figures are
    missing. Lines of ptxas that are not understood are counted and named.
    """
    log = read_ptxas(file)
    kernels = log.kernels
    for note in log.notes:
        tell(note, "warning", "yellow")
    data = [{**asdict(one), "verdict": one.verdict, "next": one.next} for one in kernels]
    facts = Facts("explain profile ptxas", data)
    rows = []
    for one in kernels:
        sizes = (one.registers, one.stack_bytes, one.store_bytes, one.load_bytes)
        figures = [Facts.cell(size, ",") for size in sizes]
        rows.append([one.kernel[:_KERNEL_NAME] or "-", one.arch or "-", *figures, one.verdict])
    facts.table(_ASSEMBLED, rows, _ASSEMBLED[2:6])
    for one in kernels:
        if one.refused or one.next:
            text = ": ".join(filter(None, (one.refused.rstrip("."), one.next)))
            facts.text(text, f"{one.kernel or 'a kernel'}: ")
    return facts


def command_command(
    program: Program, metrics: Metrics = "roofline", kernel: Kernel = "", skip: Skip = 0, launches: Launches = None,
    out: Out = "profile.csv",
) -> Facts:  # fmt: skip
    """Print the command that profiles a program, for a machine that has Nsight Compute."""
    words = NcuRequest(program=program, metrics=metrics, kernel=kernel, skip=skip, launches=launches, out=out).command()
    return Facts("explain profile command", {"command": words}).lines(shlex.join(words), end=" \\")


def run_command(
    program: Program, metrics: Metrics = "roofline", kernel: Kernel = "", skip: Skip = 0, launches: Launches = None,
    out: Out = "profile.csv", gpu: str | None = None, flops: Flops = 0.0, dtype: FlopsDtype = None, tried: Tried = None,
) -> Facts:  # fmt: skip
    """Profile a program here, and say what limits its kernels.

    It needs Nsight Compute; without `ncu` the exit code is 3. The program's output goes to stderr.
    """
    path = NcuRequest(program=program, metrics=metrics, kernel=kernel, skip=skip, launches=launches, out=out).run()
    tell(f"the profile is in {path}")
    return read_command(path, gpu=gpu, flops=flops, dtype=dtype, tried=tried)


def call_command(
    target: Target,
    device: str | None = None,
    calls: Annotated[int, option("--calls", "How often.", "N", min=1)] = 3,
) -> Facts:
    """Call TARGET some times, for a profiler to look at."""
    Called(target, device).run(calls)
    return Facts("explain profile call", {"target": target.text, "calls": calls})


def _add_report(facts: Facts, report: ProfileReport, about: Mapping[str, Any]) -> Facts:
    """Add the kernels and the advice; `about` are the arguments of `below_roof`, which a profile may lack."""
    for note in report.notes:
        tell(note, "warning", "yellow")
    names = Counter(one.judgement.profile.kernel for one in report.kernels)
    labels = [_label(one.judgement.profile, names) for one in report.kernels]
    facts.table(_HEADER, [_row(*pair) for pair in zip(labels, report.kernels, strict=True)], _HEADER[1:-1])
    for label, one in zip(labels, report.kernels, strict=True):
        facts.lines("").text(f"{one.judgement.verdict}: {'; '.join(one.judgement.reasons)}", f"{label}: ")
        if place := _place_in_words(one.judgement.profile, about):
            facts.text(place, "  ")
        for step in one.judgement.steps:
            facts.text(f"{step.what} ({step.why})", "  next: ")
    if report.advice is not None:
        facts.lines("").text("; ".join(report.advice.reasons), f"{report.advice.way}  ", bold=True)
    return facts


def _label(profile: KernelProfile, names: Mapping[str, int]) -> str:
    """The name of a kernel, with the shape of its launches if the profile has several."""
    if names[profile.kernel] == 1 or profile.blocks is None or profile.threads is None:
        return profile.kernel[:_KERNEL_NAME]
    shape = f" {profile.blocks:.0f}x{profile.threads:.0f}"
    return profile.kernel[: _KERNEL_NAME - len(shape)] + shape


def _row(label: str, one: ProfiledKernel) -> list[str]:
    profile = one.judgement.profile
    duration = Facts.cell(profile.duration_s and profile.duration_s * 1e6, ",.2f")
    percents = [Facts.cell(share, ".0f", "%") for share in (profile.compute, profile.memory, profile.occupancy)]
    return [label, Facts.cell(one.share, ".1%"), str(one.launches), duration, *percents, one.judgement.verdict]


def _place_in_words(profile: KernelProfile, about: Mapping[str, Any]) -> str:
    """Rates beside their shares of the peaks, and the limit, where they are known; else empty."""
    if (below := profile.below_roof(**about)) is None:
        return ""
    spec, roof, place = below
    rates = [f"{place.tflops:,.4g} TFLOP/s ({place.of_units:.0%} of the peak)"] if place.of_units else []
    if profile.products_peak and profile.flops and profile.duration_s and not about.get("flops"):
        share = profile.flops / profile.duration_s / profile.products_peak
        rates[-1:] = [f"{rates[-1][:-1]}, {share:.0%} at the clock that ran)"]
    rates += [f"{place.gbps:,.4g} GB/s of device memory ({place.of_memory:.0%})"] if place.of_memory else []
    ridge = f"; {roof.intensity:.4g} FLOP/B, the ridge is at {roof.ridge:.4g}" if roof.intensity and roof.ridge else ""
    return f"{', '.join(rates)} of {spec.name}{ridge}; {place.of_limit:.0%} of its limit, {place.limit}"


def _as_json(report: ProfileReport, about: Mapping[str, Any]) -> dict[str, Any]:
    kernels = []
    for one in report.kernels:
        profile, roofline = one.judgement.profile, None
        if below := profile.below_roof(**about):
            _, roof, place = below
            roofline = {**Facts.members(roof, "flops", "bytes", "intensity", "ridge"), **asdict(place)}
        judgement = Facts.members(one.judgement, "verdict", "reasons", next="steps")
        row = {"kernel": profile.kernel, **Facts.members(one, "launches", "share"), **judgement}
        figures = {name: value for name, value in asdict(profile).items() if name != "kernel"}
        kernels.append({**row, "figures": figures, "roofline": roofline})
    return {"kernels": kernels, "advice": Facts.members(report.advice, "way", "reasons"), "notes": report.notes}
