"""Plans: what the first call of a pattern did, written out as a function that later calls of the pattern repeat.

A first call runs its body as it is, and a recorder sees each operator of torch and each launch. From these a plan is
written: conditions under which it may not be the same, allocations, launches with the grid that they had and addresses
of tensors as numbers, and the results. Views that only launches need become a distance between addresses; operators
whose results nobody needs fall away. What depends on more than a pattern holds is named by the body (`beside`), and
asked at each call. There is no plan where a recorder does not understand all that it sees: a number that is read from a
tensor, a tensor that was made elsewhere, a kernel that runs as Python.

Facts used, from torch 2.11 to 2.13: a `TorchDispatchMode` is given the very tensors that Python holds, below autograd;
`torch._C._len_torch_function_stack`, `_len_torch_dispatch_stack` and `_functorch.peek_interpreter_stack` tell who else
sees operators; `torch._C._dynamo.guards._empty_strided_cuda` and `_empty_strided_cpu` allocate without the dispatcher.
From Triton 3.6 to 3.9: launchers take addresses as numbers, and of a descriptor its `base`, and what else it holds, as
attributes.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import Any

from triton_ops.backend import Arguments, ScratchAllocator, launches_taken
from triton_ops.base import require
from triton_ops.dispatch.decision import Decision, register
from triton_ops.dispatch.direct_launch import (
    KERNEL_DOUBTS,
    globals_changed,
    kernel_space,
    launch_of,
    process_doubts,
    process_space,
    runs_as_triton,
    triton_driver,
    values_of_knobs,
)
from triton_ops.dispatch.fast_launch import KnownGrids
from triton_ops.request import MISS, KnownCall, KnownCalls

_code = lru_cache(1_024)(partial(compile, filename="<plan of a call>", mode="exec"))
_ALLOCATIONS = frozenset(
    f"aten::{name}" for name in ("empty", "new_empty", "empty_strided", "new_empty_strided", "empty_like")
)
_PLAIN = (bool, int, float, str, type(None))
_AXES = 3


class UnrepeatableError(Exception):
    """A call does what no plan repeats, or not `now`; the message says what."""

    def __init__(self, message: str, *, now: bool = False) -> None:
        super().__init__(message)
        self.now = now


@dataclass(eq=False)
class _Value:
    """A tensor of a recorded call: an argument, or made by `step`; a view of `root` that begins `offset` bytes on."""

    name: str
    tensor: Any
    step: _Step | None = None
    root: _Value = field(init=False)
    offset: int = 0
    wanted: bool = False  # as a tensor
    addressed: bool = False

    def __post_init__(self) -> None:
        self.root = self


@dataclass(eq=False)
class _Step:
    """An operator of torch with its results, or a launch of the JIT function `kernel`."""

    run: Any
    args: Any
    kwargs: Mapping[str, Any]
    results: list[_Value] = field(default_factory=list)
    several: bool = False
    kernel: Any = None
    compiled: Any = None
    grid: tuple[int, ...] = ()  # empty where it is asked for at each launch

    @property
    def allocates(self) -> bool:
        """Whether the operator only makes memory, whose content is open."""
        if self.kernel is not None or self.run._schema.name not in _ALLOCATIONS or self.kwargs.get("pin_memory"):
            return False
        return str(self.results[0].tensor.layout) == "torch.strided"


_recorder: ContextVar[Recorder | None] = ContextVar("triton_ops_recorder", default=None)


def beside(read: Callable[..., Any], *tensors: Any) -> Any:
    """`read(*tensors)`: what a call depends on beside the classes, shapes and values of its arguments.

    It is read at each call; with another answer than at the first one the call is decided anew. Tensors, a tuple of
    them, are taken as they are then, and always have the same shapes, dtypes and strides; None means there are none.
    """
    answer = read(*tensors)
    if (recorder := _recorder.get()) is not None:
        recorder.ask(read, tensors, answer)
    return answer


def launched_by(decision: Decision, *asked: tuple[Callable[[], Any], Any]) -> None:
    """Count a launch by a decision, which holds while each function `asked` at a known call gives its answer."""
    decision.count.up()
    if (recorder := _recorder.get()) is not None:
        own = [] if decision.ask is None else [(decision.ask, decision.within)]
        recorder.counts.append(decision.count)
        for ask, answer in (*own, *asked):
            recorder.ask(ask, (), answer)


class Recorder:
    """Sees what a call with these values does; a `grid` that is given is a caller's own, and asked at each launch."""

    def __init__(self, values: Sequence[Any], grid: Callable[..., Any] | None = None) -> None:
        self.grid = grid
        self._values: dict[int, _Value] = {}
        self.names = [f"v{place}" for place in range(len(values))]
        self.repeated: list[tuple[str, str]] = []  # names of one tensor that was given twice
        for name, value in zip(self.names, values, strict=True):
            if id(value) in self._values:
                self.repeated.append((name, self._values[id(value)].name))
            elif Arguments.is_tensor(value):
                self._values[id(value)] = _Value(name, value)
        self.refusal: UnrepeatableError | None = None
        if any(value.tensor.is_neg() for value in self.values):
            self.refuse("torch negates a tensor", now=True)
        self.steps: list[_Step] = []
        self.counts: list[Any] = []
        self.asked: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []
        self.place: tuple[Any, int] | None = None  # the driver and the device of launches

    def refuse(self, why: str, *, now: bool = False) -> None:
        """Let there be no plan, or none now."""
        self.refusal = self.refusal or UnrepeatableError(why, now=now)

    def ask(self, read: Callable[..., Any], tensors: Sequence[Any], answer: Any) -> None:
        """Have something read at each call."""
        self.asked.append((read, tuple(tensors), answer))
        if isinstance(answer, tuple):
            for tensor in answer:
                self._values[id(tensor)] = _Value(f"t{len(self._values)}", tensor)

    def operator(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run an operator, and note it."""
        output = func(*args, **kwargs)
        results = list(output) if isinstance(output, (tuple, list)) else [output]
        if next(_tensors_in((args, kwargs, results)), None) is None:
            return output  # such as a dtype of dtypes
        tags = {str(tag).rpartition(".")[2] for tag in func.tags}
        if tags & {"data_dependent_output", "dynamic_output_shape"} or not all(map(Arguments.is_tensor, results)):
            self.refuse(f"{func} gives what only a tensor's values tell")
            return output
        step = _Step(func, args, kwargs, several=isinstance(output, (tuple, list)))
        for result in results:
            if id(result) not in self._values:
                self._values[id(result)] = self._made(result, step)
            step.results.append(self._values[id(result)])
        self.steps.append(step)
        return output

    def _made(self, result: Any, step: _Step) -> _Value:
        value, storage = _Value(f"t{len(self._values)}", result, step), result.untyped_storage()._cdata
        for tensor in _tensors_in((step.args, step.kwargs)):
            of = self._values.get(id(tensor))
            if of is not None and tensor.untyped_storage()._cdata == storage:
                value.root = of.root
                value.offset = result.data_ptr() - of.root.tensor.data_ptr()
                break
        return value

    def launch(self, run: Callable[..., Any], kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch, and note it."""
        compiled = run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            if not hasattr(compiled, "packed_metadata") or "run" in vars(kernel):
                self.refuse(f"{kernel} is not launched by Triton", now="run" in vars(kernel))
                return compiled
            names = [param.name for param in kernel.params]
            bound = {param.name: param.default for param in kernel.params if param.has_default}
            bound |= dict(zip(names, args, strict=False)) | {name: kwargs[name] for name in names if name in kwargs}
            extents = map(operator.index, grid(bound) if callable(grid) else grid)
            active = triton_driver().active
            place = active, active.get_current_device()
            if self.place not in (None, place):
                self.refuse("launches go to several devices")
            self.place = place
            step = _Step(None, [bound[name] for name in names], bound | kwargs, kernel=kernel, compiled=compiled)
            step.grid = (*extents, 1, 1)[:_AXES] if self.grid is None else ()
            self.steps.append(step)
        return compiled

    @property
    def values(self) -> list[_Value]:
        """The tensors of the call."""
        return list(self._values.values())

    def known(self, value: Any) -> _Value:
        """What is known of a tensor."""
        if (own := self._values.get(id(value))) is None:
            raise UnrepeatableError("a tensor was made elsewhere")
        return own

    def plan(self, result: Any) -> Callable[..., Any]:
        """The function that repeats the call with other tensors; raises UnrepeatableError."""
        if self.refusal is not None:
            raise self.refusal
        return _Writer(self, result).plan()


def _empty(empty_strided: Callable[..., Any], device: Any, shape: Any, stride: Any, dtype: Any) -> Any:
    return empty_strided(shape, stride, dtype=dtype, device=device)


def _tensors_in(value: Any) -> Iterator[Any]:
    if Arguments.is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors_in(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors_in(each)


class _Writer:
    """Writes the plan of what was recorded."""

    def __init__(self, recorder: Recorder, result: Any) -> None:
        self._recorder, self._result = recorder, result
        self._space: dict[str, Any] = {"miss": MISS, "next": next, "changed": globals_changed}
        self._lines: list[str] = []
        self._descriptors = 0

    def plan(self) -> Callable[..., Any]:
        recorder = self._recorder
        launches = [step for step in recorder.steps if step.kernel is not None]
        for tensor in _tensors_in(self._result):
            self._want(recorder.known(tensor))
        for step in reversed(recorder.steps):
            self._want_inputs(step)
        doubts = self._doubts(launches)
        self._lines += [
            f"{value.name}_at = {value.name}.data_ptr()"
            for value in recorder.values
            if value.addressed and value.step is None
        ]
        for step in recorder.steps:
            self._write(step, launches)
        for count in recorder.counts:
            self._lines.append(f"next({self._constant(count)})")
        self._lines.append(f"return {self._written(self._result)}")
        body = "".join(f"        {line}\n" for line in [*doubts, *self._lines])
        given, values = ", ".join(self._space), ", ".join(recorder.names)
        source = f"def made({given}):\n    def plan({values}):\n{body}    return plan"
        scope: dict[str, Any] = {}
        exec(_code(source), scope)
        function: Callable[..., Any] = scope["made"](**self._space)
        return function

    def _want(self, value: _Value) -> None:
        """Have a tensor made by the plan."""
        if value.wanted:
            return
        value.wanted = True
        if value.step is not None and not value.step.allocates:
            for tensor in _tensors_in((value.step.args, value.step.kwargs)):
                self._want(self._recorder.known(tensor))

    def _want_inputs(self, step: _Step) -> None:
        """Have what a step needs made, if the step is needed."""
        if step.kernel is None:
            for tensor in _tensors_in((step.args, step.kwargs)) if step.run._schema.is_mutable else ():
                self._want(self._recorder.known(tensor))
            return
        for argument in step.args:
            for tensor in [argument.base] if Arguments.is_descriptor(argument) else _tensors_in(argument):
                root = self._recorder.known(tensor).root
                root.addressed = True
                self._want(root)

    def _doubts(self, launches: Sequence[_Step]) -> list[str]:
        torch, recorder = require("torch", "a known call"), self._recorder
        own = torch._C
        self._space |= {
            "functions": own._len_torch_function_stack, "modes": own._len_torch_dispatch_stack,
            "transforms": own._functorch.peek_interpreter_stack, "autocast": own._is_any_autocast_enabled,
        }  # fmt: skip
        conditions = ["functions()", "modes()", "transforms() is not None"]
        conditions += [f"{value.name}.is_neg()" for value in recorder.values if value.name in recorder.names]
        conditions += [f"{again} is not {first}" for again, first in recorder.repeated]
        if any(step.kernel is None and not step.allocates and self._is_needed(step) for step in recorder.steps):
            if own._is_any_autocast_enabled():
                raise UnrepeatableError("torch computes under autocast", now=True)
            conditions.append("autocast()")
        before: list[str] = []
        for ask, tensors, answer in recorder.asked:
            reading = f"{self._constant(ask)}({', '.join(map(self._whole, tensors))})"
            if isinstance(answer, tuple):
                names = ", ".join(recorder.known(tensor).name for tensor in answer)
                self._lines += [f"read = {reading}", "if read is None:", "    return miss", f"{names}, = read"]
            elif (condition := f"{reading} != {self._constant(answer)}") not in conditions:
                conditions.append(condition)
        if launches and recorder.place is not None:
            driver, device = recorder.place
            space = process_space(driver, values_of_knobs())
            self._space |= space | {"device": device}
            before = ["active = driver.active"]
            conditions = ["active is not seen_driver", "device_of() != device", *conditions]
            conditions += [text.replace("@", "") for text in process_doubts(space)]
            for place, kernel in enumerate(dict.fromkeys(step.kernel for step in launches)):
                conditions += self._doubts_of(kernel, f"k{place}_", device)
        return [*before, f"if {' or '.join(conditions)}:", "    return miss"]

    def _doubts_of(self, kernel: Any, prefix: str, device: int) -> list[str]:
        if kernel.pre_run_hooks or not runs_as_triton(kernel):
            raise UnrepeatableError("somebody's own function runs a kernel, or is called before", now=True)
        space = {**kernel_space(kernel), "cached": kernel.device_caches[device]}
        self._space |= {prefix + name: value for name, value in space.items()}
        more = ["@caches[device] is not @cached", "@used_globals and changed(@used_globals)"]
        return [text.replace("@", prefix) for text in (*KERNEL_DOUBTS, *more)]

    def _is_needed(self, step: _Step) -> bool:
        return step.run._schema.is_mutable or any(value.wanted for value in step.results if value.step is step)

    def _write(self, step: _Step, launches: Sequence[_Step]) -> None:
        if step.kernel is not None:
            self._write_launch(step, f"l{launches.index(step)}_")
            return
        if not self._is_needed(step):
            return
        names = ", ".join(value.name if value.step is step else "_" for value in step.results)
        made = self._memory(step.results[0].tensor) if step.allocates else self._operator(step)
        self._lines.append(f"{names}{',' if step.several else ''} = {made}")
        self._lines += [
            f"{value.name}_at = {value.name}.data_ptr()"
            for value in step.results
            if value.addressed and value.step is step
        ]

    def _operator(self, step: _Step) -> str:
        arguments = [self._written(value) for value in step.args]
        arguments += [f"{name}={self._written(value)}" for name, value in step.kwargs.items()]
        return f"{self._constant(step.run)}({', '.join(arguments)})"

    def _memory(self, tensor: Any) -> str:
        torch = require("torch", "new memory")
        facts = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
        direct = getattr(getattr(torch._C._dynamo, "guards", None), f"_empty_strided_{tensor.device.type}", None)
        if direct is None or tensor.device.index not in (None, self._recorder.place and self._recorder.place[1]):
            direct = partial(_empty, torch.empty_strided, tensor.device)
        return f"{self._constant(direct)}({', '.join(map(self._constant, facts))})"

    def _write_launch(self, step: _Step, prefix: str) -> None:
        run, added, in_one = launch_of(step.compiled)
        if run is step.compiled.run:  # it may ask for memory
            run = ScratchAllocator.around(run)
        self._space |= {f"{prefix}run": run, f"{prefix}function": step.compiled.function, f"{prefix}added": added}
        arguments = "".join(
            f"{self._argument(argument, param)}, "
            for argument, param in zip(step.args, step.kernel.params, strict=True)
        )
        grid = ", ".join(map(self._constant, step.grid)) if step.grid else self._asked_grid(step)
        lead = f"{grid}, active.get_current_stream(device), {prefix}function, *{prefix}added"
        self._lines.append(f"{prefix}run({lead}, {f'({arguments})' if in_one else arguments})")

    def _asked_grid(self, step: _Step) -> str:
        asked = self._constant(KnownGrids(tuple(param.name for param in step.kernel.params)).of)
        for tensor in _tensors_in(step.kwargs):
            self._whole(tensor)
        meta = ", ".join(f"{name!r}: {self._written(value)}" for name, value in step.kwargs.items())
        return f"*(*{asked}({self._constant(self._recorder.grid)}, {{{meta}}}), 1, 1)[:{_AXES}]"

    def _argument(self, argument: Any, param: Any) -> str:
        if Arguments.is_tensor(argument):
            return self._address(argument)
        if Arguments.is_descriptor(argument):
            return self._described(argument)
        if not param.is_constexpr and type(argument) not in _PLAIN:
            raise UnrepeatableError(f"{param.name} is a {type(argument).__name__}")
        return self._constant(argument)

    def _address(self, tensor: Any) -> str:
        value = self._recorder.known(tensor)
        if tensor.data_ptr() == 0:
            if tensor.numel():
                raise UnrepeatableError("a tensor has no memory")
            return "0"
        return f"{value.root.name}_at" + (f" + {value.offset}" if value.offset else "")

    def _described(self, descriptor: Any) -> str:
        """A descriptor of the kernel's own, which has all but its base from its class."""
        value, name = self._recorder.known(descriptor.base), f"d{self._descriptors}"
        if value.offset:
            raise UnrepeatableError("a descriptor begins inside of a tensor")
        self._descriptors += 1
        facts = {each: fact for each, fact in vars(descriptor).items() if each != "base"}
        own = type(type(descriptor).__name__, (type(descriptor),), facts)
        made = self._constant(partial(object.__new__, own))
        self._lines += [f"{name} = {made}()", f"{name}.base = {value.root.name}"]
        return name

    def _whole(self, tensor: Any) -> str:
        """The name of an argument of the call, for a tensor that is one, or shows all of it."""
        value = self._recorder.known(tensor)
        whole = value.root.tensor
        same = (tensor.shape, tensor.stride()) == (whole.shape, whole.stride())
        if value.root.step is not None or value.offset or not same:
            raise UnrepeatableError("what a call depends on is read from another tensor than its arguments")
        return value.root.name

    def _written(self, value: Any) -> str:
        if Arguments.is_tensor(value):
            return self._recorder.known(value).name
        if isinstance(value, (tuple, list)):
            inner = ", ".join(map(self._written, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        for name, known in self._space.items():
            if known is value:
                return name
        name = f"c{len(self._space)}"
        self._space[name] = value
        return name


@cache
def _mode() -> Any:
    modes = require("torch.utils._python_dispatch", "a known call")

    class Seen(modes.TorchDispatchMode):  # type: ignore[misc, name-defined]
        """Tells a recorder of operators."""

        def __init__(self, recorder: Recorder) -> None:
            super().__init__()
            self.recorder = recorder

        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.recorder.operator(func, args, kwargs or {})

    return Seen


@contextmanager
def _recording(recorder: Recorder) -> Iterator[None]:
    token = _recorder.set(recorder)
    try:
        with launches_taken(recorder.launch), _mode()(recorder):
            yield
    finally:
        _recorder.reset(token)


class PlannedCalls(KnownCalls[KnownCall]):
    """The calls of one function that does its work by launches and by operators of torch: plans, by their patterns.

    `call` is the function. `around` makes of what repeats a call what is run in its place; it is given the arguments of
    the first call too, and the values in order when it runs. `first_of` gives for some values other calls of the same
    arguments, whose first result is the one here. `grid` is as for a `Recorder`.
    """

    def __init__(
        self, function: Callable[..., Any], around: Callable[..., Any] | None = None,
        first_of: Callable[[Sequence[Any]], PlannedCalls | None] = lambda _: None,
        grid: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(self._decided, ["gradients"], in_order=True)
        self._function, self._around, self._first_of, self._grid = function, around, first_of, grid
        _planned.add(self)

    def _decided(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> KnownCall:
        place, values = self.place(args, kwargs), (*args, *kwargs.values())
        if (others := self._first_of(values)) is not None:
            return KnownCall(partial(self._of_others, others, place))
        recorded = place is not None and _can_record(values)
        return KnownCall(partial(self._recorded, place) if recorded else self._plainly)

    def _of_others(self, others: PlannedCalls, place: Any, *args: Any, **kwargs: Any) -> Any:
        output, *_ = others.call(*args, **kwargs)
        if (known := others.get(others.place(args, kwargs))) is not None:
            self.keep(place, KnownCall(partial(_first_result, known.run)))
        return output

    def _plainly(self, *args: Any, **kwargs: Any) -> Any:
        return self._run_of(self._function, args, kwargs)(*args, *kwargs.values())

    def _run_of(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function of this one's arguments as one of the values in order, with what is around it."""
        run = partial(_by_name, function, len(args), tuple(kwargs)) if kwargs else function
        return run if self._around is None else self._around(run, args, kwargs)

    def _recorded(self, place: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = Recorder((*args, *kwargs.values()), self._grid)
        with _recording(recorder):
            result = self._function(*args, **kwargs)
        output = self._run_of(lambda *_args, **_kwargs: result, args, kwargs)(*args, *kwargs.values())
        try:
            plan = recorder.plan(result)
            self.keep(place, KnownCall(plan if self._around is None else self._around(plan, args, kwargs)))
        except UnrepeatableError as why:
            if not why.now:
                self.keep(place, KnownCall(self._run_of(self._function, args, kwargs)))
        return output


def shortcut(function: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """What calls a function with arguments like these, past the look-up of its plans where it has some.

    Whoever uses it looks up all that a plan's place holds.
    """
    named = function.keywords if isinstance(function, partial) and not function.args else {}
    calls = getattr(function.func if isinstance(function, partial) else function, "calls", None)
    place = calls.place(args, named) if isinstance(calls, PlannedCalls) else None
    if calls is None or place is None:
        return function
    more = tuple(named.values())

    def run(*values: Any) -> Any:
        known = calls.get(place)
        output = MISS if known is None else known.run(*values, *more)
        return function(*values) if output is MISS else output

    return run


def _first_result(run: Callable[..., Any], *values: Any) -> Any:
    output = run(*values)
    return output if output is MISS else output[0]


def _by_name(function: Callable[..., Any], count: int, names: Sequence[str], *values: Any) -> Any:
    return function(*values[:count], **dict(zip(names, values[count:], strict=True)))


def _can_record(values: Sequence[Any]) -> bool:
    """Whether what a call does now is what it does without anybody else in between."""
    torch: Any = require("torch", "a known call")
    own, driver = torch._C, triton_driver()
    if own._len_torch_function_stack() or own._len_torch_dispatch_stack() or own._functorch.peek_interpreter_stack():
        return False
    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = [value for value in values if Arguments.is_tensor(value)]
    if any(type(tensor) not in kinds for tensor in tensors) or not runs_as_triton(None):
        return False
    try:
        active = driver.active
    except RuntimeError:  # there is no driver, or several
        return False
    space = process_space(active, values_of_knobs())
    here = all(tensor.device.type != "cuda" or tensor.device.index == space["device_of"]() for tensor in tensors)
    return here and not (space["calls_before"] or space["calls_after"])


class _Planned:
    """The plans of this process."""

    def __init__(self) -> None:
        self._calls: weakref.WeakValueDictionary[int, PlannedCalls] = weakref.WeakValueDictionary()
        self.decisions: list[Decision] = []
        register(self)

    def add(self, calls: PlannedCalls) -> None:
        """Forget the plans of `calls` with all others from now on."""
        self._calls[id(calls)] = calls

    def forget(self) -> None:
        """Have every call decided again."""
        for calls in list(self._calls.values()):
            calls.clear()

    def begin_anew(self) -> None:
        """Forget every plan, in a forked child."""
        for calls in list(self._calls.values()):
            calls.begin_anew()


_planned = _Planned()
forget_plans = _planned.forget
