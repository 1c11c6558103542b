"""The kernels that records and lockfiles name, found again as objects that can be tuned, checked and compiled.

What a file names is no reason to run code: its names only choose among the kernels that the caller has given, those
that this package ships, and those that a module of this process has declared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from inspect import getattr_static
from typing import Any

from triton_ops import dispatch, kernels
from triton_ops.backend import FunctionKernel, HasOperation, Kernel, Operation
from triton_ops.exceptions import KernelTypeError, NotLoadedError, TargetError, TritonKernelError
from triton_ops.values import Problem, TensorSpec

Target = Operation | Kernel
_NAME_IT = "name its file or module, if you trust it, with --kernels; in Python, give it as a target"
_LOADING = frozenset({"ir_override", "ptx_options", "extern_libs"})  # by these Triton's compilers are given files
_OF_A_PROGRAM = "a script or notebook has defined it, and no other program can: define it in a module"


class Targets:
    """Kernels by the names that they have in records; nothing is imported or called to find one.

    The targets are operations, kernels, functions, decorated kernels, Triton's own too, and objects that have an
    operation; they are found before all others, which are shipped kernels, and kernels that a module of this process
    holds under the name: see `is_declared`.
    """

    def __init__(self, targets: Iterable[Any] = ()) -> None:
        self._targets: dict[str, tuple[Target, Any]] = {}
        for each in targets:
            target = as_target(each)
            if target.name in self._targets:
                raise TargetError(f"two targets are called {target.name}", hint="give one of them")
            self._targets[target.name] = target, each
        self._own_names = tuple(self._targets)

    def decorated(self, name: str) -> Any:
        """The object of that name as it was given or stands in its module, such as a decorated kernel's."""
        self.find(name)
        return self._targets[name][1]

    def find(self, name: str) -> Target:
        """The operation or the kernel that records call `name`; NotLoadedError if there is none."""
        if name not in self._targets:
            target = kernels.load(name) if name in kernels.names() else _declaration(name)
            if target is None or as_target(target).name != name:
                raise NotLoadedError(
                    f"{name} is not loaded; loaded are {', '.join(self._own_names) or 'shipped kernels alone'}",
                    hint=_OF_A_PROGRAM if name.startswith("__main__:") else _NAME_IT,
                )
            self._targets[name] = as_target(target), target
        return self._targets[name][0]


def is_declared(candidate: Any) -> bool:
    """True if an object was declared as a kernel: an operation, a chooser, a kernel of this package, or decorated.

    A function is none: whoever names its module has not said that it may be called with what a file holds.
    """
    if {"triton", "triton_ops"}.isdisjoint(str(kind.__module__).partition(".")[0] for kind in type(candidate).__mro__):
        return False
    try:
        return not isinstance(as_target(candidate), FunctionKernel)
    except TritonKernelError:  # such as a kernel of Triton's without a decorator
        return False


def as_target(source: Any) -> Target:
    """The operation or the kernel in what a caller gives; KernelTypeError if it is neither, and no callable either."""
    if isinstance(source, Operation):
        return source
    if isinstance(source, HasOperation):
        return source.operation
    # Triton's own objects have `fn`, and have imported Triton, as what knows them does.
    operation = dispatch.operation_of(source) if hasattr(source, "fn") else None
    return FunctionKernel.as_kernel(source) if operation is None else operation


def kernel_in(target: Target) -> Kernel:
    """The kernel of an operation, or the kernel itself."""
    return target.kernel if isinstance(target, Operation) else target


def check_named(kernel: Kernel, stated: Iterable[str]) -> None:
    """Check that what a file gives a kernel names no file to its compiler, as some options do.

    An option that is no parameter of the kernel does. The names are of arguments, and of values of a config without a
    space.
    """
    names = {name.partition(":")[0] for name in stated}  # of a decorated kernel's, `NAME:class` too
    if loading := _LOADING & names.difference(getattr(kernel, "parameter_names", ())):
        raise KernelTypeError(
            f"{', '.join(sorted(loading))} of a file is not used: a compiler of {kernel.name} would load what it names",
            hint="give it in the space of an operation, and tune that",
        )


def has_classes(problem: Mapping[str, Any]) -> bool:
    """True if a problem has only what a compiler specialises on, for some arguments, as those of decorated kernels."""
    return any(name.endswith(":class") for name in problem)


def specs_of(problem: Mapping[str, Any]) -> dict[str, Any]:
    """A problem of a key as arguments by name, with a `TensorSpec` for each tensor; what is ignored is left out."""
    if has_classes(problem):
        raise KernelTypeError(
            "only the classes of its arguments are known: it is a decorated kernel, and its call could not be noted",
            hint="tune it where it is called, with on_miss='tune'",
        )
    return {name: Problem.from_plain(value) for name, value in problem.items() if value != {"any": True}}


def made_on(specs: Mapping[str, Any], device: str, seed: int = 0) -> dict[str, Any]:
    """Arguments on a device, with a tensor for each spec, uniform in [-1, 1]."""
    return {
        name: argument.create_tensor(device, seed + place) if isinstance(argument, TensorSpec) else argument
        for place, (name, argument) in enumerate(specs.items())
    }


def _declaration(name: str) -> Any:
    """The kernel that is declared under this name in a module of this process; None if nothing is.

    Neither a module nor a class is asked in a way that lets it answer with code of its own, such as a late import.
    """
    module, _, path = name.partition(":")
    value: Any = sys.modules.get(module)
    for depth, part in enumerate(path.split(".")):
        if value is None or (depth and not issubclass(type(value), type)):
            return None
        value = getattr_static(value, part, None)
    return value if is_declared(value) else None
