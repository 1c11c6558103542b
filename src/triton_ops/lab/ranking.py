"""`rank`: the configs of a space in the order of their expected times, without a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments, Compiler, FunctionKernel, Kernel, Operation
from triton_ops.compilation import CompilePool
from triton_ops.cost_model import Model, Readings
from triton_ops.device import Calibration, DeviceSpec, Machine, Target, device_spec
from triton_ops.exceptions import DeviceError, KernelTypeError, SpaceError, TargetError
from triton_ops.records import cache_folder
from triton_ops.request import TuneProblem
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import Survey
from triton_ops.values import Work

DECLARED, INFERRED = "declared", "inferred"
UNHURRIED = Survey(seconds=120.0)  # nobody waits for a GPU meanwhile


@dataclass(frozen=True, kw_only=True)
class RankedConfig:
    """One config with what the model expects of it.

    Attributes:
        config: The config.
        expected_ms: Time per launch; infinite if the config cannot run on the device.
        lower_bound_ms: The least work of the problem over the device's rates; 0 if it is not known.
        source: `declared` if the kernel's author has declared the work, `inferred` if it was read from the kernel.
        limited_by: The resource that would take longest alone; of a config that cannot run, the reason.
    """

    config: Config
    expected_ms: float
    lower_bound_ms: float
    source: str
    limited_by: str


@dataclass(frozen=True, kw_only=True)
class ModelQuestion:
    """One problem of one kernel, for which the model is asked; `work` is None if none is declared."""

    name: str
    kernel: Kernel
    arguments: Arguments  # of its launches: specs, tensors, or what stands for them
    space: ConfigSpace
    work: Work | None

    @property
    def declared(self) -> bool:
        """True if tiles are declared, which come before what is read."""
        return self.work is not None and self.work.tiles is not None


def rank(
    target: Operation | Kernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    space: Any = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    gpu: str | None = None,
    jobs: int | None = None,
    cache_dir: str | Path | None = None,
) -> list[RankedConfig]:
    """The configs of a space by their expected times, the shortest first; nothing is run, and no GPU is needed.

    Work that is declared comes first; otherwise the kernel is read in processes without a GPU. Of a space with more
    than some hundred different kernels only some are read, and they are the list.

    Args:
        target: An `Operation`, a `TritonKernel` or a `LauncherKernel`.
        args: Positional arguments of the kernel, `TensorSpec`s in place of tensors or tensors on any device.
        kwargs: Keyword arguments of the kernel.
        space: The configs, as for `tune`; None takes the operation's.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        gpu: A GPU's name by its vendor, such as `NVIDIA H200`; None takes the current GPU.
        jobs: Number of processes that read; None takes one for each CPU.
        cache_dir: The folder that may hold a calibration of the device; None takes the default.

    Returns:
        Configs with a forecast. Those that cannot run on the device are last: more warps than a block has threads for,
        a block that needs more shared memory than there is, a number of warps that is no power of two.

    Raises:
        DeviceError: There is no such GPU, or the model does not know its architecture.
        TargetError: The model can say nothing of this kernel; the error says why.
        SpaceError, KernelTypeError, ShapeMismatchError, UnsupportedDtypeError: An argument does not fit; of the first
            kind is a space without a valid config.

    Cost: 0.1 ms for each config; if the kernel is read, a second or two to start, and 30 ms of one CPU for each of its
    texts.
    """
    spec = device_spec(gpu)
    machine = Machine.of(spec, Calibration.load(Path(cache_folder(cache_dir)), spec.name))
    if machine is None:
        raise DeviceError(
            f"the model does not know the architecture {spec.arch} of {spec.name}",
            hint="name a GPU of an architecture that it knows: --gpu 'NVIDIA H200'",
        )
    expected = expected_of(target, args, kwargs, space=space, shape=shape, dtype=dtype)
    expected.space.first_config()
    configs = Survey.considered(expected.space)
    refused = _refusals(expected, spec, configs)
    if expected.declared:
        assert expected.work is not None
        return forecasts_of(Model(expected.work, machine), configs, DECLARED, refused)
    readings = read(expected, spec, machine, configs, jobs)
    return forecasts_of(readings.model(machine), configs, INFERRED, refused)


def expected_of(
    target: Operation | Kernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    space: Any = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
) -> ModelQuestion:
    """The kernel, the arguments and the space that a call of `rank` means; an argument that does not fit raises."""
    target, space = TuneProblem(target=target, space=space).parts
    if isinstance(target, Operation):
        if args or kwargs:
            raise KernelTypeError(
                f"{target.name} makes its own arguments", hint="give shape and dtype, or give the kernel: rank(kernel)"
            )
        problem = target.problem(None if shape is None else tuple(shape), dtype)
        arguments = Arguments(keyword=dict(problem.arguments))
        configs = target.space_for(problem) if space is None else ConfigSpace.from_user(space)
        work = None if target.work is None else target.work(problem)
        return _check(
            ModelQuestion(name=target.name, kernel=target.kernel, arguments=arguments, space=configs, work=work)
        )
    if shape is not None or dtype is not None:
        raise KernelTypeError("shape and dtype belong to an Operation", hint="pass the kernel's own arguments in args")
    if space is None:
        raise SpaceError("there is no space: the configs of a kernel are not known", hint="space={'BLOCK': [64, 128]}")
    kernel = FunctionKernel.as_kernel(target)
    return _check(
        ModelQuestion(
            name=kernel.name, kernel=kernel, arguments=Arguments(tuple(args), dict(kwargs or {})),
            space=ConfigSpace.from_user(space), work=None,
        )
    )  # fmt: skip


def read(
    expected: ModelQuestion, spec: DeviceSpec, machine: Machine, configs: Sequence[Config], jobs: int | None = None
) -> Readings:
    """Read configs in processes without a GPU; `TargetError` has the reason where nothing can be told."""
    ahead = ahead_of(expected, spec)
    if isinstance(ahead, str):
        raise TargetError(f"the model says nothing: {ahead}", hint=_HINT)
    with CompilePool(ahead, workers=jobs) as pool:
        readings = UNHURRIED.readings(configs, machine, pool)
    if readings.silent:
        raise TargetError(f"the model says nothing: {readings.silent}", hint=_HINT)
    return readings


def ahead_of(expected: ModelQuestion, spec: DeviceSpec) -> Compiler | str:
    """The compiler of the kernel's configs; or the reason why there is none."""
    target = None if spec.is_cpu else Target.of(spec)
    compiler = Compiler.of(expected.kernel, expected.arguments, target, expected.space.members)
    return compiler or f"{expected.name} is no kernel that Triton compiles, and declares no tiles"


def _refusals(expected: ModelQuestion, spec: DeviceSpec, configs: Iterable[Config]) -> dict[Config, str]:
    ahead = ahead_of(expected, spec)
    if isinstance(ahead, str):
        return {}
    verdicts = ((config, ahead.objection(config)) for config in configs)
    return {config: it.reason for config, it in verdicts if it is not None and not it.deferred}


def forecasts_of(
    model: Model, configs: Iterable[Config], source: str, refused: Mapping[Config, str]
) -> list[RankedConfig]:
    """The configs that have a forecast, the shortest first; those that cannot run are last."""
    forecasts: list[RankedConfig] = []
    for config in configs:
        forecast = model.explain(config)
        if forecast is None and config not in refused:
            continue
        fits = forecast is not None and math.isfinite(forecast.expected_ms)
        limit = forecast.terms[0].name if forecast is not None and fits else "shared memory of a block"
        forecasts.append(
            RankedConfig(
                config=config,
                expected_ms=forecast.expected_ms if forecast is not None and config not in refused else math.inf,
                lower_bound_ms=model.lower_bound_ms,
                source=source,
                limited_by=refused.get(config, limit),
            )
        )
    if not forecasts:
        raise TargetError("the model makes no forecast for any config", hint=_HINT)
    return sorted(forecasts, key=lambda one: one.expected_ms)


_HINT = "docs/concepts/inferred.md says what can be read, docs/concepts/model.md how work is declared"


def _check(expected: ModelQuestion) -> ModelQuestion:
    expected.kernel.check(expected.space.tunables, expected.arguments.described(light=True))
    return expected
