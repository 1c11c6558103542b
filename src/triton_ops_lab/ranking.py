"""Expectations of configs by model and compiler, and `rank`: the configs of a space by them, without a GPU.

One function makes every expectation. It compiles a config, and beside it the same with another number of stages: a
config whose program is the same without a pipeline has none, and is expected to take what that program takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from triton_ops.backend import Arguments, Compiler, Kernel, Operation
from triton_ops.compilation import CompilePool
from triton_ops.cost_model import Forecast, Model, Readings
from triton_ops.device import DeviceSpec, Machine, Roofline, Target, device_spec
from triton_ops.exceptions import KernelTypeError, MissingDependencyError, SpaceError, TargetError
from triton_ops.kernel_ir import KernelWork
from triton_ops.request import TuneProblem
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import Survey
from triton_ops.values import Compiled, Status, Work, warps_and_stages

DECLARED, INFERRED = "declared", "inferred"
NO_FORECAST = "docs/concepts/model.md says what can be read, and how work is declared"
GUESSED_TOO_LARGE = "shared memory of a block, as guessed"
UNHURRIED = Survey.unhurried()
_WHOLE, _FASTEST = 48, 20  # configs of a space that is compiled whole, and those of a larger one that are compiled
_ROUNDS = 4  # in which as many are compiled, until the fastest are


def left_out(space: ConfigSpace, values: Mapping[str, Any] | None, configs: Sequence[Config]) -> Iterator[str]:
    """For each of these values that none of the valid configs has, the rule that refuses the first one with it."""
    for name in values or {}:
        valid = {repr(config.get(name)) for config in configs}
        for value in space.tunables[name].values:
            if repr(value) not in valid:
                reason = space.why_not(Config({**configs[0], name: value}))
                yield f"no valid config has {name}={value}: {reason or 'the rules of the space leave none'}"


@dataclass(frozen=True, kw_only=True)
class RankedConfig:
    """One config with what the model expects of it.

    Attributes:
        config: The config.
        expected_ms: Time per launch; infinite if the config cannot run on the device.
        lower_bound_ms: The config's work over the device's peaks; 0 if it is not known.
        source: `declared` if the kernel's author has declared the work, `inferred` if it was read from the kernel.
        limited_by: The resource that would take longest alone; of a config that cannot run, the reason.
        compiled: Whether registers and shared memory are the compiler's; otherwise they are guessed.
        program: The fingerprint of what is launched, equal for configs of one program; empty if it is not known.
    """

    config: Config
    expected_ms: float
    lower_bound_ms: float
    source: str
    limited_by: str
    compiled: bool = False
    program: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelQuestion:
    """One problem of one kernel, for which the model is asked; `work` is None if none is declared."""

    name: str
    space: ConfigSpace
    work: Work | None
    kernel: Kernel | None = None  # None where the work alone is known
    arguments: Arguments = field(default_factory=Arguments)  # of its launches: specs, or what stands for tensors

    @classmethod
    def of(
        cls, target: Operation | Kernel | Callable[..., Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None, *, space: Any = None, shape: Sequence[int] | None = None,
        dtype: str | None = None,
    ) -> ModelQuestion:  # fmt: skip
        """The kernel, the arguments and the space that a call of `rank` means; an argument that does not fit raises."""
        target, space = TuneProblem(target=target, space=space).parts
        if isinstance(target, Operation):
            if args or kwargs:
                hint = "give shape and dtype, or give the kernel: rank(kernel)"
                raise KernelTypeError(f"{target.name} makes its own arguments", hint=hint)
            problem = target.problem(None if shape is None else tuple(shape), dtype)
            kernel, arguments = target.kernel, Arguments(keyword=dict(problem.arguments))
            configs = target.space_for(problem) if space is None else ConfigSpace.from_user(space)
            name, work = target.name, None if target.work is None else target.work(problem)
        else:
            if shape is not None or dtype is not None:
                message = "shape and dtype belong to an Operation"
                raise KernelTypeError(message, hint="pass the kernel's own arguments in args")
            if space is None:
                message = f"no space is given, and {target.name} has none of its own"
                raise SpaceError(message, hint="give one: space={'BLOCK': [64, 128]}")
            kernel, arguments = target, Arguments(tuple(args), dict(kwargs or {}))
            name, work, configs = kernel.name, None, ConfigSpace.from_user(space)
        kernel.check(configs.tunables, arguments.described(light=True))
        return cls(name=name, kernel=kernel, arguments=arguments, space=configs, work=work)

    @property
    def declared(self) -> bool:
        """True if tiles are declared, which come before what is read."""
        return self.work is not None and self.work.tiles is not None

    def readings(
        self, configs: Sequence[Config], pool: CompilePool, machine: Machine | None, survey: Survey | None = None
    ) -> Readings:
        """The work of configs; where it is declared, of one for the dtype of products, unless a survey is given."""
        configs = configs[:1] if self.declared and survey is None else configs
        return (survey or UNHURRIED).read(configs, machine, pool.read)

    def compiler(
        self, device: DeviceSpec | Target, lack: str = "and declares no tiles", hint: str = NO_FORECAST
    ) -> Compiler:
        """The compiler of the kernel's configs; `TargetError`, with what it lacks therefore, where there is none."""
        target = device if isinstance(device, Target) else None if device.is_cpu else Target.of(device)
        members, kernel = self.space.members, self.kernel
        compiler = None if kernel is None else Compiler.of(kernel, self.arguments, target, members)
        if compiler is None:
            raise TargetError(f"{self.name} is no kernel that Triton compiles, {lack}", hint=hint)
        return compiler


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The answers of model and compiler for one config; `work` and `compiled` are of a kernel compiled ahead."""

    config: Config
    source: str = INFERRED  # or `declared`
    forecast: Forecast | None
    silent: str = ""  # why there is no forecast; empty if there is one
    bound: Roofline | None = None  # by which no kernel that does the config's work is faster
    work: KernelWork | None = None
    compiled: Compiled | None = None
    refused: str = ""  # by which limit of Triton or of the device it cannot run; empty if it can, as far as is known
    stages: int | None = None  # of its program: the fewest with which that is the same; None if it is not known
    differences: tuple[str, ...] = ()  # between the declaration and the kernel, in words
    fitting: Compiled | None = None  # with as many stages as fit, where it needs too much shared memory

    @property
    def pipelined(self) -> bool | None:
        """Whether the number of stages changes the program; None if that is not known."""
        return None if self.stages is None else self.stages > 1

    @property
    def as_run(self) -> Config:
        """The config as its program runs: with no more stages than that has."""
        _, stages = warps_and_stages(self.config)
        return self.config if (self.stages or stages) >= stages else _with_stages(self.config, self.stages or 1)

    @property
    def told(self) -> bool:
        """True if anything is known of the config: a forecast, its work, or the compiler's result."""
        has_work = self.work is not None and not self.work.silent
        has_resources = self.compiled is not None and self.compiled.resources is not None
        return self.forecast is not None or has_work or has_resources

    @property
    def expected_ms(self) -> float | None:
        """The expected time per launch; infinite if it cannot run, None if nothing is known."""
        if self.refused:
            return math.inf
        return None if self.forecast is None else self.forecast.expected_ms

    @property
    def finite_ms(self) -> float | None:
        """The expected time per launch; None if it cannot run, or if nothing is known."""
        ms = self.expected_ms
        return None if ms is None or math.isinf(ms) else ms

    @property
    def lower_bound_ms(self) -> float:
        """The least time; 0 if it is not known."""
        return (self.bound.least_ms or 0.0) if self.bound is not None else 0.0

    @property
    def limited_by(self) -> str:
        """The resource that would take longest alone; of a config that cannot run, the reason."""
        if self.refused or self.forecast is None:
            return self.refused or self.silent
        return self.forecast.terms[0].name if math.isfinite(self.forecast.expected_ms) else GUESSED_TOO_LARGE

    @property
    def program(self) -> str:
        """The fingerprint of what is launched; empty if it is not known."""
        return (self.compiled.launch or "") if self.compiled is not None and self.compiled.launchable else ""


class Expecter:
    """Makes the expectations of one problem's configs on one device, by declared work or by readings."""

    def __init__(
        self, question: ModelQuestion, spec: DeviceSpec, readings: Readings | None = None,
        compiler: Compiler | None = None,
    ) -> None:  # fmt: skip
        self._question, self._spec, self.readings, self._compiler = question, spec, readings, compiler
        machine = Machine.of(spec)
        declared = question.work.dtype if question.work is not None else ""
        self._dtype = declared or (readings.dtype if readings is not None and question.declared else "")
        self.model: Model | None = None
        if machine is not None and question.declared and question.work is not None:
            self.model = Model(question.work, machine)
        elif machine is not None and readings is not None:
            self.model = readings.model(machine)

    def of(
        self, config: Config, compiled: Compiled | None = None, by_stages: Mapping[int, Compiled] | None = None
    ) -> Expectation:
        """The expectation of a config by what is known of it: its result, and those with other numbers of stages."""
        refused = compiled is not None and not compiled.launchable and compiled.status is not Status.TIMEOUT
        reason = compiled.reason if compiled is not None and refused else ""
        declared, spec = self._question.declared, self._spec
        work = None if self.readings is None else self.readings.work_of(config)
        read = None if declared else self.readings
        answer = Expectation(
            config=config, source=DECLARED if declared else INFERRED, forecast=None, work=work, compiled=compiled,
            bound=roof_of(self._question.work, self._dtype, config, read, spec), refused=reason,
            silent=reason, stages=_stages_of(config, by_stages or {}),
        )  # fmt: skip
        if refused:
            return answer
        if self.model is None:
            return replace(answer, silent=Machine.why_unknown(spec))
        resources = compiled.resources if compiled is not None and compiled.launchable else None
        if (forecast := self.model.explain(answer.as_run, resources)) is None:
            return replace(answer, silent=self.model.why_silent(config))
        least = answer.lower_bound_ms
        forecast = replace(forecast, lower_bound_ms=least, expected_ms=max(forecast.expected_ms, least))
        return replace(answer, forecast=forecast)

    def guess(self, config: Config) -> Expectation:
        """The expectation of a config that is not compiled, unless a free rule of the compiler refuses it."""
        compiler = self._compiler
        objection = None if compiler is None else compiler.objection(config) or compiler.grid_objection(config)
        return self.of(config, None if objection is None or objection.deferred else objection)

    def all(
        self, configs: Sequence[Config], pool: CompilePool, results: Mapping[Config, Compiled] | None = None
    ) -> Iterator[Expectation]:
        """The expectations of configs, which the pool compiles where their results are not known.

        Each is compared with those of other stages among them, else with one stage less, and on as long as the program
        stays the same.
        """
        known = dict(results or {})
        candidates: Iterable[Config] = configs
        compared = {config: 0 for config in configs if self._stages_matter(config)}
        by_stages: dict[Config, dict[int, Compiled]] = {config: {} for config in configs}
        while candidates:
            futures = {config: pool.submit(config, anyway=True) for config in candidates if config not in known}
            known.update((config, future.result()) for config, future in futures.items())
            families: dict[Config, dict[int, Compiled]] = {}
            for one in known.values():
                families.setdefault(_with_stages(one.config, 1), {})[warps_and_stages(one.config)[1]] = one
            for config in compared:
                by_stages[config] = families[_with_stages(config, 1)]
            compared = {config: at for config in compared if (at := _next_stages(config, by_stages[config]))}
            candidates = dict.fromkeys(map(_with_stages, compared, compared.values()))
        for config in configs:
            yield self.of(config, known[config], by_stages[config])

    def _stages_matter(self, config: Config) -> bool:
        """Return True if the kernel has a loop, or the model expects something of the number of stages."""
        launches = () if self.readings is None else self.readings.work_of(config).launches
        if any(launch.loops for launch in launches):
            return True
        return self.model is not None and len(set(self.model.score([config, _with_stages(config, 1)]))) > 1


def _next_stages(config: Config, by_stages: Mapping[int, Compiled]) -> int:
    """The stages with which a config is compared next; 0 if what is known of others is enough."""
    _, depth = warps_and_stages(config)
    program = by_stages[depth].launch
    if not program or any(one.launch and one.launch != program for one in by_stages.values()):
        return 0
    fewest = min(stages for stages, one in by_stages.items() if one.launch == program)
    refused = [at for at in by_stages if at < fewest]  # that cannot be launched
    return 0 if refused or (fewest == 1 and len(by_stages) > 1) else fewest - 1 or 2


def _with_stages(config: Config, stages: int) -> Config:
    return Config({**config, "num_stages": stages})


def _stages_of(config: Config, by_stages: Mapping[int, Compiled]) -> int | None:
    """The stages that a program has: the fewest with which it is the same; None if nothing was compared.

    A program with one stage counts as one of two where a second one changes it, so that it could have a pipeline.
    """
    _, depth = warps_and_stages(config)
    program = by_stages[depth].launch if depth in by_stages else None
    launches = {stages: one.launch for stages, one in by_stages.items() if one.launch}
    if not program or len(launches) < 2:
        return None
    if depth == 1:
        return 1 if len(set(launches.values())) == 1 else 2
    return min(stages for stages, launch in launches.items() if launch == program)


def roof_of(work: Work | None, dtype: str, config: Config, readings: Readings | None, spec: DeviceSpec) -> Roofline:
    """The roofline of a config: declared operations, of operands of a dtype, and bytes come before what was read."""
    flops, moved = ({}, 0.0) if readings is None else readings.least(config)
    if work is not None and work.flops and (dtype or not flops):
        flops = {dtype: work.flops}
    products = any(flops.values())
    single = sum(  # operations on single elements
        one.programs * (one.plain + one.special + sum(loop.plain + loop.special for loop in one.loops))
        for one in (() if readings is None else readings.work_of(config).launches)
    )
    least_bytes = work.bytes if work is not None and work.bytes else moved
    return Roofline.of(spec, flops=flops if products else single, bytes_=least_bytes, products=products)


def rank(
    target: Operation | Kernel | Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    *, space: Any = None, shape: Sequence[int] | None = None, dtype: str | None = None, gpu: str | None = None,
    top: int | None = None, jobs: int | None = None, cache_dir: str | Path | None = None,
) -> list[RankedConfig]:  # fmt: skip
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
        top: Number of the fastest that are compiled; None takes 20, and all of a space of up to 48.
        jobs: Number of processes that read; None takes one for each CPU.
        cache_dir: The folder that may hold a calibration of the device; None takes the default.

    Returns:
        Configs with a forecast, which is guessed where `compiled` is False. Those that cannot run on the device are
        last: more warps than a block has threads for, a block that needs more shared memory than there is, also by a
        guess, a number of warps that is no power of two. Those whose grid the device cannot launch are left out.

    Raises:
        DeviceError: There is no such GPU, or the model does not know its architecture.
        TargetError: The model can say nothing of this kernel; the error says why.
        SpaceError, KernelTypeError, ShapeMismatchError, UnsupportedDtypeError: An argument does not fit; of the first
            kind is a space without a valid config.

    Cost: 0.1 ms for each config, half a second of one CPU for each that is compiled, with a second or two to start; if
    the kernel is read, 30 ms for each of its texts.
    """
    spec = device_spec(gpu).calibrated(cache_dir)
    Machine.known(spec)
    question = ModelQuestion.of(target, args, kwargs, space=space, shape=shape, dtype=dtype)
    question.space.first_config()
    _, answers = expectations(question, spec, Survey.considered(question.space), top, jobs)
    if ranking := ranked(answers.values()):
        return ranking
    raise TargetError("the model makes no forecast for any config", hint=NO_FORECAST)


def expectations(
    question: ModelQuestion, spec: DeviceSpec, configs: Sequence[Config], top: int | None = None,
    jobs: int | None = None,
) -> tuple[Expecter, dict[Config, Expectation]]:  # fmt: skip
    """What makes the expectations of a question, and those of its configs, of which the fastest are compiled.

    `top`, `jobs` and the errors are those of `rank`.
    """
    machine = Machine.known(spec)
    most = top or (_WHOLE if len(configs) <= _WHOLE else _FASTEST)
    expecter = Expecter(question, spec)
    answers = {config: expecter.of(config) for config in configs}
    try:
        compiler = question.compiler(spec)
        with CompilePool(compiler, workers=jobs) as pool:
            readings = question.readings(configs, pool, machine)
            if readings.silent and not question.declared:
                raise TargetError(f"the model makes no forecast: {readings.silent}", hint=NO_FORECAST)
            expecter = Expecter(question, spec, readings, compiler)
            answers = {config: expecter.guess(config) for config in configs}
            for _ in range(_ROUNDS):  # what is compiled may take longer than guessed, and others are the fastest then
                able = [one for one in answers.values() if one.forecast is not None]
                fastest = sorted(able, key=lambda one: one.finite_ms or math.inf)[:most]
                results = {config: one.compiled for config, one in answers.items() if one.compiled is not None}
                todo = [one.config for one in fastest if one.config not in results]
                answers.update((one.config, one) for one in expecter.all(todo, pool, results))
    except (KernelTypeError, TargetError, MissingDependencyError):
        if not question.declared:  # what is declared needs no compiler
            raise
    return expecter, answers


def ranked(expectations: Iterable[Expectation]) -> list[RankedConfig]:
    """The configs of which anything is expected, the shortest time first; those that cannot run are last.

    A config whose grid the device cannot launch is left out: for these arguments it is no candidate.
    """
    configs = [
        RankedConfig(
            config=config, expected_ms=one.expected_ms, source=one.source, lower_bound_ms=one.lower_bound_ms,
            limited_by=one.limited_by, program=one.program,
            compiled=one.forecast is not None and one.forecast.compiled,
        )
        for config, one in by_program(expectations).items()
        if one.expected_ms is not None and (one.compiled is None or one.compiled.status is not Status.GRID)
    ]  # fmt: skip
    return sorted(configs, key=lambda one: one.expected_ms)


def by_program(expectations: Iterable[Expectation]) -> dict[Config, Expectation]:
    """The expectation of each config: of all configs of one program that with the shortest time."""
    expectations = list(expectations)
    fastest: dict[Config | str, Expectation] = {}
    for one in sorted(expectations, key=lambda one: one.finite_ms or math.inf):
        fastest.setdefault(one.program or one.config, one)
    return {one.config: fastest[one.program or one.config] for one in expectations}


_Answer = TypeVar("_Answer", RankedConfig, Compiled)


def same_programs(answers: Iterable[_Answer], program: Callable[[_Answer], str | None]) -> list[tuple[_Answer, str]]:
    """The first answer of each program, with its config and what others of that program change in words; in order."""
    groups: dict[str, list[_Answer]] = {}
    for one in answers:
        groups.setdefault(program(one) or f"of {one.config} alone", []).append(one)
    rows = []
    for first, *others in groups.values():
        own = [[f"{name}={v}" for name, v in it.config.items() if first.config.get(name) != v] for it in others]
        changes = ", ".join(map(" ".join, own))
        rows.append((first, f"{first.config} (the same program with {changes})" if own else str(first.config)))
    return rows
