"""A choice inside `torch.compile`: the winner is looked up while torch traces, and is all that torch sees.

What torch traces is the winner itself, so that its operators are fused with their neighbours, and torch's caches hold
the choice by what it traced. Shapes, strides and dtypes of the arguments become guards: a call of another problem is
traced anew. An implementation that cannot be traced runs outside of the graph. Where a size is dynamic, or the winner
must not be traced, and the chooser has a schema, the call is one operator instead, which chooses when it runs.

Facts used, from torch 2.11 to 2.13: a function with `_dynamo_marked_constant` is called while Dynamo traces, with
constants, and gives a constant; `operator.index` of a symbolic number guards its value, `has_static_value` guards none;
`torch.compiler.disable` marks a function with `_torchdynamo_disable`.
"""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from triton_ops.backend import Arguments
from triton_ops.base import fingerprint, require
from triton_ops.dispatch.choice_kernel import IMPLEMENTATION, ChoiceKernel
from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.described import Described
from triton_ops.dispatch.space import tiles_of
from triton_ops.dispatch.torch_operators import Operator

_taken: Counter[str] = Counter()  # names of operators


class Traced:
    """View of one chooser for torch while it traces.

    Args:
        kernel: The implementations.
        decide: From described arguments, and whether a gradient is recorded, to the decision.
        operator: The call as one operator; None if there is none.
    """

    def __init__(
        self, kernel: ChoiceKernel, decide: Callable[[Arguments, bool], Decision], operator: Operator | None = None
    ) -> None:
        def opaque() -> str:
            if operator is None:
                return ""
            return operator.name if operator.library is not None else ""  # defined where it is first asked for

        opaque._dynamo_marked_constant = True  # type: ignore[attr-defined]
        self.opaque = opaque
        self.implementations = dict(kernel.implementations)
        self.parameters, self.copies = kernel.parameters, bool(kernel.outputs)
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

    def call(self, args: Any, kwargs: Any) -> Any:
        """Call the winner; torch traces this code."""
        torch: Any = sys.modules["torch"]  # as it is found while it traces, too
        records = False
        args, kwargs = list(args), dict(kwargs)
        for name in self.parameters[len(args) :]:  # implementations may call their parameters otherwise
            if name not in kwargs:
                break
            args.append(kwargs.pop(name))
        for value in (*args, *kwargs.values()):
            records = records or (isinstance(value, torch.Tensor) and value.requires_grad)
        records = records and torch.is_grad_enabled()
        if not records and _dynamic(torch, args) and self.opaque():  # asked first: what follows guards every size
            return getattr(torch.ops.triton_ops, self.opaque())(*args, **kwargs)
        facts = [_fact(torch, value) for value in args]
        named = [(name, _fact(torch, value)) for name, value in kwargs.items()]
        name, tiles = self.winner(self.state.generation, tuple(facts), tuple(named), records)
        if self._is_opaque(name):
            if self._stays_whole(name, records):
                return getattr(torch.ops.triton_ops, self.opaque())(*args, **kwargs)
            return self.state.outside[name](*args, **kwargs)
        chosen: Any = self.implementations[name]
        if chosen.operation is None:
            return chosen.function(*args, **kwargs)
        return chosen.function(*args, **kwargs, config=dict(tiles))

    def _is_opaque(self, name: str) -> bool:
        """Tell whether torch cannot be shown what a call comes to."""
        chosen = self.implementations[name]
        return chosen.function is None or (chosen.returns and self.copies) or _is_disabled(chosen.function)

    def _stays_whole(self, name: str, records: bool) -> bool:
        """Tell whether the call of what torch cannot be shown is one operator, which leaves the graph in one piece."""
        return _is_disabled(self.implementations[name].function) and not records and self.opaque() != ""


def without_memory(value: Any) -> Any:
    """An argument as it is described; what is no tensor stays as it is."""
    torch = require("torch", "torch.compile")
    return _value(_fact(torch, value)) if isinstance(value, torch.Tensor) else value


def operator_of(name: str, schema: str | None, call: Callable[..., Any], first: Callable[[], Any]) -> Operator | None:
    """A chooser's calls as one operator; None without a schema.

    On tensors without memory, whose sizes may be symbols, it is what the first implementation makes of them. Equal
    programs give it equal names, since torch's caches hold them.
    """
    if schema is None:
        return None

    def run(**values: Any) -> Any:
        faked = any(type(value).__name__ == "FakeTensor" for value in values.values())
        return (first() if faked else call)(*values.values())

    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    plain = f"{plain}_{fingerprint([name, schema])[:12]}"
    _taken[plain] += 1
    return Operator(name=plain if _taken[plain] == 1 else f"{plain}_{_taken[plain]}", schema=schema, run=run)


def _dynamic(torch: Any, values: Sequence[Any]) -> bool:
    """Tell whether a size is a symbol; torch traces this code."""
    for value in values:
        if isinstance(value, torch.Tensor):
            for extent in value.shape:
                if not torch.fx.experimental.symbolic_shapes.has_static_value(extent):
                    return True
    return False


def _fact(torch: Any, value: Any) -> Any:
    """Facts of one argument that decide, as constants."""
    if isinstance(value, torch.Tensor):
        shape = tuple([operator.index(extent) for extent in value.shape])
        strides = tuple([operator.index(step) for step in value.stride()])
        return ("tensor", str(value.dtype), str(value.device), shape, strides, value.requires_grad)
    if isinstance(value, tuple):
        return ("value", tuple([_constant(torch, one) for one in value]))
    if isinstance(value, list):
        return ("value", [_constant(torch, one) for one in value])
    return ("value", _constant(torch, value))


def _constant(torch: Any, value: Any) -> Any:
    """The value of a number, which may be a symbol; what is no number stays as it is."""
    if isinstance(value, bool) or not (isinstance(value, int) or isinstance(value, torch.SymInt)):  # noqa: SIM101
        return value  # torch does not trace `isinstance` of both at once
    return operator.index(value)


def _is_disabled(function: Any) -> bool:
    """Tell whether a function is left out of graphs, as `torch.compiler.disable` asks for."""
    return bool(getattr(function, "_torchdynamo_disable", False))


def _value(fact: Any) -> Any:
    if fact[0] == "value":
        return fact[1]
    torch = require("torch", "torch.compile")
    _, dtype, device, shape, strides, requires_grad = fact
    return Described(
        getattr(torch, dtype.removeprefix("torch.")), torch.device(device), shape, strides=strides,
        requires_grad=requires_grad,
    )  # fmt: skip
