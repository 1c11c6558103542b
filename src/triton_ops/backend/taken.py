"""Launches that are taken: code that runs is told of each launch of Triton's, in the place of the launch.

Facts used: from Triton 3.6 to 3.9 every launch, also through decorators, ends in `JITFunction.run(…, grid=…,
warmup=…)`.
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

Take = Callable[..., Any]

_taking: ContextVar[Sequence[Take]] = ContextVar("_taking", default=())  # one, and none once its block has ended
launches_are_taken = _taking.get
"""What takes the launches of this thread, as of `launches_taken`; nothing at most times."""


@contextlib.contextmanager
def launches_taken(take: Take | None) -> Iterator[None]:
    """Call `take` for each launch on this thread, inside of the block, with what would launch it and its arguments.

    Inside of another such block that is what the other one takes. None has launches be made as outside of all blocks.
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


def _watch_runs() -> None:
    """Have `_taking` asked at each `run` of a kernel, from now on."""
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    interpreter = sys.modules.get("triton.runtime.interpreter")  # imported where kernels run as Python
    for kind in filter(None, (jit, getattr(interpreter, "InterpretedFunction", None))):
        if not isinstance(vars(kind).get("run"), _Run):  # somebody may have put theirs back since
            kind.run = _Run(kind.run)


class _Run:
    """In the place of a class's `run`, which the class shows as it was: the launches of its kernels may be taken.

    Also those of a kernel for which somebody has put another `run` in its own place.
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
    """Have other attributes in an object, inside of the block; what a class inherits it inherits again after it."""
    before = {name: value for name, value in vars(owner).items() if name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            delattr(owner, name) if name not in before else setattr(owner, name, before[name])
