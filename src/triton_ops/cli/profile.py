"""`triton-ops profile`: what limits kernels by a profile of Nsight Compute, and the command that makes one."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.backend import Operation
from triton_ops.base import require
from triton_ops.benchmark import Times, time_ms
from triton_ops.cli.console import (
    Device,
    Dtype,
    Json,
    Shape,
    Verbose,
    bold,
    only_data_on_stdout,
    paragraph,
    say,
    say_json,
    table,
    tell,
    width,
)
from triton_ops.cli.problem import parse_shapes
from triton_ops.cli.target import load_target
from triton_ops.device import current_device
from triton_ops.exceptions import MissingDependencyError, ProfileError, TargetError
from triton_ops.lab import (
    SAMPLED_MS,
    SETS,
    WARM_MS,
    Assembled,
    KernelProfile,
    NcuRequest,
    Part,
    ProfiledKernel,
    ProfileReport,
    Step,
    idle_share,
    parts_of,
    read_profile,
    read_ptxas,
    steps,
)
from triton_ops.request import device_for
from triton_ops.values import dtype_name

_SHOWN = 10
_PROFILE_FLOW_NAME = 60


@dataclass(frozen=True)
class Called:
    """What is called.

    Attributes:
        target: An operation, or a function that needs no arguments.
        shape: The text of `--shape`.
        dtype: The text of `--dtype`.
        device: The text of `--device`.
    """

    target: str
    shape: str | None = None
    dtype: str | None = None
    device: str | None = None

    @property
    def program(self) -> list[str]:
        """The command line that calls it some times."""
        given = {"--shape": self.shape, "--dtype": self.dtype, "--device": self.device}
        options = [word for name, value in given.items() if value is not None for word in (name, value)]
        return [sys.executable, "-m", "triton_ops", "profile", "call", self.target, *options]

    def loaded(self) -> tuple[Callable[..., Any], Mapping[str, Any], str]:
        """What is called, its arguments, and torch's name of the device.

        Raises:
            TargetError: It cannot be loaded, or needs arguments that are not known.
        """
        found = load_target(self.target)
        if isinstance(found, Operation):
            device = device_for(self.device, found.device, found.name)
            shape = next(iter(parse_shapes(self.shape)), None)
            return found, found.materialise(found.problem(shape, self.dtype), device).keyword, device
        needed = [p.name for p in inspect.signature(found).parameters.values() if _needed(p)]
        if needed or self.shape or self.dtype:
            said = f"needs {', '.join(needed)}" if needed else "has no shape and no dtype to choose"
            raise TargetError(f"{self.target} {said}", hint="name an Operation, or a function that needs no arguments")
        return found, {}, device_for(self.device, "any", self.target)

    def run(self, calls: int) -> None:
        """Call it once, so that it is compiled, and then so often; a profiler is told where that begins and ends.

        Raises:
            TargetError: As `loaded`.
        """
        function, given, device = self.loaded()
        with current_device(device):
            _run(function, given, device, calls)


def _run(function: Callable[..., Any], given: Mapping[str, Any], device: str, calls: int) -> None:
    function(**given)
    cuda = require("torch", "telling the profiler").cuda if device.startswith("cuda") else None
    if cuda is not None:
        cuda.synchronize()
        cuda.profiler.start()
    for _ in range(calls):
        function(**given)
    if cuda is not None:
        cuda.synchronize()
        cuda.profiler.stop()


def _needed(parameter: inspect.Parameter) -> bool:
    variable = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variable


@dataclass(frozen=True, kw_only=True)
class Flowed:
    """What the steps have shown.

    Attributes:
        times: The first step's.
        parts: The second step's.
        idle: The share of a call in which the GPU waits; None on a CPU.
        profile: The file with the third step's counters; None if there is none.
        missing: Why there is none.
    """

    times: Times
    parts: tuple[Part, ...]
    idle: float | None
    profile: Path | None
    missing: str = ""

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        p50, p20, p80 = self.times.quantiles_ms
        return {
            "time": {"median_ms": p50, "p20_ms": p20, "p80_ms": p80, "mode": self.times.mode,
                     "confidence": self.times.confidence, "notes": list(self.times.notes)},
            "parts": [asdict(part) for part in self.parts], "idle": self.idle, "missing": self.missing or None,
        }  # fmt: skip


def say_plan(steps: tuple[Step, ...]) -> None:
    """Print the steps, one after another."""
    for number, step in enumerate(steps, start=1):
        say(f"{number}  {step.name:<9} {step.what}", *([f"   {shlex.join(step.command)}"] if step.command else []))


def flowed(called: Called, request: NcuRequest) -> Flowed:
    """Take the steps, and tell on stderr which one is taken.

    Raises:
        TargetError: The target cannot be called.
        DeviceError: There is no such device.
    """
    function, given, device = called.loaded()
    tell("1 of 3: the time")
    times = time_ms(function, kwargs=given, warmup_ms=WARM_MS, rep_ms=SAMPLED_MS, device=device)
    tell("2 of 3: torch.profiler")
    parts = parts_of(lambda: function(**given), device)
    gpu = device.startswith("cuda")
    idle = idle_share(parts, times.median_ms) if gpu else None
    if not gpu:
        return Flowed(
            times=times,
            parts=parts,
            idle=idle,
            profile=None,
            missing="Nsight Compute counts on NVIDIA's GPUs, and this ran on a CPU",
        )
    tell("3 of 3: Nsight Compute")
    try:
        return Flowed(times=times, parts=parts, idle=idle, profile=request.run())
    except (MissingDependencyError, ProfileError) as error:
        hint = f"; {error.hint}" if error.hint else ""
        return Flowed(times=times, parts=parts, idle=idle, profile=None, missing=f"{error.message}{hint}")


def say_flow(found: Flowed) -> None:
    """Print the first two steps, and why there is no third."""
    taken, *notes = str(found.times).splitlines()
    say(bold("time      ") + taken, *(f"          {note}" for note in notes))
    rows = [
        [one.name[:_PROFILE_FLOW_NAME], f"{one.share:.1%}", f"{one.calls:g}", f"{one.mean_ms * 1e3:,.2f}"]
        for one in found.parts[:_SHOWN]
    ]
    header, *lines = table(("profiler", "share", "calls", "us"), rows, width(), ("share", "calls", "us"))
    waits = [] if found.idle is None else [f"the GPU waits in {found.idle:.0%} of a call"]
    say("", bold(header), *lines, *waits)
    if found.missing:
        say("", bold("counters  ") + found.missing)


app = typer.Typer(
    help="Say what limits kernels, from a profile of Nsight Compute.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)
Kernel = Annotated[str, typer.Option("--kernel", metavar="REGEX", help="Only kernels with this in their names.")]
Tried = Annotated[
    list[str] | None,
    typer.Option("--tried", metavar="WAY", help="library, torch.compile, Triton or CUDA, if tried; repeat it."),
]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="The GPU that was profiled, if the profile does not say.")
]
Flops = Annotated[
    float, typer.Option("--flops", metavar="N", min=0.0, help="Operations of one launch, if they were not counted.")
]
FlopsDtype = Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="Of the operands of --flops.")]
Program = Annotated[list[str], typer.Argument(metavar="PROGRAM...", help="The program to profile, after `--`.")]
Metrics = Annotated[str, typer.Option("--set", metavar="SET", help=f"One of {', '.join(SETS)}.")]
Skip = Annotated[int, typer.Option("--skip", metavar="N", help="Launches to leave out at first.")]
Launches = Annotated[int | None, typer.Option("--launches", metavar="N", help="Launches to profile; default all.")]
FewLaunches = Annotated[int, typer.Option("--launches", metavar="N", help="Launches that the counters are of.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="An operation, or a function that needs no arguments.")]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="The file that gets the CSV.")]
_HEADER = ("kernel", "share", "launches", "us", "compute", "memory", "occupancy", "verdict")
_NUMBERS = ("share", "launches", "us", "compute", "memory", "occupancy")
_ASSEMBLED = ("kernel", "target", "registers", "frame", "stored", "loaded", "verdict")
_NAME = 48  # characters of a kernel's name in the table


@dataclass(frozen=True)
class _About:
    """What the profile does not say: the GPU, and the operations of one launch with the dtype of their operands."""

    gpu: str | None
    flops: float
    dtype: str


@app.command("read")
def read(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `ncu --csv` printed: page raw or details.")],
    kernel: Kernel = "",
    gpu: Gpu = None,
    flops: Flops = 0.0,
    dtype: FlopsDtype = None,
    tried: Tried = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say of every kernel in a profile what limits it, with the numbers, and what to try next."""
    _show(
        read_profile(file, kernel=kernel, tried=tried or []),
        _About(gpu, flops, dtype_name(dtype) if dtype else ""),
        as_json,
    )


@app.command("ptxas")
def ptxas(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `ptxas -v` printed, perhaps among other lines.")],
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say which kernels spill or do not fit, from what NVIDIA's assembler printed."""
    found = read_ptxas(file)
    if as_json:
        say_json([{**asdict(one), "verdict": one.verdict, "next": one.next} for one in found])
        return
    header, *lines = table(_ASSEMBLED, [_assembled(one) for one in found], width(), _ASSEMBLED[2:6])
    say(bold(header), *lines)
    for one in found:
        if one.refused or one.next:
            said = ": ".join(filter(None, (one.refused.rstrip("."), one.next)))
            say(*paragraph(f"{one.kernel}: ", said, width()))


def _assembled(one: Assembled) -> list[str]:
    registers = "-" if one.registers is None else str(one.registers)
    figures = (one.stack_bytes, one.store_bytes, one.load_bytes)
    sizes = ["-" if one.registers is None else f"{size:,}" for size in figures]
    return [one.kernel[:_NAME], one.arch or "-", registers, *sizes, one.verdict]


@app.command("command")
def command(
    program: Program,
    metrics: Metrics = "roofline",
    kernel: Kernel = "",
    skip: Skip = 0,
    launches: Launches = None,
    out: Out = "profile.csv",
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Print the command that profiles a program, for a machine that has Nsight Compute."""
    words = _request(program, metrics, kernel, skip, launches, out).command()
    if as_json:
        say_json({"command": words})
    else:
        say(shlex.join(words))


@app.command("run")
def run(
    program: Program,
    metrics: Metrics = "roofline",
    kernel: Kernel = "",
    skip: Skip = 0,
    launches: Launches = None,
    out: Out = "profile.csv",
    gpu: Gpu = None,
    flops: Flops = 0.0,
    dtype: FlopsDtype = None,
    tried: Tried = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Profile a program here, and say what limits its kernels."""
    path = _request(program, metrics, kernel, skip, launches, out).run()
    tell(f"the profile is in {path}")
    _show(read_profile(path, tried=tried or []), _About(gpu, flops, dtype_name(dtype) if dtype else ""), as_json)


@app.command("flow")
def flow(
    target: Target,
    shape: Shape = None,
    dtype: Dtype = None,
    device: Device = None,
    metrics: Metrics = "roofline",
    kernel: Kernel = "",
    launches: FewLaunches = 20,
    out: Out = "profile.csv",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the steps, and take none.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Time TARGET, name its kernels, and say what limits each.

    Three steps: the time as do_bench takes it, torch.profiler, and Nsight Compute.
    """
    called = Called(target, shape, dtype, device)
    request = replace(_request(called.program, metrics, kernel, 0, launches, out), from_start=False)
    plan = steps(target, request.command())
    if dry_run:
        say_json({"steps": [asdict(step) for step in plan]}) if as_json else say_plan(plan)
        return
    with only_data_on_stdout():
        found = flowed(called, request)
    report = None if found.profile is None else read_profile(found.profile, kernel=kernel)
    about = _About(None, 0.0, "")
    if as_json:
        say_json({**found.as_json(), "counters": None if report is None else _as_json(report, about)})
        return
    say_flow(found)
    if report is not None:
        say("")
        _show(report, about, as_json=False)


@app.command("call")
def call(
    target: Target,
    shape: Shape = None,
    dtype: Dtype = None,
    device: Device = None,
    calls: Annotated[int, typer.Option("--calls", metavar="N", min=1, help="How often.")] = 3,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Call TARGET some times, for a profiler to look at."""
    with only_data_on_stdout():
        Called(target, shape, dtype, device).run(calls)


def _request(program: list[str], metrics: str, kernel: str, skip: int, launches: int | None, out: str) -> NcuRequest:
    return NcuRequest(program=program, metrics=metrics, kernel=kernel, skip=skip, launches=launches, out=out)


def _show(report: ProfileReport, about: _About, as_json: bool) -> None:
    for note in report.notes:
        tell(note, "warning", "yellow")
    if as_json:
        say_json(_as_json(report, about))
        return
    shown = [_words(one, about) for one in report.kernels]
    header, *lines = table(_HEADER, [_row(one) for one in report.kernels], width(), _NUMBERS)
    say(bold(header), *lines)
    for lines in shown:
        say("", *lines)
    if report.advice is not None:
        say("", *map(bold, paragraph(f"{report.advice.way}  ", "; ".join(report.advice.reasons), width())))


def _row(one: ProfiledKernel) -> list[str]:
    seen = one.judgement.profile
    took = "-" if seen.duration_s is None else f"{seen.duration_s * 1e6:,.2f}"
    share = "-" if one.share is None else f"{one.share:.1%}"
    percents = [_percent(seen.compute), _percent(seen.memory), _percent(seen.occupancy)]
    return [seen.kernel[:_NAME], share, str(one.launches), took, *percents, one.judgement.verdict]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0f}%"


def _words(one: ProfiledKernel, about: _About) -> list[str]:
    found = one.judgement
    lines = paragraph(f"{found.profile.kernel[:_NAME]}: ", f"{found.verdict}: {'; '.join(found.reasons)}", width())
    if said := _place_in_words(found.profile, about):
        lines += paragraph("  ", said, width())
    for step in found.steps:
        lines += paragraph("  next: ", f"{step.what} ({step.why})", width())
    return lines


def _place_in_words(seen: KernelProfile, about: _About) -> str:
    """Rates beside their shares of the peaks, and the limit, where they are known; else empty."""
    spec = seen.device_spec(about.gpu)
    found = seen.below_roof(spec, about.flops, about.dtype)
    if found is None or spec is None:
        return ""
    roof, placed = found
    rates = [f"{placed.tflops:,.4g} TFLOP/s ({placed.of_units:.0%} of the peak)"] if placed.of_units else []
    if seen.products_peak and seen.flops and seen.duration_s and not about.flops:
        rates[-1:] = [
            f"{rates[-1][:-1]}, {seen.flops / seen.duration_s / seen.products_peak:.0%} at the clock that ran)"
        ]
    rates += [f"{placed.gbps:,.4g} GB/s of device memory ({placed.of_memory:.0%})"] if placed.of_memory else []
    ridge = f"; {roof.intensity:.4g} FLOP/B, the ridge is at {roof.ridge:.4g}" if roof.intensity and roof.ridge else ""
    return f"{', '.join(rates)} of {spec.name}{ridge}; {placed.of_limit:.0%} of its limit, {placed.limit}"


def _as_json(report: ProfileReport, about: _About) -> dict[str, Any]:
    def kernel(one: ProfiledKernel) -> dict[str, Any]:
        seen = one.judgement.profile
        found = seen.below_roof(seen.device_spec(about.gpu), about.flops, about.dtype)
        place = None
        if found is not None:
            roof, placed = found
            place = {"flops": roof.flops, "bytes": roof.bytes, "intensity": roof.intensity, "ridge": roof.ridge}
            place |= asdict(placed)
        return {
            "kernel": seen.kernel, "launches": one.launches, "share": one.share, "verdict": one.judgement.verdict,
            "reasons": list(one.judgement.reasons), "next": [asdict(step) for step in one.judgement.steps],
            "figures": {name: value for name, value in asdict(seen).items() if name != "kernel"},
            "roofline": place,
        }  # fmt: skip

    advice = report.advice
    return {
        "kernels": [kernel(one) for one in report.kernels],
        "advice": None if advice is None else {"way": advice.way, "reasons": list(advice.reasons)},
        "notes": list(report.notes),
    }
