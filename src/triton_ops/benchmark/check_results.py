"""The results of a candidate beside the right ones, on inputs that are not timed and on those that are.

On inputs that nobody asked for a candidate may refuse by an error, which is told; a wrong result, a crash or a hang is
a fault anywhere. What the reference refuses is left out, as is that of which its own process gives another result.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, TypeAlias

from triton_ops.backend import Arguments, CandidateError
from triton_ops.benchmark.check_inputs import (
    INFINITIES,
    LAYOUTS,
    RENEWED,
    SPECIAL,
    VALUES,
    Form,
    Inputs,
    plain_names,
    shapes_near,
    smallest,
    wide_extents,
)
from triton_ops.benchmark.trial import BlockResult, Sides, TrialLimits, TrialProcess
from triton_ops.device import TorchDevice
from triton_ops.evaluation import (
    Difference,
    Place,
    ReferenceResults,
    as_list,
    is_floating,
    is_numbers,
    library_of,
    same_bits,
)
from triton_ops.exceptions import TargetError, TritonKernelError
from triton_ops.typed import TypedTarget
from triton_ops.values import Tolerance

_Target: TypeAlias = TypedTarget | Callable[..., Any]
_ARENA_BYTES = 64 << 20
_ARENAS = 64  # three times those of all processes together, with copies of what is in them
_CALLS = 4  # of a block, for which there is memory at least
_CALLS_ON_GPU = 64  # with padded rows 32
_DRAWN, _DRAWN_CLOSELY = 3, 12  # inputs more at each of the extents that are tried to find small ones
_ONE_OF = 8
_UNTIMED = 0.4  # of the time, for results before anything is timed
_ODD_TIMES = 4.0
_LEAST_S = 5.0  # of several calls where no time is left: they may compile, on a busy machine
_HANGS = 0.25  # of the first call's limit, or twice as long as that took, which may compile
_CALLS_TO_TELL = 25  # before a race and in it


@dataclass(frozen=True, kw_only=True)
class Fault:
    """How a candidate is wrong, at the smallest shape that was found.

    Attributes:
        kind: `result`, `changes` or `aliases`; where there is no result `raised`, `hung`, `ended`, `memory`, `type` or
            `start`.
        text: The fault in words.
        shape: The shapes of the inputs, as they are typed.
        values: The sort of values; empty for those of the question.
        layout: How the inputs lie in memory; empty for as in the question.
        timed: Whether it was a timed call, or one between those.
        place: The first element that is off, with what is allowed there; None where it is no matter of elements.
    """

    kind: str
    text: str
    shape: str
    values: str = ""
    layout: str = ""
    timed: bool = False
    place: Place | None = None

    def __str__(self) -> str:
        where = ", ".join(filter(None, (self.shape, self.values, self.layout, "in a timed call" if self.timed else "")))
        first = ""
        if self.place is not None:
            value, right = (f"{each:.7g}" for each in (self.place.value, self.place.right))
            first = f"; first at {self.place.index}: {value} instead of {right}, allowed {self.place.allowed:.2g}"
        return f"{self.text} (at {where}){first}"


def fault_of(
    found: BlockResult, own: BlockResult, right: Callable[[int, list[Any]], Difference | None]
) -> tuple[str, str, Place | None] | None:
    """The kind, text and place of the first fault of some calls beside the reference's own; None if there is none."""
    if found.refused:
        return found.kind, found.refused, None
    for call, result in enumerate(found.results):
        if (difference := right(call, as_list(result))) is not None:
            return "result", difference.text, difference.place
        if changed := [name for name in found.changed[call] if name not in own.changed[call]]:
            return "changes", f"it changes argument {', '.join(changed)}, which the reference does not do", None
        for place, (mine, others) in enumerate(zip(found.aliases[call], own.aliases[call], strict=False)):
            if shared := [name for name in mine if name not in others]:
                text = f"result {place} lies in the memory of {', '.join(shared)}, as the reference's does not"
                return "aliases", text, None
    return None


def as_spread(results: Sequence[Any], own: Sequence[Any], inputs: Iterable[Any], values: str) -> list[Any]:
    """Results in which a NaN, or what is not finite where the reference's is not, counts as the reference's.

    Other algorithms may spread a NaN of the inputs further, and none may lose it. No rule is clear, so that any result
    is right, where a NaN comes of infinities alone, or where results are inputs in an order, in which NaN has no place.
    """
    if values != INFINITIES and _selects(own, list(inputs)):
        return list(own)
    pairs = zip(results, own, strict=False)
    return [_spread(*pair, values == INFINITIES) for pair in pairs] + list(results[len(own) :])


def _selects(results: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Tell results whose finite numbers are all among the inputs', as of a sort."""
    for result in filter(_is_float, results):
        library = library_of(result)
        if not any(
            bool(library.isin(result[library.isfinite(result)], each).all()) for each in filter(_is_float, inputs)
        ):
            return False
    return True


def _spread(result: Any, own: Any, free_of_nan: bool) -> Any:
    if not (_is_float(result) and _is_float(own) and type(result) is type(own)):
        return result
    if (result.shape, result.dtype) != (own.shape, own.dtype):
        return result
    library = library_of(result)
    free = library.isnan(result) | ~(library.isfinite(result) | library.isfinite(own))
    free = free | library.isnan(own) if free_of_nan else free
    return library.where(free, own, result)


def _is_float(value: Any) -> bool:
    return is_numbers(value) and is_floating(value)


class _NoQuestionError(Exception):
    """The reference refuses some inputs, or gives no result that can be compared."""


class OutOfTimeError(Exception):
    """What is still to be done takes longer than the time that is left."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked: two targets, the function that is right, the forms of their inputs, and the limits."""

    candidate: _Target
    against: _Target
    right: Callable[..., Any]
    forms: tuple[Form, ...]
    device: str
    outputs: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)
    check: Callable[[Any, Any], Any] | None = None
    work: Callable[..., Any] | None = None
    limits: TrialLimits = field(default_factory=TrialLimits)
    seconds: float = 20.0
    arena_bytes: int = _ARENA_BYTES

    @property
    def race_seconds(self) -> float:
        """The part of the time that is for the race; before it results are judged that are not timed."""
        return (1 - _UNTIMED) * self.seconds

    def side(self, is_candidate: bool) -> TrialProcess:
        """The process of the candidate, or one of the reference."""
        target = self.candidate if is_candidate else self.against
        numbers = all(form.arrays for form in self.forms) and self.device == "cpu"
        return TrialProcess(
            target, device=self.device, outputs=(*self.outputs, *self.written), limits=self.limits,
            arena_bytes=self.arena_bytes, imports=("numpy",) if numbers else ("torch", "numpy"),
        )  # fmt: skip

    def golden(self, arguments: Arguments, times: float = 1.0) -> ReferenceResults:
        """The reference's results for some arguments, in higher precision too."""
        tolerance = self.tolerance if self.tolerance.by_element else replace(
            self.tolerance, times=self.tolerance.times * times)  # fmt: skip
        rule: dict[str, Any] = {"tolerance": tolerance, "check": self.check}
        return ReferenceResults(self._whole, arguments, self.outputs, **rule)

    def _whole(self, *args: Any, **kwargs: Any) -> Any:
        """The reference's result, and after it what it writes, as a trial returns it."""
        answer = self.right(*args, **kwargs)
        if not self.written:
            return answer
        named = dict(zip(plain_names(Arguments(args, kwargs)), (*args, *kwargs.values()), strict=True))
        return (*([] if answer is None else as_list(answer)), *(named[name] for name in self.written))


def arena_bytes(forms: Sequence[Form], result_bytes: int, device: str) -> int:
    """Bytes for the inputs of a block, and as many for its results, of which one call has up to `result_bytes`."""
    largest = max(result_bytes, *(Inputs(form, form.extents, 0).nbytes for form in forms))
    most = 0 if device == "cpu" else min(TorchDevice(device).free_bytes // _ARENAS, _CALLS_ON_GPU * largest)
    return max(_ARENA_BYTES, _CALLS * largest, most)


class Examination:
    """The results of a candidate beside the right ones, one call after another."""

    def __init__(self, question: Question, sides: Sides) -> None:
        self.question, self._sides = question, sides
        self.tried, self.refused, self.used = Counter[str](), list[str](), ""
        self._left_out: dict[str, None] = {}
        self._first_s, self._longest_s, self._end = math.inf, 0.0, math.inf
        self._rng = random.Random(secrets.randbits(64))

    def fault(self, inputs: Inputs, *more: Inputs, times: float = 0.0) -> Fault | None:
        """The fault of a block of calls; `_NoQuestionError` where the reference refuses one of them.

        The limits of the rule are so many `times` as large; 0 is as for such inputs.
        """
        drawn = [each.made(self.question.device) for each in (inputs, *more)]
        own = self._sides.by_name["reference"].run(drawn)
        if own.refused:
            raise _NoQuestionError(own.refused)
        odd_values = inputs.values in SPECIAL
        try:
            golden = [self.question.golden(each, times or _times(inputs)) for each in drawn]
        except (TritonKernelError, RuntimeError, ValueError, TypeError, ArithmeticError, LookupError) as error:
            raise _NoQuestionError(CandidateError.one_line(error)) from error
        self.used = golden[0].used or self.used

        def right(call: int, results: list[Any]) -> Difference | None:
            low = as_list(own.results[call])
            given = (*drawn[call].positional, *drawn[call].keyword.values())
            return golden[call].difference(as_spread(results, low, given, inputs.values) if odd_values else results)

        if any(right(call, as_list(result)) is not None for call, result in enumerate(own.results)):
            raise _NoQuestionError("the reference is not right by its own result in higher precision")
        found = fault_of(self.candidate_block(drawn, is_timed=not more), own, right)
        return None if found is None else _fault(found, inputs)

    def candidate_block(self, drawn: Sequence[Arguments], *, is_timed: bool = True) -> BlockResult:
        """The candidate's block of one call, or of calls that take a known time; others have the time that is left."""
        begin = time.monotonic()
        least_s = _HANGS * self.question.limits.call_s if is_timed else max(_LEAST_S, self._end - begin)
        found = self._sides.by_name["candidate"].run(drawn, max(least_s, 2 * self._first_s))
        self._first_s = time.monotonic() - begin if self._first_s == math.inf else self._first_s
        return found

    def check_time(self) -> None:
        """Raise `OutOfTimeError` if no race fits into the time that is left."""
        if 2 * self._longest_s > max(_LEAST_S, self._end - time.monotonic()):
            needed = f"about {math.ceil(_CALLS_TO_TELL * self._longest_s)} s would decide"
            raise OutOfTimeError(f"a call with its judgement takes {self._longest_s:.3g} s: {needed}")

    @property
    def told(self) -> tuple[str, ...]:
        """What was tried, in words, with how often, and what the time was too short for."""
        left_out = (f"no time for {what}" for what in self._left_out.keys() - self.tried.keys())
        return (*(f"{what}: {count}" for what, count in self.tried.items()), *sorted(left_out))

    def before_times(self) -> Fault | None:
        """The first fault on inputs that are not timed, at small extents; none are begun when their time is over.

        It begins when the inputs of the question have been tried, after the start of the processes.
        """
        seconds = (self.question.seconds - self.question.race_seconds) / len(self.question.forms)
        fault = next(filter(None, (self._fault_at(form, seconds) for form in self.question.forms)), None)
        self._end = max(self._end, time.monotonic() + self.question.race_seconds)  # one call may have taken far longer
        return fault

    def _fault_at(self, form: Form, seconds: float) -> Fault | None:
        asked = Inputs(form, form.extents, secrets.randbits(62))
        self.check_time()
        try:
            fault = self.fault(asked)
        except _NoQuestionError as error:
            raise TargetError(f"the reference, at {asked.shape}: {error}") from error
        self.tried["as asked"] += 1
        begin, call_s = time.monotonic(), 0.0
        end, self._end = begin + seconds, min(self._end, begin + self.question.seconds)
        if fault is not None:
            return self._smallest(fault, asked)
        self._sides.begin_twin()  # beside what follows
        for what, *inputs in self._beside(asked):
            if time.monotonic() + len(inputs) * call_s > end:
                self._left_out[what] = None
            elif fault := self._fault_of(what, *inputs):
                return self._smallest(fault, *inputs)
            call_s = call_s or time.monotonic() - begin  # of the second one at these extents
            self._longest_s = max(self._longest_s, call_s)
        return None

    def fault_between(self, inputs: Sequence[Inputs]) -> Fault | None:
        """The fault of a block between timed ones, which is judged as they are; inputs of their own may be refused."""
        drawn = [each.made(self.question.device) for each in inputs]
        own = self._sides.by_name["reference"].run(drawn)
        found = self.candidate_block(drawn, is_timed=inputs[0].is_as_asked)
        if found.kind == "hung" and not inputs[0].is_as_asked:
            what = f"{len(drawn)} calls between timed calls, at {inputs[0].shape}"
            raise OutOfTimeError(f"of {what}: {found.refused}; more seconds would tell")
        self.tried["refused by the reference" if own.refused else "between timed calls"] += 1
        fault = None if own.refused else self.timed_fault(inputs[0], drawn, found, own)
        return None if fault is None or self._may_be_refused(fault, inputs[0]) else fault

    def _fault_of(self, what: str, *inputs: Inputs) -> Fault | None:
        """The fault of a block of which it is told `what` was tried; none where it may be refused, and is."""
        try:
            fault = self.fault(*inputs)
        except _NoQuestionError:
            self.tried["refused by the reference"] += 1
            return None
        self.tried[what] += 1
        return None if fault is None or self._may_be_refused(fault, inputs[0]) else fault

    def _may_be_refused(self, fault: Fault, inputs: Inputs) -> bool:
        """Tell an error on inputs that nobody asked for, or a crash on empty ones, and remember it."""
        # Torch's attention divides by an extent of 0 on a CPU (2.11).
        is_refusal = fault.kind == "raised" or (fault.kind == "ended" and 0 in inputs.extents)
        refuses = is_refusal and not inputs.is_as_asked
        self.refused += [str(fault)] if refuses else []
        return refuses

    def _beside(self, asked: Inputs) -> Iterator[tuple[Any, ...]]:
        """What is tried beside the question, in words, and the inputs of a block.

        Values, shapes and layouts come in turn, so that some of each are tried where the time is short.
        """
        form = asked.form
        renewed = [replace(asked, values=each) for each in RENEWED]
        yield "the same again, in part", renewed[0]
        yield "the same again, in one block", asked, *renewed, asked
        sorts: dict[str, list[dict[str, Any]]] = {
            "shapes": [{"extents": extents} for extents in dict.fromkeys(shapes_near(form.extents))],
            "sorts of values": [{"values": values} for values in VALUES if asked.has_floats],
            "layouts": [{"layout": layout} for layout in LAYOUTS],
        }
        for turn in zip_longest(*sorts.values()):
            for what, change in zip(sorts, turn, strict=True):
                if change is not None:
                    yield what, replace(asked, **change, seed=secrets.randbits(62))
        on_gpu = self.question.device != "cpu"  # a CPU takes minutes for so much
        wide = wide_extents(form, TorchDevice(self.question.device).free_bytes) if on_gpu else None
        if wide is not None and replace(asked, extents=wide).nbytes <= self.question.arena_bytes:
            yield "more than 2^31 elements", replace(asked, extents=wide)

    def _smallest(self, fault: Fault, inputs: Inputs, *more: Inputs) -> Fault:
        """The fault at the smallest extents that halving finds; at each it may show in one of a few inputs."""
        found = {inputs.extents: fault}

        def wrong(extents: tuple[int, ...], closely: bool) -> bool:
            if time.monotonic() > self._end:  # no race follows
                return False
            drawn = range(_DRAWN_CLOSELY if closely else _DRAWN)
            block = inputs, *more, *(replace(inputs, seed=secrets.randbits(62)) for _ in drawn)
            try:
                other = self.fault(*(replace(each, extents=extents) for each in block), times=_times(inputs))
            except _NoQuestionError:
                return False
            if other is not None and other.kind == fault.kind:
                found[extents] = other
            return extents in found

        if fault.kind in ("hung", "ended", "memory", "start"):
            return fault
        return found[smallest(inputs.extents, wrong)]

    def timed_fault(
        self, asked: Inputs, block: Sequence[Arguments], found: BlockResult, own: BlockResult
    ) -> Fault | None:
        """The fault of a timed block: by the reference process's results, and of one call of eight by the golden ones.

        These decide also where results are not near the reference's, whose own error may be larger than rounding.
        """
        golden = [call for call in range(len(block)) if secrets.randbelow(_ONE_OF) == 0]
        dtypes = [str(each.dtype).removeprefix("torch.") for each in block[0].tensors()]

        def right(call: int, results: list[Any]) -> Difference | None:
            low = as_list(own.results[call])
            if same_bits(results, low):
                return None
            rule = self.question.tolerance, self.question.check
            if call not in golden and ReferenceResults.of_own(low, dtypes, *rule).difference(results) is None:
                return None
            return self.question.golden(block[call], _times(asked)).difference(results)

        fault = fault_of(found, own, right)
        return None if fault is None else replace(_fault(fault, asked), timed=True)


def _times(inputs: Inputs) -> float:
    """How many times as large the limits of the rule are: nobody has chosen one for inputs that nobody gave."""
    return 1.0 if replace(inputs, layout="").is_as_asked else _ODD_TIMES


def _fault(found: tuple[str, str, Place | None], inputs: Inputs) -> Fault:
    kind, text, place = found
    return Fault(kind=kind, text=text, place=place, shape=inputs.shape, values=inputs.values, layout=inputs.layout)
