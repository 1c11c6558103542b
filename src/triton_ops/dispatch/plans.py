"""Plans: what a call of a pattern did, written out as a function that later calls of the pattern repeat.

The first call of a pattern runs its body as it is: a loop in which each call has a new size pays nothing more. At the
second one a recorder sees each operator of torch and each launch. From these a plan is written: conditions under which
it may not be the same, allocations, launches with the grid that they had and addresses of tensors as numbers, and the
results. Views that only launches need become a distance between addresses; operators whose results nobody needs fall
away. What depends on more than a pattern holds is named by the body (`beside`), and asked at each call. There is no
plan where a recorder does not understand all that it sees: a number that is read from a tensor, a tensor that was made
elsewhere, a launch inside of an operator, a kernel that runs as Python.

Facts used, from torch 2.11 to 2.13: a `TorchDispatchMode` is given the very tensors that Python holds, below autograd,
and `_disable_current_modes` leaves it out; `torch._C._len_torch_function_stack`, `_len_torch_dispatch_stack` and
`_functorch.peek_interpreter_stack` tell who else sees operators; `torch._C._dynamo.guards._empty_strided_cuda` and
`_empty_strided_cpu` allocate without the dispatcher, and do not fill what is new where `_get_deterministic_algorithms`
is true. From Triton 3.6 to 3.9: launchers take addresses as numbers, and of a descriptor its `base`, and what else it
holds, as attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, ClassVar
from weakref import WeakSet

from triton_ops.backend import Arguments, ScratchAllocator, launches_taken
from triton_ops.base import require
from triton_ops.dispatch.decision import Decision, register
from triton_ops.dispatch.direct_launch import (
    KERNEL_DOUBTS,
    globals_changed,
    kernel_space,
    launch_of,
    launch_with,
    process_doubts,
    process_space,
    runs_as_triton,
    triton_driver,
    values_of_knobs,
)
from triton_ops.request import MISS, KnownCall, KnownCalls

_code = lru_cache(1_024)(partial(compile, filename="<plan of a call>", mode="exec"))
_ALLOCATIONS = frozenset(
    f"aten::{name}" for name in ("empty", "new_empty", "empty_strided", "new_empty_strided", "empty_like")
)
_PLAIN = (bool, int, float, str, type(None))


class UnrepeatableError(Exception):
    """A call does what no plan repeats, or not `now`; the message says what."""

    def __init__(self, message: str, *, now: bool = False) -> None:
        super().__init__(message)
        self.now = now


@dataclass(eq=False)
class _Value:
    """A tensor of a recorded call, made by `maker`, or an argument; a view of `base` that begins `offset` bytes on."""

    name: str
    tensor: Any
    maker: _Operator | None = None
    base: _Value | None = None
    offset: int = 0
    wanted: bool = False  # as a tensor
    addressed: bool = False

    @property
    def root(self) -> _Value:
        return self.base or self

    @property
    def address(self) -> str:
        return f"{self.name}_at = {self.name}.data_ptr()"


@dataclass(frozen=True, eq=False)
class _Operator:
    """An operator of torch that has run, with the tensors that it gave."""

    run: Any
    args: Any
    kwargs: Mapping[str, Any]
    results: Sequence[Any]
    several: bool

    @property
    def inputs(self) -> Iterator[Any]:
        return _tensors_in((self.args, self.kwargs))

    @property
    def allocates(self) -> bool:
        """Whether it only makes memory, whose content is open."""
        if self.run._schema.name not in _ALLOCATIONS or self.kwargs.get("pin_memory"):
            return False
        return str(self.results[0].layout) == "torch.strided"


@dataclass(frozen=True, eq=False)
class _Launch:
    """A launch of a JIT function, with the arguments in the order of its parameters."""

    kernel: Any
    compiled: Any
    args: Sequence[Any]
    grid: Sequence[int]

    @property
    def inputs(self) -> Iterator[Any]:
        return _tensors_in([each.base if Arguments.is_descriptor(each) else each for each in self.args])


_recorder: ContextVar[Recorder | None] = ContextVar("triton_ops_recorder", default=None)


def unseen(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, of which no plan repeats anything, such as a tune."""
    if _recorder.get() is None:
        return function(*args)
    modes = require("torch.utils._python_dispatch", "a known call")
    token = _recorder.set(None)
    try:
        with modes._disable_current_modes(), launches_taken(None):
            return function(*args)
    finally:
        _recorder.reset(token)


def beside(read: Callable[..., Any], *tensors: Any) -> Any:
    """`read(*tensors)`: what a call depends on beside the classes, shapes and values of its arguments.

    It is read at each call of the same `tensors`, which are arguments of the call; with another answer the call is
    decided anew. Tensors, a tuple of them, are taken as they are then, and always have the same shapes, dtypes and
    strides.
    """
    answer = unseen(read, *tensors)
    if (recorder := _recorder.get()) is not None:
        recorder.ask(read, tensors, answer)
    return answer


def launched_by(decision: Decision, *asked: tuple[Callable[[], Any], Any]) -> None:
    """Count a launch by a decision, which holds while each function `asked` at a known call gives its answer."""
    if (recorder := _recorder.get()) is not None:
        recorder.launched(decision, asked)
    else:
        decision.count.up()


@contextmanager
def recording(recorder: Any) -> Iterator[None]:
    """Have `recorder` see what a call does, inside of the block."""
    token = _recorder.set(recorder)
    try:
        with launches_taken(recorder.launch):
            yield
    finally:
        _recorder.reset(token)


class Recorder:
    """Sees what a call with these values does; no tensor outlives it."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values: dict[int, _Value] = {}
        self.names = [f"v{place}" for place in range(len(values))]
        self.repeated: list[tuple[str, str]] = []  # names of one tensor that was given twice
        for name, value in zip(self.names, values, strict=True):
            if id(value) in self._values:
                self.repeated.append((name, self._values[id(value)].name))
            elif Arguments.is_tensor(value):
                self._values[id(value)] = _Value(name, value)
        self.steps: list[_Operator | _Launch] = []
        self.counts: list[Any] = []
        self.asked: list[tuple[Callable[..., Any], Sequence[Any], Any]] = []
        self.place: tuple[Any, int] | None = None  # the driver and the device of launches
        self.refusal, self._in_operator = "", False

    def launched(self, decision: Decision, asked: Sequence[tuple[Callable[[], Any], Any]]) -> None:
        """Count a launch by a decision now, and at each call."""
        decision.count.up()
        self.counts.append(decision.count)
        own = [] if decision.ask is None else [(decision.ask, decision.within)]
        for ask, answer in (*own, *asked):
            self.ask(ask, (), answer)

    def ask(self, read: Callable[..., Any], tensors: Sequence[Any], answer: Any) -> None:
        """Have something read at each call."""
        self.asked.append((read, tensors, answer))
        for tensor in answer if isinstance(answer, tuple) and tensors else ():
            self._values.setdefault(id(tensor), _Value(f"t{len(self._values)}", tensor))

    def operator(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run an operator, and note it."""
        self._in_operator = True
        try:
            output = func(*args, **kwargs)
        finally:
            self._in_operator = False
        several = isinstance(output, (tuple, list))
        results = list(output) if several else [output]
        if next(_tensors_in((args, kwargs, results)), None) is None:
            return output  # such as a dtype of dtypes
        tags = {str(tag).rpartition(".")[2] for tag in func.tags}
        if tags & {"data_dependent_output", "dynamic_output_shape"} or not all(map(Arguments.is_tensor, results)):
            self.refusal = f"{func} gives what only a tensor's values tell"
            return output
        step = _Operator(func, args, kwargs, results, several)
        for result in results:
            if id(result) not in self._values:
                self._values[id(result)] = self._made(result, step)
        self.steps.append(step)
        return output

    def _made(self, result: Any, step: _Operator) -> _Value:
        name, storage = f"t{len(self._values)}", result.untyped_storage()._cdata
        for tensor in step.inputs:
            of = self._values.get(id(tensor))
            if of is not None and tensor.untyped_storage()._cdata == storage:
                return _Value(name, result, step, of.root, result.data_ptr() - of.root.tensor.data_ptr())
        return _Value(name, result, step)

    def launch(self, run: Callable[..., Any], kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch, and note it."""
        compiled = run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
        if self._in_operator:
            self.refusal = "an operator of torch launches a kernel"
        elif not hasattr(kernel, "device_caches"):
            self.refusal = "a kernel runs as Python"
        elif not warmup:
            launch = launch_with(kernel, args, kwargs, grid)
            active = triton_driver().active
            place = active, active.get_current_device()
            if self.place not in (None, place):
                self.refusal = "launches go to several devices"
            self.place = place
            ordered = [launch.values[param.name] for param in kernel.params]
            self.steps.append(_Launch(kernel, compiled, ordered, launch.extents))
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
        """The function that repeats the call with other tensors; raises UnrepeatableError."""
        recorder = self._recorder
        if recorder.refusal:
            raise UnrepeatableError(recorder.refusal)
        for tensor in _tensors_in(self._result):
            self._want(recorder.known(tensor))
        for step in reversed(recorder.steps):
            self._want_inputs(step)
        doubts = self._doubts()
        self._lines += [value.address for value in recorder.values if value.addressed and value.maker is None]
        for place, step in enumerate(recorder.steps):
            self._write_launch(step, f"l{place}_") if isinstance(step, _Launch) else self._write_operator(step)
        self._lines += [f"next({self._constant(count)})" for count in recorder.counts]
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
        if value.maker is not None and not value.maker.allocates:
            for tensor in value.maker.inputs:
                self._want(self._recorder.known(tensor))

    def _want_inputs(self, step: _Operator | _Launch) -> None:
        """Have what a step needs made, if the step is needed whoever wants its results."""
        if isinstance(step, _Operator) and not step.run._schema.is_mutable:
            return
        for tensor in step.inputs:
            value = self._recorder.known(tensor)
            if isinstance(step, _Launch):
                value = value.root
                value.addressed = True
            self._want(value)

    def _doubts(self) -> list[str]:
        recorder = self._recorder
        self._space |= _others()
        conditions = [f"{name}()" for name in _others()]
        conditions += [f"{each.name}.is_neg()" for each in recorder.values if each.name in recorder.names]
        conditions += [f"{again} is not {first}" for again, first in recorder.repeated]
        conditions += dict.fromkeys(self._asked())
        before: list[str] = []
        if recorder.place is not None:
            driver, device = recorder.place
            space = process_space(driver, values_of_knobs())
            self._space |= space | {"device": device}
            before = ["active = driver.active"]
            conditions = ["active is not seen_driver", "device_of() != device", *conditions]
            conditions += [text.replace("@", "") for text in process_doubts(space)]
            kernels = dict.fromkeys(step.kernel for step in recorder.steps if isinstance(step, _Launch))
            for place, kernel in enumerate(kernels):
                conditions += self._doubts_of(kernel, f"k{place}_", device)
        return [*before, f"if {' or '.join(conditions)}:", "    return miss"]

    def _asked(self) -> Iterator[str]:
        """Conditions on what is asked at each call; where tensors are the answer, the plan takes them as they are."""
        for ask, tensors, answer in self._recorder.asked:
            reading = f"{self._constant(ask)}({', '.join(map(self._argument_of_call, tensors))})"
            if tensors and isinstance(answer, tuple):
                self._lines.append(f"{''.join(f'{self._recorder.known(each).name}, ' for each in answer)} = {reading}")
            else:
                yield f"{reading} != {self._constant(answer)}"

    def _doubts_of(self, kernel: Any, prefix: str, device: int) -> list[str]:
        if kernel.pre_run_hooks or not runs_as_triton(kernel):
            raise UnrepeatableError("somebody's own function runs a kernel, or is called before", now=True)
        space = {**kernel_space(kernel), "cached": kernel.device_caches[device]}
        self._space |= {prefix + name: value for name, value in space.items()}
        more = ["@caches[device] is not @cached", "@used_globals and changed(@used_globals)"]
        return [text.replace("@", prefix) for text in (*KERNEL_DOUBTS, *more)]

    def _write_operator(self, step: _Operator) -> None:
        results = [self._recorder.known(each) for each in step.results]
        made = [each for each in results if each.maker is step]
        if not (step.run._schema.is_mutable or any(each.wanted for each in made)):
            return
        computes = step.run._schema.is_mutable or any(each.base is None for each in results)
        if computes and not step.allocates and require("torch", "a known call")._C._is_any_autocast_enabled():
            raise UnrepeatableError("torch computes under autocast")
        names = ", ".join(each.name if each.maker is step else "_" for each in results)
        value = self._memory(step.results[0]) if step.allocates else self._operator(step)
        self._lines.append(f"{names}{',' if step.several else ''} = {value}")
        self._lines += [each.address for each in made if each.addressed]

    def _operator(self, step: _Operator) -> str:
        arguments = [self._written(value) for value in step.args]
        arguments += [f"{name}={self._written(value)}" for name, value in step.kwargs.items()]
        return f"{self._constant(step.run)}({', '.join(arguments)})"

    def _memory(self, tensor: Any) -> str:
        torch = require("torch", "new memory")
        facts = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
        direct = getattr(getattr(torch._C._dynamo, "guards", None), f"_empty_strided_{tensor.device.type}", None)
        if direct is None or tensor.device.index not in (None, self._recorder.place and self._recorder.place[1]):
            raise UnrepeatableError("memory is not made on the current device")
        return f"{self._constant(direct)}({', '.join(map(self._constant, facts))})"

    def _write_launch(self, step: _Launch, prefix: str) -> None:
        if not hasattr(step.compiled, "packed_metadata"):
            raise UnrepeatableError("Triton has given no compiled kernel")
        run, added, in_one = launch_of(step.compiled)
        if run is step.compiled.run:  # it may ask for memory
            run = ScratchAllocator.around(run)
        self._space |= {f"{prefix}run": run, f"{prefix}function": step.compiled.function, f"{prefix}added": added}
        arguments = "".join(f"{self._argument(*each)}, " for each in zip(step.args, step.kernel.params, strict=True))
        grid = ", ".join(map(self._constant, step.grid))
        lead = f"{grid}, active.get_current_stream(device), {prefix}function, *{prefix}added"
        self._lines.append(f"{prefix}run({lead}, {f'({arguments})' if in_one else arguments})")

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

    def _argument_of_call(self, tensor: Any) -> str:
        name = self._recorder.known(tensor).name
        if name not in self._recorder.names:
            raise UnrepeatableError("what a call depends on is read from another tensor than its arguments")
        return name

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
def _others() -> dict[str, Callable[[], Any]]:
    """What tells of others that see or change what torch does: each gives something false where there are none."""
    own = require("torch", "a known call")._C
    return {
        "functions": own._len_torch_function_stack, "modes": own._len_torch_dispatch_stack,
        "transforms": own._functorch.peek_interpreter_stack, "fills": own._get_deterministic_algorithms,
    }  # fmt: skip


@cache
def _mode() -> Any:
    modes = require("torch.utils._python_dispatch", "a known call")

    class Seen(modes.TorchDispatchMode):  # type: ignore[misc, name-defined]
        """Tells the recorder of this thread of operators."""

        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            recorder = _recorder.get()
            return func(*args, **(kwargs or {})) if recorder is None else recorder.operator(func, args, kwargs or {})

    return Seen


def _missed(*_values: Any) -> Any:
    return MISS


def _by_name(function: Callable[..., Any], count: int, names: Sequence[str], *values: Any) -> Any:
    return function(*values[:count], **dict(zip(names, values[count:], strict=True)))


def _plainly(run: Any, **_arguments: Any) -> Any:
    return run


class PlannedCalls(KnownCalls[KnownCall]):
    """The calls of one function that does its work by launches and by operators of torch: plans, by their patterns.

    `call` is the function. `around` makes of what repeats a call what is run in its place; it is given the arguments of
    a call too, and the values in order when it runs. `counts` is as for `KnownCalls`.
    """

    decisions: ClassVar[Sequence[Decision]] = ()
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(
        self, function: Callable[..., Any], around: Callable[..., Any] = _plainly,
        counts: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(self._decided, ["autocast", "gradients"], in_order=True, counts=counts)
        self._function, self._around = function, around
        forgets_with_plans(self)
        register(self)

    forget = KnownCalls.clear

    def _decided(self, args: Sequence[Any], kwargs: Mapping[str, Any], place: Any) -> KnownCall:
        run = partial(_by_name, self._function, len(args), tuple(kwargs)) if kwargs else self._function
        around = partial(self._around, args=args, kwargs=kwargs)
        if self.get(place) is not None and _can_record((*args, *kwargs.values())):
            return KnownCall(partial(self._recorded, place, run, around))
        return KnownCall(around(run), partial(self._note, place))

    def _note(self, place: Any) -> None:
        """Note that a pattern was met, and that its call gave no error."""
        if place not in self:
            self.keep(place, KnownCall(_missed))

    def _recorded(self, place: Any, run: Callable[..., Any], around: Callable[..., Any], *values: Any) -> Any:
        recorder = Recorder(values)
        with recording(recorder), _mode()():  # each thread has a mode of its own
            result = run(*values)
        output = around(lambda *_: result)(*values)
        plan: Callable[..., Any] | None
        try:
            plan = _Writer(recorder, result).plan()
        except UnrepeatableError as why:
            plan = None if why.now else run
        if self.pop(place, None) is not None and plan is not None:  # else it was forgotten meanwhile
            self.keep(place, KnownCall(around(plan)))
        return output


def planned(function: Callable[..., Any], counts: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function of values in order, whose known calls are repeated by plans."""
    calls = PlannedCalls(function, counts=counts)
    return lambda *args: calls.call(*args)


_planned: WeakSet[Any] = WeakSet()


def forget_plans() -> None:
    """Have every call decided again."""
    for calls in list(_planned):
        calls.forget()


def forgets_with_plans(calls: Any) -> None:
    """Have `forget` called where plans are forgotten."""
    _planned.add(calls)


def shortcut(function: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """What calls a function with arguments like these, past the look-up of its plans where it has some.

    Whoever uses it looks up all that a plan's place holds.
    """
    calls = getattr(function, "calls", None)
    if not isinstance(calls, PlannedCalls) or (place := calls.place(args, {})) is None:
        return function

    def run(*values: Any) -> Any:
        known = calls.get(place)
        output = MISS if known is None else known.run(*values)
        return function(*values) if output is MISS else output

    return run


def _can_record(values: Sequence[Any]) -> bool:
    """Whether what a call does now is what it does without anybody else in between."""
    torch: Any = require("torch", "a known call")
    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = [value for value in values if Arguments.is_tensor(value)]
    if any(each() for each in _others().values()) or not runs_as_triton(None):
        return False
    if any(type(tensor) not in kinds or tensor.is_neg() for tensor in tensors):
        return False
    try:
        active = triton_driver().active
    except RuntimeError:  # there is no driver, or several
        return False
    space = process_space(active, values_of_knobs())
    here = all(tensor.device.type != "cuda" or tensor.device.index == space["device_of"]() for tensor in tensors)
    return here and not (space["calls_before"] or space["calls_after"])
