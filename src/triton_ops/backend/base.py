"""How a config becomes a callable: the kernel role and its arguments.

A kernel knows nothing of search, timing or caches. Adding a backend is one class with three methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from triton_ops.space import Config
from triton_ops.trial import Resources


@dataclass(frozen=True)
class Arguments:
    """What a kernel is called with, config values aside.

    Attributes:
        positional: In calling order.
        keyword: By name.
    """

    positional: tuple[Any, ...] = ()
    keyword: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self) -> Iterator[Any]:
        """The torch tensors in these arguments, also those inside tuples, lists and dicts."""
        yield from _tensors([*self.positional, *self.keyword.values()])

    def map(self, change: Callable[[Any], Any]) -> Arguments:
        """These arguments with `change` applied to every tensor, containers rebuilt around it."""
        return Arguments(
            tuple(_mapped(value, change) for value in self.positional),
            {name: _mapped(value, change) for name, value in self.keyword.items()},
        )


def by_name(kernel: Kernel, arguments: Arguments) -> Arguments:
    """`arguments` with those that came by position under their names, as far as they can be passed by name."""
    names = positional_names(kernel, len(arguments.positional))
    first = next((place for place, name in enumerate(names) if name is not None), len(names))
    named = {name: value for name, value in zip(names, arguments.positional, strict=True) if name is not None}
    if len(named) < len(names) - first:  # a starred parameter: what stands before it must stay before it
        return arguments
    return Arguments(arguments.positional[:first], {**named, **arguments.keyword})


def positional_names(kernel: Kernel, count: int) -> list[str | None]:
    """Names of the first `count` positional parameters of a kernel; None where one cannot be passed by name."""
    function = getattr(kernel, "function", None)
    names: list[str | None]
    try:
        names = list(getattr(function, "arg_names", None) or _parameters(function))
    except (TypeError, ValueError):  # no function, or a builtin without a signature
        names = []
    return [*names[:count], *[None] * (count - len(names))]


def _parameters(function: Any) -> Iterator[str | None]:
    for parameter in inspect.signature(function).parameters.values():
        yield parameter.name if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else None


def is_tensor(value: Any) -> bool:
    """Whether `value` is a torch tensor, told without importing torch."""
    return all(hasattr(value, name) for name in ("data_ptr", "untyped_storage", "stride"))


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if is_tensor(value):
            yield value
        elif isinstance(value, Mapping):
            yield from _tensors(value.values())
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if is_tensor(value):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _mapped(item, change) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
        return value._make(_mapped(item, change) for item in value)
    if type(value) in (tuple, list):
        return type(value)(_mapped(item, change) for item in value)
    return value


@dataclass(frozen=True)
class Artifact:
    """A compiled config, not launched.

    Attributes:
        config: What was compiled.
        resources: What the compiler made of it; None where the backend has no compiler.
        compile_s: Seconds it took; None where the backend has no compiler.
    """

    config: Config
    resources: Resources | None = None
    compile_s: float | None = None


class Kernel(Protocol):
    """A family of configs of one computation."""

    @property
    def name(self) -> str:
        """Stable across processes."""

    @property
    def identity(self) -> Mapping[str, str]:
        """What else must be equal for a stored winner to hold: source fingerprint, compiler version."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Arguments that a call writes; empty if it returns its result."""

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise a typed error if these tunables and arguments cannot be passed together; does no work."""

    def compile(self, config: Config, arguments: Arguments) -> Artifact:
        """Compile without launching. Raises `CandidateError` if the config cannot be compiled or loaded."""

    def bind(self, artifact: Artifact, arguments: Arguments) -> Callable[[], Any]:
        """A call with these arguments and the artifact's config."""
