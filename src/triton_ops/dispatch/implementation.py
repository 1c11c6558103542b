"""One of several implementations of an operation: what it calls, where it applies, and what is tuned of it first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

from triton_ops.backend import Arguments, CompilesAtLaunch, FunctionKernel, Operation, one_line
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Config

Applies = Callable[..., Any]
"""Called with the arguments of a call; returns True, or why not: a text, or a pair of False and a text.

Before a call, as for a problem by shape, tensors come as `Described`: shape, dtype, strides and device without memory.
"""


@dataclass(frozen=True)
class Implementation:
    """One implementation of an operation.

    Attributes:
        function: Called as the operation is. None calls the kernel of `operation`.
        applies: Says whether it serves a call, and why not; None serves all.
        operation: The kernel with its config space, where the implementation has one: it is tuned first, for each
            problem, and its winner is what takes part. The function is then called with `config=`.
        values: From the arguments of a call to those of the operation's kernel by name, outputs made anew among them;
            None if both take the same arguments by the same names.
        returns: Whether the function returns what the others write. The result is then copied to where it belongs.
        gradient: Whether a gradient can be recorded through it. Where one is, others do not apply.

    Raises:
        KernelTypeError: There is neither a function nor an operation, or one of the fields is not callable.
    """

    function: Callable[..., Any] | None = None
    _: KW_ONLY
    applies: Applies | None = None
    operation: Operation | None = None
    values: Callable[..., Mapping[str, Any]] | None = None
    returns: bool = False
    gradient: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.function, Operation):
            object.__setattr__(self, "operation", self.function)
            object.__setattr__(self, "function", None)
        if self.operation is not None and not isinstance(self.operation, Operation):
            raise KernelTypeError(f"operation is {self.operation!r}, and no Operation", hint="leave it out")
        if self.function is None and self.operation is None:
            raise KernelTypeError("an implementation has neither a function nor an operation", hint="give a callable")
        if self.function is not None:
            FunctionKernel(self.function)  # checks that a call does the work
        for name in ("applies", "values"):
            if not callable(getattr(self, name) or len):
                raise KernelTypeError(
                    f"{name} is {getattr(self, name)!r}, which is not callable", hint="give a function"
                )

    @property
    def identity(self) -> Mapping[str, str]:
        """Values that must be equal for a stored winner to hold: source, and versions."""
        own = {} if self.operation is None else self.operation.kernel.identity
        if self.function is None:
            return own
        identity = FunctionKernel(self.function).identity
        return {**own, **identity, "source": f"{identity['source']} {own.get('source', '')}".strip()}

    def why_not(self, arguments: Arguments) -> str | None:
        """Reason for which it does not apply to a call; None if it does. A predicate that raises says no."""
        if self.applies is None:
            return None
        try:
            answer = self.applies(*arguments.positional, **arguments.keyword)
        except Exception as error:  # noqa: BLE001 - the user's predicate
            return f"its predicate raised {one_line(error)}"
        ok, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
        if isinstance(ok, str):
            return ok
        return None if ok is None or bool(ok) else str(reason) or "its predicate says that it does not apply"

    def operation_values(self, arguments: Arguments) -> Mapping[str, Any]:
        """The arguments of the operation's kernel for a call, by name."""
        if self.values is not None:
            return self.values(*arguments.positional, **arguments.keyword)
        return arguments.by_name(self.operation.kernel).keyword if self.operation is not None else arguments.keyword

    def run(self, tiles: Mapping[str, Any]) -> Callable[..., Any]:
        """The callable that a call of this implementation comes to, with the config `tiles` of its operation."""
        if self.operation is None:
            assert self.function is not None
            return self.function
        if self.function is not None:
            return partial(self.function, config=Config(tiles))
        return partial(self._launched, Config(tiles))

    def _launched(self, tiles: Config, *args: Any, **kwargs: Any) -> Any:
        """Launch the operation's kernel; returns its outputs if they were made for this call, else what it returns."""
        operation, arguments = self.operation, Arguments(args, kwargs)
        assert operation is not None
        values = dict(self.operation_values(arguments))
        kernel, launched = operation.kernel, Arguments(keyword=values)
        direct = isinstance(kernel, CompilesAtLaunch)
        executable = kernel.executable(tiles) if direct else kernel.compile(tiles, launched)  # type: ignore[attr-defined]
        output = executable.launch(launched)
        if self.values is None or not executable.outputs:
            return output
        outputs = tuple(values[name] for name in executable.outputs)
        return outputs[0] if len(outputs) == 1 else outputs


def as_implementation(implementation: Any, **more: Any) -> Implementation:
    """Make an implementation of what a caller gives: one, a callable, or an `Operation`.

    Raises:
        KernelTypeError: It is none of these.
    """
    if isinstance(implementation, Implementation):
        return replace(implementation, **more) if more else implementation
    return Implementation(implementation, **more)


def in_order(parameters: Sequence[str | None], arguments: Arguments) -> Arguments:
    """Arguments that came by name in their places again, as far as places have no gap: implementations differ in names.

    Args:
        parameters: The names of the parameters that may be given by position, in order.
        arguments: The arguments.
    """
    keyword, positional = dict(arguments.keyword), list(arguments.positional)
    for name in parameters[len(positional) :]:
        if name not in keyword:
            break
        positional.append(keyword.pop(name))
    return Arguments(tuple(positional), keyword)
