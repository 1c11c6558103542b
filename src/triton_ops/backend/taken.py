"""Launches and functions that are taken: one is told of each launch of Triton's, or of each function of torch.

Facts used: from Triton 3.6 to 3.9 every launch, also through decorators, ends in `JITFunction.run(…, grid=…,
warmup=…)`. A `TorchFunctionMode`, from torch 2.11 to 2.13, is given the functions and properties of tensors, with the
arguments that Python holds; inside of its handler it is off.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MethodType
from typing import Any

from triton_ops.base import require

Take = Callable[..., Any]

_taking: ContextVar[Sequence[Take]] = ContextVar("_taking", default=())  # one, and none once its block has ended
launches_are_taken = _taking.get
"""What takes the launches of this thread, as of `launches_taken`; nothing at most times."""


@contextlib.contextmanager
def launches_taken(take: Take | None) -> Iterator[None]:
    """Call `take` for each launch on this thread, inside of the block, with what would launch it and its arguments.

    Inside of another such block, what would launch it is the `take` of the other one. With None, launches are made as
    outside of all blocks.
    """
    outer = _taking.get()
    _watch_runs()
    takes: list[Take] = []  # a thread of `_in_threads` may go on after the block
    if take is not None:
        takes.append(functools.partial(_nested, take, outer[0]) if outer else take)
    token = _taking.set(takes)
    try:
        yield
    finally:
        takes.clear()
        _taking.reset(token)


def _nested(take: Take, outer: Take, run: Take, *args: Any, **kwargs: Any) -> Any:
    return take(functools.partial(outer, run), *args, **kwargs)


def functions_taken(
    take: Callable[[Any, Sequence[Any], dict[str, Any]], Any],
) -> contextlib.AbstractContextManager[object]:
    """Call `take` for each function of torch on this thread, inside of the block, with it and its arguments."""
    mode: contextlib.AbstractContextManager[object] = _mode_class()(take)
    return mode


@functools.cache  # a class lives on until garbage is collected, and with it what its methods close over
def _mode_class() -> Any:
    base: Any = require("torch.overrides", "running functions of torch").TorchFunctionMode

    class Mode(base):  # type: ignore[misc]
        def __init__(self, take: Callable[[Any, Sequence[Any], dict[str, Any]], Any]) -> None:
            super().__init__()
            self._take = take

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._take(func, args, kwargs or {})

    return Mode


def _watch_runs() -> None:
    """Have `_taking` asked at each `run` of a kernel, from now on."""
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    interpreter = sys.modules.get("triton.runtime.interpreter")  # imported where kernels run as Python
    for kind in filter(None, (jit, getattr(interpreter, "InterpretedFunction", None))):
        if not isinstance(vars(kind).get("run"), _Run):  # somebody may have put theirs back since
            kind.run = _Run(kind.run)


class _Run:
    """Stands in the place of a class's `run`, so that launches of its kernels can be taken; the class shows its own.

    Launches of a kernel that has another `run` of its own, which somebody has put there, can be taken too.
    """

    def __init__(self, original: Take) -> None:
        self._original = original

    def __get__(self, kernel: Any, kind: Any) -> Callable[..., Any]:
        if kernel is None:
            return self._original
        own = vars(kernel).get("run")
        if not (takes := _taking.get()):
            return MethodType(self._original, kernel) if own is None else own
        run = self._original if own is None else lambda _kernel, *args, **kwargs: own(*args, **kwargs)
        return functools.partial(takes[0], run, kernel)

    def __set__(self, kernel: Any, run: Any) -> None:
        vars(kernel)["run"] = run

    def __delete__(self, kernel: Any) -> None:
        del vars(kernel)["run"]


@contextlib.contextmanager
def replaced(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Give an object other attributes inside of the block; afterwards a class inherits again what it inherited."""
    before = {name: value for name, value in vars(owner).items() if name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            delattr(owner, name) if name not in before else setattr(owner, name, before[name])
