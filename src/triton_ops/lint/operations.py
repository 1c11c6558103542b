"""How operations launch their kernels: the types and values of parameters, by their problems and configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triton_ops.backend import Operation
from triton_ops.backend.base import Arguments, CompilesAhead
from triton_ops.backend.front_end import LaunchedKernel, launched_kernels
from triton_ops.backend.stand_in import described
from triton_ops.exceptions import TritonKernelError
from triton_ops.hardware import Target
from triton_ops.lint.source.parameters import Guess
from triton_ops.problem import Problem
from triton_ops.space import Config, ConfigSpace

_MOST_CONFIGS = 8


def launched_as(operation: Operation, target: Target) -> dict[int, tuple[Guess, ...]]:
    """With what an operation launches its kernels, by the identity of the JIT function; empty if that is not known.

    The default config comes first, then one for each other value of tunables that are texts or truth values: these
    choose between ways through the kernel.
    """
    kernel = operation.kernel.compiled_ahead if isinstance(operation.kernel, CompilesAhead) else None
    if kernel is None:
        return {}
    found: dict[int, dict[str, Guess]] = {}
    for problem in _problems(operation):
        arguments = described(Arguments(keyword=dict(problem.arguments)), light=not kernel.compile_imports)
        space = operation.space_for(problem)
        for config in _configs(space):
            try:
                launched = launched_kernels(kernel, config.with_members(space.members), arguments, target)
            except Exception:  # noqa: BLE001 - whatever the front end raises: the source alone is then read
                continue
            for one in launched:
                guess = _guess(one, config)
                found.setdefault(id(one.function), {}).setdefault(repr((guess.types, guess.constants)), guess)
    return {function: tuple(guesses.values()) for function, guesses in found.items()}


def _guess(one: LaunchedKernel, config: Config) -> Guess:
    options = {name: value for name, value in config.items() if name not in one.types and type(value) is int}
    floats = [kind.lstrip("*") for kind in one.types.values() if kind.lstrip("*") in ("fp16", "bf16", "fp32")]
    return Guess(
        types=one.types,
        constants=one.constants,
        known=frozenset(one.constants),
        element=floats[0] if floats else "fp16",
        options=options,
        ones=one.ones,
    )


def _problems(operation: Operation) -> Iterator[Problem]:
    """The problem that it is called with by default, or else its first named one."""
    named = next(iter(operation.problems.values()), (None, None))
    for shape, dtype in ((None, None), named):
        try:
            yield operation.problem(shape, dtype)
        except TritonKernelError:
            continue
        return


def _configs(space: ConfigSpace) -> Iterator[Config]:
    default = space.default_config
    yield default
    left = _MOST_CONFIGS - 1
    for name, tunable in space.tunables.items():
        for value in tunable.values:
            if isinstance(value, (str, bool)) and value != default[name] and left > 0:
                config = _nearest(space, default, {name: value})
                if config is not None:
                    left -= 1
                    yield config


def _nearest(space: ConfigSpace, default: Config, wanted: Mapping[str, Any]) -> Config | None:
    """A valid config with a wanted value: the default else, or the first that the space has."""
    config = Config({**default, **wanted})
    if space.why_not(config) is None:
        return config
    if space.listed is not None:
        return next((one for one in space if all(one[name] == value for name, value in wanted.items())), None)
    try:
        return next(iter(space.with_values({name: [value] for name, value in wanted.items()})), None)
    except TritonKernelError:
        return None
