"""TARGET: from what stands on the command line to an operation or a function.

A shipped kernel's name, `package.module:object`, or `path/file.py:object`, where the object is an `Operation` or a
plain callable, or a Triton kernel under a decorator, which is taken at a call that a program has noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops import dispatch
from triton_ops.backend import HasOperation, Operation
from triton_ops.exceptions import NotLoadedError, TargetError
from triton_ops.kernels import load, names
from triton_ops.request import named_object


@dataclass(frozen=True)
class TypedTarget:
    """A TARGET as somebody typed it, or as a file holds it; `cache_dir` has the calls of decorated kernels."""

    text: str
    cache_dir: str | Path | None = None

    def load(self, among: Mapping[str, Any] | None = None) -> Operation | Callable[..., Any]:
        """The operation or callable that is named.

        Where a file holds the TARGET, `among` has the objects that it may name beside shipped kernels, by the TARGET of
        each. None imports what is named, since somebody typed it.

        Raises:
            NotLoadedError: It is not among these objects.
            TargetError: It does not exist, cannot be imported, or is neither an operation nor callable.
        """
        _, colon, name = self.text.rpartition(":")
        if not colon:
            return _shipped(self.text)
        if among is None:
            return _usable(self.text, name, named_object(self.text), self.cache_dir)
        if self.text not in among:
            raise NotLoadedError(
                f"{self.text} is not loaded; loaded are {', '.join(among) or 'shipped kernels alone'}",
                hint="a file loads no code: name it, if you trust it, with --kernels as well",
            )
        return _usable(self.text, name, among[self.text], self.cache_dir)

    def object(self) -> Any:
        """The object that is named, whatever it is: an operation, a function, a kernel with or without a decorator."""
        return named_object(self.text) if ":" in self.text else _shipped(self.text)

    def operation(self, lack: str) -> Operation:
        """The operation that is named; `lack` is what a function is, and lacks, in the words of the error."""
        target = self.load()
        if not isinstance(target, Operation):
            raise TargetError(f"{self.text} is a function{lack}", hint="name an Operation")
        return target


def _usable(text: str, name: str, target: Any, cache_dir: str | Path | None) -> Operation | Callable[..., Any]:
    if hasattr(target, "fn") and (noted := dispatch.NotedOperation.of(target, cache_dir)) is not None:
        return noted
    if hasattr(target, "fn") and hasattr(target, "configs"):
        raise _without_call(text, name, target)
    if hasattr(target, "arg_names") or hasattr(target, "grid"):  # `@triton.jit`, a TritonKernel
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


def _without_call(text: str, name: str, decorated: Any) -> TargetError:
    """The error of a kernel under a decorator without a noted call, with what to run, or to write and to type."""
    tunables = {each for config in decorated.configs for each in getattr(config, "kwargs", ())}
    arguments = ", ".join(f'"{each}": ...' for each in getattr(decorated, "arg_names", ()) if each not in tunables)
    installed = "" if type(decorated).__module__.startswith("triton_ops.") else " under triton_ops.install()"
    return TargetError(
        f"{text} is a kernel under a decorator, and no call of it is noted that would tell its arguments and its grid",
        hint=f"its program notes calls{installed} with TRITON_OPS_ON_MISS=queue; or write {name}_op = "
        f'Operation("{name}", TritonKernel({name}.fn, lambda meta: (...,)), {name}.configs, '
        f"lambda n=1024: {{{arguments}}}), a TensorSpec for each tensor, and type {text}_op --shape 1024",
    )


def _shipped(name: str) -> Operation:
    if name in names():
        operation: Operation = load(name)
        return operation
    if name.endswith(".py"):
        raise TargetError(f"{name} names a file, but nothing in it", hint=f"write {name}:NAME")
    raise TargetError(f"there is no kernel {name!r}; shipped are {', '.join(names())}", hint=TargetError.FORMS)
