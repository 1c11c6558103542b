"""Choosers inside `torch.compile`: torch traces the winner itself, and fuses its operators with their neighbours.

torch's caches hold the choice by what was traced. An implementation that cannot be traced runs outside of the graph.
Where a size is dynamic, or the winner must not be traced, and the chooser has a schema, the call is one operator
instead, which chooses when it runs.

Facts used, from torch 2.11 to 2.14: `has_static_value` guards nothing, and `torch.compiler.disable` marks a function
with `_torchdynamo_disable`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from triton_ops.backend import Arguments
from triton_ops.base import require
from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.implementation import IMPLEMENTATION, ChoiceKernel, tiles_of
from triton_ops.dispatch.in_compile import InCompile, constant, fact, value_of
from triton_ops.dispatch.torch_operators import Operator, recorded


class ChoiceInCompile(InCompile):
    """One chooser, as torch sees it while it traces; `operator` is the call as one, where there is a schema."""

    def __init__(
        self, kernel: ChoiceKernel, decide: Callable[[Arguments, bool], Decision], operator: Operator | None = None
    ) -> None:
        super().__init__()

        @constant
        def opaque() -> str:
            if operator is None:
                return ""
            return operator.name if operator.library is not None else ""  # defined where it is first asked for

        self.opaque = opaque
        self.implementations = dict(kernel.implementations)
        self.parameters, self.copies = kernel.parameter_names, bool(kernel.outputs)

        @constant
        def winner(_generation: str, facts: Any, named: Any, records: bool) -> tuple[str, tuple[Any, ...]]:
            values = {name: value_of(fact) for name, fact in named}
            config = decide(Arguments(tuple(map(value_of, facts)), values), records).found.config
            name = str(config[IMPLEMENTATION])
            if self._is_opaque(name):
                self.state.outside[name] = require("torch", "torch.compile").compiler.disable(kernel.call(config))
            return name, tuple(tiles_of(config).items())

        self.winner = winner

    def call(self, args: Any, kwargs: Any) -> Any:
        """Call the winner; torch traces this code."""
        torch: Any = sys.modules["torch"]  # as it is found while it traces, too
        args, kwargs = list(args), dict(kwargs)
        for name in self.parameters[len(args) :]:  # implementations may call their parameters otherwise
            if name not in kwargs:
                break
            args.append(kwargs.pop(name))
        records = recorded((*args, *kwargs.values()))
        if not records and has_dynamic(torch, args) and self.opaque():  # asked first: what follows guards every size
            return getattr(torch.ops.triton_ops, self.opaque())(*args, **kwargs)
        facts = [fact(torch, value, layout=True) for value in args]
        named = [(name, fact(torch, value, layout=True)) for name, value in kwargs.items()]
        name, tiles = self.winner(self.state.generation, tuple(facts), tuple(named), records)
        if self._is_opaque(name):
            disabled = _is_disabled(self.implementations[name].function)
            if disabled and not records and self.opaque() != "":  # one operator, which leaves the graph in one piece
                return getattr(torch.ops.triton_ops, self.opaque())(*args, **kwargs)
            return self.state.outside[name](*args, **kwargs)
        chosen: Any = self.implementations[name]
        if chosen.operation is None:
            return chosen.function(*args, **kwargs)
        return chosen.function(*args, **kwargs, config=dict(tiles))

    def _is_opaque(self, name: str) -> bool:
        one = self.implementations[name]
        return one.function is None or (one.returns and self.copies) or _is_disabled(one.function)


def has_dynamic(torch: Any, values: Sequence[Any]) -> bool:
    """Tell whether a size is a symbol; torch traces this code."""
    for value in values:
        if isinstance(value, torch.Tensor):
            for extent in value.shape:
                if not torch.fx.experimental.symbolic_shapes.has_static_value(extent):
                    return True
    return False


def _is_disabled(function: Any) -> bool:
    """Tell whether a function is left out of graphs, as `torch.compiler.disable` asks for."""
    return bool(getattr(function, "_torchdynamo_disable", False))
