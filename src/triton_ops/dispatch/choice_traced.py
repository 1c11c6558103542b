"""Choosers inside torch.compile, where an operator stands for what torch cannot be shown.

What torch traces is the winner itself, so that its operators are fused with their neighbours, and torch's caches hold
the choice by what it traced. Shapes, strides and dtypes of the arguments become guards: a call of another problem is
traced anew. An implementation that cannot be traced runs outside of the graph. Where a size is dynamic, or the winner
must not be traced, and the chooser has a schema, the call is one operator instead, which chooses when it runs.

A function decorated with `compilable` runs as it is. While torch traces, its call becomes one operator, whose shapes
come from running the function on tensors without memory, with every launch left out. The config is chosen when the
operator runs, as outside of compiled code: shapes may be dynamic, every option of a config holds, and nothing of a
winner is kept in a cache of torch's. A gradient is an operator too.

Facts used, from torch 2.11 to 2.13: a function with `_dynamo_marked_constant` is called while Dynamo traces, with
constants, and gives a constant; `operator.index` of a symbolic number guards its value, `has_static_value` guards none;
`torch.compiler.disable` marks a function with `_torchdynamo_disable`; `torch.library.Library.define`, `impl`,
`register_fake` and `register_autograd`; operators return nothing that they were given.
"""

from __future__ import annotations

import inspect
import json
import operator
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from threading import RLock
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeAlias, TypeVar

from triton_ops.backend import Arguments, values_of
from triton_ops.base import canonical_json, fingerprint, require
from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.implementation import IMPLEMENTATION, ChoiceKernel, tiles_of
from triton_ops.dispatch.traced import value_of
from triton_ops.exceptions import SettingsError

SPACE = "triton_ops"
_OPEN = {"num_ctas": 1, "maxnreg": None, "ir_override": None}  # options of a `triton.Config` that ask for nothing
Kept: TypeAlias = Callable[[Mapping[str, Any], Sequence[Any]], tuple[list[Any], dict[str, Any]]]
"""From the inputs by name and the outputs of an operator: tensors to keep for its gradient, and its other values."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_guard = RLock()


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """The gradient of a public function: `inputs` are those that have one, in the order of the function's results.

    `function` is as of `differentiable`, with further values by name, whose schema is `values`, such as `float eps`.
    """

    inputs: tuple[str, ...]
    function: Callable[..., Sequence[Any]]
    values: str = ""
    kept: Kept


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator, whose schema has `config` and `tune` too; `run` is given `config` as a mapping or None."""

    name: str
    schema: str
    run: Callable[..., Any]
    gradient: Gradient | None = None

    @cached_property
    def library(self) -> Any:
        """The operator in torch's dispatcher; it stays there as long as this is kept."""
        library = require("torch.library", "torch.compile").Library(SPACE, "FRAGMENT")
        _defined(library, self.name, self.schema, self._run)
        if self.gradient is not None:
            values = f", {self.gradient.values}" if self.gradient.values else ""
            schema = f"(Tensor[] kept, Tensor grad, bool[] needed{values}) -> Tensor[]"
            _defined(library, f"{self.name}_backward", schema, self._run_backward)
            require("torch.library", "torch.compile").register_autograd(
                f"{SPACE}::{self.name}", self._backward, setup_context=self._keep, lib=library
            )
        return library

    @property
    def names(self) -> list[str]:
        """The names of the arguments, in order."""
        return _names(self.schema.rpartition("->")[0])

    def _run(self, *args: Any) -> Any:
        values = dict(zip(self.names, args, strict=False))
        if "config" in values:
            values["config"] = json.loads(values["config"]) if values["config"] else None
        output = self.run(**values)
        inputs = [id(value) for value in values.values()]
        own = [
            each.clone() if id(each) in inputs else each
            for each in (output if isinstance(output, tuple) else (output,))
        ]
        return tuple(own) if isinstance(output, tuple) else own[0]

    def _keep(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        gradient = self.gradient
        if gradient is not None:
            parameters = inspect.signature(self.run).parameters.values()
            named = {each.name: each.default for each in parameters} | dict(zip(self.names, inputs, strict=False))
            tensors, ctx.values = gradient.kept(named, output if isinstance(output, (tuple, list)) else (output,))
            ctx.save_for_backward(*tensors)

    def _backward(self, ctx: Any, grad: Any, *_others: Any) -> tuple[Any, ...]:
        """The gradients of the inputs that torch has passed on; it leaves out those at the end that have defaults."""
        wanted = dict(zip(self.names, ctx.needs_input_grad, strict=False))
        inputs = self.gradient.inputs if self.gradient is not None else ()
        needed = [wanted.get(name, False) for name in inputs]
        operator = getattr(require("torch", "torch.compile").ops.triton_ops, f"{self.name}_backward")
        gradients = operator(list(ctx.saved_tensors), grad, needed, *ctx.values.values())
        grads = dict(zip(inputs, gradients, strict=True))
        return tuple(grads[name] if name in grads and needs else None for name, needs in wanted.items())

    def _run_backward(self, tensors: Any, grad: Any, needed: Any, *values: Any) -> list[Any]:
        gradient = self.gradient
        if gradient is None:
            return []
        named = dict(zip(_names(f"({gradient.values})"), values, strict=True))
        gradients = gradient.function(tensors, grad, needed, **named)
        return [grad.new_empty(0) if each is None else each for each in gradients]


def compilable(
    schema: str, *, gradient: Gradient | None = None, training: Callable[..., Any] | None = None
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorator of a public function, whose call is one operator while torch traces it.

    `schema` are the function's arguments with their defaults, and its results, as torch writes them; `config` is a
    text. `training` is another such function of the same arguments, whose first result is that of this one: called
    where a gradient will be asked for.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        name = function.__name__.strip("_")
        operator = Operator(name=name, schema=schema, run=function, gradient=gradient)

        def ready() -> bool:
            with _guard:
                return operator.library is not None

        ready._dynamo_marked_constant = True  # type: ignore[attr-defined]

        @wraps(function)
        def public(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            torch: Any = sys.modules.get("torch")
            if torch is None or not torch.compiler.is_compiling():
                _take_options(kwargs)
                return function(*args, **kwargs)
            if training is not None and torch.is_grad_enabled():
                for value in (*args, *kwargs.values()):
                    if isinstance(value, torch.Tensor) and value.requires_grad:
                        return training(*args, **kwargs)[0]  # type: ignore[no-any-return]
            ready()
            if "config" in kwargs:
                kwargs["config"] = _told(kwargs["config"])
            return getattr(torch.ops.triton_ops, name)(*args, **kwargs)  # type: ignore[no-any-return]

        return public

    return decorate


def _check_options(options: Mapping[str, Any]) -> None:
    """Check the two options that every public function with a config has; raises SettingsError."""
    config, tune = options.get("config"), options.get("tune", False)
    if config is not None and not isinstance(values_of(config), Mapping):
        raise SettingsError(
            f"config is {config!r}; it must map tunables to values", hint='such as {"BLOCK_SIZE": 1024, "num_warps": 4}'
        )
    if type(tune) is not bool:
        raise SettingsError(f"tune is {tune!r}; it must be True or False")


def _plain(config: Any) -> Mapping[str, Any]:
    """A config as a mapping, a `triton.Config` too, without those of Triton's options that ask for nothing."""
    values = values_of(config)
    left_open = {name for name, value in _OPEN.items() if name in values and values[name] == value}
    return {name: value for name, value in values.items() if name not in left_open} if left_open else values


def _take_options(options: dict[str, Any]) -> None:
    _check_options(options)
    if options.get("config") is not None:
        options["config"] = _plain(options["config"])


def _told(config: Any) -> str:
    _check_options({"config": config})
    return "" if config is None else canonical_json(dict(_plain(config)))


_told._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _defined(library: Any, name: str, schema: str, run: Callable[..., Any]) -> None:
    torch = require("torch", "torch.compile")
    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{SPACE}::{name}", run, lib=library)


def _names(arguments: str) -> list[str]:
    inner = arguments.strip().removeprefix("(").removesuffix(")")
    return [each.partition("=")[0].split()[-1] for each in inner.split(",") if each.strip()]


_taken: Counter[str] = Counter()  # names of operators


class Traced:
    """View of one chooser for torch while it traces; `operator` is the call as one, where there is a schema."""

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
            values = {name: value_of(fact) for name, fact in named}
            config = decide(Arguments(tuple(map(value_of, facts)), values), records).found.config
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
        chosen = self.implementations[name]
        return chosen.function is None or (chosen.returns and self.copies) or _is_disabled(chosen.function)

    def _stays_whole(self, name: str, records: bool) -> bool:
        """Tell whether the call of what torch cannot be shown is one operator, which leaves the graph in one piece."""
        return _is_disabled(self.implementations[name].function) and not records and self.opaque() != ""


def without_memory(value: Any) -> Any:
    """An argument as it is described; what is no tensor stays as it is."""
    torch = require("torch", "torch.compile")
    return value_of(_fact(torch, value)) if isinstance(value, torch.Tensor) else value


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
