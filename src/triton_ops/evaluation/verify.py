"""Verification: the results of a candidate are checked before it is timed, and once more afterwards.

Every candidate runs on private arguments: on two sets of data, on whole numbers where the problem is exact on them, and
on a smaller problem with odd extents if the very same compiled code serves that problem. Outputs are poisoned before a
launch, with another pattern for each set; inputs and the memory around outputs are checked after it. The right result
is the reference's, or else that of the default config. Inputs that the first config changes, without naming them as
outputs, are its effects: they are restored before every launch, and compared. A candidate that changes any other input
is wrong. So is a compiled kernel without atomics that gives other bits when it is launched again.

A case is left out where the arguments are the caller's, since only the caller knows which values an index, a mask or a
length may have; and where memory is short.

Triton specialises code on whether an integer is 1 or a multiple of 16. An extent that is a multiple of 16 is therefore
replaced by a small odd multiple of 16, which no tile of 32 or more divides, and any other extent by a small odd number.
An extent is kept where the operation refuses the new one, or where an integer that follows from it, such as the number
of scales in a row, would be specialised otherwise, or a flag would be another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from triton_ops import values
from triton_ops.backend import (
    Arguments,
    ArgumentSet,
    Executable,
    Kernel,
    Operation,
    PreparedCall,
    Protection,
    TritonProcess,
)
from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import ExpectedResults, Standard, as_list, difference, expected, kept, same_bits
from triton_ops.evaluation.golden import Referee
from triton_ops.evaluation.judges import Difference
from triton_ops.evaluation.questions import StationStep
from triton_ops.evaluation.reference_results import Dissent
from triton_ops.exceptions import TritonKernelError
from triton_ops.request import KernelProblem
from triton_ops.space import Config
from triton_ops.timing import Launch
from triton_ops.values import KNOWN_MULTIPLE, IntegerClass, Problem, TensorSpec, Trial

_Sets: TypeAlias = Callable[[Iterable[Any]], int]


@dataclass
class Subject:
    """The argument set on which executables are launched and checked, and further sets of equal content for timing.

    `sets` says through how many of them launches rotate, given the tensors of one; it is called when the first launch
    is timed. Where launches change what they read, `restores` is set: arguments are restored before every launch, and
    there is a single set. Launches are timed in turn on the subjects of the problem's other `contents`, which share
    with their `base` all arguments but those named in `own`; `labelled` are such a content's label
    and weight. `value` is what the times on all of them count as; the first are the units of later ones.
    """

    first: ArgumentSet
    sets: _Sets = lambda _: 1
    restores: bool = False
    contents: Sequence[Subject] = ()
    labelled: Sequence[Any] = ("", 0.0)
    base: Subject | None = None
    own: Collection[str] = ()
    value: Callable[[Sequence[float]], float] = lambda times_ms: times_ms[0]
    _further: list[Arguments] | None = None
    _with_reset: set[Config] = field(default_factory=set)  # configs before whose launches something must be done

    @classmethod
    def on(cls, arguments: Arguments, sets: _Sets, restores: bool | None = None) -> Subject:
        """The subject on arguments that nothing else may write; where `restores` is None, it is to be found out."""
        return cls(ArgumentSet(arguments, protected=restores is not False), sets, bool(restores))

    @classmethod
    def over(
        cls, contents: values.Contents, call: Arguments, outputs: Sequence[str], sets: _Sets, seed: int
    ) -> Subject:
        """The subject on arguments with the first of some contents, beside subjects of the others."""
        subjects: list[Subject] = []
        for *labelled, tensors in list(contents.drawn(call.keyword, seed)):
            base = subjects[0] if subjects else None
            own = {*tensors, *outputs, *(() if base is None else base.own)}  # whose values differ from those of `base`
            first = ArgumentSet(Arguments(call.positional, {**call.keyword, **tensors}), outputs)
            subjects.append(cls(first, sets, labelled=labelled, base=base, own=own))
        subjects[0].contents, subjects[0].value = subjects[1:], partial(contents.value, [])
        return subjects[0]

    @property
    def arguments(self) -> Arguments:
        """The arguments of the first set."""
        return self.first.arguments

    def launch(self, executable: Executable, outputs: Sequence[object] | None = None) -> Launch:
        """A launch that is ready to be timed, of the executable's outputs for None; it may lack memory."""
        call = executable.bind(self.arguments)
        if outputs is None:
            outputs = tuple(Arguments(tuple(self.first.written_by(executable))).tensors())
        if (reset := self._reset(call)) is not None:
            self._with_reset.add(executable.config)
            launch = Launch(call.run if isinstance(call, PreparedCall) else call, reset, outputs=tuple(outputs))
        else:
            others = tuple(executable.bind(arguments) for arguments in self.further())
            launch = Launch(call, None, others, tuple(outputs), again=lambda: executable.bind(self.arguments))
        for each in self.contents:
            each.restores = self.restores
        contents = tuple(each.launch(executable) for each in self.contents)
        return replace(launch, contents=contents, value=self.value) if contents else launch

    def _reset(self, call: Callable[[], object]) -> Callable[[], None] | None:
        """The work before every launch, outside the timed region; None if there is none."""
        if not isinstance(call, PreparedCall):
            return self.first.restore if self.restores else None
        if not self.restores:
            return call.prepare

        def reset() -> None:
            self.first.restore()
            call.prepare()

        return reset

    def further(self, executable: Executable | None = None) -> list[Arguments]:
        """The argument sets after the first; none where work, as to restore inputs, precedes each launch."""
        if self.restores or (executable is not None and executable.config in self._with_reset):
            return []
        if self._further is None and self.base is not None:
            own = Arguments(keyword={name: self.arguments.keyword[name] for name in self.own})
            self._further = [
                Arguments(base.positional, {**base.keyword, **Protection.private_copy(own).keyword})
                for base in self.base.further()
            ]
        if self._further is None:
            count = self.sets(self.arguments.tensors()) - 1
            self._further = [Protection.private_copy(self.arguments) for _ in range(count)]
        return self._further


_OTHER_BITS = "launched again on the same inputs, it gives other bits: it has a race, or reads what it has not written"


@dataclass(eq=False)
class Case:
    """One check: arguments, a poison pattern, and the expected results.

    These are None until they are known. `label` stands before the description of a difference; empty for the tuned
    problem with its own data. With `whole` numbers as inputs, the case is left out unless its results are exact.
    `effects` has for each input that a launch may change its right content afterwards. `holds` says whether a config is
    valid for the problem of this case. Launches are `timed` on a further content of the problem.
    """

    argument_set: ArgumentSet
    pattern: int
    label: str = ""
    _: KW_ONLY
    whole: bool = False
    expected: ExpectedResults | None = None
    effects: dict[str, Any] = field(default_factory=dict)
    holds: Callable[[Config], bool] = lambda _: True
    timed: bool = False


@dataclass(kw_only=True)
class Verifier:
    """Checks executables of one kernel.

    What the reference raises is raised, and a `TritonKernelError` if its results do not fit. The argument set of
    `subject`, on which executables are timed, is the first case, and its `restores` is set if launches change what they
    read. `ragged` is the case of odd extents, used only once the same code is known to serve it. Where there is no
    `reference`, the results of the default config `trusted` are the right ones; None, or a config that does not run,
    leaves that to `base`, the first config that ran, which defines the effects too. `not_compared` says why results are
    not compared. `tell` is called with the `StationStep` that begins; a failure during `ODD` or `BASELINE` is not the
    candidate's fault.
    """

    kernel: Kernel
    subject: Subject
    others: Sequence[Case] = ()
    reference: Callable[..., Any] | None = None
    standard: Standard = field(default_factory=Standard)
    ragged: Case | None = None
    trusted: Config | None = None
    base: Config | None = None
    not_compared: str = ""
    tell: Callable[[str], None] = lambda _: None
    _step: str = StationStep.LAUNCH  # to which launches belong
    _first: Executable | None = None
    _last: tuple[Executable, list[Any]] | None = None
    _varies: str = ""
    _learned: Executable | None = None  # what results were learned from, if a second launch gave each of them again

    def __post_init__(self) -> None:
        contents = [(each.first, *each.labelled) for each in self.subject.contents]
        timed = [Case(first, 0, f"on {label}, ", timed=True) for first, label, weight in contents if weight]
        self.cases = [Case(self.subject.first, 0), *self.others, *timed]
        self._referee = None if self.reference is None else Referee(self.reference, self.kernel.outputs)
        if self._referee is not None:
            for case in [*self.cases, *([self.ragged] if self.ragged else [])]:
                self._ask(self._referee, case)
        doubted = self._referee is None or self._referee.unstable
        self._dissent = Dissent(self.standard.precision, math.inf if doubted else Trial.LITTLE)

    def wrong(self, executable: Executable) -> Difference | None:
        """Launch an executable on every case; its first difference, or None if it is right."""
        if self.base is None:
            self._take_base(executable)
        learned, self._learned = self._learned, None
        for case in self.cases if learned is not executable else ():
            if case.holds(executable.config) and (error := self._wrong_at(case, executable)) is not None:
                remark = self._remark() if executable.config == self.base else ""
                return error.suspecting(executable.suspect(), f"{case.label}{error.text}{remark}")
        self._dissent.agrees(executable.config)
        return None

    def wrong_after_timing(
        self, executable: Executable, sets: Sequence[Arguments] = (), *, last: bool = False, again: bool = True
    ) -> Difference | None:
        """The difference of the results that timed launches left behind; None if they are right.

        `sets` are further argument sets that were launched on. Unless the `last` launch on every set was this
        executable's, and not that of what it was measured beside, it is launched `again`, where its results must have
        equal bits.
        """
        error = self._wrong_after_timing(executable, sets, last, again)
        return None if error is None else error.suspecting(executable.suspect(), error.text)

    def _wrong_after_timing(
        self, executable: Executable, sets: Sequence[Arguments], last: bool, again: bool
    ) -> Difference | None:
        first, argument_set = self.cases[0], self.subject.first
        if (stray := argument_set.stray_writes()) is not None:
            return Difference(stray)
        for arguments in [argument_set.arguments, *sets] if executable.outputs else []:
            results = [arguments.result(name) for name in executable.outputs]
            if self._is_last(first, executable, results):
                continue
            error = self._judged(first, executable, results) or (
                self._other_bits(executable, results) if last else None
            )
            if error is not None:
                return replace(error, text=f"after timing, {error.text}{self._remark()}")
        for case in [case for case in self.cases if case.timed] if executable.outputs else []:
            results, stray = case.argument_set.written_by(executable), case.argument_set.stray_writes()
            error = Difference(stray) if stray else self._judged(case, executable, results)
            if error is not None:
                return replace(error, text=f"after timing, {case.label}{error.text}")
        if not self.subject.restores and (changes := argument_set.changed()):
            argument_set.restore()
            return Difference(f"after timing, {' and '.join(changes)} is changed, which the first config does not do")
        return self._wrong_at(first, executable) if again and not last and self._bitwise(executable) else None

    @property
    def against(self) -> str:
        """The thing that results are compared with, in words, such as `the reference in float64`."""
        if self.not_compared:
            return f"nothing: {self.not_compared}"
        if (first := self.cases[0]).expected is not None and first.expected.empty and not first.effects:
            return "nothing: the results hold nothing that can be compared"
        if self._referee is not None:
            used = self._referee.used
            way = f" in {used}" if used and self.standard.by_rule else ""
            return f"the reference{way}{self._allowance(sums=False)}{self.standard.words}"
        if self.base is None:
            return "nothing yet"
        failed = ", as the default config failed" if self.trusted not in (None, self.base) else ""
        allowance = self._allowance(sums=True)
        return f"config ({self.base}), since there is no reference{failed}{allowance}{self.standard.words}"

    def _allowance(self, sums: bool) -> str:
        """The parts of the code that round to 16 bits, and are allowed for, in words; empty for none."""
        first, expectation = self._first if self.standard.by_rule else None, self.cases[0].expected
        parts = {"sums": sums and first and first.narrow_sums, "steps": expectation and expectation.steps}
        words = " and ".join(name for name, narrow in parts.items() if narrow)
        return f", allowing for its {words} in 16 bits" if words else ""

    @property
    def suspicion(self) -> str:
        """The reason why the reference rather than every config is wrong; empty if nothing says so."""
        if self._referee is None or not self.standard.by_rule or not (words := self._dissent.of_reference()):
            return ""
        return f"{words}, since {self._referee.why_own}" if self._referee.unstable else words

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the verdicts: what the reference could not do, and what most configs say of the default."""
        judge = self._referee if self.standard.by_rule else None
        why, rounded = ("", "") if judge is None else (judge.why_own, judge.rounded)
        own = f"the reference is its own judge, with twice the rounding allowed: {why}" if why else ""
        default = self._dissent.of_default(self.base) if self._referee is None else ""
        opaque, expectation = "", self.cases[0].expected
        if expectation is not None and expectation.opaque:
            types = " and ".join(expectation.opaque)
            opaque = f"values of type {types} are not compared, since the type defines no equality: give a check"
        return tuple(filter(None, (self.suspicion, own, rounded, opaque, self._varies, default)))

    def _wrong_at(self, case: Case, executable: Executable) -> Difference | None:
        if case.expected is not None:
            case.expected.prepare(bool(executable.tf32), bool(executable.narrow_steps))
        with self._ran(case, executable) as (results, changes):
            if (stray := case.argument_set.stray_writes()) is not None:
                return Difference(stray)
            if strange := [name for name in changes if name not in case.effects]:
                return Difference(f"changes {' and '.join(strange)}, which the first config does not do")
            same = self._is_last(case, executable, results)
            error = None if same else self._judged(case, executable, results)
            for name, tensor in case.argument_set.inputs(list(case.effects)).items():
                if error is None and not self.not_compared and self.reference is None and self.standard.check is None:
                    other = difference(tensor, case.effects[name])
                    error = replace(other, text=f"in {name}, {other.text}") if other else None
            if error is None and case is self.cases[0]:
                error = None if same else self._other_bits(executable, results)
            elif error is not None and case is self.cases[0]:
                self._dissent.differs(executable.config, results, error)
            return error

    def _judged(self, case: Case, executable: Executable, results: Sequence[object]) -> Difference | None:
        if self.not_compared or case.expected is None:
            return None
        case.expected.prepare(bool(executable.tf32), bool(executable.narrow_steps))
        return case.expected.difference(results, bool(executable.tf32))

    def _is_last(self, case: Case, executable: Executable, results: Sequence[object]) -> bool:
        """True if results have the bits of the executable's last right ones, which spares a costly judgement."""
        if self.not_compared or case.expected is not self.cases[0].expected:
            return False
        return self._last is not None and self._last[0] is executable and same_bits(results, self._last[1])

    def _other_bits(self, executable: Executable, results: Sequence[object]) -> Difference | None:
        """The fault of right results that do not have the bits of the executable's first ones; those are kept."""
        if self._last is None or self._last[0] is not executable:
            self._last = executable, [kept(each) for each in results]
            return None
        if self.not_compared:
            return None
        if self._bitwise(executable):
            return Difference(_OTHER_BITS)
        self._varies = self._varies or (
            f"equal launches give different bits, within what is allowed, first seen with config ({executable.config})"
        )
        return None

    def _bitwise(self, executable: Executable) -> bool:
        demand = self.standard.tolerance.bitwise
        return demand or (demand is None and executable.atomics is False)

    @contextmanager
    def _ran(self, case: Case, executable: Executable) -> Iterator[tuple[list[object], dict[str, object]]]:
        """The results and the changed inputs of one launch; the inputs are restored at the end."""
        argument_set = case.argument_set
        self.tell(self._step)  # each launch is a step, since one may take a minute
        if self.subject.restores:
            argument_set.restore()  # earlier timed launches have left the inputs changed
        argument_set.poison(case.pattern)
        try:
            result = executable.launch(argument_set.arguments)
            argument_set.arguments.synchronize()
            changes = argument_set.changed()
        except BaseException:
            argument_set.restore()
            raise
        try:
            yield self._results(case, executable, result, changes), changes
        finally:
            if changes:
                argument_set.restore()

    def _results(
        self, case: Case, executable: Executable, result: object, changes: Mapping[str, object]
    ) -> list[object]:
        if outputs := case.argument_set.written_by(executable):
            return outputs
        count = 0 if self.reference is None or case.expected is None else case.expected.count
        if result is None and count == len(changes):
            return list(changes.values())  # an undeclared output is the result
        return as_list(result)

    def _take_base(self, executable: Executable) -> None:
        """Learn effects, and without a reference right results, from the default config, or else from this one."""
        if self.reference is None and self.trusted is not None and self.trusted != executable.config:
            self._step = StationStep.BASELINE
            self.tell(self._step)
            try:
                self._learn_all(self.kernel.compile(self.trusted, self.subject.arguments))
            except Exception:  # noqa: BLE001 - its own trial holds the reason; the first that runs is taken instead
                self.subject.first.restore()
            else:
                return
            finally:
                self._step = StationStep.LAUNCH
        self._learn_all(executable)

    def _learn_all(self, executable: Executable) -> None:
        self._learned = executable if self.reference is None else None
        for case in [case for case in self.cases if case is not self.ragged]:
            self._learn(case, executable)
        if self.ragged is not None and self._same_code(self.ragged, executable):
            self._step = StationStep.ODD
            self.cases = [case for case in self.cases if case is not self.ragged] + [self.ragged]
            try:
                self._learn(self.ragged, executable)
            except Exception:  # noqa: BLE001 - the kernel takes no such problem
                self.cases.remove(self.ragged)
                self.ragged.argument_set.arguments.synchronize()
            self._step = StationStep.LAUNCH
        self.base, self._first = executable.config, executable

    def _remark(self) -> str:
        """A likely reason of wrong results: the kernel reads an output, which holds poison, or writes it in part."""
        case, leftovers = self.cases[0], []
        if self._first is None or not case.argument_set.outputs:
            return ""
        for pattern in (0, 1):
            with self._ran(replace(case, pattern=pattern), self._first) as (results, _):
                leftovers.append([kept(each) for each in results])
        criteria = Standard(precision=replace(self.standard.precision, blur=2.0))
        if difference(leftovers[1], expected(leftovers[0], None, None, criteria)) is None:
            return ""
        names = " and ".join(self.kernel.outputs)
        return f"; what the first config leaves in {names} depends on what was there: a part is read, or not written"

    def _learn(self, case: Case, executable: Executable) -> None:
        """Launch the base on a case, and keep its effects, and without a reference its results, as the right ones."""
        if case is not self.cases[0] and case.argument_set is self.cases[0].argument_set:
            self._learn_again(case, executable)
            return
        with self._ran(case, executable) as (results, changes):
            own = replace(
                self.standard.precision, blur=2.0, tf32=bool(executable.tf32),
                narrow_sums=bool(executable.narrow_sums), narrow_steps=bool(executable.narrow_steps),
            )  # fmt: skip
            standard = replace(self.standard, precision=own)
            case.effects = {name: expected(kept(tensor), None, None, standard) for name, tensor in changes.items()}
            self.subject.restores = self.subject.restores or bool(changes)
            if self.reference is None:
                case.expected = ExpectedResults.of_own(replace(self.standard, precision=own), results, whole=case.whole)
        self._keep_if_repeatable(case, executable)

    def _learn_again(self, case: Case, executable: Executable) -> None:
        """Launch the base with another poison on arguments whose effects and results are known."""
        first = self.cases[0]
        case.effects = first.effects
        if self.reference is not None:
            return
        case.expected = first.expected
        again = None if self.not_compared else self._wrong_at(case, executable)
        self._learned = None if again is not None else self._learned
        if again is not None and not case.argument_set.outputs:  # else the poison that was there may explain it
            self.not_compared = _varying(again)

    def _keep_if_repeatable(self, case: Case, executable: Executable) -> None:
        """Leave a case out that proves nothing; without a reference, launch once more to see whether results repeat."""
        if case.whole and case.expected is not None and not case.expected.exact:
            self.cases.remove(case)
        elif case is self.ragged or self.reference is None:
            again = self._wrong_at(case, executable)
            self._learned = None if again is not None else self._learned
            if again is not None and case is self.ragged:
                self.cases.remove(case)
            elif again is not None and case.expected is not None:
                self.not_compared = _varying(again)

    def _same_code(self, ragged: Case, executable: Executable) -> bool:
        """True if the very code that is tuned serves the odd extents too; a check of other code would prove nothing.

        Extents that need another compilation are not taken, even if the code turns out equal: it would be one more for
        each config, while the GPU waits. On an H200 that was 0.27 s of the 0.28 s of a trial of one kernel.
        """
        if not ragged.holds(executable.config):
            return False
        try:
            with TritonProcess.nothing_compiled():
                other = self.kernel.compile(executable.config, ragged.argument_set.arguments)
        except Exception:  # noqa: BLE001 - the kernel takes no such problem, or would be compiled for it
            return False
        if executable.compilation is not None:
            return other.compilation == executable.compilation
        return other.machine_code == executable.machine_code

    def _ask(self, referee: Referee, case: Case) -> None:
        argument_set = case.argument_set
        if case is not self.cases[0] and argument_set is self.cases[0].argument_set:
            case.expected = self.cases[0].expected
            return
        answers = referee.answers(argument_set, self.standard.precision, self.standard.check)
        outputs = [argument_set.arguments.keyword.get(name) for name in self.kernel.outputs]
        cut = partial(referee.cut, argument_set)
        case.expected = ExpectedResults(self.standard, answers, outputs, cut=cut, whole=case.whole)
        if case.whole and not case.expected.exact:
            self.cases.remove(case)


def _varying(difference: Difference) -> str:
    return f"the first config's results differ from run to run ({difference.text})"


_MOST = (65, 127)  # steps: 1,040 is more than four of the widest common tiles, 256; 2,032 makes 16 groups of 128
_ODD = 1031  # a prime


def ragged_shape(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> tuple[int, ...] | None:
    """`shape` with as many odd extents as the operation takes, one after another; None if it takes none."""
    if (kinds := _kinds(operation, shape, dtype)) is None:
        return None
    ragged = shape
    for axis, extent in enumerate(shape):
        candidates = ((*ragged[:axis], odd, *ragged[axis + 1 :]) for odd in _odd(extent) if odd != extent)
        ragged = next((candidate for candidate in candidates if _kinds(operation, candidate, dtype) == kinds), ragged)
    return None if ragged == shape else ragged


def _odd(extent: int) -> tuple[int, ...]:
    if extent <= KNOWN_MULTIPLE:
        return (extent,)
    if extent % KNOWN_MULTIPLE:
        return (min(extent, _ODD),)
    multiples = (min(extent // KNOWN_MULTIPLE, most) for most in _MOST)
    return tuple(KNOWN_MULTIPLE * (steps - 1 + steps % 2) for steps in multiples)


def _kinds(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> tuple[object, ...] | None:
    """Triton's specialisations of the values of a problem; None if the operation refuses the shape."""
    try:
        problem = operation.problem(shape, dtype)
    except (TritonKernelError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError):
        return None  # an operation may refuse a shape by any of these errors
    return tuple(_kind(value) for _, value in problem.arguments)


def _kind(value: object) -> object:
    """Triton's specialisation of a value: of an integer its alignment; a flag or a name is a constant of its own."""
    if isinstance(value, (bool, str)):
        return value
    return replace(IntegerClass.of(value), is_wide=False) if isinstance(value, int) else None


_COPIES_OF_A_SET = 5  # the arguments, the copies that restore them, and golden results, of up to thrice the bytes
_MEMORY_SHARE = 0.25  # of the free memory: a further set of data may take so much


def further_cases(first: ArgumentSet, problem: KernelProblem) -> list[Case]:
    """Cases of the tuned shape with other data: a second draw, without outliers, and whole numbers.

    An error that shows without outliers may fade beside them, and the other way round. Without a second draw, as for
    the caller's own arguments, the first data serves again, with outputs that hold another poison.
    """
    if (source := problem.generated) is None:
        return [Case(first, 1)]
    outputs = source.operation.kernel.outputs
    need = _COPIES_OF_A_SET * sum(tensor.untyped_storage().nbytes() for tensor in first.arguments.tensors())
    if need > _MEMORY_SHARE * TorchDevice(problem.device_name).free_bytes:
        return [Case(first, 1)]
    even = _refilled(source.problem, ("outliers",), "uniform") or source.problem
    cases = [Case(ArgumentSet(replace(source, problem=even, seed=source.seed + 1)(), outputs), 1)]
    # Sums of products of -1, 0 and 1 are so small that tensor cores of every precision add them without rounding.
    whole = _refilled(source.problem, ("uniform", "outliers"), "whole")
    if whole is not None and need <= _MEMORY_SHARE * TorchDevice(problem.device_name).free_bytes:
        arguments = replace(source, problem=whole, seed=source.seed + 2)()
        cases.append(Case(ArgumentSet(arguments, outputs), 0, "on whole numbers, ", whole=True))
    return cases


def _refilled(problem: Problem, fills: Sequence[str], new: object) -> Problem | None:
    """The problem with floats that are drawn in one of these ways drawn in a new one; None if there are none."""
    drawn = {
        name: replace(argument, fill=new)
        for name, argument in problem.arguments
        if isinstance(argument, TensorSpec)
        and isinstance(argument.fill, str)
        and argument.fill in fills
        and "float" in argument.dtype
    }
    return replace(problem, arguments=tuple({**dict(problem.arguments), **drawn}.items())) if drawn else None


def odd_case(tuned: KernelProblem) -> Case | None:
    """The case of odd extents, for configs that the operation's space holds there; None if it has none."""
    if (source := tuned.generated) is None:
        return None
    operation: Operation = source.operation
    if (odd := ragged_shape(operation, source.full_shape, source.dtype)) is None:
        return None
    try:
        problem = operation.problem(odd, source.dtype)
        space = operation.space_for(problem)
        argument_set = ArgumentSet(replace(source, problem=problem)(), operation.kernel.outputs)
    except Exception:  # noqa: BLE001 - the operation refuses the shape only when it makes its space or arguments
        return None
    return Case(argument_set, 0, f"at {'x'.join(map(str, odd))}, ", holds=lambda config: space.why_not(config) is None)
