"""Calls that are known: one look-up by what the arguments are, then the winner itself.

A call is a function that is written for one pattern of arguments: which of them are tensors, and which come by name.
It reads of a tensor its class, its device, and all that a problem has of it. What does not fit goes the long way.

Facts used, from torch 2.11 to 2.13: `Tensor.shape`, `dtype` and `device` hash and compare by value; where a call is
traced by Dynamo `torch.compiler.is_dynamo_compiling()` is a constant; `torch._C._is_any_autocast_enabled()`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

from triton_ops.backend import is_tensor
from triton_ops.base import require
from triton_ops.values import ALIGNMENT_BYTES

_MOST = 4_096  # problems of one operation


class Known(NamedTuple):
    """The function and the count of a known call; `holds` says whether it is decided alike, None that it always is."""

    run: Callable[..., Any]
    up: Callable[[], Any]
    holds: Callable[[], bool] | None


class KnownCalls:
    """The known calls of one operation; `call` looks for the pattern before first, and is then written anew."""

    def __init__(self, gradients: bool, decide: Callable[[Sequence[Any], Mapping[str, Any]], Known]) -> None:
        self._gradients, self._decide = gradients, decide
        self._patterns: dict[Any, _Pattern] = {}
        self.call: Callable[..., Any] = self._any

    def forget(self) -> None:
        """Forget every call."""
        self.call = self._any
        self._patterns.clear()

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Known | None:
        """The known call among those of every pattern; its pattern is looked up first from now on."""
        pattern = self._patterns.get(_kinds(args, kwargs))
        if pattern is None:
            return None
        try:
            entry = pattern.entries.get(pattern.key(*args, **kwargs))
        except (AttributeError, TypeError, RuntimeError):  # a value that cannot be hashed, a tensor without an address
            return None
        self.call = pattern.call
        return entry

    def keep(self, args: Sequence[Any], kwargs: Mapping[str, Any], entry: Known) -> None:
        """Remember a call, if all of it can be told from others."""
        kinds = _kinds(args, kwargs)
        if not all(map(str.isidentifier, kwargs)) or any(map(iskeyword, kwargs)):  # no code can name them
            return
        if kinds not in self._patterns:
            self._patterns[kinds] = self._written(*kinds)
        pattern = self._patterns[kinds]
        if len(pattern.entries) >= _MOST:
            pattern.entries.clear()
        try:
            pattern.entries[pattern.key(*args, **kwargs)] = entry
        except (AttributeError, TypeError, RuntimeError):
            return
        self.call = pattern.call

    def _any(self, *args: Any, **kwargs: Any) -> Any:
        entry = self._decide(args, kwargs)
        entry.up()
        return entry.run(*args, **kwargs)

    def _written(self, kinds: tuple[bool, ...], names: tuple[str, ...]) -> _Pattern:
        count = len(kinds) - len(names)
        values = [f"value_{place}" for place in range(len(kinds))]  # no name of the caller's, which may be any
        places, named = values[:count], dict(zip(names, values[count:], strict=True))
        facts: list[str] = []
        for value, tensor in zip(values, kinds, strict=True):
            facts += _of_tensor(value) if tensor else [f"{value}.__class__", value]
        tensors = [value for value, tensor in zip(values, kinds, strict=True) if tensor]
        scope: dict[str, Any] = {"_decide": self._decide, "_entries": {}}
        scope["_get"] = scope["_entries"].get
        if tensors:
            torch = require("torch", "a call with tensors")
            facts.append("_autocast()")
            if self._gradients:
                facts.append(f"_recording() and ({' or '.join(f'{name}.requires_grad' for name in tensors)})")
            scope |= {"_autocast": torch._C._is_any_autocast_enabled, "_recording": torch.is_grad_enabled}
        key = f"({', '.join(facts)},)" if facts else "()"
        taken = [f"{', '.join(places)}, = args"] if places else []
        taken += [f"{value} = kwargs[{name!r}]" for name, value in named.items()]
        fits = f"tuple(kwargs) == {names!r}" if names else "not kwargs"
        passed = [*places, *(f"{name}={value}" for name, value in named.items())]
        source = _CALL.format(key=key, fits=f"len(args) == {count} and {fits}", taken="; ".join(taken) or "pass",
                              passed=", ".join(passed))  # fmt: skip
        exec(compile(source, "<known calls>", "exec"), scope)
        return _Pattern(scope["_entries"], scope["key"], scope["call"])


class _Pattern(NamedTuple):
    """Known calls whose arguments have one pattern."""

    entries: dict[Any, Known]
    key: Callable[..., Any]
    call: Callable[..., Any]


_CALL = """
def key(*args, **kwargs):
    {taken}
    return {key}

def call(*args, **kwargs):
    if {fits}:
        try:
            {taken}
            known = _get({key})
        except (AttributeError, TypeError, RuntimeError):
            known = None
        if known is not None:
            run, up, holds = known
            if holds is None or holds():
                up()
                return run({passed})
    known = _decide(args, kwargs)
    known.up()
    return known.run(*args, **kwargs)
"""


def recording(values: Sequence[Any]) -> bool:
    """Tell whether a gradient is recorded for one of these values."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.is_grad_enabled() and any(is_tensor(it) and it.requires_grad for it in values)


def autocast() -> bool:
    """Tell whether torch chooses the dtype of what it computes: what was verified and raced is then not what runs."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch._C._is_any_autocast_enabled())


def dynamo() -> bool:
    """Tell whether Dynamo is tracing this code."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def exporting() -> bool:
    """Tell whether torch runs the call to write down what it does, on tensors without memory."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def _kinds(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[bool, ...], tuple[str, ...]]:
    return tuple(map(is_tensor, (*args, *kwargs.values()))), tuple(kwargs)


def _of_tensor(name: str) -> list[str]:
    address = f"{name}.data_ptr() & {ALIGNMENT_BYTES - 1}"
    return [f"{name}.__class__", f"{name}.shape", f"{name}.stride()", f"{name}.dtype", f"{name}.device", address]
