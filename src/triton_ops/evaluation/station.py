"""Where candidates are tried: in this process, or in one that may die of them.

Both kinds answer the same questions, so the search does not know which one it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from triton_ops._optional import require
from triton_ops.backend import Arguments, Kernel, Operation, one_line
from triton_ops.evaluation.candidate import Evaluator
from triton_ops.evaluation.finals import Final, Outcome, compare_finalists
from triton_ops.evaluation.ragged import ragged_shape
from triton_ops.evaluation.subject import ArgumentSet, Clock, Subject
from triton_ops.evaluation.tolerance import reduction_length
from triton_ops.evaluation.verify import Case, Verifier
from triton_ops.exceptions import ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.hardware import DeviceSpec
from triton_ops.hardware.state import device_lost, free_bytes
from triton_ops.measure.guard import guard_for
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.task.task import Copies, Dummies, Owned, Task
from triton_ops.trial import Problem, Status, Trial, Work

RACE = "race"
"""What is going on, as `tell` is told it, during a round of the last comparison."""
_COPIES_OF_A_SET = 3  # the arguments themselves, what puts them back, and the right results
_MEMORY_SHARE = 0.25  # of what is free that a second set of data may take


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """All that a station needs to know of a task; can be sent to another process.

    Attributes:
        kernel: What is tuned.
        problem: For what.
        device: What it runs on.
        device_name: Its torch name.
        arguments: Makes private arguments.
        reference: Gives the right result; None if there is none.
        work: The least the problem makes the device do; None if not known.
        shape: Extents of an operation's problem, as asked for; None for the caller's own arguments.
        dtype: Its dtype, as asked for.
        effort: How long screenings and the last comparison may be.
        cold: Whether L2 is to hold nothing of the kernel's data.
        baseline: A config that has worked before: others are timed beside it.
        mode: The mode of times that were taken before; None leaves the choice.
        odd: Whether to check results on odd extents too.
    """

    kernel: Kernel
    problem: Problem
    device: DeviceSpec
    device_name: str
    arguments: Dummies | Copies | Owned
    reference: Callable[..., Any] | None
    work: Work | None
    shape: tuple[int, ...] | None
    dtype: str | None
    effort: Effort
    cold: bool = True
    baseline: Config | None = None
    mode: str | None = None
    odd: bool = True


def assignment_of(task: Task, effort: Effort, cold: bool, baseline: Config | None) -> Assignment:
    """What a station needs of a task."""
    shape = dtype = None
    if task.named is not None:
        shape, dtype = task.named.shape, task.named.dtype
        shape = task.named.operation.full_shape(shape)
    return Assignment(
        kernel=task.kernel, problem=task.problem, device=task.device, device_name=task.device_name,
        arguments=task.arguments, reference=task.reference, work=task.work, shape=shape, dtype=dtype,
        effort=replace(effort, search=effort.search_name), cold=cold, baseline=baseline,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StationFacts:
    """What a station has come to know.

    Attributes:
        mode: The mode in which it times; None before the first config has worked.
        baseline: The config that others are timed beside; None before the first config has worked.
        against: What results are compared with, in words.
        lost: Why the device cannot be used by this station any more; None if it can.
        place: Where candidates run, in words.
        notes: What the caller should know of how it was done.
        waited_s: Seconds in which nothing could be tried because nothing was compiled yet.
    """

    mode: str | None = None
    baseline: Config | None = None
    against: str = ""
    lost: str | None = None
    place: str = ""
    notes: tuple[str, ...] = ()
    waited_s: float = 0.0


class Station(Protocol):
    """Tries configs of one task, one after another."""

    @property
    def facts(self) -> StationFacts:
        """What is known until now."""

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`; `best` is the best so far, to cut a hopeless one short."""

    def finals(self, final: Final) -> Outcome:
        """The last comparison."""

    def close(self) -> None:
        """Give back everything; further calls do nothing."""


class Inline:
    """A station in this process: for debugging, and for callables that only exist here.

    A candidate that crashes or hangs takes the process with it.

    Args:
        assignment: What to work on.
        tell: Told what begins, as `Evaluator.tell`.
        place: Why it is inline, in words.

    Raises:
        ShapeMismatchError: The arguments cannot be made on the device.
        TargetError: The reference raises.
        KernelTypeError: The reference does not fit the kernel.
    """

    def __init__(
        self, assignment: Assignment, tell: Callable[[str], None] = lambda _: None, place: str = "inline"
    ) -> None:
        self._assignment = assignment
        self._tell = tell
        self._place = place
        self._lost: str | None = None
        self._evaluator = _evaluator(assignment, tell)
        self._started = assignment.baseline is None

    @property
    def facts(self) -> StationFacts:
        """What is known until now."""
        evaluator = self._evaluator
        restores = evaluator.subject.restores
        notes = ("it writes its inputs: they are put back before every launch",) if restores else ()
        against = evaluator.verifier.against if evaluator.verifier else "nothing"
        return StationFacts(
            mode=evaluator.clock.mode, baseline=evaluator.baseline, against=against, lost=self._lost, place=self._place,
            notes=notes,
        )  # fmt: skip

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`."""
        self._start(config)
        trial = self._evaluator.attempt(config, best)
        if trial.status in (Status.RUNTIME, Status.RESOURCES):
            self._lost = device_lost(self._assignment.device, self._assignment.device_name)
            if self._lost is None and self._assignment.device.kind != "cpu":
                require("torch", "freeing memory").cuda.empty_cache()  # of what did not fit
        return trial

    def finals(self, final: Final) -> Outcome:
        """The last comparison, watched by a guard of its own."""
        self._start(None)
        guard = guard_for(self._assignment.device_name)

        def counts() -> bool:
            self._tell(RACE)
            return guard.round_ok()

        found = compare_finalists(self._evaluator, final, self._assignment.effort, counts)
        return replace(found, guard=guard.summary())

    def close(self) -> None:
        """This process holds nothing that must be given back."""

    def _start(self, config: Config | None) -> None:
        baseline = self._assignment.baseline
        if not self._started and baseline is not None and config != baseline:
            self._evaluator.start_from(baseline)
        self._started = True


def _evaluator(given: Assignment, tell: Callable[[str], None]) -> Evaluator:
    clock = Clock(given.device, given.device_name, cold=given.cold, mode=given.mode)
    subject = Subject(ArgumentSet(_made(given, given.arguments), given.kernel.outputs), clock.sets)
    verifier = _verifier(given, subject, tell)
    evaluator = Evaluator(
        kernel=given.kernel, subject=subject, clock=clock, policy=given.effort.screen, verifier=verifier, tell=tell
    )
    verifier.tell = evaluator.say
    return evaluator


def _verifier(given: Assignment, subject: Subject, tell: Callable[[str], None]) -> Verifier:
    second = Case(_other_data(given, subject) or subject.first, 1)
    reduction = reduction_length(given.problem, given.kernel.outputs, given.work)
    try:
        return Verifier(
            kernel=given.kernel, subject=subject, others=[second], reference=given.reference, reduction=reduction,
            ragged=_ragged(given), tell=tell,
        )  # fmt: skip
    except TritonKernelError:
        raise
    except Exception as error:
        raise TargetError(
            f"the reference of {given.problem} raised {one_line(error)}", hint="call it with the same arguments to try"
        ) from error


def _made(given: Assignment, arguments: Callable[[], Arguments]) -> Arguments:
    try:
        return arguments()
    except (MemoryError, RuntimeError) as error:
        raise ShapeMismatchError(
            f"the arguments of {given.problem} cannot be made on {given.device_name}: {one_line(error)}",
            hint="take a smaller problem",
        ) from error


def _other_data(given: Assignment, subject: Subject) -> ArgumentSet | None:
    """A second set of data; None where memory is short, and for arguments that the caller gave.

    Only the caller can vary those: nobody else knows what an index, a mask or a length may be.
    """
    source = given.arguments
    needed = _COPIES_OF_A_SET * sum(tensor.untyped_storage().nbytes() for tensor in subject.arguments.tensors())
    if not isinstance(source, Dummies) or needed > _MEMORY_SHARE * free_bytes(given.device, given.device_name):
        return None
    return ArgumentSet(replace(source, seed=source.seed + 1)(), given.kernel.outputs)


def _ragged(given: Assignment) -> Case | None:
    """The check on odd extents; for problems that an operation makes, and configs that its space holds for them."""
    source = given.arguments
    if not given.odd or given.shape is None or not isinstance(source, Dummies):
        return None
    operation: Operation = source.operation
    shape = ragged_shape(operation, given.shape, given.dtype)
    if shape is None:
        return None
    try:
        problem = operation.problem(shape, given.dtype)
        space = operation.space_for(problem)
        made = ArgumentSet(replace(source, problem=problem)(), given.kernel.outputs)
    except Exception:  # noqa: BLE001 - an operation that does not take the shape after all
        return None
    label = f"at {'x'.join(map(str, shape))}, "
    return Case(made, 0, label, holds=lambda config: space.why_not(config) is None)
