"""A task is one problem of one kernel on one device, with its config space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from triton_ops.backend import AheadOfTime, Arguments, CompilesAhead, Kernel, Operation, private_copy
from triton_ops.device import DeviceSpec, target_of
from triton_ops.space import ConfigSpace
from triton_ops.values import RULE, Problem, Tolerance, Work


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
class KernelProblem:
    """A problem of a kernel on a device.

    Attributes:
        kernel: The kernel; it turns a config into a launch.
        device: The device's capabilities.
        device_name: The device's torch name.
        arguments: Makes the private arguments; called only when a config is about to run.
        reference: Computes the right result; None if there is none.
        tolerance: How far results may be from the right one.
        check: The caller's own comparison; None takes the tolerance.
    """

    kernel: Kernel
    problem: Problem
    device: DeviceSpec
    device_name: str
    arguments: GeneratedArguments | CopiedArguments | OwnedArguments
    reference: Callable[..., Any] | None = None
    tolerance: Tolerance = RULE
    check: Callable[[Any, Any], Any] | None = None

    @property
    def common(self) -> dict[str, Any]:
        """The fields of every problem by name, for a carrier that has more of them."""
        return {each.name: getattr(self, each.name) for each in fields(KernelProblem)}

    @property
    def arguments_or_specs(self) -> Arguments:
        """The caller's own arguments, or the specs of those that are generated."""
        if isinstance(self.arguments, CopiedArguments):
            return self.arguments.originals
        return Arguments(keyword=dict(self.problem.arguments))


@dataclass(frozen=True, kw_only=True)
class Task(KernelProblem):
    """A problem of a kernel on a device, with everything else that a tune needs.

    Attributes:
        space: The config space.
        work: The least operations and bytes of the problem; None if not known.
        named: The problem by its shape; None for the caller's own arguments.
    """

    space: ConfigSpace
    work: Work | None = None
    named: NamedProblem | None = None

    def ahead_of_time(self) -> AheadOfTime | None:
        """The part that processes without a GPU can compile; None for a kernel that is not compiled, or without a GPU.

        Raises:
            TargetError: Triton's compiler for the device is not known.
        """
        kernel = self.kernel.compiled_ahead if isinstance(self.kernel, CompilesAhead) else None
        if self.device.kind == "cpu" or kernel is None:
            return None
        return AheadOfTime(kernel, self.arguments_or_specs, target_of(self.device), self.space.members)
