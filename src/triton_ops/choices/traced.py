"""A choice inside `torch.compile`: the winner is looked up while torch traces, and is all that torch sees.

What torch traces is the winner itself, so that its operators are fused with their neighbours, and torch's caches hold
the choice by what it traced. Shapes, strides and dtypes of the arguments become guards: a call of another problem is
traced anew. An implementation that cannot be traced runs outside of the graph.

Facts used, from torch 2.11 to 2.13: a function with `_dynamo_marked_constant` is called while Dynamo traces, with
constants, and gives a constant; `operator.index` of a symbolic number guards its value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Arguments
from triton_ops.choices.described import Described
from triton_ops.choices.kernel import IMPLEMENTATION, ChoiceKernel
from triton_ops.choices.space import tiles_of
from triton_ops.dispatch.decision import Decision


class Traced:
    """What torch, while it traces, is told about one chooser.

    Args:
        kernel: The implementations.
        decide: From described arguments, and whether a gradient is recorded, to the decision.
    """

    def __init__(self, kernel: ChoiceKernel, decide: Callable[[Arguments, bool], Decision]) -> None:
        self.implementations = dict(kernel.implementations)
        self.copies = bool(kernel.outputs)
        self.state = SimpleNamespace(generation="0", outside={})

        def winner(_generation: str, facts: Any, named: Any, records: bool) -> tuple[str, tuple[Any, ...]]:
            values = {name: _value(fact) for name, fact in named}
            config = decide(Arguments(tuple(map(_value, facts)), values), records).found.config
            name = str(config[IMPLEMENTATION])
            if self._is_opaque(name):
                disable = require("torch", "torch.compile").compiler.disable
                self.state.outside[name] = disable(kernel.call(config))
            return name, tuple(tiles_of(config).items())

        winner._dynamo_marked_constant = True  # type: ignore[attr-defined]
        self.winner = winner

    def forget(self) -> None:
        """Have compiled code that holds a choice compiled anew at its next call."""
        self.state.generation = str(int(self.state.generation) + 1)

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the winner; torch traces this code."""
        torch = require_torch()
        facts, named, records = [], [], False
        for value in args:
            facts.append(_fact(torch, value))
            records = records or (isinstance(value, torch.Tensor) and value.requires_grad)
        for name, value in kwargs.items():
            named.append((name, _fact(torch, value)))
            records = records or (isinstance(value, torch.Tensor) and value.requires_grad)
        name, tiles = self.winner(
            self.state.generation, tuple(facts), tuple(named), records and torch.is_grad_enabled()
        )
        if self._is_opaque(name):
            return self.state.outside[name](*args, **kwargs)
        chosen: Any = self.implementations[name]
        if chosen.operation is None:
            return chosen.function(*args, **kwargs)
        return chosen.function(*args, **kwargs, config=dict(tiles))

    def _is_opaque(self, name: str) -> bool:
        """Whether torch cannot be shown what a call comes to."""
        chosen = self.implementations[name]
        return chosen.function is None or (chosen.returns and self.copies)


def require_torch() -> Any:
    """Torch."""
    return require("torch", "torch.compile")


require_torch._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _fact(torch: Any, value: Any) -> Any:
    """What decides of one argument, as constants."""
    if isinstance(value, torch.Tensor):
        shape = tuple([operator.index(extent) for extent in value.shape])
        strides = tuple([operator.index(step) for step in value.stride()])
        return ("tensor", str(value.dtype), str(value.device), shape, strides, value.requires_grad)
    if isinstance(value, bool) or not (isinstance(value, int) or isinstance(value, torch.SymInt)):  # noqa: SIM101
        return ("value", value)  # torch does not trace `isinstance` of both at once
    return ("value", operator.index(value))


def _value(fact: Any) -> Any:
    if fact[0] == "value":
        return fact[1]
    torch = require_torch()
    _, dtype, device, shape, strides, requires_grad = fact
    return Described(
        getattr(torch, dtype.removeprefix("torch.")), torch.device(device), shape, strides=strides,
        requires_grad=requires_grad,
    )  # fmt: skip
