"""Verification: the results of a candidate are checked before it is timed, and once more afterwards.

Every candidate runs on private arguments: on two sets of data, on whole numbers where the problem is exact on them, and
on a smaller problem with odd extents if the very same compiled code serves that problem. Outputs are poisoned before a
launch, with another pattern for each set; inputs and the memory around outputs are checked after it. The right result
is the reference's, or else that of the default config. Inputs that the first config changes, without naming them as
outputs, are its effects: they are restored before every launch, and compared. A candidate that changes any other input
is wrong. So is a compiled kernel without atomics that gives other bits when it is launched again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from triton_ops.backend import (
    Arguments,
    Executable,
    Kernel,
    TritonProcess,
)
from triton_ops.evaluation.cases import Case, Subject
from triton_ops.evaluation.expected import (
    ExpectedResults,
    Standard,
    as_list,
    difference,
    expected,
    kept,
    same_bits,
    tell_wrong_ones,
)
from triton_ops.evaluation.golden import Referee
from triton_ops.evaluation.judges import Difference
from triton_ops.evaluation.questions import StationStep
from triton_ops.evaluation.reference_results import Dissent
from triton_ops.space import Config
from triton_ops.values import Trial

_OTHER_BITS = "launched again on the same inputs, it gives other bits: it has a race, or reads what it has not written"


@dataclass(kw_only=True)
class Verifier:
    """Checks executables of one kernel.

    What the reference raises is raised, and a `TritonKernelError` if its results do not fit. The argument set of
    `subject`, on which executables are timed, is the first case, and its `restores` is set if launches change what they
    read. `ragged` is the case of odd extents, used only once the same code is known to serve it. Where there is no
    `reference`, the results of the default config `trusted` are the right ones; None, or a config that does not run,
    leaves that to `base`, the first config that ran, which defines the effects too. `not_compared` says why results are
    not compared. What is right must be so for the verifier `same_bits` too, which compares bits with those of
    `trusted`. `tell` is called with the `StationStep` that begins; a failure during `ODD` or `BASELINE` is not the
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
    same_bits: Verifier | None = None
    tell: Callable[[str], None] = lambda _: None
    _step: str = StationStep.LAUNCH  # to which launches belong
    _first: Executable | None = None
    _last: tuple[Executable, list[Any]] | None = None
    _varies: str = ""
    _tells: bool = False  # whether the results of some case would be other ones where a config is wrong
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
        error = self._wrong(executable)
        return self._of_bits(lambda it: it.wrong(executable)) if error is None else error

    def _of_bits(self, judge: Callable[[Verifier], Difference | None]) -> Difference | None:
        if self.same_bits is None or (error := judge(self.same_bits)) is None:
            return None
        return replace(error, text=f"its bits are not those of config ({self.trusted}): {error.text}")

    def _wrong(self, executable: Executable) -> Difference | None:
        if self.base is None:
            self._take_base(executable)
        if self.standard.bits and (self.not_compared or self.base != self.trusted):
            return Difference(self.not_compared or "that config does not run")
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
        if error is not None:
            return error.suspecting(executable.suspect(), error.text)
        return self._of_bits(lambda it: it.wrong_after_timing(executable, sets, last=last, again=again))

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
        return self._against + (f", and bit by bit with config ({self.trusted})" if self.same_bits else "")

    @property
    def _against(self) -> str:
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
            expectation, self._last = self.cases[0].expected, None  # the last ones may be large
            with suppress(MemoryError):  # of a tune whose memory is limited: bits are compared less often
                copies = [kept(each) for each in results] if expectation is None else expectation.copies(results)
                self._last = executable, copies
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
        # Else a config that leaves a part unwritten would show what another one left there: triton-lang/triton#9230.
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
        if self.reference is None and not self._tells:
            self.not_compared = self.not_compared or "no number in the first config's results is finite"

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
                self._tells = self._tells or tell_wrong_ones(results)
                case.expected = ExpectedResults.of_own(standard, results, whole=case.whole)
        del results, changes  # they may be large
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
