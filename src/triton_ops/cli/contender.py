"""What `bench` compares: from TARGETs and configs on the command line to two contestants that can be run."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from triton_ops.backend import Arguments, FunctionKernel, Kernel, Operation
from triton_ops.cache import RECORDS, DirectoryStore, Key, Record
from triton_ops.cli.problem import operation_of, parse_space, tensors_of
from triton_ops.cli.records import folder_of, matching
from triton_ops.cli.target import load_target
from triton_ops.comparison.contestant import Contestant, MakeArguments
from triton_ops.exceptions import SettingsError, SpaceError, TargetError, TritonKernelError
from triton_ops.hardware import probe
from triton_ops.space import Config, ConfigSpace, as_space
from triton_ops.task.task import device_for
from triton_ops.trial import Problem

_CONFIG_HINT = "for example --config BM=64,num_warps=4"
_WINNER, _DEFAULT = "recorded winner", "default config"


@dataclass(frozen=True)
class Wish:
    """What is asked for, for both contestants alike.

    Attributes:
        shapes: As parsed from `--shape`.
        dtype: As given.
        device: As given.
        cold: Whether L2 is to be cold; records of the other kind are not looked at.
        seed: Of the inputs.
        cache_dir: Where records are looked up; None is the default folder.
    """

    shapes: list[tuple[int, ...]]
    dtype: str | None
    device: str | None
    cold: bool
    seed: int
    cache_dir: str | None


@dataclass(frozen=True)
class Contender:
    """One contestant, and how it came about.

    Attributes:
        target: As given on the command line.
        origin: Where the config is from, in words.
        problem: What it is run on.
        contestant: What is timed.
    """

    target: str
    origin: str
    problem: Problem
    contestant: Contestant


@dataclass(frozen=True)
class _Entry:
    """A target with a problem: what a config is still missing to."""

    target: str
    kernel: Kernel
    problem: Problem
    device: str
    arguments: MakeArguments
    space: ConfigSpace | None
    record: Record | None

    def contender(self, name: str, config: Mapping[str, Any], origin: str) -> Contender:
        chosen = Config(config)
        self.kernel.check(chosen, Arguments(keyword=dict(self.problem.arguments)))
        contestant = Contestant(name, self.kernel, chosen, device_name=self.device, arguments=self.arguments)
        return Contender(self.target, origin, self.problem, contestant)


def parse_config(text: str | None, option: str) -> dict[str, Any] | None:
    """`NAME=V,NAME=V` or a JSON object; None if not given.

    Raises:
        SpaceError: It is neither, or names a tunable twice.
    """
    if text is None:
        return None
    try:
        if text.lstrip().startswith("{"):
            return dict(Config.from_json(json.loads(text)))
        parts = text.split(",")
        if not all("=" in part for part in parts):
            raise ValueError("a part without a value")
        return {name: values[0] for name, values in (parse_space(parts) or {}).items()}
    except (SpaceError, ValueError) as error:
        raise SpaceError(f"{option} {text!r} is not NAME=value,NAME=value", hint=_CONFIG_HINT) from error


def contenders(
    texts: tuple[str, str | None], configs: tuple[dict[str, Any] | None, dict[str, Any] | None], wish: Wish
) -> tuple[Contender, Contender]:
    """Both contestants. A single TARGET's winner, or the config given, stands against its default config.

    Raises:
        TargetError, SpaceError, ShapeMismatchError, UnsupportedDtypeError, DeviceError: As for `tune`.
        SettingsError: There is nothing to compare the default config with.
    """
    found = load_target(texts[0])
    if texts[1] is None:
        entry = _entry(texts[0], found, _names(*configs), wish)
        return (
            entry.contender("a", *_config(entry, configs[0], (_WINNER,))),
            entry.contender("b", *_config(entry, configs[1], (_DEFAULT,))),
        )
    other = load_target(texts[1])
    first = _entry(texts[0], found, _names(configs[0]), wish, beside=other)
    second = _entry(texts[1], other, _names(configs[1]), wish, beside=found)
    same_making = found is other or (not isinstance(found, Operation) and not isinstance(other, Operation))
    if same_making and first.problem.arguments == second.problem.arguments:
        second = replace(second, arguments=first.arguments)  # so that each can run on the other's
    return (
        first.contender("a", *_config(first, configs[0], (_WINNER, _DEFAULT))),
        second.contender("b", *_config(second, configs[1], (_WINNER, _DEFAULT))),
    )


def _names(*configs: dict[str, Any] | None) -> list[str]:
    """The tunables that are given values."""
    return list(dict.fromkeys(name for config in configs for name in config or {}))


def _config(entry: _Entry, given: dict[str, Any] | None, wanted: tuple[str, ...]) -> tuple[Mapping[str, Any], str]:
    """The config of a contestant and where it is from: as given, else the first of `wanted` that there is."""
    default = entry.space.default_config if entry.space else None
    if default is None and entry.record is not None and entry.record.default is not None:
        default = Config.from_json(entry.record.default)
    if given is not None:
        rest = {} if default is None else default
        partly = bool(set(rest) - set(given))
        return {**rest, **given}, "as given, the rest from the default" if partly else "as given"
    known = {_WINNER: entry.record.config if entry.record else None, _DEFAULT: default}
    for origin in wanted:
        if (config := known[origin]) is not None:
            return config, origin
    if _WINNER in wanted and _DEFAULT in wanted:
        return {}, "no config"
    if wanted == (_WINNER,):
        raise SettingsError(
            f"there is no record of {entry.problem} to compare with the default config",
            hint="tune it first, or give --config, or a second TARGET",
        )
    raise SettingsError(f"{entry.target} has no default config", hint="give --config-b")


def _entry(
    text: str,
    found: Operation | Callable[..., Any],
    tunables: list[str],
    wish: Wish,
    beside: Operation | Callable[..., Any] | None = None,
) -> _Entry:
    if isinstance(found, Operation):
        return _of_operation(text, found, wish)
    if isinstance(beside, Operation):
        return _beside_operation(text, found, tunables, beside, wish)
    return _of_function(text, found, tunables, wish)


def _of_operation(text: str, found: Operation, wish: Wish) -> _Entry:
    operation, _, shape, dtype = operation_of(found, None, wish.shapes, wish.dtype)
    problem = operation.problem(shape, dtype)
    device = device_for(wish.device, operation.device, operation.name)
    space = operation.space_for(problem)
    record = _record(operation.kernel, problem, device, wish)
    if record is not None and space.why_not(record.config) is not None:
        record = None
    maker = partial(operation.materialise, problem, device, wish.seed)
    return _Entry(text, operation.kernel, problem, device, maker, space, record)


def _of_function(text: str, function: Callable[..., Any], tunables: list[str], wish: Wish) -> _Entry:
    """A function: which of its parameters are tunables is told by the config given, or else by a record of it."""
    kernel = FunctionKernel(function)
    device = device_for(wish.device, "any", kernel.name)
    record: Record | None = None
    for known in _of_kernel(kernel.name, wish) if not tunables else ():
        with contextlib.suppress(TritonKernelError):  # a record of the same name with other parameters
            operation = _as_operation(kernel, list(known.config), wish)
            record = record or _record(kernel, operation.problem(), device, wish)
    operation = _as_operation(kernel, list(record.config) if record else tunables, wish)
    problem = operation.problem()
    if tunables:
        record = _record(kernel, problem, device, wish)
    return _Entry(
        text, kernel, problem, device, partial(operation.materialise, problem, device, wish.seed), None, record
    )


def _as_operation(kernel: FunctionKernel, tunables: list[str], wish: Wish) -> Operation:
    """For its problem and its inputs; the space that every operation has is never asked here."""
    specs = tensors_of(kernel, tunables, wish.shapes, wish.dtype)
    return Operation(kernel.name, kernel, as_space({"-": [0]}), lambda: specs)


def _beside_operation(
    text: str, function: Callable[..., Any], tunables: list[str], operation: Operation, wish: Wish
) -> _Entry:
    """A function next to an operation: called with those of the operation's arguments that it names."""
    other = _of_operation(text, operation, wish)
    kernel = FunctionKernel(function)
    names = _taken(kernel, tunables, other.problem)
    problem = Problem(kernel.name, tuple((n, v) for n, v in other.problem.arguments if n in names), other.problem.label)

    def chosen() -> Arguments:
        values = other.arguments().keyword
        return Arguments(keyword={name: values[name] for name in names})

    return _Entry(text, kernel, problem, other.device, chosen, None, None)


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


def _record(kernel: Kernel, problem: Problem, device: str, wish: Wish) -> Record | None:
    """The winner stored for this problem of this kernel on this device; None if there is none."""
    key = Key.of(problem, kernel.identity, probe(device), cold=wish.cold)
    return None if key.unknown else DirectoryStore(folder_of(wish.cache_dir), RECORDS, read_only=True).get(key.id)


def _of_kernel(name: str, wish: Wish) -> list[Record]:
    return [record for record in matching(name, wish.cache_dir) if record.key.kernel == name]
