"""`triton-ops profile flow` and `profile call`: a time, torch's profiler and Nsight Compute as one command."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Operation
from triton_ops.cli.console import bold, say, tell, width
from triton_ops.cli.layout import table
from triton_ops.cli.problem import parse_shapes
from triton_ops.cli.target import load_target
from triton_ops.comparison.timing import Times, time_ms
from triton_ops.exceptions import MissingDependencyError, ProfileError, TargetError
from triton_ops.hardware import current_device
from triton_ops.profiles.command import NcuRequest, run_ncu
from triton_ops.profiles.flow import SAMPLED_MS, WARM_MS, Part, Step, idle_share, parts_of
from triton_ops.task.request import device_for

_SHOWN = 10
_NAME = 60


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
        return Flowed(times=times, parts=parts, idle=idle, profile=run_ncu(request))
    except (MissingDependencyError, ProfileError) as error:
        hint = f"; {error.hint}" if error.hint else ""
        return Flowed(times=times, parts=parts, idle=idle, profile=None, missing=f"{error.message}{hint}")


def say_flow(found: Flowed) -> None:
    """Print the first two steps, and why there is no third."""
    taken, *notes = str(found.times).splitlines()
    say(bold("time      ") + taken, *(f"          {note}" for note in notes))
    rows = [
        [one.name[:_NAME], f"{one.share:.1%}", f"{one.calls:g}", f"{one.mean_ms * 1e3:,.2f}"]
        for one in found.parts[:_SHOWN]
    ]
    header, *lines = table(("profiler", "share", "calls", "us"), rows, width(), ("share", "calls", "us"))
    waits = [] if found.idle is None else [f"the GPU waits in {found.idle:.0%} of a call"]
    say("", bold(header), *lines, *waits)
    if found.missing:
        say("", bold("counters  ") + found.missing)
