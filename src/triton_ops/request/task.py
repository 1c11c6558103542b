"""A task is one problem of one kernel on one device, with its config space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend import AheadOfTime, Arguments, CompilesAhead, Kernel, Operation, private_copy
from triton_ops.device import DeviceSpec, target_of
from triton_ops.space import ConfigSpace
from triton_ops.values import Problem, Tolerance, Work


@dataclass(frozen=True)
class NamedProblem:
    """A problem of an operation by its shape, which another process can make again.

    Attributes:
        shape: Extents as asked for; None is the operation's default.
        dtype: Dtype as asked for; None is the operation's default.
    """

    operation: Operation
    shape: tuple[int, ...] | None
    dtype: str | None


@dataclass(frozen=True, eq=False)
class GeneratedArguments:
    """Makes an operation's arguments from their specs; the same seed gives the same values."""

    operation: Operation
    problem: Problem
    device: str
    seed: int

    def __call__(self) -> Arguments:
        """New arguments, with the same values on each call."""
        return self.operation.materialise(self.problem, self.device, self.seed)


@dataclass(frozen=True, eq=False)
class CopiedArguments:
    """Makes copies of the caller's own arguments.

    In another process, where the arguments belong to the worker alone, unpickling gives an `OwnedArguments` instead.
    """

    originals: Arguments

    def __call__(self) -> Arguments:
        """New copies of the arguments."""
        return private_copy(self.originals)

    def __reduce__(self) -> tuple[type[OwnedArguments], tuple[Arguments]]:
        return OwnedArguments, (self.originals,)


class OwnedArguments:
    """Hands over arguments without copying them, once, since a copy would take the device's memory a second time."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments: Arguments | None = arguments

    def __call__(self) -> Arguments:
        """The arguments themselves.

        Raises:
            RuntimeError: The arguments were handed over before.
        """
        arguments, self._arguments = self._arguments, None
        if arguments is None:
            raise RuntimeError("the arguments of this process are in use already")
        return arguments


@dataclass(frozen=True, kw_only=True)
class Task:
    """One problem of one kernel on one device, with everything that a tune needs.

    Attributes that a `TuneRequest` has too are described there.

    Attributes:
        space: The config space.
        arguments: Makes the private arguments; called only when a config is about to run.
        work: The least operations and bytes of the problem; None if not known.
    """

    kernel: Kernel
    problem: Problem
    space: ConfigSpace
    device: DeviceSpec
    device_name: str
    arguments: GeneratedArguments | CopiedArguments | OwnedArguments
    reference: Callable[..., Any] | None = None
    work: Work | None = None
    named: NamedProblem | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    check: Callable[[Any, Any], Any] | None = None

    def ahead_of_time(self) -> AheadOfTime | None:
        """The part that processes without a GPU can compile; None for a kernel that is not compiled, or without a GPU.

        Raises:
            TargetError: Triton's compiler for the device is not known.
        """
        kernel = self.kernel.compiled_ahead if isinstance(self.kernel, CompilesAhead) else None
        if self.device.kind == "cpu" or kernel is None:
            return None
        specs = Arguments(keyword=dict(self.problem.arguments))
        own = self.arguments.originals if isinstance(self.arguments, CopiedArguments) else specs
        return AheadOfTime(kernel, own, target_of(self.device), self.space.members)
