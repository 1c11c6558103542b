"""TARGET: from what stands on the command line to an operation or a function.

A shipped kernel's name, `package.module:object`, or `path/file.py:object`, where the object is an `Operation` or a
plain callable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triton_ops.backend import HasOperation, Operation
from triton_ops.exceptions import NotLoadedError, TargetError
from triton_ops.kernels import load, names
from triton_ops.request import named_object


def load_target(text: str, among: Mapping[str, Any] | None = None) -> Operation | Callable[..., Any]:
    """The operation or callable that TARGET names.

    Where a file holds the TARGET, `among` has the objects that it may name beside shipped kernels, by the TARGET of
    each. None imports what is named, since somebody typed it.

    Raises:
        NotLoadedError: It is not among these objects.
        TargetError: It does not exist, cannot be imported, or is neither an operation nor callable.
    """
    _, colon, name = text.rpartition(":")
    if not colon:
        return _shipped(text)
    if among is None:
        return _usable(text, name, named_object(text))
    if text not in among:
        raise NotLoadedError(
            f"{text} is not loaded; loaded are {', '.join(among) or 'shipped kernels alone'}",
            hint="a file loads no code: name it, if you trust it, with --kernels as well",
        )
    return _usable(text, name, among[text])


def load_object(text: str) -> Any:
    """The object that TARGET names, whatever it is: an operation, a function, a kernel with or without a decorator."""
    return named_object(text) if ":" in text else _shipped(text)


def load_operation(text: str, lack: str) -> Operation:
    """The operation that TARGET names; `lack` is what a function is, and lacks, in the words of the error."""
    target = load_target(text)
    if not isinstance(target, Operation):
        raise TargetError(f"{text} is a function{lack}", hint="name an Operation")
    return target


def _usable(text: str, name: str, target: Any) -> Operation | Callable[..., Any]:
    if hasattr(target, "arg_names") or hasattr(target, "grid"):  # `@triton.jit`, `@triton.autotune`, a TritonKernel
        raise TargetError(
            f"{text} is a Triton kernel, and neither its arguments nor its reference are known",
            hint=f"make an Operation of it, name = Operation(..., TritonKernel({name}, grid), ...), and tune that",
        )
    if isinstance(target, HasOperation):  # a chooser
        return target.operation
    if isinstance(target, Operation) or (callable(target) and not isinstance(target, type)):
        return target
    kind = "class" if isinstance(target, type) else f"value of type {type(target).__name__}"
    raise TargetError(
        f"{text} is a {kind}, neither an Operation nor a function",
        hint="name an Operation, or a function that takes config values as keywords",
    )


def _shipped(name: str) -> Operation:
    if name in names():
        return load(name)
    if name.endswith(".py"):
        raise TargetError(f"{name} names a file, but nothing in it", hint=f"write {name}:NAME")
    raise TargetError(f"there is no kernel {name!r}; shipped are {', '.join(names())}", hint=TargetError.FORMS)
