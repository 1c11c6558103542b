"""`triton-ops bench`: is a config, or one kernel, faster than another on this device?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, TypeAlias

from triton_ops._faces import Upward
from triton_ops.backend import Arguments, FunctionKernel, Kernel, Operation
from triton_ops.benchmark.comparing import Comparison, Manner, compare_contestants, duel_policy, rounds_bar
from triton_ops.benchmark.rivals import origin_of
from triton_ops.benchmark.timing import Contestant
from triton_ops.device import probe
from triton_ops.dispatch import would_run
from triton_ops.exceptions import SettingsError, TargetError, TritonKernelError, UntunedError
from triton_ops.records import RECORDS, DirectoryStore, Record, matching
from triton_ops.request import TuneOptions, device_for
from triton_ops.space import Config, ConfigSpace
from triton_ops.terminal import ExitCode, Facts, folder_of, only_data_on_stdout, option, tell
from triton_ops.typed import TypedProblem, TypedTarget, named_function, parse_config
from triton_ops.values import Key, Measurement, Problem

_ALL_KERNELS = "kernels"  # the TARGET that stands for all shipped kernels
_WINNER, _DEFAULT = "winner", "default"
_HEADER = ("", "config", "p20 ms", "median ms", "p80 ms", "spread", "what")
_BENCH_KERNELS = Upward[Callable[..., Facts]]("a comparison of all shipped kernels")
_Target: TypeAlias = Operation | Callable[..., Any]
_WithOrigin: TypeAlias = tuple[Mapping[str, Any], str]  # a config, and where it comes from


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """The options that hold for both contestants, as they were typed; None if they were not."""

    problem: TypedProblem
    device: str | None
    cold: bool
    options: TuneOptions


@dataclass(frozen=True, kw_only=True)
class BenchContestant(Contestant):
    """One contestant of `bench`, with its TARGET, its problem and the origin of its config in words."""

    target: str
    origin: str
    problem: Problem


@dataclass(frozen=True)
class _BoundTarget:
    """A target with its problem and device, but without a config; `configs` has its winner and its default, if any."""

    target: str
    kernel: Kernel
    problem: Problem
    device: str
    _: KW_ONLY
    arguments: Callable[[], Arguments]
    space: ConfigSpace | None = None
    configs: Mapping[str, _WithOrigin] = field(default_factory=dict)
    operation: Operation | None = None

    def contestant(self, name: str, values: dict[str, Any] | None, kinds: tuple[str, ...]) -> BenchContestant:
        """The target with the config of an option, else with the first of `kinds` that exists."""
        plain, origin = self._config(values, kinds)
        config = Config(plain if self.space is None else self.space.with_names(plain))
        config = config.with_named_members() if self.space is None else config.with_members(self.space.members)
        self.kernel.check(config, Arguments(keyword=dict(self.problem.arguments)))
        return BenchContestant(
            name, self.kernel, config, device_name=self.device, arguments=self.arguments, operation=self.operation,
            target=self.target, origin=origin, problem=self.problem,
        )  # fmt: skip

    def _config(self, values: dict[str, Any] | None, kinds: tuple[str, ...]) -> _WithOrigin:
        if values is not None:
            rest = self.configs.get(_DEFAULT, ({}, ""))[0]
            partly = bool(set(rest) - set(values))
            return {**rest, **values}, "as given, the rest from the default" if partly else "as given"
        if configs := [self.configs[kind] for kind in kinds if kind in self.configs]:
            return configs[0]
        if kinds == (_WINNER,):
            message = f"no winner of {self.problem} is known to compare with the default config"
            hint = "tune it first, or give --config, or a second TARGET"
            raise UntunedError(message, self.kernel.name, self.problem.label, hint=hint)
        if kinds == (_DEFAULT,):
            raise SettingsError(f"{self.target} has no default config", hint="give --config-b")
        return {}, "no config"


def bench_contestants(
    texts: tuple[str, str | None], configs: tuple[dict[str, Any] | None, dict[str, Any] | None], request: BenchRequest
) -> tuple[BenchContestant, BenchContestant]:
    """Both contestants. With a single TARGET, its winner or the given config is compared with its default config.

    The winner of an operation is what a call would run with; that of a function is that of its record.
    """
    target, (config_a, config_b) = TypedTarget(texts[0], request.options.cache_dir, request.problem).load(), configs
    if texts[1] is None:
        bound = _bound(texts[0], target, [*{**(config_a or {}), **(config_b or {})}], request)
        return bound.contestant("a", config_a, (_WINNER,)), bound.contestant("b", config_b, (_DEFAULT,))
    other = TypedTarget(texts[1], request.options.cache_dir, request.problem).load()
    first = _bound(texts[0], target, [*(config_a or {})], request, beside=other)
    second = _bound(texts[1], other, [*(config_b or {})], request, beside=target)
    same_making = target is other or not any(isinstance(each, Operation) for each in (target, other))
    if same_making and first.problem.arguments == second.problem.arguments:
        second = replace(second, arguments=first.arguments)  # so that both contestants run on equal arguments
    kinds = (_WINNER, _DEFAULT)
    return first.contestant("a", config_a, kinds), second.contestant("b", config_b, kinds)


def _bound(
    text: str, target: _Target, tunables: list[str], request: BenchRequest, beside: _Target | None = None
) -> _BoundTarget:
    if isinstance(target, Operation):
        return _of_operation(text, target, request)
    if isinstance(beside, Operation):
        return _beside_operation(text, target, tunables, beside, request)
    return _of_function(text, target, tunables, request)


def _of_operation(text: str, operation: Operation, request: BenchRequest) -> _BoundTarget:
    operation, _, shape, dtype = TypedTarget(text, problem=request.problem).tuned(operation)
    problem = operation.problem(shape, dtype)
    device = device_for(request.device, operation.device, operation.name)
    space = operation.space_for(problem)
    question: dict[str, Any] = {"device": request.device, "cold": request.cold, "cache_dir": request.options.cache_dir}
    decision = operation.why(device) if hasattr(operation, "why") else None
    answer = (decision or would_run(operation, shape=shape, dtype=dtype, **question)).found
    configs: dict[str, _WithOrigin] = {_DEFAULT: (space.default_config, origin_of("default"))}
    if answer.rung != "default":
        configs[_WINNER] = (answer.config, origin_of(answer.rung))
    maker = partial(operation.materialise, problem, device, request.options.seed)
    return _BoundTarget(
        text, operation.kernel, problem, device, arguments=maker, space=space, configs=configs, operation=operation
    )


def _of_function(text: str, function: Callable[..., Any], tunables: list[str], request: BenchRequest) -> _BoundTarget:
    """A function. Its tunables are the names in the given config, or else those in a record of the function."""
    kernel = FunctionKernel(function)
    device = device_for(request.device, "any", kernel.name)
    record: Record | None = None
    for candidate in () if tunables else matching(kernel.name, request.options.cache_dir):
        with contextlib.suppress(TritonKernelError):  # a record of the same name with other parameters
            operation = _as_operation(kernel, list(candidate.winner), request)
            record = record or _record(kernel, operation.problem(), device, request)
    operation = _as_operation(kernel, list(record.winner) if record else tunables, request)
    problem = operation.problem()
    if tunables:
        record = _record(kernel, problem, device, request)
    maker = partial(operation.materialise, problem, device, request.options.seed)
    configs: dict[str, _WithOrigin] = {} if record is None else {_WINNER: (record.winner, origin_of("record"))}
    if record is not None and record.default is not None:
        configs[_DEFAULT] = (record.default, origin_of("default"))
    return _BoundTarget(text, kernel, problem, device, arguments=maker, configs=configs)


def _as_operation(kernel: FunctionKernel, tunables: list[str], request: BenchRequest) -> Operation:
    """An operation that gives the problem and the inputs; its config space is a placeholder that nobody reads."""
    specs = request.problem.tensors(kernel, tunables)
    return Operation(kernel.name, kernel, ConfigSpace.from_user({"-": [0]}), lambda: specs)


def _beside_operation(
    text: str, function: Callable[..., Any], tunables: list[str], operation: Operation, request: BenchRequest
) -> _BoundTarget:
    """A function that is compared with an operation, and is called with the arguments of the same names."""
    other = _of_operation(text, operation, request)
    kernel = FunctionKernel(function)
    names = _argument_names(kernel, tunables, other.problem)
    problem = Problem(kernel.name, tuple((n, v) for n, v in other.problem.arguments if n in names), other.problem.label)

    def arguments() -> Arguments:
        values = other.arguments().keyword
        return Arguments(keyword={name: values[name] for name in names})

    return _BoundTarget(text, kernel, problem, other.device, arguments=arguments)


def _argument_names(kernel: FunctionKernel, tunables: list[str], problem: Problem) -> list[str]:
    parameters = TypedProblem.parameters(kernel).values()
    names = [name for name, _ in problem.arguments]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return names
    missing = [
        p.name
        for p in parameters
        if p.default is p.empty and p.name not in names and p.name not in tunables and p.kind is not p.VAR_POSITIONAL
    ]
    if missing:
        raise TargetError(
            f"{kernel.name} needs {', '.join(missing)}, which is no argument of {problem.kernel}: {', '.join(names)}",
            hint="name its parameters as the operation does",
        )
    return [p.name for p in parameters if p.name in names]


def _record(kernel: Kernel, problem: Problem, device: str, request: BenchRequest) -> Record | None:
    """The winner stored for this problem of this kernel on this device; None if there is none."""
    key = Key.of(problem, kernel.identity, probe(device), cold=request.cold)
    if key.unknown:
        return None
    return DirectoryStore(folder_of(request.options.cache_dir), RECORDS, read_only=True).get(key.id)


def bench_command(
    target: Annotated[str, option("A", "TARGET: a shipped kernel, module:object, or file.py:object.")],
    other: Annotated[
        str | None, option("B", "A second TARGET; default A, with its default config.", show_default=False)
    ] = None,
    *,
    problem: Annotated[TypedProblem, "shape dtype arg"],
    config: Annotated[
        list[str] | None, option("--config", "Config of A, repeated or NAME=V,NAME=V; default its winner.", "NAME=V")
    ] = None,
    config_b: Annotated[
        list[str] | None, option("--config-b", "Config of B; default as for A, of A its default.", "NAME=V")
    ] = None,
    seconds: Annotated[float, option("--seconds", "No round is started after this time.", "S")] = 10.0,
    warm: Annotated[bool, option("--warm", "On a GPU, leave L2 as the launch before left it.")] = False,
    device: str | None = None,
    reference: Annotated[
        str | None, option("--reference", "What is right, as a TARGET; default an operation's, or A.", "TARGET")
    ] = None,
    no_check: Annotated[bool, option("--no-check", "Compare times, whatever the results are.")] = False,
    options: Annotated[TuneOptions, "seed wait cache_dir"],
) -> Facts:
    """Find out whether A is faster than B, by running both in turn on one problem, if the results of both are right.

    A wrong result is the verdict, and exit code 5, as are results that differ without a reference. With one TARGET, its
    winner or --config is compared with its default config. The winner of an operation is the config with which a call
    would run, as `why` tells. `bench kernels` compares every shipped kernel with the vendor's library, eager PyTorch
    and torch.compile at its named problems.

    With two TARGETs each runs its winner, or else its default config. A plain function next to an operation is
    called with those of the operation's arguments that its parameters name. A --config need not be in the space.
    Exit code 4: no winner of the only TARGET is known; 2: a contestant raised, or one call took longer than
    --seconds and 5 s.
    """
    if target == _ALL_KERNELS:
        one = {
            "B": other, "--shape": problem.shapes, "--dtype": problem.dtype, "--arg": problem.arguments,
            "--config": config, "--config-b": config_b, "--reference": reference, "--no-check": no_check,
        }  # fmt: skip
        _refuse([name for name, value in one.items() if value])
        only_data_on_stdout()
        return _BENCH_KERNELS.function(seconds, device or "cuda", not warm, options.cache_dir)
    policy = duel_policy(None, seconds)  # bad options are refused before the target's code runs
    configs = parse_config(config, "--config"), parse_config(config_b, "--config-b")
    request = BenchRequest(problem=problem, device=device, cold=not warm, options=options)
    if request.device is not None:
        probe(request.device)
    hint = "name a function that returns the right result for the same arguments"
    right = None if reference is None else named_function("--reference", reference, hint)
    a, b = bench_contestants((target, other), configs, request)
    if a.kernel == b.kernel and a.config == b.config:
        text = f"({a.config})" if a.config else "no config"
        tell(f"a and b are the same: {a.target} with {text}")
    manner = Manner(cold=request.cold, seed=options.seed, wait=options.wait, reference=right, check=not no_check)
    with rounds_bar((a.name, b.name), seconds) as follow:
        comparison = compare_contestants(a, b, policy, manner, follow=follow)
    facts = Facts("bench", _as_json(a, b, comparison))
    facts.text(f"{a.problem} on {probe(a.device_name).name}")
    facts.table(_HEADER, [_row(a, comparison.a), _row(b, comparison.b)], _HEADER[2:-1])
    for number, line in enumerate(str(comparison).splitlines()):
        facts.text(line, bold=not number)
    facts.code = ExitCode.CHECK_FAILED if comparison.wrong else ExitCode.DONE
    return facts


def _row(contestant: BenchContestant, times: Measurement | None) -> list[str]:
    quantiles = (None, None, None) if times is None else (times.p20_ms, times.median_ms, times.p80_ms)
    figures = [Facts.cell(time_ms, ".4g") for time_ms in quantiles]
    figures.append(Facts.cell(None if times is None else times.spread, ".1%"))
    what = f"{contestant.target}, {contestant.origin}" + (f": {contestant.config}" if contestant.config else "")
    return [contestant.name, label(contestant.config), *figures, what]


def label(config: Config) -> str:
    """The values of a config without their names, such as `128/4`; another column holds the names."""
    return "/".join(str(value) for value in config.plain.values()) or "-"


def _as_json(a: BenchContestant, b: BenchContestant, comparison: Comparison) -> dict[str, Any]:
    figures = ("verdict", "percent", "interval", "needed", "noise", "confidence", "rounds", "mode")
    return {
        **Facts.members(comparison, *figures), "problem": a.problem.label, "device": probe(a.device_name).name,
        "a": _contestant_json(a, comparison.a), "b": _contestant_json(b, comparison.b),
        **Facts.members(comparison, "guard", "notes", "wrong", "disputed", "verified"),
    }  # fmt: skip


def _contestant_json(contestant: BenchContestant, times: Measurement | None) -> dict[str, Any]:
    config = contestant.config
    figures = ("median_ms", "p20_ms", "p80_ms", "spread")
    return {
        "target": contestant.target, "config": config.plain, "label": label(config), "origin": contestant.origin,
        **(Facts.members(times, *figures) or dict.fromkeys(figures)), "samples": len(times.samples_ms) if times else 0,
    }  # fmt: skip


def _refuse(typed: list[str]) -> None:
    """Refuse options that are of one kernel."""
    if typed:
        what = f"`bench {_ALL_KERNELS}`, which takes every kernel at its named problems"
        hint = "name one kernel: triton-ops bench softmax"
        raise SettingsError(f"{', '.join(typed)} cannot be given with {what}", hint=hint)
