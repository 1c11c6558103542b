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

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import Any, ClassVar
from weakref import WeakSet

from triton_ops import backend
from triton_ops.backend import Arguments
from triton_ops.base import require
from triton_ops.dispatch.decision import Decision, register
from triton_ops.dispatch.direct_launch import (
    KERNEL_DOUBTS,
    Encoded,
    kernel_space,
    launch_of,
    process_doubts,
    process_space,
    runs_as_triton,
    triton_driver,
    values_of_knobs,
)
from triton_ops.dispatch.recorder import (
    Launch,
    Operator,
    Recorder,
    UnrepeatableError,
    Value,
    current,
    is_recording,
    operators_seen,
    recording,
)
from triton_ops.dispatch.traced import Traced, plain, put, sizes_seen, traced_in
from triton_ops.request import MISS, KnownCall, KnownCalls

# The plans of many calls are one text over other constants: each text is compiled once.
_code = lru_cache(1_024)(partial(compile, filename="<plan of a call>", mode="exec"))
_PLAIN = (bool, int, float, str, type(None))
_MOST_FAMILIES, _MOST_RECORDED, _MOST_PLANS = 4_096, 1_024, 128  # of one function, the last of one family


class _Writer:
    """Writes the plan of what was recorded."""

    def __init__(self, recorder: Recorder, result: object, *, general: bool = False) -> None:
        self._recorder, self._result, self._general = recorder, result, general
        self._space: dict[str, Any] = {"miss": MISS, "next": next, "len": len}
        self._lines: list[str] = []
        self._descriptors = 0

    def plan(self) -> Callable[..., object]:
        """The function that repeats the call with other tensors; raises UnrepeatableError."""
        recorder = self._recorder
        if recorder.refusal:
            raise UnrepeatableError(recorder.refusal)
        for tensor in Arguments.tensors_in([self._result]):
            self._want(recorder.known(tensor))
        for step in reversed(recorder.steps):
            self._want_inputs(step)
        doubts = self._doubts()
        self._lines += [value.address for value in recorder.values if value.addressed and value.maker is None]
        for place, step in enumerate(recorder.steps):
            self._write_launch(step, f"l{place}_") if isinstance(step, Launch) else self._write_operator(step)
        self._lines += [f"next({self._constant(count)})" for count in recorder.counts]
        self._lines.append(f"return {self._written(self._result)}")
        body = "".join(f"        {line}\n" for line in self._with_sizes([*doubts, *self._lines]))
        given, values = ", ".join(self._space), ", ".join(recorder.names)
        scope: dict[str, Any] = {}
        exec(_code(f"def made({given}):\n    def plan({values}):\n{body}    return plan"), scope)
        function: Callable[..., object] = scope["made"](**self._space)
        return function

    def _with_sizes(self, lines: Sequence[str]) -> list[str]:
        """The lines after those that read the sizes of arguments, and the conditions on them."""
        if not self._general:
            return list(lines)
        same, pins, differs = self._recorder.sizes.conditions.settled()
        lines = [put(line, same) for line in lines]
        ranks, read_before = dict[str, None](), dict[Any, str]()
        text, reads, changed = "\n".join([*differs, *lines]), list[str](), list[str]()
        for value in self._recorder.values:
            for kind, what in (("n", "shape"), ("s", "stride()")) if value.name in self._recorder.names else ():
                names = [f"{value.name}_{kind}{axis}" for axis in range(value.tensor.ndim)]
                read = f"{value.name}.{what}"
                alike = read_before.setdefault((kind, *(same.get(name, name) for name in names)), read)
                if names and pins.keys() >= {*names}:
                    changed.append(f"{read} != {self._constant(tuple(pins[name] for name in names))}")
                elif alike != read:
                    changed.append(f"{read} != {alike}")
                    differs = [each for each in differs if not each.startswith(f"{value.name}_{kind}")]
                elif any(name in text or name in pins for name in names):
                    ranks[f"{value.name}.ndim != {len(names)}"] = None
                    reads.append(f"{', '.join(names)}, = {read}")
                    changed += [f"{name} != {pins[name]}" for name in names if name in pins]
        if not reads:
            raise UnrepeatableError("no size may change")
        return [
            f"if {' or '.join(ranks)}:",
            "    return miss",
            *reads,
            f"if {' or '.join([*changed, *differs, 'False'])}:",
            "    return miss",
            *lines,
        ]

    def _want(self, value: Value) -> None:
        """Have a tensor made by the plan."""
        if value.wanted:
            return
        value.wanted = True
        if value.maker is not None and not value.maker.allocates:
            for tensor in value.maker.inputs:
                self._want(self._recorder.known(tensor))

    def _want_inputs(self, step: Operator | Launch) -> None:
        """Have what a step needs made, if the step is needed whoever wants its results."""
        if isinstance(step, Operator) and not step.run._schema.is_mutable:
            return
        for tensor in step.inputs:
            value = self._recorder.known(tensor)
            if isinstance(step, Launch):
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
            kernels = dict.fromkeys(step.kernel for step in recorder.steps if isinstance(step, Launch))
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
        used = list(kernel.used_global_vals.items())
        more = ["@caches[device] is not @cached", f"len(@used_globals) != {len(used)}"]
        for (name, _), (value, scope) in used:  # Triton keeps a copy, and to compare two constants takes a microsecond
            now = f"{self._constant(scope)}.get({name!r}, miss)"
            more.append(f"{now} is not {self._constant(scope.get(name, MISS))} and {now} != {self._constant(value)}")
        return [text.replace("@", prefix) for text in (*KERNEL_DOUBTS, *more)]

    def _write_operator(self, step: Operator) -> None:
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

    def _operator(self, step: Operator) -> str:
        shape, stride = self._recorder.sizes.of(step.results[0])
        traced = next(traced_in((shape, stride)), None) is not None
        arguments = []
        for value in step.args:
            if traced and isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
                value = next((each for each in (shape, stride) if tuple(value) == plain(each)), None)
                if value is None:
                    raise UnrepeatableError(f"{step.run} takes sizes that are not traced")
            arguments.append(self._written(value))
        arguments += [f"{name}={self._written(value)}" for name, value in step.kwargs.items()]
        return f"{self._constant(step.run)}({', '.join(arguments)})"

    def _memory(self, tensor: Any) -> str:
        torch = require("torch", "new memory")
        facts = *self._recorder.sizes.of(tensor), tensor.dtype
        direct = getattr(getattr(torch._C._dynamo, "guards", None), f"_empty_strided_{tensor.device.type}", None)
        if direct is None or tensor.device.index not in (None, self._recorder.place and self._recorder.place[1]):
            raise UnrepeatableError("memory is not made on the current device")
        return f"{self._constant(direct)}({', '.join(map(self._written, facts))})"

    def _write_launch(self, step: Launch, prefix: str) -> None:
        if not hasattr(step.compiled, "packed_metadata"):
            raise UnrepeatableError("Triton has given no compiled kernel")
        run, added, in_one = launch_of(step.compiled)
        before = len(self._lines)
        arguments = "".join(f"{self._argument(*each)}, " for each in zip(step.args, step.kernel.params, strict=True))
        grid = ", ".join(map(self._written, step.grid))
        rest = f"*{prefix}added, {f'({arguments})' if in_one else arguments}"
        described = self._lines[before:]
        if described and not self._general and (encoded := Encoded.of(run, added, in_one)) is not None:
            run, rest = encoded.run, f"*{prefix}rest"
            self._space |= {f"{prefix}known": encoded.known, f"{prefix}encode": encoded.encode}
            roots = dict.fromkeys(self._recorder.known(each).root.name for each in step.inputs)
            at = f"({''.join(f'{root}_at, ' for root in roots)})"
            self._lines[before:] = [f"{prefix}rest = {prefix}known({at})", f"if {prefix}rest is None:"]
            encoding = f"{prefix}rest = {prefix}encode({at}, ({arguments}))"
            self._lines += [f"    {line}" for line in (*described, encoding)]
        if run is step.compiled.run:  # it may ask for memory
            run = backend.ScratchAllocator.around(run)
        self._space |= {f"{prefix}run": run, f"{prefix}function": step.compiled.function, f"{prefix}added": added}
        self._lines.append(f"{prefix}run({grid}, active.get_current_stream(device), {prefix}function, {rest})")

    def _argument(self, argument: Any, param: Any) -> str:
        if Arguments.is_tensor(argument):
            return self._address(argument)
        if Arguments.is_descriptor(argument):
            return self._described(argument)
        if not param.is_constexpr and type(argument) not in (*_PLAIN, Traced):
            raise UnrepeatableError(f"{param.name} is a {type(argument).__name__}")
        return self._constant(plain(argument)) if param.is_constexpr else self._written(argument)

    def _address(self, tensor: Any) -> str:
        value = self._recorder.known(tensor)
        if tensor.data_ptr() == 0:
            if tensor.numel() or self._general:
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
        own = type(type(descriptor).__name__, (type(descriptor),), plain(facts))
        made = self._constant(partial(object.__new__, own))
        self._lines += [f"{name} = {made}()", f"{name}.base = {value.root.name}"]
        if self._general:
            traced = {each: fact for each, fact in facts.items() if next(traced_in(fact), None) is not None}
            self._lines += [f"{name}.{each} = {self._written(fact)}" for each, fact in traced.items()]
        return name

    def _argument_of_call(self, tensor: object) -> str:
        name = self._recorder.known(tensor).name
        if name not in self._recorder.names:
            raise UnrepeatableError("what a call depends on is read from another tensor than its arguments")
        return name

    def _written(self, value: object) -> str:
        if Arguments.is_tensor(value):
            return self._recorder.known(value).name
        if not self._general:
            value = plain(value)
        if isinstance(value, Traced):
            return value.text
        if isinstance(value, tuple) and all(type(each) is int for each in value):
            return self._constant(value)
        if isinstance(value, (tuple, list)):
            inner = ", ".join(map(self._written, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        return self._constant(value)

    def _constant(self, value: object) -> str:
        for name, known in self._space.items():
            if known is value:
                return name
        name = f"c{len(self._space)}"
        self._space[name] = value
        return name


@cache
def _others() -> dict[str, Callable[[], object]]:
    """What tells of others that see or change what torch does: each gives something false where there are none."""
    # All of these are private (torch 2.11 to 2.13): nothing public tells of them so quickly.
    own = require("torch", "a known call")._C
    return {
        "functions": own._len_torch_function_stack, "modes": own._len_torch_dispatch_stack,
        "transforms": own._functorch.peek_interpreter_stack, "fills": own._get_deterministic_algorithms,
    }  # fmt: skip


def _by_name(function: Callable[..., object], count: int, names: Sequence[str], *values: object) -> object:
    return function(*values[:count], **dict(zip(names, values[count:], strict=True)))


class PlannedCalls(KnownCalls[KnownCall]):
    """The calls of one function that does its work by launches and by operators of torch: plans, by their patterns.

    `call` is the function. `around` makes of what repeats a call what is run in its place; it is given the arguments of
    a call too, and the values in order when it runs. `counts` is as for `KnownCalls`.
    """

    decisions: ClassVar[Sequence[Decision]] = ()
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(
        self, function: Callable[..., object], around: Callable[..., Callable[..., object]] = lambda run, **_: run,
        counts: Callable[..., object] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(self._decided, ["autocast", "gradients"], in_order=True, counts=counts)
        self._recordings: Counter[Any] = Counter()  # of families
        self._function, self._around = function, around
        forgets_with_plans(self)
        register(self)

    def clear(self) -> None:
        """Forget every call."""
        self.general.clear()
        self._recordings.clear()
        super().clear()

    forget = clear

    def _decided(self, args: Sequence[object], kwargs: Mapping[str, object], place: Any) -> KnownCall:
        run = partial(_by_name, self._function, len(args), tuple(kwargs)) if kwargs else self._function
        around = partial(self._around, args=args, kwargs=kwargs)
        if is_recording():  # it is a part of what is recorded
            return KnownCall(around(run))
        values = (*args, *kwargs.values())
        family = None if place is None else self.family(place, values)
        met = place in self or (family in self.general and self._recordings[family] < _MOST_PLANS)
        if place is not None and met and can_record(values):
            return KnownCall(partial(self._recorded, place, family, run, around))
        return KnownCall(around(run), partial(self._note, place, family))

    def _note(self, place: object, family: object) -> None:
        """Note that a pattern was met, and that its call gave no error."""
        if place is None:
            return
        if family not in self.general:
            if len(self.general) >= _MOST_FAMILIES:
                self.clear()
            self.general[family] = ()
        if place not in self:
            self.keep(place, KnownCall(lambda *_: MISS))

    def _recorded(
        self, place: object, family: object, run: Callable[..., object],
        around: Callable[..., Callable[..., object]], *values: object,
    ) -> object:  # fmt: skip
        recorder = Recorder(values)
        with recording(recorder), operators_seen()(), sizes_seen(current.get):  # each thread has modes of its own
            result = run(*values)
        output = around(lambda *_: result)(*values)
        plans = self.general.get(family)
        self.pop(place, None)
        plan: Callable[..., object] | None
        try:
            plan = _Writer(recorder, result).plan()
        except UnrepeatableError as why:
            plan = None if why.now else run
        if plan is None or plans is None:  # else it was forgotten meanwhile
            self.general.pop(family, None)
            self.pop(place, None)
            return output
        self.keep(place, KnownCall(around(plan)))
        if self._recordings.total() >= _MOST_RECORDED:
            self.clear()
        self._recordings[family] += 1
        if self._recordings[family] <= _MOST_PLANS:
            with suppress(UnrepeatableError):
                self.general[family] = (around(_Writer(recorder, result, general=True).plan()), *plans)
        return output


def planned(function: Callable[..., object], counts: Callable[..., object] | None = None) -> Callable[..., object]:
    """A function of values, whose known calls are repeated by plans."""
    calls = PlannedCalls(function, counts=counts)
    return lambda *args, **kwargs: calls.call(*args, **kwargs)


_planned: WeakSet[Any] = WeakSet()


def forget_plans() -> None:
    """Have every call decided again."""
    for calls in list(_planned):
        calls.forget()


def forgets_with_plans(calls: object) -> None:
    """Have `forget` called where plans are forgotten."""
    _planned.add(calls)


def shortcut(function: Callable[..., object], args: Sequence[object]) -> Callable[..., object]:
    """What calls a function with arguments like these, past the look-up of its plans where it has some.

    Whoever uses it looks up all that a plan's place holds.
    """
    calls = getattr(function, "calls", None)
    if not isinstance(calls, PlannedCalls) or (place := calls.place(args, {})) is None:
        return function

    def run(*values: object) -> object:
        known = calls.get(place)
        output = MISS if known is None else known.run(*values)
        return function(*values) if output is MISS else output

    return run


def can_record(values: Sequence[Any]) -> bool:
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
