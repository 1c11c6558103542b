"""Decorated kernels inside `torch.compile`: winners are looked up while torch traces, and alone traced.

What the look-up needs of the arguments becomes guards of the compiled code, and nothing else does: a call of another
problem is traced anew, and looked up again.

Dynamo takes an `Autotuner` apart and never calls its `run`. What it does call, while it traces, is
`early_config_prune`; a decorated kernel therefore has one, which leaves the config of the ladder. Inductor then has one
config, and benchmarks nothing. A bucket guards its range, and a key its value. Options that compiled code would not
keep are given to the launch by name, where torch keeps those; else the launch stays outside of compiled code, as do
kernels that run as Python.

Facts used, from torch 2.11 to 2.14: `triton_kernel_wrap.TritonHOPifier` calls `early_config_prune(configs, named_args,
**kwargs)`, as traced code or, for `wrap_triton`, as Python with fake tensors; then it makes an `Autotuner` of the
configs that are left, and calls its own `call_triton_kernel` with that. A function with `_dynamo_marked_constant` is
called with constants and gives a constant (`torch.compiler.assume_constant_result`). `operator.index` of a symbolic
number guards its value, comparisons guard themselves; `statically_known_true` guards nothing. AOTAutograd's key has the
configs of kernels that are traced by Dynamo; of kernels inside a `triton_op` it has only the source, and
`torch.compiler.config.cache_key_tag`.

Facts used on options, read in the sources of torch 2.13.0 and 2.14.1: of a config's own fields Inductor passes on
`num_warps` and `num_stages` (`triton_heuristics.config_to_dict`), and no `num_ctas`, `maxnreg` or `ir_override`. What
a launch gives by name beside the kernel's parameters 2.13 loses. From 2.14 on `TritonHOPifier.call_triton_kernel` hands
its names on as `launch_kwargs` of the wrapping operators, and Inductor those that the backend takes as options; a name
that a config has too is refused, and so is `num_ctas`, in both.
"""

from __future__ import annotations

import inspect
import logging
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

from triton_ops import records
from triton_ops.backend import Arguments
from triton_ops.base import cached_property, fingerprint, require
from triton_ops.dispatch.calls import Calls
from triton_ops.dispatch.ladder import ERROR, TUNE, policy_of
from triton_ops.exceptions import KernelTypeError
from triton_ops.settings import cache_folder
from triton_ops.values import BucketRule, TensorSpec, contiguous_stride, is_fake

OPEN = {"num_ctas": 1, "maxnreg": None, "ir_override": None}
"""Options of a `triton.Config` beside warps and stages, with the values that ask for nothing."""
_NEVER_GIVEN = ("num_ctas",)  # by a launch that torch traces
_GIVEN = "given_to_the_launch"  # attribute of a config that was chosen: its options by name
_ONE, _MULTIPLE, _OTHER = 1, 16, 17  # one number of each class that Triton specialises integers on
_TAG = "triton_ops:"
_OF_THE_LAUNCH = ("grid", "warmup")  # what Triton hands to `early_config_prune` beside the arguments

_Spans: TypeAlias = tuple[tuple[str, str, str], ...]
"""As text: torch takes numbers that code refers to for dynamic ones."""

_log = logging.getLogger("triton_ops")


@dataclass(frozen=True)
class Described:
    """A tensor without memory; its strides are in elements, and row-major if there are none."""

    dtype: Any
    device: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    requires_grad: bool = False
    layout: ClassVar[str] = "torch.strided"

    @classmethod
    def named(cls, dtype: str, device: str, *rest: Any) -> Described:
        """The tensor of a dtype and a device that torch calls so; it makes dtypes readable in constants of a trace."""
        torch = require("torch", "describing tensors")
        return cls(getattr(torch, dtype.removeprefix("torch.")), torch.device(device), *rest)

    def data_ptr(self) -> int:
        """An aligned address: Inductor copies what is not aligned before it launches."""
        return 0

    def untyped_storage(self) -> SimpleNamespace:
        """A storage of its own."""
        return SimpleNamespace(data_ptr=lambda: id(self), nbytes=lambda: self.numel() * self.element_size())

    def stride(self, axis: int | None = None) -> Any:
        """Steps between neighbours, in elements."""
        strides = self.strides or contiguous_stride(self.shape)
        return strides if axis is None else strides[axis]

    def size(self, axis: int | None = None) -> Any:
        """The extents."""
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    ndim = property(dim)

    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def is_cuda(self) -> bool:
        """Tell whether it is on a GPU."""
        return bool(self.device.type == "cuda")

    def is_contiguous(self) -> bool:
        """Tell whether it is stored row-major without gaps."""
        steps = zip(self.shape, self.stride(), contiguous_stride(self.shape), strict=True)
        return 0 in self.shape or all(step == usual for extent, step, usual in steps if extent > 1)

    def new_empty(self, shape: Any, dtype: Any = None) -> Described:
        """Another one on the same device."""
        return Described(dtype or self.dtype, self.device, tuple(shape))

    def t(self) -> Described:
        """Its transposition."""
        return self.transpose(0, 1) if self.dim() == 2 else self

    def transpose(self, first: int, second: int) -> Described:
        """With two axes in each other's place."""
        order = list(range(self.dim()))
        order[first], order[second] = order[second], order[first]
        shape, strides = (tuple(values[axis] for axis in order) for values in (self.shape, self.stride()))
        return Described(self.dtype, self.device, shape, strides)

    def view(self, *shape: int) -> Described:
        """As row-major, of a shape of as many elements."""
        return Described(self.dtype, self.device, shape)


def described(values: Mapping[str, Any], device: str) -> Arguments:
    """The arguments of a problem by name, with tensors by their specs."""
    specs = {name: value for name, value in values.items() if isinstance(value, TensorSpec)}
    tensors = {name: Described.named(it.dtype, device, it.shape, it.strides) for name, it in specs.items()}
    return Arguments(keyword={**values, **tensors})


def constant(function: Callable[..., Any]) -> Any:
    """The function, which torch calls while it traces, with constants for a constant."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class InCompile:
    """Something that is chosen, as torch sees it while it traces; the traced code reads its `state`."""

    def __init__(self) -> None:
        # A text, since torch would take a number that has changed for a dynamic size.
        self.state = SimpleNamespace(generation="0", outside={})

    def forget(self) -> None:
        """Have compiled code that holds a choice compiled anew at its next call."""
        self.state.generation = str(int(self.state.generation) + 1)


class KernelInCompile(InCompile):
    """One decorated kernel, as torch sees it while it traces."""

    def __init__(self, tuned: Any, calls: Calls, *, interpreted: bool) -> None:
        super().__init__()
        self.tuned, self.calls = tuned, calls
        self.own: Callable[..., Any] | None = None  # the caller's own `early_config_prune`
        self.outside: Callable[..., Any] | None = None  # launches outside of compiled code; once one had to be
        if interpreted:
            self.outside = self.launched_as_python

    @cached_property
    def launched_as_python(self) -> Callable[..., Any]:
        """Launches a kernel that is interpreted; torch would trace Triton's interpreter, and leaves it out instead."""

        @constant
        def left_out() -> None:
            self.outside = None
            self.stay_outside()

        def launched_as_python(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
            torch: Any = sys.modules.get("torch")
            if torch is not None and torch.compiler.is_dynamo_compiling():
                left_out()
                torch._dynamo.graph_break(msg="a kernel is interpreted")
                # torch traces what follows the break where it has left out the caller's frame for another kernel.
                return torch.compiler.disable(self.tuned.launched)(grid, *args, **kwargs)
            return self.tuned.launched(grid, *args, **kwargs)

        return launched_as_python

    def use(self, own: Callable[..., Any] | None) -> None:
        """Take the caller's own `early_config_prune`; one that was read here and is set again changes nothing."""
        if own is None or own is not self.__dict__.get("early_config_prune"):
            self.own = own
            self.__dict__.pop("early_config_prune", None)

    @cached_property
    def early_config_prune(self) -> Callable[..., Any]:
        """Function that Dynamo calls to choose among the configs; elsewhere it is the caller's own."""
        # torch drops the `key` of an `Autotuner` that it traces; one winner serves all shapes: pytorch/pytorch#164124.
        # The guards on what is looked up here stand in its place.
        torch, state, looked_up = require("torch", "torch.compile"), self.state, self.looked_up
        exact = None if self.own or self.tuned.perf_model else (*self.calls.keys, *sorted(self.calls.constexprs))
        rules = {name: rule for bucket, rule in self.calls.mapper.buckets for name in bucket}
        keyed = () if exact is None else rules.keys() & {*self.calls.keys}
        spans = {name: _buckets(rules[name]) for name in keyed}

        @constant
        def winner(_generation: str, facts: tuple[Any, ...]) -> tuple[tuple[int, ...], str, str]:
            places, attribute, refused = looked_up(facts)
            if refused:
                self.stay_outside()
            return places, attribute, refused

        def early_config_prune(configs: list[Any], named: dict[str, Any], /, **more: Any) -> Any:
            dynamo = torch.compiler.is_dynamo_compiling()
            if not dynamo and not _faked(named, more):
                return configs if self.own is None else self.own(configs, named, **more)
            facts = []
            arguments = {**named, **{name: value for name, value in more.items() if name not in _OF_THE_LAUNCH}}
            for name, value in arguments.items():
                facts.append((name, fact(torch, value, exact is None or name in exact, spans.get(name, ()))))
            places, attribute, refused = winner(state.generation, tuple(facts))
            if not dynamo:
                self.keyed(places, attribute, refused, facts)
            elif refused:
                torch._dynamo.graph_break(msg=refused)
            return [getattr(state, attribute)] if attribute else [configs[place] for place in places]

        return early_config_prune

    def stay_outside(self) -> None:
        """Have launches run as they are where torch leaves them out: it would trace the code of the launch instead."""
        if self.outside is None:
            torch = require("torch", "torch.compile")
            for method in (type(self.tuned).__getitem__, type(self.tuned).run):
                # `skip` marks a method's code where it stands; `torch.compiler.disable` would need a wrapper.
                torch._dynamo.decorators.skip(method)
            self.outside = torch.compiler.disable(self.tuned.launched)

    def looked_up(self, facts: tuple[Any, ...]) -> tuple[tuple[int, ...], str, str]:
        """For a call: the places of the configs to leave, or else the attribute of the state that holds the winner.

        The third is why the launch must stay outside of compiled code; empty if it need not.
        """
        tuned = self.tuned
        values = {name: value_of(fact) for name, fact in facts}
        names = list(takewhile(values.__contains__, tuned.arg_names))
        args, kwargs = [values.pop(name) for name in names], values
        decision = tuned.launches.known(_one_program, args, kwargs)
        policy = policy_of(tuned.options.on_miss, TUNE)
        if decision.unmeasured and policy == ERROR:
            return (), "", f"no winner is known for {decision.kernel} {decision.problem}, and on_miss is error"
        if decision.unmeasured and decision.key is not None and policy != TUNE:
            records.Misses(Path(cache_folder(tuned.options.tune.cache_dir))).note(decision.key)
        if decision.unmeasured and policy == TUNE and (obstacle := self._left(args, kwargs)):
            _log.info("%s is left to torch.compile to tune: %s", decision.kernel, decision.found.why)
            return obstacle, "", ""
        options = self._options(decision.config)
        keeps = keeps_options(require("torch._higher_order_ops.triton_kernel_wrap", "torch.compile"))
        if strange := {name: value for name, value in options.items() if not keeps or name in _NEVER_GIVEN}:
            text = ", ".join(f"{name}={value}" for name, value in strange.items())
            return (), "", f"torch.compile does not keep {text} of the config of {decision.kernel}"
        _log.info("compiled: %s", decision.text)
        if not options and (place := self._place(decision.config)) >= 0:
            return (place,), "", ""
        if hasattr(tuned.fn, "values"):
            what = "options" if options else "a config space"
            return (), "", f"{decision.kernel} has heuristics, whose values torch does not know for {what}"
        attribute = f"winner_{fingerprint(dict(decision.found.config))}"
        if not hasattr(self.state, attribute):  # torch guards on which object it is
            setattr(self.state, attribute, _giving(decision.config, options) if options else decision.config)
        return (), attribute, ""

    def keyed(self, places: Sequence[int], attribute: str, refused: str, facts: list[Any]) -> None:
        """Add a choice inside a `triton_op` to the keys of torch's caches; raises KernelTypeError if `refused`."""
        if refused:
            raise KernelTypeError(refused, hint="launch it inside a torch.library.custom_op")
        setting = require("torch", "torch.compile").compiler.config
        texts = [str(self.tuned.configs[place]) for place in places] or [attribute]
        one = fingerprint([self.tuned.base_fn.__name__, texts, facts])
        # AOTAutograd's key lacks these configs (torch 2.11 to 2.14): a warm cache would give the winner of before.
        before, _, ours = setting.cache_key_tag.partition(_TAG)
        setting.cache_key_tag = f"{before}{_TAG}{','.join(sorted({one, *ours.split(',')} - {''}))}"

    def _left(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
        tuned = self.tuned
        if not tuned.launches.listed or tuned.restore_value or tuned.reset_to_zero:
            return ()
        configs = tuned.launches.fitting(_one_program, args, kwargs)
        return tuple(self._place(config) for config in configs if not self._options(config))

    def _options(self, config: Any) -> dict[str, Any]:
        """The options of a config that Inductor would not pass on with it."""
        fields = {name: getattr(config, name, usual) for name, usual in OPEN.items()}
        options = {name: value for name, value in fields.items() if value != OPEN[name]}
        return options | {name: value for name, value in config.kwargs.items() if name not in self.calls.parameters}

    def _place(self, config: Any) -> int:
        return next((place for place, one in enumerate(self.tuned.configs) if one == config), -1)


def _buckets(rule: BucketRule) -> _Spans:
    """The buckets of a rule: least and largest value, and the one that stands for all."""
    ranges: list[tuple[str, str, str]] = []
    value = rule.first
    while (span := rule.bucket(value)) is not None:
        ranges.append((str(span[0]), str(span[1]), str(rule.representative(value))))
        value = span[1] + 1
    return tuple(ranges)


def _one_program(_meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (1,)


def keeps_options(wrapping: Any) -> bool:
    """Tell whether torch, whose module `triton_kernel_wrap` this is, keeps options that a launch gives by name."""
    return "launch_kwargs" in inspect.signature(wrapping.TritonKernelWrapperMutation.__call__).parameters


def _giving(config: Any, options: Mapping[str, Any]) -> Any:
    """A copy of a config without these options, which are given to its launch by name."""
    _give_options()
    bare = copy(config)
    bare.kwargs = {name: value for name, value in config.kwargs.items() if name not in options}
    vars(bare).update({name: OPEN[name] for name in options if name in OPEN}, **{_GIVEN: dict(options)})
    return bare


@cache
def _give_options() -> None:
    """Have torch give options to the launch of a config that `_giving` has made, as a caller would give them."""
    hopifier = require("torch._higher_order_ops.triton_kernel_wrap", "torch.compile").TritonHOPifier
    constant = require("torch._dynamo.variables", "torch.compile").ConstantVariable.create
    before = hopifier.call_triton_kernel

    def call_triton_kernel(self: Any, variable: Any, args: Any, kwargs: Any, tx: Any) -> Any:
        configs: Sequence[Any] = getattr(variable.kernel, "configs", ())
        options = getattr(configs[0], _GIVEN, {}) if len(configs) == 1 else {}
        own = {name: value if tx is None else constant(value) for name, value in options.items()}
        return before(self, variable, args, {**own, **kwargs}, tx)

    # The method is private: torch has no public place for options of a launch that it traces.
    hopifier.call_triton_kernel = call_triton_kernel


def fact(torch: Any, value: Any, exact: bool = True, spans: _Spans = (), layout: bool = False) -> Any:
    """Facts of one argument that the look-up needs, as constants; torch traces this code.

    Extents count if `exact`, and strides and whether a gradient is recorded with `layout` too. A number counts itself,
    or the one that stands for all of its span, or else as one of its class.
    """
    if isinstance(value, torch.Tensor):
        shape = [operator.index(extent) for extent in value.shape] if exact else []
        if not layout:
            return ("tensor", str(value.dtype), str(value.device), tuple(shape))
        strides = [operator.index(step) for step in value.stride()]
        return ("tensor", str(value.dtype), str(value.device), tuple(shape), tuple(strides), value.requires_grad)
    if isinstance(value, tuple):
        return ("value", tuple([_nearest(torch, one) for one in value]))
    if isinstance(value, list):
        return ("value", [_nearest(torch, one) for one in value])
    return ("value", _nearest(torch, value, exact, spans))


def _nearest(torch: Any, value: Any, exact: bool = True, spans: _Spans = ()) -> Any:
    """The value of a number, which may be a symbol, or what stands for it; what is no number stays as it is."""
    if isinstance(value, bool) or not (isinstance(value, int) or isinstance(value, torch.SymInt)):  # noqa: SIM101
        return value  # torch does not trace `isinstance` of both at once
    for low, high, representative in spans:
        if int(low) <= value and value <= int(high):
            return int(representative)
    if exact:
        return operator.index(value)
    is_true = torch.fx.experimental.symbolic_shapes.statically_known_true
    if is_true(value == 1):
        return _ONE
    return _MULTIPLE if is_true(value % _MULTIPLE == 0) else _OTHER


def _faked(*mappings: Mapping[str, Any]) -> bool:
    """Tell whether arguments are the fake ones of a trace that runs as Python."""
    torch = require("torch", "torch.compile")
    values = [value for each in mappings for value in each.values()]
    return any(isinstance(value, torch.SymInt) or is_fake(value) for value in values)


def value_of(fact: Any) -> Any:
    """The argument of which a trace knows these facts; without extents where they do not decide."""
    return fact[1] if fact[0] == "value" else Described.named(*fact[1:])


def without_memory(value: Any) -> Any:
    """An argument as it is described; what is no tensor stays as it is."""
    torch = require("torch", "torch.compile")
    return value_of(fact(torch, value, layout=True)) if isinstance(value, torch.Tensor) else value
