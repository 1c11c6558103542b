"""Functions as operators of torch: a call that is one operator while torch traces it.

A function decorated with `compilable` runs as it is. While torch traces, its call becomes one operator, whose shapes
come from running the function on tensors without memory, with every launch left out. The config is chosen when the
operator runs, as outside of compiled code: shapes may be dynamic, every option of a config holds, and nothing of a
winner is kept in a cache of torch's. A gradient is an operator too.

Facts used, from torch 2.11 to 2.13: a function with `_dynamo_marked_constant` is called while Dynamo traces, with
constants, and gives a constant; `torch.library.Library.define`, `impl`, `register_fake` and `register_autograd`;
operators return nothing that they were given.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from threading import RLock
from typing import Any, ParamSpec, TypeVar

from triton_ops.backend import TritonKernel
from triton_ops.base import ForkSafeLock, cached_property, canonical_json, fingerprint, require
from triton_ops.exceptions import SettingsError

SPACE = "triton_ops"
OPEN = {"num_ctas": 1, "maxnreg": None, "ir_override": None}
"""Options of a `triton.Config` beside warps and stages, with the values that ask for nothing."""
_P = ParamSpec("_P")
_T = TypeVar("_T")
_guard = ForkSafeLock(RLock)


def constant(function: Callable[..., Any]) -> Any:
    """The function, which torch calls while it traces, with constants for a constant."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """The gradient of a public function: `inputs` are those that have one, in the order of the function's results.

    `function` gets kept tensors, the gradient of the first result, which inputs need theirs, and by name further inputs
    whose schema is `values`, such as `float eps`. The tensors are the inputs that `kept` names, but for those that are
    None, and the results at these places. It runs without recording, so that there are no second derivatives.
    """

    inputs: tuple[str, ...]
    function: Callable[..., Sequence[Any]]
    values: str = ""
    kept: tuple[str, ...] = ()
    results: tuple[int, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the further inputs, in order."""
        return _names(f"({self.values})")

    def keep(self, ctx: Any, inputs: Mapping[str, Any], results: Sequence[Any]) -> None:
        """Keep what `function` needs in torch's context of a call."""
        ctx.values = {name: inputs[name] for name in self.names}
        tensors = [inputs[name] for name in self.kept if inputs[name] is not None]
        ctx.save_for_backward(*tensors, *(results[place] for place in self.results))

    def attached(self, inputs: Mapping[str, Any], output: Any) -> Any:
        """The output of a call with these inputs by name, with its gradient, which the first of several results has."""
        tensors = [inputs[name] for name in self.inputs]
        several = isinstance(output, tuple)
        results = _attached().apply(self, inputs, output if several else (output,), *tensors)
        return results if several else results[0]


@cache
def _attached() -> Any:
    torch = require("torch", "gradients of kernels")

    class Attached(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Results of a kernel that has run, with the gradient of the call."""

        @staticmethod
        def forward(ctx: Any, gradient: Gradient, inputs: Mapping[str, Any], results: Any, *_tensors: Any) -> Any:
            ctx.gradient = gradient
            gradient.keep(ctx, inputs, results)
            own = tuple(each.detach() for each in results)
            ctx.mark_non_differentiable(*own[1:])
            return own

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, grad: Any, *_others: Any) -> Any:
            needed = ctx.needs_input_grad[3:]
            return (None, None, None, *ctx.gradient.function(ctx.saved_tensors, grad, needed, **ctx.values))

    return Attached


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

    @cached_property
    def names(self) -> list[str]:
        """The names of the arguments, in order."""
        return _names(self.schema.rpartition("->")[0])

    def _run(self, *args: Any) -> Any:
        values = dict(zip(self.names, args, strict=False))
        if "config" in values:
            values["config"] = json.loads(values["config"]) if values["config"] else None
        output = self.run(**values)
        inputs = [id(value) for value in values.values()]
        results = output if isinstance(output, tuple) else (output,)
        own = [each.clone() if id(each) in inputs else each for each in results]
        return tuple(own) if isinstance(output, tuple) else own[0]

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of parameters that a call leaves out, by name."""
        return {each.name: each.default for each in inspect.signature(self.run).parameters.values()}

    def attached(self, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> Any:
        """The output of a call, with a gradient if torch records and an input needs its own."""
        if self.gradient is None or not recorded((*args, *kwargs.values())):
            return output
        return self.gradient.attached({**self.defaults, **dict(zip(self.names, args, strict=False)), **kwargs}, output)

    def _keep(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        if self.gradient is not None:
            results = output if isinstance(output, (tuple, list)) else (output,)
            self.gradient.keep(ctx, self.defaults | dict(zip(self.names, inputs, strict=False)), results)

    def _backward(self, ctx: Any, grad: Any, *_others: Any) -> tuple[Any, ...]:
        """The gradients of the inputs that torch has passed on; it leaves out those at the end that have defaults."""
        needs_by_name = dict(zip(self.names, ctx.needs_input_grad, strict=False))
        inputs = self.gradient.inputs if self.gradient is not None else ()
        needed = [needs_by_name.get(name, False) for name in inputs]
        operator = getattr(require("torch", "torch.compile").ops.triton_ops, f"{self.name}_backward")
        gradients = operator(list(ctx.saved_tensors), grad, needed, *ctx.values.values())
        grads = dict(zip(inputs, gradients, strict=True))
        return tuple(grads[name] if name in grads and needs else None for name, needs in needs_by_name.items())

    def _run_backward(self, tensors: Any, grad: Any, needed: Any, *values: Any) -> list[Any]:
        if (gradient := self.gradient) is None:
            return []
        by_name = dict(zip(gradient.names, values, strict=True))
        gradients = gradient.function(tensors, grad, needed, **by_name)
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

        @constant
        def ready() -> bool:
            with _guard:
                return operator.library is not None

        @wraps(function)
        def public(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            torch: Any = sys.modules.get("torch")
            if training is not None and recorded((*args, *kwargs.values())):
                return training(*args, **kwargs)[0]  # type: ignore[no-any-return]
            if torch is None or not torch.compiler.is_compiling():
                _check_options(kwargs)
                if kwargs.get("config") is not None:
                    kwargs["config"] = _plain(kwargs["config"])
                output = function(*args, **kwargs)
                return operator.attached(args, kwargs, output)  # type: ignore[no-any-return]
            ready()
            if "config" in kwargs:
                kwargs["config"] = _told(kwargs["config"])
            return getattr(torch.ops.triton_ops, name)(*args, **kwargs)  # type: ignore[no-any-return]

        return public

    return decorate


def recorded(values: Sequence[Any]) -> bool:
    """Return True if torch records a call with these values, since one needs a gradient; Dynamo traces this code."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.is_grad_enabled():
        for value in values:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                return True
    return False


def _check_options(options: Mapping[str, Any]) -> None:
    """Check the two options that every public function with a config has; raises SettingsError."""
    config, tune = options.get("config"), options.get("tune", False)
    values = {} if config is None else TritonKernel.values_of(config)
    if not isinstance(values, Mapping):
        raise SettingsError(
            f"config is {config!r}; it must map tunables to values", hint='such as {"BLOCK_SIZE": 1024, "num_warps": 4}'
        )
    if type(tune) is not bool:
        raise SettingsError(f"tune is {tune!r}; it must be True or False")


def _plain(config: Any) -> Mapping[str, Any]:
    """A config as a mapping, a `triton.Config` too, without those of Triton's options that ask for nothing."""
    values = TritonKernel.values_of(config)
    left_open = {name for name, value in OPEN.items() if name in values and values[name] == value}
    return {name: value for name, value in values.items() if name not in left_open} if left_open else values


@constant
def _told(config: Any) -> str:
    _check_options({"config": config})
    return "" if config is None else canonical_json(dict(_plain(config)))


def _defined(library: Any, name: str, schema: str, run: Callable[..., Any]) -> None:
    torch = require("torch", "torch.compile")
    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{SPACE}::{name}", run, lib=library)


def _names(arguments: str) -> list[str]:
    inner = arguments.strip().removeprefix("(").removesuffix(")")
    return [each.partition("=")[0].split()[-1] for each in inner.split(",") if each.strip()]


_taken: Counter[str] = Counter()  # names of operators


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
