"""`tune_compile`: every way to compile in a process of its own, measured in turn, and the fastest confirmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_ops._paths import expanded
from triton_ops.compile_modes.comparing import Comparing
from triton_ops.compile_modes.report import CompileReport
from triton_ops.compile_modes.request import made_request
from triton_ops.compile_modes.step import Loss
from triton_ops.inductor.modes import CompileMode
from triton_ops.tolerance import Tolerance


def tune_compile(
    model: Any,
    inputs: Any = None,
    *,
    modes: Sequence[str | Mapping[str, Any] | CompileMode] | None = None,
    training: bool = False,
    loss: Loss | None = None,
    tolerance: Tolerance | float | None = None,
    why: bool = False,
    warm: bool = False,
    warmup: int = 3,
    seconds: float = 20.0,
    budget_s: float | None = None,
    compile_s: float | None = None,
    resume: bool = True,
    collect: str | Path | None = None,
    logs: Sequence[str] = (),
    cache_dir: str | Path | None = None,
    seed: int = 0,
    wait: bool = True,
    follow: Callable[[str], None] = lambda _: None,
) -> CompileReport:
    """Find out in which way a model is compiled best: eager, a mode of `torch.compile`, or options of Inductor.

    Each way has a process of its own with empty compiler caches. There the results are checked against the model as it
    is, in higher precision, and calls are made until they are steady. The processes are then measured in turn, in
    rounds of random order. The fastest is recommended if it is proven faster than eager, in these rounds and again in
    fresh processes; else eager is.

    Args:
        model: A `torch.nn.Module` in the mode, such as `eval()`, in which it is to run; or another callable. Without
            `inputs` a factory, called in each process, which returns `(model, inputs)`.
        inputs: A tensor, a tuple of positional arguments, or a mapping of named ones. A list of these is several
            calls: one sample of a measurement is one of each, and a mode's time is their sum.
        modes: Names of modes of `torch.compile`, of option sets (`triton_ops.inductor.modes.OPTION_SETS`), mappings of
            options, or `CompileMode`s; None is the four modes. Eager is always measured.
        training: Whether a call is forward and backward, without an optimizer; gradients are checked too.
        loss: For training, from the output to the number whose gradients are computed. None takes the output's own
            `loss`, the output if it is one number, else the mean square of its floating-point tensors.
        tolerance: How far results may be off, or a number as for `tune`; None is the rule for verdicts.
        why: Whether slow modes are varied in one option at a time, to name what makes them slow.
        warm: Whether compilers find what earlier ones have made; first calls are then not those of a new machine.
        warmup: Least calls before times count. Fewer than 3 are refused where CUDA graphs are used, which replay from
            the third call on.
        seconds: Seconds of the last comparison.
        budget_s: Seconds after which no further mode is begun; None is no limit.
        compile_s: Seconds that one compilation may take; None is 20 minutes.
        resume: Whether a comparison that was interrupted is gone on with: modes that it compiled keep the seconds that
            it measured, and start from their caches.
        collect: A folder for each mode's log and traces, in place of those of an earlier run, which a note says.
        logs: Names of further logs of torch, such as `inductor` or `autotuning`, for the logs that are collected.
        cache_dir: The folder of this package's files; None is as for `tune`.
        seed: Torch's seed in each process, and that of the orders.
        wait: Whether to wait while another process measures on the same GPU.
        follow: Called with a line of text as each mode is done.

    Returns:
        Every way with its status and times, the one that is recommended, and how to apply it.

    Raises:
        SettingsError: A number or a way to compile is out of range, no torch has a mode and no option set its name, or
            a mode and options are given together.
        KernelTypeError: The model or the inputs are none, or cannot be sent to another process.
        TargetError: The factory raised, or returned something else.
        DeviceError: Tensors are on several devices, or another process measures and `wait` is false.
        TuningFailedError: Not even eager runs; the reasons are in it.
        MissingDependencyError: Torch is not installed.

    Cost: one process at a time compiles; at most six hold the model at the same time. Each calls the model once in
    higher precision. Minutes where modes tune.
    """
    request = made_request(
        model, inputs, modes=modes, training=training, loss=loss, tolerance=tolerance, warmup=warmup, seconds=seconds,
        budget_s=budget_s, compile_s=compile_s, seed=seed, logs=logs, why=bool(why), warm=bool(warm),
        resume=bool(resume), collect=collect,
        cache_dir=None if cache_dir is None else expanded(cache_dir), wait=bool(wait),
    )  # fmt: skip
    with Comparing(request, follow) as comparing:
        return comparing.run()
