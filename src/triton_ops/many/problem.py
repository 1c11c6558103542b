"""One problem of a run of many, as a caller gives it, and the job that is made of it."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments, Kernel, Operation
from triton_ops.evaluation.isolated import needs_of, wants_isolation
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError
from triton_ops.history.recall import key_of
from triton_ops.many.executor import Job, Place
from triton_ops.runner.session import known_result, tune_request
from triton_ops.space import ConfigSpace
from triton_ops.task.effort import Effort
from triton_ops.task.request import TuneRequest, make_request, with_configs
from triton_ops.tensors import check_memory
from triton_ops.tolerance import Tolerance
from triton_ops.trial import TuningResult


@dataclass(frozen=True, kw_only=True)
class TuneProblem:
    """One problem of a run of many; the fields without a word of their own are as the parameters of `tune`.

    Attributes:
        target: An `Operation`, a kernel, or a callable that takes config values as keywords.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        space: What may be tried; None takes the operation's.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        device: `cpu`, `cuda` or `cuda:N`. A problem with a device or with tensors of the caller's stays on that device;
            any other is measured on whichever device of its kind is free.
        reference: A function that gives the right result.
        tolerance: How far a right result may be from the expected one.
        check: An own comparison of results.
        cold: Whether L2 holds none of the kernel's data when a launch starts.
        weight: How much the problem counts beside the others, such as how often it is launched.
    """

    target: Operation | Kernel | Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    space: Any = None
    shape: Sequence[int] | None = None
    dtype: str | None = None
    device: str | None = None
    reference: Callable[..., Any] | None = None
    tolerance: float | Tolerance | None = None
    check: Callable[[Any, Any], Any] | None = None
    cold: bool = True
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not is_positive(self.weight):
            raise SettingsError(
                f"the weight of a problem is {self.weight!r}; it must be a positive number",
                hint="leave it out for 1, or say how often it is launched",
            )

    def request(self, device: str | None, seed: int) -> tuple[TuneRequest, ConfigSpace]:
        """The request on a device, or on the problem's own for None, and the config space.

        Raises:
            TritonKernelError: A field does not fit, as of `tune`; raised before any work.
        """
        target, space = with_configs(self.target, self.space)
        for tensor in Arguments.given(self.args, self.kwargs).tensors():
            check_memory(tensor, "an argument")
        request = make_request(
            target, self.args, self.kwargs, shape=self.shape, dtype=self.dtype, device=device or self.device,
            reference=self.reference, tolerance=self.tolerance, check=self.check, seed=seed,
        )  # fmt: skip
        return request, request.space(space)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all problems of a run have in common; the fields are as the parameters of `tune_many`.

    Attributes:
        devices: Torch's names of the GPUs that measure; empty measures each problem on its own device.
    """

    plan: Effort
    cache_dir: str | Path | None = None
    seed: int = 0
    force: bool = False
    isolate: bool | None = None
    transfer: bool = True
    wait: bool = True
    devices: tuple[str, ...] = field(default=())


def as_problem(given: Any) -> TuneProblem:
    """A problem as it stands in a list: a `TuneProblem`, an `Operation`, or a mapping of a problem's fields.

    Raises:
        KernelTypeError: It is none of these, or a field is not known.
    """
    if isinstance(given, TuneProblem):
        return given
    if isinstance(given, Operation):
        return TuneProblem(target=given)
    if isinstance(given, Mapping):
        fields = list(TuneProblem.__dataclass_fields__)
        hint = f"a problem has target, and may have {', '.join(fields[1:])}"
        if strange := [str(name) for name in given if name not in fields]:
            raise KernelTypeError(f"a problem has no field {', '.join(strange)}", hint=hint)
        if "target" not in given:
            raise KernelTypeError("a problem has no target", hint=hint)
        return TuneProblem(**given)
    raise KernelTypeError(
        f"a problem is {given!r}", hint="give a TuneProblem, an Operation, or a mapping such as {'target': operation}"
    )


def tuned(problem: TuneProblem, options: Options, place: Place, *, own_device: str | None = None) -> TuningResult:
    """The result of a problem's tune in a place of this process, or of its record.

    Args:
        problem: The problem.
        options: What the problems of the run have in common.
        place: Where it is measured.
        own_device: The device where the place leaves it open: the GPU that was the current one when the run began, as
            each thread has a current one of its own. None takes the problem's.
    """
    request, space = problem.request(place.device or own_device, options.seed)
    return tune_request(
        request, space, options.plan, cache_dir=place.cache_dir or options.cache_dir, force=options.force,
        seed=options.seed, cold=problem.cold, isolate=options.isolate, transfer=options.transfer, wait=options.wait,
        listener=place.listener, reuse=True, gate=place.gate, shared_cpus=place.shared_cpus,
    )  # fmt: skip


def job_of(problem: TuneProblem, options: Options) -> Job:
    """The job of a problem, which is checked as `tune` checks its arguments; nothing is run or compiled.

    Problems whose records have one key have jobs of one name.

    Raises:
        TritonKernelError: The problem does not fit.
    """
    request, space = problem.request(None, options.seed)
    request.task(space)
    key = key_of(request, cold=problem.cold)
    plan = options.plan
    return Job(
        name=key.id if key.unknown is None else f"{key.id} {uuid.uuid4()}",  # its problem may be another's as well
        label=f"{key.kernel} {key.label}".rstrip(),
        kernel=key.kernel,
        problem=problem,
        tune=partial(tuned, problem, options, own_device=request.device_name),
        known=lambda: known_result(request, space, plan, key, cache_dir=options.cache_dir, force=options.force),
        weight=float(problem.weight),
        devices=_places(problem, request, options.devices),
        worker=needs_of(request.kernel, request.device, request.device_name)
        if wants_isolation(request.kernel, request.device, options.isolate)
        else None,
    )


def _places(problem: TuneProblem, request: TuneRequest, devices: tuple[str, ...]) -> frozenset[str] | None:
    """The devices of a run that can measure a problem; None for all.

    Raises:
        DeviceError: It stays on a GPU that is not among them.
    """
    if not devices:
        return None
    kind, _, index = request.device_name.partition(":")
    if kind == "cuda" and request.named is not None and problem.device in (None, "cuda"):
        return frozenset(devices)
    place = f"cuda:{index or 0}" if kind == "cuda" else kind
    if kind == "cuda" and place not in devices:
        raise DeviceError(
            f"it stays on {place}, and the run has {', '.join(devices)}", ", ".join(devices), place,
            hint="name that GPU too, or leave the problem's device out",
        )  # fmt: skip
    return frozenset({place})


def is_positive(value: Any) -> bool:
    """Whether a value is a positive number, and no truth value."""
    return value is not True and isinstance(value, Real) and 0 < float(value) < math.inf
