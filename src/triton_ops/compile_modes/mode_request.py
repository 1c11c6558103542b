"""Checked arguments of a comparison of compile modes: what does not fit is refused before any work."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.backend import pack
from triton_ops.base import ensure_folder, require
from triton_ops.compile_modes.compile_mode import (
    CompileMode,
    as_mode,
    check_mode,
    checked_logs,
    default_modes,
    switched_off,
    uses_cudagraphs,
)
from triton_ops.compile_modes.mode_contender import LEAST_CALLS
from triton_ops.compile_modes.mode_process import CallManner, StepLimits
from triton_ops.compile_modes.model_workload import Loss, ModelWorkload, checked_loss, workload_by, workload_of
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.request import checked_seed
from triton_ops.values import Tolerance, as_tolerance

_MOST_MODEL_BYTES = 1 << 34


@dataclass(frozen=True, kw_only=True)
class ModesRequest:
    """A comparison of compile modes: the checked arguments of `tune_compile`, and what they make together.

    Attributes:
        packed: What makes the workload in each process, as bytes.
        modes: The ways to compile, eager first.
        manner: How calls are made and judged.
        limits: How long the steps of a mode may take.
        device: The GPU that processes ready early, where it is known; else empty.
        notes: What a reader should know of what is sent.
    """

    packed: bytes
    modes: tuple[CompileMode, ...]
    manner: CallManner = field(default_factory=CallManner)
    limits: StepLimits = field(default_factory=StepLimits)
    warm: bool = False
    why: bool = False
    seconds: float = 20.0
    budget_s: float | None = None
    resume: bool = True
    collect: Path | None = None
    logs: tuple[str, ...] = ()
    cache_dir: Path | None = None
    wait: bool = True
    device: str = ""
    notes: tuple[str, ...] = ()


def request_of(
    model: Any,
    inputs: Any,
    *,
    modes: Sequence[Any] | None,
    training: bool,
    loss: Loss | None,
    tolerance: Tolerance | float | None,
    warmup: int,
    seconds: float,
    budget_s: float | None,
    compile_s: float | None,
    seed: int,
    logs: Sequence[str],
    collect: str | Path | None = None,
    **rest: Any,
) -> ModesRequest:
    """The request that a caller makes.

    Raises:
        SettingsError: A number is out of range, a way to compile is none, no torch has a mode, two have one name, torch
            has no such log, the loss is no function, logs and traces cannot be collected there, or `torch.compile` is
            switched off.
        KernelTypeError, DeviceError: The model or its inputs do not fit.
    """
    ways = _modes(modes)
    if off := switched_off(dict(settings.environment())):
        raise SettingsError(f"{off} is 1, and torch.compile does nothing then", hint=f"unset {off}")
    if isinstance(logs, (str, bytes)):
        raise SettingsError(f"logs is {logs!r}; a list of names is needed", hint='logs=["inductor"]')
    checked_loss(loss)
    checked_logs(logs)
    _check_numbers(warmup=warmup, seconds=seconds, budget_s=budget_s, compile_s=compile_s)
    _check_warmup(int(warmup), ways)
    manner = CallManner(
        training=bool(training), tolerance=as_tolerance(tolerance), seed=checked_seed(seed), warmup=int(warmup),
        **_torch_settings(),
    )  # fmt: skip
    device = ""
    folder = None if collect is None else _collecting(collect)
    _check_factory(model, inputs)
    if inputs is not None:
        workload = workload_of(model, inputs)
        device = workload.device_name if workload.device_name.startswith("cuda") else ""
        make: Callable[[], Any] = partial(workload_of, workload.model, list(workload.calls))
    else:
        make = partial(workload_by, model)
    packed = pack((make, loss), _MOST_MODEL_BYTES)
    limits = StepLimits() if compile_s is None else StepLimits(compile_s=float(compile_s))
    return ModesRequest(
        packed=packed.content, modes=ways, manner=manner, limits=limits, seconds=float(seconds),
        budget_s=None if budget_s is None else float(budget_s), device=device, logs=tuple(logs), collect=folder,
        notes=tuple(f"drawn anew in each process: {each}" for each in packed.drawn), **rest,
    )  # fmt: skip


def checked_workload(model: Any, inputs: Any) -> ModelWorkload:
    """The workload of a model and its inputs, or of a factory, made in this process.

    Raises:
        SettingsError: There are no inputs, and the model is no factory.
        KernelTypeError, TargetError, DeviceError: They do not fit.
    """
    _check_factory(model, inputs)
    return workload_by(model) if inputs is None else workload_of(model, inputs)


def _check_factory(model: Any, inputs: Any) -> None:
    if inputs is None and (not callable(model) or hasattr(model, "named_parameters")):
        raise SettingsError(
            f"inputs is None, and the model is a {type(model).__name__}, not a factory",
            hint="give (model, (x,)), or a factory, which returns (model, (x,))",
        )


def _collecting(folder: Any) -> Path:
    """The folder for logs and traces, which is made here: what cannot be kept is not worth minutes of compiling."""
    if not isinstance(folder, (str, Path)) or not str(folder):
        raise SettingsError(f"collect is {folder!r}; it must be the path of a folder", hint='collect="traces"')
    try:
        return ensure_folder(folder)
    except CacheError as error:
        raise SettingsError(f"nothing can be collected: {error.message}", hint="name another folder") from error


def _modes(modes: Any) -> tuple[CompileMode, ...]:
    if modes is not None and (isinstance(modes, (str, bytes)) or not isinstance(modes, Sequence) or not modes):
        raise SettingsError(f"modes is {modes!r}; a list of ways to compile is needed", hint='modes=["default"]')
    ways = default_modes() if modes is None else [as_mode(each) for each in modes]
    for mode in ways:
        check_mode(mode)
    names = [mode.name for mode in ways]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingsError(f"the mode {twice[0]} is asked for twice", hint="give CompileModes different names")
    eager = [mode for mode in ways if mode.eager] or [as_mode("eager")]
    return (*eager[:1], *(mode for mode in ways if not mode.eager))


def _check_numbers(*, warmup: Any, seconds: Any, budget_s: Any, compile_s: Any) -> None:
    if isinstance(warmup, bool) or not isinstance(warmup, Integral) or int(warmup) < 1:
        raise SettingsError(f"warmup is {warmup!r}; it must be a number of calls, 1 or more")
    for name, value in (("seconds", seconds), ("budget_s", budget_s), ("compile_s", compile_s)):
        if value is None and name != "seconds":
            continue
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
            raise SettingsError(f"{name} is {value!r}; it must be a positive number of seconds")


def _check_warmup(warmup: int, ways: Sequence[CompileMode]) -> None:
    """Raise where fewer calls warm up than CUDA graphs need; modes that this torch does not know have none."""
    recorded = [mode.name for mode in ways if not mode.eager and uses_cudagraphs(mode)] if warmup < LEAST_CALLS else []
    if recorded:
        raise SettingsError(
            f"{warmup} warm-up {'call is' if warmup == 1 else 'calls are'} too few where CUDA graphs are used: call 1 "
            f"runs as usual, call 2 records, and call {LEAST_CALLS} is the first that replays ({', '.join(recorded)})",
            hint=f"warmup={LEAST_CALLS} or more",
        )


def _torch_settings() -> dict[str, Any]:
    """The settings of this process's torch on which results and times depend."""
    torch: Any = require("torch", "compiling a model")
    return {"threads": torch.get_num_threads(), "matmul_precision": torch.get_float32_matmul_precision()}
