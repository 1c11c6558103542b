"""Python callables as kernels: the values of a config are passed as keywords beside the caller's own arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_ops.backend.identity import function_identity
from triton_ops.backend.origins import Layers
from triton_ops.backend.roles import Arguments, Executable, Kernel
from triton_ops.exceptions import ConfigCollisionError, KernelTypeError, UnknownTunableError
from triton_ops.space import Config

_KERNEL_PARTS = ("outputs", "check", "compile")  # not `identity`: computing it takes time


@dataclass(frozen=True)
class FunctionKernel:
    """A callable that takes the values of a config as keywords.

    Attributes:
        function: Called as `function(*args, **kwargs, **config)`.
        label: Its name in records; None takes `module:qualified_name`.
        outputs: Arguments that a call writes; empty if it returns its result.

    Raises:
        KernelTypeError: `function` is not callable, or only makes a coroutine or a generator when it is called.
    """

    function: Callable[..., Any]
    label: str | None = None
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise KernelTypeError(
                f"{self.function!r} of type {type(self.function).__name__} is not callable",
                hint="give a function that takes the config values as keywords",
            )
        if (substitute := _substitute(self.function)) is not None:
            what, way = substitute
            raise KernelTypeError(
                f"{self.name} only makes {what} when it is called: its work would not be timed",
                hint=f"write a function around it that does the work: lambda *args, **config: {way}",
            )

    @property
    def name(self) -> str:
        """`module:qualified_name`, unless labelled."""
        if self.label:
            return self.label
        inner = Layers.unwrap(self.function)
        if isinstance(inner, functools.partial):
            inner = inner.func
        name = getattr(inner, "__qualname__", type(inner).__qualname__)
        return f"{getattr(inner, '__module__', '__main__')}:{name}"

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprint of the source and all it refers to, and versions of the packages that it uses."""
        return function_identity(self.function)

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless every tunable can be passed as a keyword beside the arguments.

        Raises:
            ConfigCollisionError: A tunable has the name of an argument that is passed as well.
            UnknownTunableError: The callable takes no keyword of that name.
        """
        names = list(tunables)
        argument_names = set(arguments.keyword)
        parameters = _parameters(self.function)
        if parameters is not None:
            order = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
            argument_names.update(order[: len(arguments.positional)])
        if clash := [name for name in names if name in argument_names]:
            raise ConfigCollisionError(
                f"{', '.join(map(repr, clash))} is both a tunable and an argument of this call",
                hint="rename the tunable, or leave the argument to the tuner",
            )
        if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        keywords = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if unknown := [name for name in names if name not in keywords]:
            raise UnknownTunableError(
                f"{self.name} takes no keyword {', '.join(map(repr, unknown))}; "
                f"it takes {', '.join(keywords) or 'none'}",
                hint="correct the tunable's name, or add the parameter to the function",
            )

    @property
    def parameter_names(self) -> list[str | None]:
        """The names in calling order; None for a parameter that cannot be passed by name. Empty without a signature."""
        parameters = (_parameters(self.function) or {}).values()
        return [p.name if p.kind is p.POSITIONAL_OR_KEYWORD else None for p in parameters]

    def compile(self, config: Config, arguments: Arguments) -> Executable:  # noqa: ARG002 - the role's signature
        """The callable with the config's values as keywords; there is nothing to compile."""

        def bind(inputs: Arguments) -> Callable[[], Any]:
            return functools.partial(self.function, *inputs.positional, **{**inputs.keyword, **config})

        return Executable(config=config, bind=bind, outputs=self.outputs)

    @staticmethod
    def as_kernel(target: Any) -> Kernel:
        """`target` itself if it is a kernel, else a kernel that calls it.

        Raises `KernelTypeError` if it is neither a kernel nor callable, or a Triton kernel without a grid.
        """
        if all(hasattr(target, name) for name in _KERNEL_PARTS):
            kernel: Kernel = target
            return kernel
        if hasattr(target, "arg_names") and hasattr(target, "run"):
            below = f"{Layers.unwrap(target).__name__}{'.fn' if hasattr(target, 'configs') else ''}"
            alternative = ', or call it inside of `with triton_ops.on_miss("tune"):`' if below.endswith(".fn") else ""
            inner = Layers.unwrap(target)
            raise KernelTypeError(
                f"{inner.__module__}:{inner.__name__} is a Triton kernel without a grid",
                hint=f"wrap it: TritonKernel({below}, grid=lambda meta: (...,), outputs=(...,)){alternative}",
            )
        return FunctionKernel(target)


def _substitute(function: Callable[..., Any]) -> tuple[str, str] | None:
    """The object that a call makes instead of doing the work, and the way to do it; None for an ordinary callable."""
    inner = Layers.unwrap(function)
    inner = inner.func if isinstance(inner, functools.partial) else inner
    call = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        return "a coroutine", "asyncio.run(f(*args, **config))"
    return ("a generator", "list(f(*args, **config))") if inspect.isgeneratorfunction(call) else None


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return Layers.parameters_of(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return None
