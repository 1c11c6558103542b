"""The kernels that records and lockfiles name, found again as objects that can be tuned, checked and compiled."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from triton_ops import kernels
from triton_ops.backend import HasOperation, Kernel, Operation, as_kernel
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.problem import from_plain
from triton_ops.tensors import TensorSpec

Target = Operation | Kernel
DECORATED = "triton_ops.dispatch.noted"


class Targets:
    """Kernels by the names that they have in records.

    Args:
        given: Operations, kernels, functions, decorated kernels, Triton's own too, and objects that have an operation;
            they are found before all others.
        load: From a name that is neither among these nor that of a shipped kernel to the object; it raises a
            `TargetError` for one that it does not find. None looks in modules that are imported already, and imports
            none: what a file names is no reason to run code.
    """

    def __init__(self, given: Iterable[Any] = (), load: Callable[[str], Any] | None = None) -> None:
        self._known: dict[str, Target] = {}
        self._objects: dict[str, Any] = {}
        self._load = load or _imported
        for each in given:
            target = as_target(each)
            if target.name in self._known:
                raise TargetError(f"two targets are called {target.name}", hint="give one of them")
            self._known[target.name], self._objects[target.name] = target, each

    def decorated(self, name: str) -> Any:
        """The object of that name as it stands in its module, such as a decorated kernel.

        Raises:
            TargetError: There is none.
        """
        return self._objects[name] if name in self._objects else self._load(name)

    def find(self, name: str) -> Target:
        """The operation or the kernel that records call `name`.

        Raises:
            TargetError: There is none, or the object of that name is called otherwise.
        """
        if name not in self._known:
            found = kernels.load(name) if name in kernels.names() else as_target(self._load(name))
            if found.name != name:
                raise TargetError(f"what {name} names is called {found.name}", hint="give the operation as a target")
            self._known[name] = found
        return self._known[name]


def as_target(given: Any) -> Target:
    """The operation or the kernel in what a caller gives.

    Raises:
        KernelTypeError: It is neither, and no callable either.
    """
    if isinstance(given, Operation):
        return given
    if isinstance(given, HasOperation):
        return given.operation
    # Triton's own objects have `fn`, and have imported Triton, as what knows them does.
    found: Operation | None = importlib.import_module(DECORATED).operation_of(given) if hasattr(given, "fn") else None
    return as_kernel(given) if found is None else found


def kernel_in(target: Target) -> Kernel:
    """The kernel of an operation, or the kernel itself."""
    return target.kernel if isinstance(target, Operation) else target


def specs_of(problem: Mapping[str, Any]) -> dict[str, Any]:
    """A problem of a key as arguments by name, with a `TensorSpec` for each tensor; what is ignored is left out.

    Raises:
        KernelTypeError: An argument cannot be made, as those of a decorated kernel, of which only classes are known.
    """
    if any(name.endswith(":class") for name in problem):
        raise KernelTypeError(
            "only the classes of its arguments are known: it is a decorated kernel, and its call could not be noted",
            hint="tune it where it is called, with on_miss='tune'",
        )
    return {name: from_plain(value) for name, value in problem.items() if value != {"any": True}}


def made_on(specs: Mapping[str, Any], device: str, seed: int = 0) -> dict[str, Any]:
    """Arguments on a device, with a tensor for each spec, uniform in [-1, 1]."""
    return {
        name: given.create_tensor(device, seed + place) if isinstance(given, TensorSpec) else given
        for place, (name, given) in enumerate(specs.items())
    }


def _imported(name: str) -> Any:
    module, colon, path = name.partition(":")
    found: Any = sys.modules.get(module) if colon else None
    for part in path.split(".") if found is not None else ():
        found = getattr(found, part, None)
    if found is None:
        raise TargetError(f"{name} is not among the modules that are imported", hint="give the operation as a target")
    return found
