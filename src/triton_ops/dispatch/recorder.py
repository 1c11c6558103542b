"""Recordings: what a call did, each operator of torch and each launch, for a plan that repeats it.

What depends on more than a pattern holds is named by the body of the call (`beside`), and asked at each call. Sizes are
traced numbers, so that what is computed of them is known too.

Facts used, from torch 2.11 to 2.13: a `TorchDispatchMode` is given the very tensors that Python holds, below autograd,
and `_disable_current_modes` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from triton_ops.backend import Arguments, launches_taken
from triton_ops.base import require
from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.direct_launch import launch_with, triton_driver
from triton_ops.dispatch.traced import Sizes, Traced, plain
from triton_ops.values import IntegerClass

T = TypeVar("T")
_ALLOCATIONS = frozenset(
    f"aten::{name}" for name in ("empty", "new_empty", "empty_strided", "new_empty_strided", "empty_like")
)


class UnrepeatableError(Exception):
    """A call does what no plan repeats, or not `now`; the message says what."""

    def __init__(self, message: str, *, now: bool = False) -> None:
        super().__init__(message)
        self.now = now


@dataclass(eq=False)
class Value:
    """A tensor of a recorded call, made by `maker`, or an argument; a view of `base` that begins `offset` bytes on."""

    name: str
    tensor: Any
    maker: Operator | None = None
    base: Value | None = None
    offset: int = 0
    wanted: bool = False  # as a tensor
    addressed: bool = False

    @property
    def root(self) -> Value:
        """The tensor that has the memory."""
        return self.base or self

    @property
    def address(self) -> str:
        """The line of a plan that asks for the address."""
        return f"{self.name}_at = {self.name}.data_ptr()"


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator of torch that has run, with the tensors that it gave."""

    run: Any
    args: Any
    kwargs: Mapping[str, Any]
    results: Sequence[Any]
    several: bool

    @property
    def inputs(self) -> Iterator[Any]:
        """The tensors that it was given."""
        return Arguments.tensors_in((self.args, self.kwargs))

    @property
    def allocates(self) -> bool:
        """Whether it only makes memory, whose content is open."""
        if self.run._schema.name not in _ALLOCATIONS or self.kwargs.get("pin_memory"):
            return False
        return str(self.results[0].layout) == "torch.strided"


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch of a JIT function, with the arguments in the order of its parameters."""

    kernel: Any
    compiled: Any
    args: Sequence[Any]
    grid: Sequence[int]

    @property
    def inputs(self) -> Iterator[Any]:
        """The tensors that it was given."""
        return Arguments.tensors_in(self.args)


current: ContextVar[Recorder | None] = ContextVar("triton_ops_recorder", default=None)


def is_recording() -> bool:
    """Whether a call is being recorded on this thread."""
    return current.get() is not None


@contextmanager
def recording(recorder: Any) -> Iterator[None]:
    """Have `recorder` see what a call does, inside of the block."""
    token = current.set(recorder)
    try:
        with launches_taken(recorder.launch):
            yield
    finally:
        current.reset(token)


def unseen(function: Callable[..., T], *args: object) -> T:
    """`function(*args)`, of which no plan repeats anything, such as a tune."""
    if current.get() is None:
        return function(*args)
    modes = require("torch.utils._python_dispatch", "a known call")
    token = current.set(None)
    try:
        # Private (torch 2.11 to 2.13): nothing public leaves the modes of a thread out.
        with modes._disable_current_modes(), launches_taken(None):
            return function(*plain(args))
    finally:
        current.reset(token)


def beside(read: Callable[..., T], *tensors: object) -> T:
    """`read(*tensors)`: what a call depends on beside the classes, shapes and values of its arguments.

    It is read at each call of the same `tensors`, which are arguments of the call; with another answer the call is
    decided anew. Tensors, a tuple of them, are taken as they are then, and always have the same shapes, dtypes and
    strides.
    """
    answer = unseen(read, *tensors)
    if (recorder := current.get()) is not None:
        recorder.ask(read, tensors, answer)
    return answer


def launched_by(decision: Decision, *asked: tuple[Callable[[], object], object]) -> None:
    """Count a launch by a decision, which holds while each function `asked` at a known call gives its answer."""
    if (recorder := current.get()) is not None:
        recorder.launched(decision, asked)
    else:
        decision.count.up()


class Recorder:
    """Sees what a call with these values does; no tensor outlives it."""

    def __init__(self, values: Sequence[object]) -> None:
        # By identity: a value holds its tensor, so that no other one gets this identity meanwhile.
        self._values: dict[int, Value] = {}
        self.sizes = Sizes()
        self.names = [f"v{place}" for place in range(len(values))]
        self.repeated: list[tuple[str, str]] = []  # names of one tensor that was given twice
        for name, value in zip(self.names, values, strict=True):
            if id(value) in self._values:
                self.repeated.append((name, self._values[id(value)].name))
            elif Arguments.is_tensor(value):
                self._values[id(value)] = Value(name, value)
                self.sizes.begin(name, value)
        self.steps: list[Operator | Launch] = []
        self.counts: list[Any] = []
        self.asked: list[tuple[Callable[..., Any], Sequence[Any], Any]] = []
        self.place: tuple[Any, int] | None = None  # the driver and the device of launches
        self.refusal, self._in_operator = "", False

    def launched(self, decision: Decision, asked: Sequence[tuple[Callable[[], object], object]]) -> None:
        """Count a launch by a decision now, and at each call."""
        decision.count.up()
        self.counts.append(decision.count)
        own = [] if decision.ask is None else [(decision.ask, decision.within)]
        for ask, answer in (*own, *asked):
            self.ask(ask, (), answer)

    def ask(self, read: Callable[..., object], tensors: Sequence[object], answer: object) -> None:
        """Have something read at each call."""
        self.asked.append((read, tensors, answer))
        if isinstance(answer, tuple):
            self.sizes.pin(*tensors)
        for tensor in answer if isinstance(answer, tuple) and tensors else ():
            self._values.setdefault(id(tensor), Value(f"t{len(self._values)}", tensor))

    def operator(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run an operator, and note it."""
        if not self.sizes.told:
            self.sizes.pin(*Arguments.tensors_in((args, kwargs)))
        self._in_operator = True
        try:
            output = func(*args, **kwargs)
        finally:
            self._in_operator = False
        several = isinstance(output, (tuple, list))
        results = list(output) if several else [output]
        if next(Arguments.tensors_in((args, kwargs, results)), None) is None:
            return output  # such as a dtype of dtypes
        tags = {str(tag).rpartition(".")[2] for tag in func.tags}
        if tags & {"data_dependent_output", "dynamic_output_shape"} or not all(map(Arguments.is_tensor, results)):
            self.refusal = f"{func} gives what only a tensor's values tell"
            return output
        step = Operator(func, args, kwargs, results, several)
        for result in results:
            if id(result) not in self._values:
                self._values[id(result)] = self._made(result, step)
        self.steps.append(step)
        return output

    def _made(self, result: Any, step: Operator) -> Value:
        name, storage = f"t{len(self._values)}", result.untyped_storage()._cdata
        for tensor in step.inputs:
            if (of := self._values.get(id(tensor))) is not None and tensor.untyped_storage()._cdata == storage:
                return Value(name, result, step, of.root, result.data_ptr() - of.root.tensor.data_ptr())
        return Value(name, result, step)

    def launch(self, run: Callable[..., Any], kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch, and note it."""
        compiled = run(kernel, *plain(args), grid=plain(grid), warmup=warmup, **plain(kwargs))
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
            values = [launch.values[param.name] for param in kernel.params]
            for value, param in zip(values, kernel.params, strict=True):
                self._note_specialised(value, param)
            self.steps.append(Launch(kernel, compiled, values, launch.extents))
        return compiled

    def _note_specialised(self, value: Any, param: Any) -> None:
        """Note for which numbers Triton has compiled the kernel: constants, 1, multiples of 16, and of so many bits."""
        if param.is_constexpr or isinstance(value, tuple):
            self.sizes.pin(value)
        elif isinstance(value, Traced):
            IntegerClass.of(value)  # a size notes what it is asked

    @property
    def values(self) -> list[Value]:
        """The tensors of the call."""
        return list(self._values.values())

    def known(self, value: object) -> Value:
        """What is known of a tensor."""
        if (own := self._values.get(id(value))) is None:
            raise UnrepeatableError("a tensor was made elsewhere")
        return own


@cache
def operators_seen() -> Callable[[], AbstractContextManager[object]]:
    """The mode of torch in which the recorder of a thread, where there is one, sees operators."""
    modes = require("torch.utils._python_dispatch", "a known call")

    class Seen(modes.TorchDispatchMode):  # type: ignore[misc, name-defined]
        """Tells the recorder of this thread of operators."""

        def __torch_dispatch__(
            self, func: Callable[..., object], _types: object, args: Sequence[object] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:  # fmt: skip
            recorder = current.get()
            return func(*args, **(kwargs or {})) if recorder is None else recorder.operator(func, args, kwargs or {})

    return Seen
