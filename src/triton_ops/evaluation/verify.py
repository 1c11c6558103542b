"""Verification: the results of a candidate are checked before it is timed, and once more afterwards.

Every candidate runs on private arguments: on two sets of data, and on a smaller problem with odd extents if the very
same compiled code serves that problem. Outputs are poisoned before a launch, with another pattern for each set; inputs
and the memory around outputs are checked after it. The right result is the reference's, or else that of the first
config that runs, which is the default. Inputs that this first config changes, without naming them as outputs, are its
effects: they are restored before every launch, and compared. A candidate that changes any other input is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from triton_ops.backend import Arguments, Executable, Kernel, value_copy
from triton_ops.evaluation.subject import ArgumentSet, Subject, synchronize
from triton_ops.evaluation.tolerance import difference
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Config

LAUNCH, ODD = "launch", "odd extents"
"""Steps that `Verifier.tell` is called with."""


@dataclass(eq=False)
class Case:
    """One check: arguments, a poison pattern, and the expected results.

    Attributes:
        argument_set: The arguments of the launch.
        pattern: The poison pattern of the outputs, 0 or 1.
        label: Stands before the description of a difference; empty for the tuned problem with its own data.
        expected: The right results; None until they are known.
        effects: For each input that a launch may change, by name, its right content afterwards.
        holds: Says whether a config is valid for the problem of this case.
    """

    argument_set: ArgumentSet
    pattern: int
    label: str = ""
    _: KW_ONLY
    expected: list[Any] | None = None
    effects: dict[str, Any] = field(default_factory=dict)
    holds: Callable[[Config], bool] = lambda _: True


@dataclass(kw_only=True)
class Verifier:
    """Checks executables of one kernel.

    Attributes:
        kernel: The kernel whose executables are checked.
        subject: The subject on which the executables are timed. Its argument set is the first case, and its `restores`
            is set if launches change what they read.
        others: Further cases, with other data.
        reference: Called with the arguments of a case for the right results; None takes the results of the base config.
        reduction: How many terms are added up for an element of the result.
        ragged: The case of odd extents; it is used only once the same code is known to serve it.
        base: The first config that ran, which defines the effects, and without a reference the right results.
        not_compared: Why results are not compared; empty if they are.
        tell: Called with the step that begins, `LAUNCH` or `ODD`; a failure during `ODD` is not the config's fault.
    """

    kernel: Kernel
    subject: Subject
    others: Sequence[Case] = ()
    reference: Callable[..., Any] | None = None
    reduction: int = 1
    ragged: Case | None = None
    base: Config | None = None
    not_compared: str = ""
    tell: Callable[[str], None] = lambda _: None
    _first: Executable | None = None

    def __post_init__(self) -> None:
        self.cases = [Case(self.subject.first, 0), *self.others]
        if self.reference is not None:
            for case in [*self.cases, *([self.ragged] if self.ragged else [])]:
                self._ask_reference(case)

    def wrong(self, executable: Executable) -> str | None:
        """Launch an executable on every case; how it is wrong, or None if it is right.

        The config of the first executable that is checked becomes the base.

        Raises:
            Exception: Whatever a launch raises.
        """
        if self.base is None:
            self._take_as_base(executable)
        for case in self.cases:
            self.tell(LAUNCH)
            if case.holds(executable.config) and (found := self._wrong_at(case, executable)) is not None:
                return f"{case.label}{found}{self._remark() if executable is self._first else ''}"
        return None

    def wrong_after_timing(self, executable: Executable, sets: Sequence[Arguments] = ()) -> str | None:
        """How the results that timed launches left behind are wrong; None if they are right.

        Args:
            executable: The executable that was launched.
            sets: Further argument sets that it was launched on.
        """
        first, given = self.cases[0], self.subject.first
        if (stray := given.stray_writes()) is not None:
            return stray
        for arguments in [given.arguments, *sets] if executable.outputs else []:
            written = [arguments.keyword[name] for name in executable.outputs]
            if (found := self._differs(first, written)) is not None:
                return f"after timing, {found}{self._remark()}"
        if not self.subject.restores and (changed := given.changed()):
            given.restore()
            return f"after timing, {_and(changed)} is changed, which the first config does not do"
        return None

    @property
    def against(self) -> str:
        """What results are compared with, in words, such as `the reference`."""
        if self.not_compared:
            return f"nothing: {self.not_compared}"
        if self.reference is not None:
            return "the reference"
        return "nothing yet" if self.base is None else f"config ({self.base}), since there is no reference"

    def _wrong_at(self, case: Case, executable: Executable) -> str | None:
        with self._ran(case, executable) as (results, changed):
            if (stray := case.argument_set.stray_writes()) is not None:
                return stray
            if strange := [name for name in changed if name not in case.effects]:
                return f"changes {_and(strange)}, which the first config does not do"
            found = self._differs(case, results)
            for name, tensor in case.argument_set.inputs(list(case.effects)).items():
                if found is None and not self.not_compared and self.reference is None:
                    other = difference(tensor, case.effects[name], case.argument_set.input_dtypes, self.reduction)
                    found = f"in {name}, {other}" if other else None
            return found

    def _differs(self, case: Case, results: list[Any]) -> str | None:
        if self.not_compared or case.expected is None:
            return None
        if len(results) != len(case.expected):
            return f"returns {len(results)} results instead of {len(case.expected)}"
        dtypes, pairs = case.argument_set.input_dtypes, zip(results, case.expected, strict=True)
        found = (difference(result, expected, dtypes, self.reduction) for result, expected in pairs)
        return next((part for part in found if part), None)

    @contextmanager
    def _ran(self, case: Case, executable: Executable) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """The results and the changed inputs of one launch; the inputs are restored at the end."""
        given = case.argument_set
        if self.subject.restores:
            given.restore()  # earlier timed launches have left the inputs changed
        given.poison(case.pattern)
        try:
            result = executable.launch(given.arguments)
            synchronize(given.arguments)
            changed = given.changed()
        except BaseException:
            given.restore()
            raise
        try:
            yield self._results(case, executable, result, changed), changed
        finally:
            if changed:
                given.restore()

    def _results(self, case: Case, executable: Executable, result: Any, changed: dict[str, Any]) -> list[Any]:
        if written := case.argument_set.written_by(executable):
            return written
        wanted = 0 if self.reference is None or case.expected is None else len(case.expected)
        if result is None and wanted == len(changed):
            return list(changed.values())  # an undeclared output is the result
        return as_list(result)

    def _take_as_base(self, executable: Executable) -> None:
        for case in [case for case in self.cases if case is not self.ragged]:
            self._learn(case, executable)
        if self.ragged is not None and self._same_code(self.ragged, executable):
            self.tell(ODD)
            self.cases = [case for case in self.cases if case is not self.ragged] + [self.ragged]
            try:
                self._learn(self.ragged, executable)
            except Exception:  # noqa: BLE001 - the kernel takes no such problem
                self.cases.remove(self.ragged)
                synchronize(self.ragged.argument_set.arguments)
            self.tell(LAUNCH)
        self.base, self._first = executable.config, executable

    def _remark(self) -> str:
        """A likely reason of wrong results: the kernel reads an output, which holds poison, or writes it in part."""
        case, held = self.cases[0], []
        if self._first is None or not case.argument_set.outputs:
            return ""
        for pattern in (0, 1):
            with self._ran(replace(case, pattern=pattern), self._first) as (results, _):
                held.append([value_copy(found) for found in results])
        pairs = zip(*held, strict=True)
        if not any(difference(a, b, case.argument_set.input_dtypes, self.reduction) for a, b in pairs):
            return ""
        names = " and ".join(self.kernel.outputs)
        return f"; what the first config leaves in {names} depends on what was there: a part is read, or not written"

    def _learn(self, case: Case, executable: Executable) -> None:
        """Launch the base on a case, and keep its effects, and without a reference its results, as the right ones."""
        with self._ran(case, executable) as (results, changed):
            case.effects = {name: value_copy(tensor) for name, tensor in changed.items()}
            self.subject.restores = self.subject.restores or bool(changed)
            if self.reference is None:
                case.expected = [value_copy(found) for found in results]
        if case is self.ragged or self.reference is None:
            again = self._wrong_at(case, executable)
            if again is not None and case is self.ragged:
                self.cases.remove(case)
            elif again is not None and case.expected is not None:
                self.not_compared = f"the first config's results differ from run to run ({again})"

    def _same_code(self, ragged: Case, executable: Executable) -> bool:
        """Whether the very code that is tuned serves the odd extents too; a check of other code would prove nothing."""
        if not ragged.holds(executable.config):
            return False
        try:
            other = self.kernel.compile(executable.config, ragged.argument_set.arguments)
        except Exception:  # noqa: BLE001 - the kernel takes no such problem
            return False
        return other.machine_code == executable.machine_code

    def _ask_reference(self, case: Case) -> None:
        assert self.reference is not None
        given, outputs = case.argument_set, self.kernel.outputs
        found = as_list(self.reference(*given.arguments.positional, **given.arguments.keyword))
        case.expected = [value_copy(item) for item in found]
        if given.changed():
            given.restore()
        if outputs and len(outputs) != len(found):
            raise KernelTypeError(
                f"the reference returns {len(found)} results, the kernel writes {len(outputs)}",
                hint="let the reference return the outputs, in the order in which the kernel names them",
            )


def as_list(result: Any) -> list[Any]:
    """The results of a call as a list, also where the call returns a single one."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _and(names: Any) -> str:
    return " and ".join(names)
