"""Whether a candidate is right, and then whether it is faster than a reference, by nothing that it says itself.

The order of the answers is fixed. A wrong result on inputs that nobody timed comes first, at the smallest extents that
halving finds; then one of a timed call; then what makes right results too fast to be believed; the times come last.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeAlias

from triton_ops.backend import Arguments, FunctionKernel, Operation
from triton_ops.base import Host, require
from triton_ops.benchmark.check_inputs import Form, Inputs, plain_names
from triton_ops.benchmark.check_results import Examination, Fault, OutOfTimeError, Question, arena_bytes
from triton_ops.benchmark.check_rounds import FaultError, Race, TimedRounds
from triton_ops.benchmark.timing import measuring
from triton_ops.benchmark.trial import Sides, TrialLimits
from triton_ops.device import Roofline, probe
from triton_ops.evaluation import same_bits
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.request import device_for
from triton_ops.timing import Interval
from triton_ops.typed import TypedProblem, TypedTarget
from triton_ops.values import Tolerance, as_callable

Verdict: TypeAlias = Literal["wrong", "suspect", "faster", "slower", "same", "undecided"]
_LEAST_SHARE = 0.5  # of the time that moving inputs and outputs takes: nothing is faster by so much
_FEW = 1 << 22  # elements: for fewer, threads that wait for one another cost more than they save
_TOLD = 5
_FIRST_S = 120.0  # and three times all the time: a first call may compile, which takes torch 60 s on a busy machine


@dataclass(frozen=True, kw_only=True)
class ShapeCheck:
    """The times at one shape: `speedup` is the reference's over the candidate's, with its 95 % interval.

    A difference of up to the share `needed` counts as none.
    """

    shape: str
    verdict: str
    speedup: Interval
    needed: float
    reference_ms: float
    candidate_ms: float
    calls: int
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Check:
    """What is to be thought of a candidate.

    Attributes:
        verdict: `wrong`, `suspect` (right, but not to be believed), `faster`, `slower`, `same` or `undecided`.
        names: The candidate and the reference.
        shapes: The times at each shape that was asked for; empty for a wrong candidate.
        speedup: The reference's time over the candidate's, over all shapes, with its 95 % interval; None without times.
        fault: How it is wrong; None if it is not.
        suspicion: Why it is not to be believed; empty otherwise.
        needed: What would decide; empty where it is decided.
        tried: What was tried.
        refused: Inputs beside those of the question that it refuses, and how.
        verified: What results were compared with.
        notes: Remarks on how it was measured.
    """

    verdict: Verdict
    names: tuple[str, str]
    shapes: tuple[ShapeCheck, ...] = ()
    speedup: Interval | None = None
    fault: Fault | None = None
    suspicion: tuple[str, ...] = ()
    needed: str = ""
    tried: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    verified: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        candidate, reference = self.names
        if self.fault is not None:
            return f"{candidate} is wrong: {self.fault}; compared with {self.verified}"
        if self.suspicion:
            return f"{candidate} is right, and not to be believed: {'; '.join(self.suspicion)}"
        if self.speedup is None:
            return f"{candidate} is not told from {reference}: {self.needed}"
        times = f"{self.speedup.centre:.3g} times as fast ({self.speedup.low:.3g} to {self.speedup.high:.3g})"
        how = {"same": "as fast as", "undecided": "not told from"}.get(self.verdict, f"{self.verdict} than")
        return f"{candidate} is {how} {reference}: {times}" + (f"; {self.needed}" if self.needed else "")


def over_all(races: Sequence[Race]) -> tuple[Verdict, Interval]:
    """The verdict over all shapes, and the mean of the gains; shapes that disagree leave it undecided."""
    gains, count = [race.gain for race in races], len(races)
    centre = sum(gain.centre for gain in gains) / count
    below, above = (math.hypot(*(gain.centre - end for gain, end in zip(gains, ends, strict=True))) / count
                    for ends in ([gain.low for gain in gains], [gain.high for gain in gains]))  # fmt: skip
    whole, verdicts = Interval(centre, centre - below, centre + above), {race.verdict for race in races}
    if len(verdicts) == 1:
        return verdicts.pop(), whole  # type: ignore[return-value]
    for verdict, way in (("faster", whole.low > 0), ("slower", whole.high < 0)):
        if way and verdicts <= {verdict, "same"}:
            return verdict, whole  # type: ignore[return-value]
    return "undecided", whole


def what_decides(races: Sequence[Race], seconds: float) -> str:
    """What would decide a check that is undecided, in words."""
    verdicts = Counter(race.verdict for race in races)
    if verdicts["faster"] and verdicts["slower"]:
        return "it is faster at some shapes and slower at others: check each alone"
    open_ones = [race for race in races if race.verdict == "undecided"]
    if not open_ones:
        return "it differs at some shapes only: check these alone"
    widest = max(open_ones, key=lambda race: race.gain.margin)
    if fewest := min((race.rounds for race in open_ones if race.is_few), default=0):
        return f"{fewest} rounds are too few: more seconds would tell"
    if widest.may_gain_outside and not widest.calls_alone:
        return "its calls alone are not told to be faster, and what it gains outside of them does not count"
    if widest.may_gain_outside:
        share = math.expm1(widest.outside.high)
        return f"as much as it gains may pass outside of its calls, {share:.1%} of their time: more seconds would tell"
    times = (widest.gain.margin / max(abs(widest.gain.centre), widest.outcome.needed / 2)) ** 2
    if times <= 1 or abs(widest.gain.centre) <= widest.outcome.needed:
        return f"the difference is near what two processes of one program differ by, {widest.outcome.needed:.1%}"
    return f"about {math.ceil(times * seconds)} s would decide, or fewer other programs on the machine"


def check(
    candidate: Any,
    against: Any,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    shapes: Sequence[str] = (),
    dtype: str | None = None,
    arrays: bool = False,
    device: str | None = None,
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
    seconds: float = 20.0,
    memory_bytes: int | None = None,
    wait: bool = True,
) -> Check:
    """Find out whether a candidate that nobody trusts is right, and then whether it is faster than a reference.

    The candidate runs in a process of its own, which holds neither the reference nor its results, the judge or the
    clock. Inputs of every call are new, and every result is judged. docs/reference/security.md says against what it
    holds.

    Args:
        candidate: `FILE:NAME` or `MODULE:NAME` as text, which this process never imports; or a function.
        against: The reference: such a text, a function, or an `Operation` with a reference.
        args: Positional arguments of a call, whose values inputs are drawn from; all tensors and arrays are renewed.
        kwargs: Keyword arguments. With `shapes` they stand beside the tensors of those.
        shapes: Shapes as they are typed: of a function one for each argument, `256x1024,1024`, of an operation its
            extents, `4096x4096`. Times are taken at each.
        dtype: The dtype of tensors made from `shapes`.
        arrays: Whether NumPy's arrays take the place of tensors.
        device: `cpu`, `cuda` or `cuda:N`; None follows the arguments, then the operation.
        tolerance: How far results may be from the right ones, as for `tune`.
        check: The caller's own comparison in place of the rule, as for `tune`.
        seconds: About how long it may take, beside the start of processes, the first call and one that is under way.
        memory_bytes: The most memory of the candidate's process; None is no limit.
        wait: Whether to wait while another process measures on the same GPU.

    Raises:
        TargetError: The reference cannot be loaded, raises, or gives another result each time; or candidate and
            reference are in one file, which this process would have to import.
        SettingsError, KernelTypeError, ShapeMismatchError, DeviceError: An argument does not fit.

    Cost: on a CPU about `seconds`; copies of the inputs and results of some calls.
    """
    seconds = float(SettingsError.checked("seconds", seconds))
    asked = _Asked(_target(candidate), _target(against), Arguments.given(args, kwargs), tuple(shapes), dtype, arrays)
    limits = TrialLimits(call_s=_FIRST_S + 3 * seconds, memory_bytes=memory_bytes)
    question = replace(asked.question(device, tolerance, as_callable("check", check)), limits=limits, seconds=seconds)
    with measuring(question.device, wait) as notes, _few_threads(question), Sides(question.side) as sides:
        answer = _answer(question, sides, asked.names)
        lacking = sides.by_name["candidate"].lacking
        return replace(answer, notes=(*notes(), *(f"not confined: {each}" for each in lacking)))


def _target(target: Any) -> Any:
    return TypedTarget(target) if isinstance(target, str) else target


def _files(text: str) -> set[Path]:
    """The files of the modules that a TARGET names: a kernel's, and that of the function after the `@`."""
    return {_file_of(part.rpartition(":")[0]) for part in text.split("@") if ":" in part}


def _file_of(place: str) -> Path:
    """The file of a FILE or a MODULE, links followed, as far as it can be told without an import."""
    if place.endswith(".py"):
        return Path(place).resolve()
    endings = (".py", "/__init__.py")
    files = (Path(folder, place.replace(".", "/") + ending) for folder in ("", *sys.path) for ending in endings)
    return next((file.resolve() for file in files if file.is_file()), Path(place))


@dataclass(frozen=True)
class _Asked:
    """Two targets, and the arguments or shapes that were given beside them."""

    candidate: Any
    against: Any
    given: Arguments
    shapes: tuple[str, ...]
    dtype: str | None
    arrays: bool

    @property
    def names(self) -> tuple[str, str]:
        """The candidate and the reference in words."""
        one, two = (
            each.text if isinstance(each, TypedTarget) else each.name if isinstance(each, Operation)
            else FunctionKernel(each).name for each in (self.candidate, self.against)
        )  # fmt: skip
        return one, two

    def question(self, device: str | None, tolerance: Any, check: Any) -> Question:
        """What is asked; the reference is loaded, and called once at each shape."""
        self._check_apart()
        loaded = self.against.called() if isinstance(self.against, TypedTarget) else self.against
        operation = loaded if isinstance(loaded, Operation) else None
        if operation is not None and operation.reference is None:
            message = f"{operation.name} has no reference, so that nothing says what is right"
            raise TargetError(message, hint="name a function as the reference, or give the operation one")
        place = next((str(each.device) for each in self.given.tensors()), None)
        place = "cpu" if self.arrays or any(map(Arguments.is_array, self.given.positional)) else place
        where = device_for(device or place, "any" if operation is None else operation.device, self.names[1])
        right: Any = loaded if operation is None else operation.reference
        forms = tuple(self._forms(loaded))
        rule = (None, None) if operation is None else (operation.tolerance, operation.check)
        seen = [_called(right, form, where) for form in forms if operation is None]
        largest = max((size for _, size in seen), default=0)
        return Question(
            candidate=self.candidate, against=self.against, right=right, forms=forms, device=where,
            outputs=() if operation is None else tuple(operation.kernel.outputs),
            written=seen[0][0] if seen else (), arena_bytes=arena_bytes(forms, largest, where),
            tolerance=Tolerance.of(tolerance if tolerance is not None else rule[0]), check=check or rule[1],
        )  # fmt: skip

    def _check_apart(self) -> None:
        one, two = (each.text if isinstance(each, TypedTarget) else "" for each in (self.candidate, self.against))
        shared = set() if one == two else _files(one) & _files(two)
        if shared:
            message = f"candidate and reference are both in {shared.pop()}, which would run beside the judge"
            raise TargetError(message, hint="move one of them to a file of its own")

    def _forms(self, loaded: Any) -> Iterator[Form]:
        """The forms of the inputs: one for each shape, or that of the given arguments."""
        problems = [TypedProblem.of(shape, self.dtype) for shape in self.shapes or (None,)]
        for problem in problems:
            if isinstance(loaded, Operation):
                yield Form.of_operation(loaded, loaded.full_shape(problem.shape), self.dtype)
            elif not self.shapes and (self.given.positional or self.given.keyword):
                yield Form.of_arguments(self.given, arrays=self.arrays)
            else:
                kernel = FunctionKernel(loaded)
                values = replace(problem, arguments=self.given.keyword).tensors(kernel, ())
                leading = list(takewhile(values.__contains__, kernel.parameter_names))
                rest = {name: value for name, value in values.items() if name not in leading}
                called = Arguments(tuple(values[name] for name in leading if name is not None), rest)
                yield Form.of_arguments(called, arrays=self.arrays)


def _called(right: Callable[..., Any], form: Form, device: str) -> tuple[tuple[str, ...], int]:
    """The names of the arguments that a function changes, and the bytes of these and of what it returns."""
    one, two = (Inputs(form, form.extents, 0).made(device) for _ in range(2))
    try:
        result = right(*one.positional, **one.keyword)
    except Exception as error:
        raise TargetError(f"the reference raised {type(error).__name__}: {error}", hint="call it to try") from error
    values = (*one.positional, *one.keyword.values()), (*two.positional, *two.keyword.values())
    written = {name: now for name, now, was in zip(plain_names(one), *values, strict=True) if not same_bits(now, was)}
    kept = Arguments.tensors_in((result, *written.values()), lambda each: hasattr(each, "nbytes"))
    return tuple(written), sum(each.nbytes for each in kept)


@contextmanager
def _few_threads(question: Question) -> Iterator[None]:
    """Inside, this process judges small results on a CPU in one thread, and says nothing of values nobody chose."""
    torch, elements = require("torch", "judging"), max(
        sum(spec.numel for spec in form.specs(form.extents)) for form in question.forms)  # fmt: skip
    before = torch.get_num_threads()
    if elements <= _FEW:
        torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, where the reference computes NaN
            yield
    finally:
        torch.set_num_threads(before)


def _answer(question: Question, sides: Sides, names: tuple[str, str]) -> Check:
    examination = Examination(question, sides)
    fault, races, needed = None, list[Race](), ""
    try:
        fault = examination.before_times()
        races = [] if fault else _races(question, examination, sides)
    except FaultError as error:
        fault = error.fault
    except OutOfTimeError as error:
        needed = str(error)
    verified = f"the reference in {examination.used}" if examination.used else "the reference as it is"
    facts: dict[str, Any] = {
        "names": names, "tried": examination.told, "refused": tuple(examination.refused[:_TOLD]), "verified": verified,
    }  # fmt: skip
    if fault is not None:
        return Check(verdict="wrong", fault=fault, **facts)
    if needed:
        return Check(verdict="undecided", needed=needed, **facts)
    pairs = list(zip(question.forms, races, strict=True))
    doubts = tuple(doubt for pair in pairs for doubt in suspicions(*pair, question.device))
    verdict, whole = over_all(races)
    return Check(
        verdict="suspect" if doubts else verdict, speedup=whole.ratio, suspicion=doubts,
        shapes=tuple(_shape_check(*pair) for pair in pairs),
        needed=what_decides(races, question.seconds) if verdict == "undecided" else "", **facts,
    )  # fmt: skip


def _shape_check(form: Form, race: Race) -> ShapeCheck:
    return ShapeCheck(
        shape=Inputs(form, form.extents, 0).shape, verdict=race.verdict, speedup=race.gain.ratio,
        needed=race.outcome.needed, reference_ms=race.reference_ms, candidate_ms=race.candidate_ms,
        calls=race.calls, rounds=race.rounds,
    )  # fmt: skip


def _races(question: Question, examination: Examination, sides: Sides) -> list[Race]:
    """A race at each shape; where one is decided, all once more with other processes, since each has its own times."""
    seconds = question.race_seconds / len(question.forms) / 2

    def race(form: Form) -> Race:
        asked = Inputs(form, form.extents, 0)
        return TimedRounds(sides, asked, question.device, question.arena_bytes, examination).run(seconds)

    sides.begin_twin()
    races = [race(form) for form in question.forms]
    if not any(each.verdict in ("faster", "slower") and not each.is_few for each in races):
        return races
    sides.change()
    return [each if each.is_few else each.joined(race(form)) for form, each in zip(question.forms, races, strict=True)]


def suspicions(form: Form, race: Race, device: str) -> Iterator[str]:
    """Why a candidate with right results is not to be believed."""
    if race.works_outside:
        share = math.expm1(race.outside.centre)
        yield f"as much as {share:.0%} of the time of its calls passes outside of them, beyond the reference's"
    slowest_ms = race.reference_ms * math.exp(-race.gain.low)  # by the interval: few rounds have no sure middle
    for what, least_ms in (
        ("to move its inputs and results once", _moving_ms(race.moved_bytes, device)),
        ("for the operations of the problem", _computing_ms(form, device)),
    ):
        if slowest_ms < _LEAST_SHARE * least_ms < race.reference_ms:
            yield f"it takes {race.candidate_ms:.3g} ms a call, and the device needs {least_ms:.3g} ms {what}"


def _moving_ms(count: int, device: str) -> float:
    """The least time in which this device reads and writes so many bytes in sum, where its caches may hold them."""
    torch, device_torch = require("torch", "measuring"), device
    source = torch.zeros(count // 2 + 1, dtype=torch.uint8, device=device_torch)
    room, times = torch.empty_like(source), []
    for _ in range(20):
        begin = time.perf_counter()
        room.copy_(source)
        Arguments((room,)).synchronize()
        times.append(time.perf_counter() - begin)
    threads = Host.affinity_cpus() if device == "cpu" else 1
    return min(times) * 1e3 / threads


def _computing_ms(form: Form, device: str) -> float:
    """The time that the known operations take at the device's peak; 0 where one of both is not known."""
    units = Roofline.of(probe(device), flops=form.flops, bytes_=0, dtype=form.dtype).units if form.flops else None
    return 0.0 if units is None else form.flops / (units.peak * 1e9)
