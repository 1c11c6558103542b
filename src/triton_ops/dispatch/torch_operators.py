"""Operators of torch, each of which is a function with its gradient.

The shapes of its results come from running the function on tensors without memory, with every launch left out. The
config is chosen when the operator runs, as outside of compiled code: shapes may be dynamic, every option of a config
holds, and nothing of a winner is kept in a cache of torch's. Where the text of its config says so (`written_text`), the
launches themselves stand in the compiled code in its place. A gradient is an operator too.

Graphs below autograd have another one in the operator's place, NAME_forward, which has no gradient: torch's dispatcher
would otherwise call Python twice. Its known calls pass by the dispatcher, which takes ten microseconds.

Facts used, from torch 2.11 to 2.13: a function with `_dynamo_marked_constant` is called while Dynamo traces, with
constants, and gives a constant; `torch.library.Library.define`, `impl`, `register_fake` and `register_autograd`;
operators return nothing that they were given; `apply` of an `autograd.Function` is that of its C base, but for what it
does for transforms of functions, `torch._C._are_functorch_transforms_active`. What `register_torch_dispatch` adds for
`FunctionalTensorMode` is called while AOTAutograd traces, and a launch becomes a `triton_kernel_wrapper_mutation`
there, as in `torch.library.triton_op` with `wrap_triton`. Inductor hands a kernel's floats over in 64 bits. An overload
of an operator calls its `_op`, which its hash comes from. A JIT function has `src`, which `_unsafe_update_src` replaces
(Triton 3.6 to 3.9).
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from triton_ops.backend import Arguments, launches_taken
from triton_ops.base import cached_property, canonical_json, fingerprint, require
from triton_ops.dispatch.direct_launch import LaunchWith, launch_with
from triton_ops.dispatch.plans import can_record, planned
from triton_ops.dispatch.recorder import is_recording
from triton_ops.request import MISS
from triton_ops.values import ALIGNMENT_BYTES

SPACE = "triton_ops"


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

    def attached(self, inputs: Mapping[str, Any], output: Any) -> Any:
        """The output of a call with these inputs by name, with its gradient, which the first of several results has."""
        return _Attachment(self, tuple(inputs), {}).attached(output, tuple(inputs.values()))

    @cached_property
    def known(self) -> Callable[..., Any]:
        """`function`, with the tensors after all else, of which known calls are repeated by a plan."""

        def flat(grad: Any, needs: Sequence[bool], *more: Any) -> Sequence[Any]:
            values = dict(zip(self.names, more, strict=False))
            return self.function(more[len(values) :], grad, needs, **values)

        return planned(flat)


class _Attachment:
    """A gradient of calls whose values have these `names`; values that such calls leave out are in `defaults`."""

    def __init__(self, gradient: Gradient, names: Sequence[str], defaults: Mapping[str, Any]) -> None:
        places = {name: place for place, name in enumerate(names)}
        self.gradient = gradient
        self._kept = [places[name] for name in gradient.kept if name in places]
        self._further = [(places.get(name), defaults.get(name)) for name in gradient.names]
        self._inputs = [places.get(name, -1) for name in gradient.inputs]

    def attached(self, output: Any, values: Sequence[Any]) -> Any:
        """The output of a call with these values, with its gradient."""
        transformed, directly, apply = _attached()
        several = isinstance(output, tuple)
        results = (apply if transformed() else directly)(self, output if several else (output,), *values)
        return results if several else results[0]

    def keep(self, ctx: Any, values: Sequence[Any], results: Sequence[Any]) -> None:
        """Keep what the gradient needs in torch's context of a call."""
        ctx.values = [default if place is None else values[place] for place, default in self._further]
        tensors = [values[place] for place in self._kept if values[place] is not None]
        ctx.save_for_backward(*tensors, *[results[place] for place in self.gradient.results])

    def gradients(self, ctx: Any, run: Callable[..., Any], grad: Any, needs: Sequence[bool]) -> list[Any]:
        """The gradients of all values, by `run`; None for those that need none."""
        own = [place if 0 <= place < len(needs) else None for place in self._inputs]
        made = run(ctx, grad, tuple([place is not None and needs[place] for place in own]))
        grads: list[Any] = [None] * len(needs)
        for place, each in zip(own, made, strict=True):
            if place is not None and needs[place]:
                grads[place] = each
        return grads


@cache
def _attached() -> Any:
    """Whether functions are transformed now, and what attaches a gradient: where they are not, and where they are."""
    torch = require("torch", "gradients of kernels")

    class Attached(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Results of a kernel that has run, with the gradient of the call; the first of several has it."""

        @staticmethod
        def forward(ctx: Any, how: _Attachment, results: Any, *values: Any) -> Any:
            ctx.how = how
            how.keep(ctx, values, results)
            ctx.mark_non_differentiable(*results[1:])
            return results

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, grad: Any, *_others: Any) -> Any:
            return None, None, *ctx.how.gradients(ctx, _known_gradient, grad, ctx.needs_input_grad[2:])

    # `apply` of the C base, without what `Function.apply` does for transforms of functions (torch 2.11 to 2.13).
    directly = super(torch.autograd.Function, Attached).apply
    return torch._C._are_functorch_transforms_active, directly, Attached.apply


def _known_gradient(ctx: Any, grad: Any, needed: Sequence[bool]) -> Any:
    return ctx.how.gradient.known(grad, needed, *ctx.values, *ctx.saved_tensors)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator, whose schema has `config` and `tune` too; `run` is given `config` as a mapping or None.

    `repeats` makes of a function of the values in order one that does the same at less cost at known calls.
    """

    name: str
    schema: str
    run: Callable[..., Any]
    gradient: Gradient | None = None
    repeats: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None

    @cached_property
    def library(self) -> Any:
        """The operator in torch's dispatcher; it stays there as long as this is kept."""
        torch_library, name = require("torch.library", "torch.compile"), f"{SPACE}::{self.name}"
        # A fragment: each operator has a library of its own in this namespace.
        library = torch_library.Library(SPACE, "FRAGMENT")
        call = self._run if self.repeats is None else self.repeats(self._run)
        _defined(library, self.name, self.schema, self._run, call)
        if "config" in self.names:
            functional = require("torch._subclasses.functional_tensor", "torch.compile").FunctionalTensorMode
            torch_library.register_torch_dispatch(name, functional, self._traced, lib=library)
        if self.gradient is not None:
            values = f", {self.gradient.values}" if self.gradient.values else ""
            schema = f"(Tensor[] kept, Tensor grad, bool[] needed{values}) -> Tensor[]"
            _defined(library, f"{self.name}_backward", schema, self._run_backward, self._run_backward)
            _defined(library, f"{self.name}_forward", self.schema, self._run, call)
            torch_library.register_autograd(name, self._backward, setup_context=self._keep, lib=library)
        if self.repeats is not None:
            self._pass_by_dispatcher(self.repeats)
        return library

    @property
    def _below_autograd(self) -> Any:
        """The operator for graphs that record no gradient any more; it has none itself, for which torch would ask."""
        suffix = "" if self.gradient is None else "_forward"
        return getattr(require("torch", "torch.compile").ops.triton_ops, f"{self.name}{suffix}").default

    def _pass_by_dispatcher(self, repeats: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Have known calls of the operator in compiled code run where nobody sees or changes what operators do."""
        operator = self._below_autograd
        dispatched = operator._op

        def unknown(*args: Any, **kwargs: Any) -> Any:
            plain = is_recording() or can_record((*args, *kwargs.values()))
            return (self._run if plain else dispatched)(*args, **kwargs)

        # `_op` is private (torch 2.11 to 2.13): each call of the overload goes through it to the dispatcher.
        operator._op = repeats(unknown)

    @cached_property
    def names(self) -> list[str]:
        """The names of the arguments, in order."""
        return _names(self.schema.rpartition("->")[0])

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        values = {**dict(zip(self.names, args, strict=False)), **kwargs}
        if "config" in values:
            values["config"], _ = _read(values["config"])
        return self._output(values)

    def _output(self, values: Mapping[str, Any]) -> Any:
        output = self.run(**values)
        inputs = [id(value) for value in values.values()]
        results = output if isinstance(output, tuple) else (output,)
        # torch takes the results of an operator for new tensors: what it was given must not be among them.
        own = [each.clone() if id(each) in inputs else each for each in results]
        return tuple(own) if isinstance(output, tuple) else own[0]

    def _traced(self, mode: Any, operator: Any, types: Sequence[Any], args: Sequence[Any], kwargs: Any) -> Any:
        """The operator in a graph of torch's, or its launches where the text of its config says so."""
        values = dict(zip(self.names, args, strict=False))
        _, config = _read(values.get("config", ""))
        if config is None or not all(map(_is_aligned, args)):
            exported = require("torch", "torch.compile").compiler.is_exporting()
            return mode.__torch_dispatch__(operator if exported else self._below_autograd, types, args, kwargs)
        with mode, launches_taken(_into_graph):
            return self._output({**values, "config": config})

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of parameters that a call leaves out, by name."""
        return {each.name: each.default for each in inspect.signature(self.run).parameters.values()}

    def attached(self, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """`run`, which takes the values of such calls in order, with a gradient if torch records one for these."""
        if self.gradient is None or not recorded((*args, *kwargs.values())):
            return run
        if require("torch", "gradients of kernels").compiler.is_compiling():  # the operator that is traced has its own
            return run
        how = _Attachment(self.gradient, (*self.names[: len(args)], *kwargs), self.defaults)

        def with_gradient(*values: Any) -> Any:
            output = run(*values)
            return output if output is MISS else how.attached(output, values)

        return with_gradient

    @cached_property
    def _whole(self) -> _Attachment:
        assert self.gradient is not None
        return _Attachment(self.gradient, self.names, self.defaults)

    def _keep(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        left_out = [self.defaults[name] for name in self.names[len(inputs) :]]
        self._whole.keep(ctx, (*inputs, *left_out), output if isinstance(output, (tuple, list)) else (output,))

    def _backward(self, ctx: Any, grad: Any, *_others: Any) -> tuple[Any, ...]:
        """The gradients of the inputs that torch has passed on; it leaves out those at the end that have defaults."""
        operator = getattr(require("torch", "torch.compile").ops.triton_ops, f"{self.name}_backward")

        def run(ctx: Any, grad: Any, needed: Sequence[bool]) -> Any:
            return operator(list(ctx.saved_tensors), grad, list(needed), *ctx.values)

        return tuple(self._whole.gradients(ctx, run, grad, ctx.needs_input_grad))

    def _run_backward(self, tensors: Any, grad: Any, needed: Any, *values: Any) -> list[Any]:
        if (gradient := self.gradient) is None:
            return []
        gradients = gradient.known(grad, tuple(needed), *values, *tensors)
        # A list of tensors in a schema takes no None.
        return [grad.new_empty(0) if each is None else each for each in gradients]


def recorded(values: Sequence[Any]) -> bool:
    """Return True if torch records a call with these values, since one needs a gradient; Dynamo traces this code."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.is_grad_enabled():
        for value in values:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                return True
    return False


def written_text(text: str, config: Mapping[str, Any], kernels: Sequence[str]) -> str:
    """The text of a call's config, which was `text`, with the config of launches that may stand in compiled code.

    An operator that runs goes by the former. `kernels` are Triton's names for the sources of what is launched: torch's
    caches hold the text, and nothing else of them.
    """
    return canonical_json([_read(text)[0], dict(config), *kernels])


def _read(text: str) -> tuple[Any, Any]:
    """The config that a caller gives by a text, and that of launches that may stand in compiled code; None without."""
    content = json.loads(text) if text else None
    return (content[0], content[1]) if isinstance(content, list) else (content, None)


def _is_aligned(value: Any) -> bool:
    """Whether a tensor of a trace begins where memory is aligned if its storage does, as compiled code sees to."""
    return not Arguments.is_tensor(value) or bool(value.storage_offset() * value.element_size() % ALIGNMENT_BYTES == 0)


def _into_graph(_run: Any, kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:  # noqa: ARG001
    launch = launch_with(kernel, args, kwargs, grid)
    _graphs().triton_kernel_wrapper_mutation(grid=[launch.extents], **in_graph(kernel, launch))


def written_by(kernel: Any, launch: LaunchWith) -> Sequence[str]:
    """The tensors that a launch writes, by the names of the kernel's parameters, as torch reads its code.

    Torch 2.11 overlooks tensors after numbers. A graph leaves a launch out that seems to write nothing.
    """
    return _graphs().get_mutated_tensors(**in_graph(kernel, launch))  # type: ignore[no-any-return]


def in_graph(kernel: Any, launch: LaunchWith) -> dict[str, Any]:
    """A launch without descriptors, but for its grid, as graphs of torch hold it."""
    graphs, runtime = _graphs(), require("triton", "torch.compile").runtime.autotuner
    known = require("torch", "torch.compile").fx.node.base_types
    floats = [each.name for each in kernel.params if not each.is_constexpr and type(launch.values[each.name]) is float]
    kernel = _narrowing(kernel, *floats) if floats else kernel
    constants = {name: value for name, value in launch.values.items() if not isinstance(value, known)}
    tuned = runtime.autotune([runtime.Config({}, **launch.options)], [])(kernel) if launch.options else kernel
    return {
        "kernel_idx": graphs.kernel_side_table.add_kernel(tuned),
        "constant_args_idx": graphs.kernel_side_table.add_constant_args(constants),
        "tma_descriptor_metadata": {},
        "kwargs": {name: value for name, value in launch.values.items() if name not in constants},
    }


@cache
def _narrowing(kernel: Any, *names: str) -> Any:
    """The kernel for compiled code, which has numbers of 64 bits where Triton itself hands over float32.

    It has no docstring: torch writes the source between quotes, where escapes would have a meaning.
    """
    source = ast.parse(kernel.src)
    function = cast(ast.FunctionDef, source.body[0])
    casts = ast.parse("".join(f"{name} = tl.cast({name}, tl.float32)\n" for name in names)).body
    function.body = [*casts, *function.body[ast.get_docstring(function) is not None :]]
    narrowing = copy(kernel)
    narrowing._unsafe_update_src(ast.unparse(source))
    return narrowing


def _graphs() -> Any:
    return require("torch._higher_order_ops.triton_kernel_wrap", "torch.compile")


def _defined(library: Any, name: str, schema: str, run: Callable[..., Any], call: Callable[..., Any]) -> None:
    """Define an operator that does `call`; the shapes of its results are those of `run`."""
    torch = require("torch", "torch.compile")

    def shapes(*args: Any) -> Any:
        with launches_taken(None):  # also inside of a call whose own launches go to a graph
            return run(*args)

    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    # For all devices, and below autograd, to which a gradient is registered apart.
    library.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{SPACE}::{name}", shapes, lib=library)


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
