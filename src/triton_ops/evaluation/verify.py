"""Whether a candidate computes the right thing, found out before it is timed, and once more after.

Every candidate runs on private arguments: on two sets of data, and on a smaller problem of odd extents where the very
same compiled code serves it. Outputs are poisoned before, differently for each set; the memory around them and the
inputs are checked after. What counts as right is the reference's result, or that of the first config that runs, which
is the default. What that first config changes among its inputs is its effect, undeclared: it is put back before every
launch, and compared. What only another candidate changes is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Arguments, Artifact, Kernel, Protection, is_tensor, place_of, with_canaries
from triton_ops.evaluation.tolerance import difference
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Config

LAUNCH, ODD = "launch", "odd extents"
"""What is going on, as `Verifier.tell` is told it."""


class Bed:
    """Private arguments with everything that tells what a launch did to them.

    Args:
        arguments: Private; their outputs get zones around them.
        outputs: Names of the arguments that the kernel writes.
    """

    def __init__(self, arguments: Arguments, outputs: Sequence[str]) -> None:
        self.arguments, self.canaries = with_canaries(arguments, outputs)
        self.outputs = [t for name in outputs for t in Arguments((self.arguments.keyword.get(name),)).tensors()]
        written = {place_of(tensor) for tensor in self.outputs}
        self._inputs = {name: t for name, t in _named(self.arguments) if place_of(t) not in written}
        self._before = Protection(self._inputs.values())
        self.written = [self.arguments.keyword[name] for name in outputs]

    @property
    def dtypes(self) -> list[str]:
        """Dtypes of the inputs."""
        return [str(tensor.dtype).removeprefix("torch.") for tensor in self._inputs.values()]

    def poison(self, pattern: int) -> None:
        """Fill the outputs with what no right result holds."""
        for tensor in self.outputs:
            poison(tensor, pattern)

    def changed(self) -> dict[str, Any]:
        """The inputs that are not as they were."""
        places = self._before.differing()
        return {name: tensor for name, tensor in self._inputs.items() if place_of(tensor) in places}

    def inputs(self, names: Sequence[str]) -> dict[str, Any]:
        """Inputs by name."""
        return {name: self._inputs[name] for name in names}

    def restore(self) -> None:
        """Put the inputs back."""
        self._before.restore()


@dataclass(eq=False)
class Case:
    """One check: a bed, a poison, and what must come out.

    Attributes:
        bed: Where it runs.
        pattern: Which poison.
        label: How a difference there is introduced; empty for the tuned problem with its own data.
        expected: The right results; None until they are known.
        effects: What the inputs must hold afterwards, by name, where they may be changed.
        holds: Tells whether a config is valid for this case's problem.
    """

    bed: Bed
    pattern: int
    label: str = ""
    expected: list[Any] | None = None
    effects: dict[str, Any] = field(default_factory=dict)
    holds: Callable[[Config], bool] = lambda _: True


@dataclass
class Verifier:
    """Checks configs of one kernel.

    Attributes:
        kernel: What is checked.
        cases: The first one is the tuned problem with the data that candidates are timed on.
        reference: Called with a case's arguments for the right results; None takes those of the base.
        reduction: How many terms are added up for an element of the result.
        ragged: The case of odd extents, not among `cases` until the same code is known to serve it.
        base: The first config that ran: what it changes among its inputs is its effect.
        restores: Whether launches change their inputs, so that these must be put back.
        silent: Why results are not compared; empty if they are.
        tell: Told what is going on where a failure is not the config's.
    """

    kernel: Kernel
    cases: list[Case]
    reference: Callable[..., Any] | None = None
    reduction: int = 1
    ragged: Case | None = None
    base: Config | None = None
    restores: bool = False
    silent: str = ""
    tell: Callable[[str], None] = lambda _: None
    _first: Artifact | None = None

    def __post_init__(self) -> None:
        if self.reference is not None:
            for case in [*self.cases, *([self.ragged] if self.ragged else [])]:
                self._ask_reference(case)

    def wrong(self, artifact: Artifact) -> str | None:
        """Run a config on every case; None if all is right, else how it is wrong.

        The first config that gets here becomes the base.

        Raises:
            Exception: Whatever a call raises.
        """
        if self.base is None:
            self._take_as_base(artifact)
        for case in self.cases:
            self.tell(LAUNCH)
            if case.holds(artifact.config) and (found := self._wrong_at(case, artifact)) is not None:
                return f"{case.label}{found}{self._remark() if artifact is self._first else ''}"
        return None

    def left(self, more: Sequence[Sequence[Any]] = ()) -> str | None:
        """What is wrong with what timed launches have left behind; None if nothing is.

        Args:
            more: Outputs of further argument sets with equal content.
        """
        first = self.cases[0]
        if (missed := first.bed.canaries.missed()) is not None:
            return missed
        for outputs in [first.bed.written, *more] if first.bed.outputs else []:
            if (found := self._differs(first, list(outputs))) is not None:
                return f"after timing, {found}{self._remark()}"
        if not self.restores and (changed := first.bed.changed()):
            first.bed.restore()
            return f"after timing, {_and(changed)} is changed, which the first config does not do"
        return None

    @property
    def against(self) -> str:
        """What results are compared with, in words."""
        if self.silent:
            return f"nothing: {self.silent}"
        if self.reference is not None:
            return "the reference"
        return "nothing yet" if self.base is None else f"config ({self.base}), since there is no reference"

    def _wrong_at(self, case: Case, artifact: Artifact) -> str | None:
        with self._ran(case, artifact) as (results, changed):
            if (missed := case.bed.canaries.missed()) is not None:
                return missed
            if strange := [name for name in changed if name not in case.effects]:
                return f"changes {_and(strange)}, which the first config does not do"
            found = self._differs(case, results)
            for name, tensor in case.bed.inputs(list(case.effects)).items():
                if found is None and not self.silent and self.reference is None:
                    other = difference(tensor, case.effects[name], case.bed.dtypes, self.reduction)
                    found = f"in {name}, {other}" if other else None
            return found

    def _differs(self, case: Case, results: list[Any]) -> str | None:
        if self.silent or case.expected is None:
            return None
        if len(results) != len(case.expected):
            return f"returns {len(results)} results instead of {len(case.expected)}"
        found = (difference(a, b, case.bed.dtypes, self.reduction) for a, b in zip(results, case.expected, strict=True))
        return next((part for part in found if part), None)

    @contextmanager
    def _ran(self, case: Case, artifact: Artifact) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """One launch's results and changed inputs; these are put back afterwards."""
        bed = case.bed
        if self.restores:
            bed.restore()  # timed launches leave their inputs changed
        bed.poison(case.pattern)
        try:
            result = self.kernel.bind(artifact, bed.arguments)()
            synchronize(bed.arguments)
            changed = bed.changed()
        except BaseException:
            bed.restore()
            raise
        try:
            yield self._results(bed, result, changed, case), changed
        finally:
            if changed:
                bed.restore()

    def _results(self, bed: Bed, result: Any, changed: dict[str, Any], case: Case) -> list[Any]:
        if bed.written:
            return bed.written
        wanted = 0 if self.reference is None or case.expected is None else len(case.expected)
        if result is None and wanted == len(changed):
            return list(changed.values())  # an undeclared output is the result
        return as_list(result)

    def _take_as_base(self, artifact: Artifact) -> None:
        for case in [case for case in self.cases if case is not self.ragged]:
            self._learn(case, artifact)
        if self.ragged is not None and self._same_code(self.ragged, artifact):
            self.tell(ODD)
            self.cases = [case for case in self.cases if case is not self.ragged] + [self.ragged]
            try:
                self._learn(self.ragged, artifact)
            except Exception:  # noqa: BLE001 - the kernel takes no such problem
                self.cases.remove(self.ragged)
                synchronize(self.ragged.bed.arguments)
            self.tell(LAUNCH)
        self.base, self._first = artifact.config, artifact

    def _remark(self) -> str:
        """What explains wrong results: outputs are poisoned, so one that is read must not be named as an output."""
        case, held = self.cases[0], []
        if self._first is None or not case.bed.outputs:
            return ""
        for pattern in (0, 1):
            with self._ran(replace(case, pattern=pattern), self._first) as (results, _):
                held.append([_kept(found) for found in results])
        pairs = zip(*held, strict=True)
        if not any(difference(a, b, case.bed.dtypes, self.reduction) for a, b in pairs):
            return ""
        names = " and ".join(self.kernel.outputs)
        return f"; what the first config leaves in {names} depends on what was there: a part is read, or not written"

    def _learn(self, case: Case, artifact: Artifact) -> None:
        """What the base does in this case: its effects, and its results where there is no reference."""
        with self._ran(case, artifact) as (results, changed):
            case.effects = {name: _kept(tensor) for name, tensor in changed.items()}
            self.restores = self.restores or bool(changed)
            if self.reference is None:
                case.expected = [_kept(found) for found in results]
        if case is self.ragged or self.reference is None:
            again = self._wrong_at(case, artifact)
            if again is not None and case is self.ragged:
                self.cases.remove(case)
            elif again is not None and case.expected is not None:
                self.silent = f"the first config's results differ from run to run ({again})"

    def _same_code(self, ragged: Case, artifact: Artifact) -> bool:
        """Whether the very code that is tuned serves the odd extents too: other code would prove nothing."""
        if not ragged.holds(artifact.config):
            return False
        try:
            other = self.kernel.compile(artifact.config, ragged.bed.arguments)
        except Exception:  # noqa: BLE001 - the kernel takes no such problem
            return False
        return _binary(other) == _binary(artifact)

    def _ask_reference(self, case: Case) -> None:
        assert self.reference is not None
        found = as_list(self.reference(*case.bed.arguments.positional, **case.bed.arguments.keyword))
        case.expected = [_kept(item) for item in found]
        if case.bed.changed():
            case.bed.restore()
        if case.bed.written and len(case.bed.written) != len(found):
            raise KernelTypeError(
                f"the reference returns {len(found)} results, the kernel writes {len(case.bed.written)}",
                hint="let the reference return the outputs, in the order in which the kernel names them",
            )


def poison(tensor: Any, pattern: int = 0) -> None:
    """Fill with NaN, or with the largest value of an integer type; with pattern 1, with other values as unlikely."""
    torch = require("torch", "checking results")
    if tensor.dtype is torch.bool:
        tensor.fill_(bool(pattern))
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(torch.finfo(tensor.dtype).max if pattern else math.nan)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max - 90 * pattern)


def as_list(result: Any) -> list[Any]:
    """Several results as a list, one as a list of one."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def synchronize(arguments: Arguments) -> None:
    """Wait for the devices that the arguments are on: what a launch did wrong is then known."""
    for device in {tensor.device for tensor in arguments.tensors() if tensor.device.type != "cpu"}:
        require("torch", "waiting for the GPU").cuda.synchronize(device)


@contextmanager
def on_device_of(arguments: Arguments) -> Iterator[None]:
    """Inside, the GPU that the arguments are on is the current one; no change for those on a CPU."""
    device = next((tensor.device for tensor in arguments.tensors() if tensor.device.type != "cpu"), None)
    with nullcontext() if device is None else require("torch", "choosing the GPU").cuda.device(device):
        yield


def _kept(found: Any) -> Any:
    """A result that later launches cannot change."""
    return Arguments((found,)).map(lambda tensor: tensor.clone()).positional[0]


def _binary(artifact: Artifact) -> str | None:
    return artifact.resources.binary if artifact.resources else None


def _named(arguments: Arguments) -> Iterator[tuple[str, Any]]:
    """Every tensor with a name: its argument's, numbered inside containers."""
    given = [*((f"argument {i}", value) for i, value in enumerate(arguments.positional)), *arguments.keyword.items()]
    for name, value in given:
        for number, tensor in enumerate(Arguments((value,)).tensors()):
            yield (name if is_tensor(value) else f"{name}[{number}]"), tensor


def _and(names: Any) -> str:
    return " and ".join(names)
