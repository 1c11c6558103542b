"""`triton-ops bench`: is a config, or one kernel, faster than another on this device?"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

from triton_ops.backend import Arguments, FunctionKernel, Kernel, Operation
from triton_ops.benchmark import (
    Comparison,
    Contestant,
    KernelRun,
    compare_contestants,
    duel_policy,
    rounds_bar,
)
from triton_ops.cli import bench_kernels
from triton_ops.cli.console import (
    CacheDir,
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
from triton_ops.cli.problem import operation_of, parse_config, parse_shapes, tensors_of
from triton_ops.cli.record_selection import folder_of, matching
from triton_ops.cli.target import load_target
from triton_ops.cli.terminal import stderr
from triton_ops.device import probe
from triton_ops.dispatch import FALLBACK, RECORD, origin_of, would_run
from triton_ops.exceptions import SettingsError, TargetError, TritonKernelError
from triton_ops.records import RECORDS, DirectoryStore, Record
from triton_ops.request import checked_seed, device_for
from triton_ops.space import Config, ConfigSpace, as_space, members_named
from triton_ops.values import Key, Measurement, Problem, dtype_name

_WINNER, _DEFAULT = "winner", "default"
_Known: TypeAlias = tuple[Mapping[str, Any], str]  # a config, and where it comes from


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """The options that hold for both contestants.

    Attributes:
        shapes: The shapes of `--shape`.
        dtype: The text of `--dtype`; None if it is not given.
        device: The text of `--device`; None if it is not given.
        cold: Whether L2 is cold when a launch starts; records of the same cache state are looked up first.
        seed: The seed of the inputs.
        cache_dir: The folder in which records are looked up; None is the default folder.
    """

    shapes: list[tuple[int, ...]]
    dtype: str | None
    device: str | None
    cold: bool
    seed: int
    cache_dir: str | None


@dataclass(frozen=True)
class BenchContestant:
    """One contestant of `bench`, with the words that the report needs.

    Attributes:
        target: TARGET as given on the command line.
        origin: The origin of the config in words.
        problem: The problem on which the contestant is run.
        contestant: The kernel, config and arguments that are timed.
    """

    target: str
    origin: str
    problem: Problem
    contestant: Contestant


@dataclass(frozen=True)
class _BoundTarget:
    """A target with its problem and device, but without a config; `known` has its winner and its default, if any."""

    target: str
    kernel: Kernel
    problem: Problem
    device: str
    _: KW_ONLY
    arguments: Callable[[], Arguments]
    space: ConfigSpace | None = None
    known: Mapping[str, _Known] = field(default_factory=dict)

    def contestant(self, name: str, config: Mapping[str, Any], origin: str) -> BenchContestant:
        chosen = Config(config if self.space is None else self.space.with_names(config))
        chosen = chosen.with_members(members_named(chosen) if self.space is None else self.space.members)
        self.kernel.check(chosen, Arguments(keyword=dict(self.problem.arguments)))
        contestant = Contestant(name, self.kernel, chosen, device_name=self.device, arguments=self.arguments)
        return BenchContestant(self.target, origin, self.problem, contestant)


def bench_contestants(
    texts: tuple[str, str | None], configs: tuple[dict[str, Any] | None, dict[str, Any] | None], asked: BenchRequest
) -> tuple[BenchContestant, BenchContestant]:
    """Both contestants. With a single TARGET, its winner or the given config is compared with its default config.

    The winner of an operation is what a call would run with; that of a function is that of its record.

    Raises:
        TargetError, SpaceError, ShapeMismatchError, UnsupportedDtypeError, DeviceError: As for `tune`.
        SettingsError: There is nothing to compare the default config with.
    """
    found = load_target(texts[0])
    if texts[1] is None:
        bound = _bound(texts[0], found, _names(*configs), asked)
        return (
            bound.contestant("a", *_bench_contestants_config(bound, configs[0], (_WINNER,))),
            bound.contestant("b", *_bench_contestants_config(bound, configs[1], (_DEFAULT,))),
        )
    other = load_target(texts[1])
    first = _bound(texts[0], found, _names(configs[0]), asked, beside=other)
    second = _bound(texts[1], other, _names(configs[1]), asked, beside=found)
    same_making = found is other or (not isinstance(found, Operation) and not isinstance(other, Operation))
    if same_making and first.problem.arguments == second.problem.arguments:
        second = replace(second, arguments=first.arguments)  # so that both contestants run on equal arguments
    return (
        first.contestant("a", *_bench_contestants_config(first, configs[0], (_WINNER, _DEFAULT))),
        second.contestant("b", *_bench_contestants_config(second, configs[1], (_WINNER, _DEFAULT))),
    )


def _names(*configs: dict[str, Any] | None) -> list[str]:
    """The names of tunables in the given configs."""
    return list(dict.fromkeys(name for config in configs for name in config or {}))


def _bench_contestants_config(
    bound: _BoundTarget, given: dict[str, Any] | None, wanted: tuple[str, ...]
) -> tuple[Mapping[str, Any], str]:
    """The config of a contestant and its origin: the given config, else the first of `wanted` that exists."""
    if given is not None:
        rest = bound.known.get(_DEFAULT, ({}, ""))[0]
        partly = bool(set(rest) - set(given))
        return {**rest, **given}, "as given, the rest from the default" if partly else "as given"
    for which in wanted:
        if which in bound.known:
            return bound.known[which]
    if _WINNER in wanted and _DEFAULT in wanted:
        return {}, "no config"
    if wanted == (_WINNER,):
        raise SettingsError(
            f"no winner of {bound.problem} is known to compare with the default config",
            hint="tune it first, or give --config, or a second TARGET",
        )
    raise SettingsError(f"{bound.target} has no default config", hint="give --config-b")


def _bound(
    text: str,
    found: Operation | Callable[..., Any],
    tunables: list[str],
    asked: BenchRequest,
    beside: Operation | Callable[..., Any] | None = None,
) -> _BoundTarget:
    if isinstance(found, Operation):
        return _of_operation(text, found, asked)
    if isinstance(beside, Operation):
        return _beside_operation(text, found, tunables, beside, asked)
    return _of_function(text, found, tunables, asked)


def _of_operation(text: str, found: Operation, asked: BenchRequest) -> _BoundTarget:
    operation, _, shape, dtype = operation_of(found, None, asked.shapes, asked.dtype)
    problem = operation.problem(shape, dtype)
    device = device_for(asked.device, operation.device, operation.name)
    space = operation.space_for(problem)
    chosen = would_run(
        operation, shape=shape, dtype=dtype, device=asked.device, cold=asked.cold, cache_dir=asked.cache_dir
    ).found
    known: dict[str, _Known] = {_DEFAULT: (space.default_config, origin_of(FALLBACK))}
    if chosen.rung != FALLBACK:
        known[_WINNER] = (chosen.config, origin_of(chosen.rung))
    maker = partial(operation.materialise, problem, device, asked.seed)
    return _BoundTarget(text, operation.kernel, problem, device, arguments=maker, space=space, known=known)


def _of_function(text: str, function: Callable[..., Any], tunables: list[str], asked: BenchRequest) -> _BoundTarget:
    """A function. Its tunables are the names in the given config, or else those in a record of the function."""
    kernel = FunctionKernel(function)
    device = device_for(asked.device, "any", kernel.name)
    record: Record | None = None
    for known in _of_kernel(kernel.name, asked) if not tunables else ():
        with contextlib.suppress(TritonKernelError):  # a record of the same name with other parameters
            operation = _as_operation(kernel, list(known.winner), asked)
            record = record or _record(kernel, operation.problem(), device, asked)
    operation = _as_operation(kernel, list(record.winner) if record else tunables, asked)
    problem = operation.problem()
    if tunables:
        record = _record(kernel, problem, device, asked)
    maker = partial(operation.materialise, problem, device, asked.seed)
    return _BoundTarget(text, kernel, problem, device, arguments=maker, known={} if record is None else _of(record))


def _of(record: Record) -> dict[str, _Known]:
    """The winner and the default of a record."""
    known: dict[str, _Known] = {_WINNER: (record.winner, origin_of(RECORD))}
    if record.default is not None:
        known[_DEFAULT] = (record.default, origin_of(FALLBACK))
    return known


def _as_operation(kernel: FunctionKernel, tunables: list[str], asked: BenchRequest) -> Operation:
    """An operation that gives the problem and the inputs; its config space is a placeholder that nobody reads."""
    specs = tensors_of(kernel, tunables, asked.shapes, asked.dtype)
    return Operation(kernel.name, kernel, as_space({"-": [0]}), lambda: specs)


def _beside_operation(
    text: str, function: Callable[..., Any], tunables: list[str], operation: Operation, asked: BenchRequest
) -> _BoundTarget:
    """A function that is compared with an operation, and is called with the arguments of the same names."""
    other = _of_operation(text, operation, asked)
    kernel = FunctionKernel(function)
    names = _taken(kernel, tunables, other.problem)
    problem = Problem(kernel.name, tuple((n, v) for n, v in other.problem.arguments if n in names), other.problem.label)

    def chosen() -> Arguments:
        values = other.arguments().keyword
        return Arguments(keyword={name: values[name] for name in names})

    return _BoundTarget(text, kernel, problem, other.device, arguments=chosen)


def _taken(kernel: FunctionKernel, tunables: list[str], problem: Problem) -> list[str]:
    try:
        parameters = inspect.signature(kernel.function).parameters.values()
    except (TypeError, ValueError) as error:
        raise TargetError(
            f"{kernel.name} does not tell its parameters", hint="write a Python function around it, and compare that"
        ) from error
    there = [name for name, _ in problem.arguments]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return there
    missing = [
        p.name
        for p in parameters
        if p.default is p.empty and p.name not in there and p.name not in tunables and p.kind is not p.VAR_POSITIONAL
    ]
    if missing:
        raise TargetError(
            f"{kernel.name} needs {', '.join(missing)}, which is no argument of {problem.kernel}: {', '.join(there)}",
            hint="name its parameters as the operation does",
        )
    return [p.name for p in parameters if p.name in there]


def _record(kernel: Kernel, problem: Problem, device: str, asked: BenchRequest) -> Record | None:
    """The winner stored for this problem of this kernel on this device; None if there is none."""
    key = Key.of(problem, kernel.identity, probe(device), cold=asked.cold)
    return None if key.unknown else DirectoryStore(folder_of(asked.cache_dir), RECORDS, read_only=True).get(key.id)


def _of_kernel(name: str, asked: BenchRequest) -> list[Record]:
    return [record for record in matching(name, asked.cache_dir) if record.key.kernel == name]


_HEADER = ("", "config", "p20 ms", "median ms", "p80 ms", "spread", "what")
_NUMBERS = ("p20 ms", "median ms", "p80 ms", "spread")


def bench_command(
    target: Annotated[
        str, typer.Argument(metavar="A", help="TARGET: a shipped kernel, module:object, or file.py:object.")
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="B", help="A second TARGET; default A, with its default config.", show_default=False),
    ] = None,
    shape: Shape = None,
    dtype: Dtype = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=V", help="Config of A, repeated or NAME=V,NAME=V; default its winner."),
    ] = None,
    config_b: Annotated[
        list[str] | None,
        typer.Option("--config-b", metavar="NAME=V", help="Config of B; default as for A, of A its default."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="No round is started after this time.")
    ] = 10.0,
    warm: Annotated[bool, typer.Option("--warm", help="On a GPU, leave L2 as the launch before left it.")] = False,
    device: Device = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the orders and the inputs.")] = 0,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End with an error if another process measures on the GPU.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Find out whether A is faster than B, by running both in turn on one problem.

    With one TARGET, its winner or --config is compared with its default config. The winner of an operation is the
    config with which a call would run, as `why` tells. `bench kernels` compares every shipped kernel with the vendor's
    library, eager PyTorch and torch.compile at its named problems.
    """
    checked_seed(seed)
    if target == bench_kernels.NAME:
        one = {"B": other, "--shape": shape, "--dtype": dtype, "--config": config, "--config-b": config_b}
        run = KernelRun(seconds=seconds, device=device or "cuda", cold=not warm, cache_dir=cache_dir)
        with only_data_on_stdout():
            bench_kernels.bench_kernels(run, as_json=as_json, refused={name: bool(v) for name, v in one.items()})
        return
    policy = duel_policy(None, seconds)  # bad options are refused before the target's code runs
    configs = parse_config(config or [], "--config"), parse_config(config_b or [], "--config-b")
    asked = BenchRequest(
        shapes=parse_shapes(shape), dtype=dtype, device=device, cold=not warm, seed=seed, cache_dir=cache_dir
    )
    _check(asked)
    with only_data_on_stdout():
        a, b = bench_contestants((target, other), configs, asked)
        if a.contestant.kernel == b.contestant.kernel and a.contestant.config == b.contestant.config:
            tell(f"a and b are the same: {a.target} with {_config(a.contestant.config)}")
        with rounds_bar((a.contestant.name, b.contestant.name), seconds, stderr()) as follow:
            found = compare_contestants(
                a.contestant, b.contestant, policy, cold=asked.cold, seed=seed, wait=not no_wait, follow=follow
            )
    if as_json:
        say_json(_as_json(a, b, found))
    else:
        say(*_report(a, b, found, width()))


def _check(asked: BenchRequest) -> None:
    if asked.dtype is not None:
        dtype_name(asked.dtype)
    if asked.device is not None:
        probe(asked.device)
    folder_of(asked.cache_dir)


def _report(a: BenchContestant, b: BenchContestant, found: Comparison, columns: int | None) -> list[str]:
    rows = [_row(a, found.a), _row(b, found.b)]
    header, *lines = table(_HEADER, rows, columns, _NUMBERS)
    head = f"{a.problem} on {probe(a.contestant.device_name).name}"
    verdict, *notes = str(found).splitlines()
    said = [*map(bold, paragraph("", verdict, columns))]
    return [head, bold(header), *lines, *said, *(line for note in notes for line in paragraph("", note, columns))]


def _row(shown: BenchContestant, times: Measurement) -> list[str]:
    contestant = shown.contestant
    figures = [f"{time_ms:.4g}" for time_ms in (times.p20_ms, times.median_ms, times.p80_ms)]
    what = f"{shown.target}, {shown.origin}" + (f": {contestant.config}" if contestant.config else "")
    return [contestant.name, label(contestant.config), *figures, f"{times.spread:.1%}", what]


def label(config: Config) -> str:
    """The values of a config without their names, such as `128/4`; another column holds the names."""
    return "/".join(str(value) for value in config.plain.values()) or "-"


def _config(config: Config) -> str:
    return f"({config})" if config else "no config"


def _as_json(a: BenchContestant, b: BenchContestant, found: Comparison) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "percent": found.percent,
        "interval": list(found.interval),
        "needed": found.needed,
        "noise": found.noise,
        "confidence": found.confidence,
        "rounds": found.rounds,
        "mode": found.mode,
        "problem": a.problem.label,
        "device": probe(a.contestant.device_name).name,
        "a": _contestant_json(a, found.a),
        "b": _contestant_json(b, found.b),
        "guard": msgspec.to_builtins(found.guard),
        "notes": list(found.notes),
    }


def _contestant_json(shown: BenchContestant, times: Measurement) -> dict[str, Any]:
    rounds: Sequence[Sequence[float]] = times.by_round
    return {
        "target": shown.target,
        "config": dict(shown.contestant.config.plain),
        "label": label(shown.contestant.config),
        "origin": shown.origin,
        "median_ms": times.median_ms,
        "p20_ms": times.p20_ms,
        "p80_ms": times.p80_ms,
        "spread": times.spread,
        "samples": sum(map(len, rounds)),
    }
