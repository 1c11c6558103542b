"""Stations try candidates: in this process, or in a worker process that a candidate may crash.

Both kinds have the same methods, so the search does not know which kind it uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from triton_ops.backend import Arguments, Kernel, one_line
from triton_ops.base import require
from triton_ops.device import DeviceSpec, Turns, current_device, device_lost, turn_key
from triton_ops.evaluation.candidate import Evaluator
from triton_ops.evaluation.finals import FinalRequest, compare_finalists
from triton_ops.evaluation.judges import Precision, reduction_length
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.standard import Standard
from triton_ops.evaluation.subject import ArgumentSet, SharedTimer, Subject
from triton_ops.evaluation.verify import Verifier, further_cases, odd_case
from triton_ops.exceptions import ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.request import CopiedArguments, Effort, GeneratedArguments, OwnedArguments, Task
from triton_ops.space import Config, Members
from triton_ops.timing import guard_for
from triton_ops.values import Problem, Status, Tolerance, Trial, Work

RACE = "race"
"""The step that `tell` is called with for each round of the last comparison."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The part of a task that a station needs; it can be sent to another process.

    Attributes:
        kernel: The kernel that is tuned.
        problem: The problem that it is tuned for.
        device: The device that it runs on.
        device_name: The device's torch name.
        arguments: Makes private arguments.
        reference: Computes the right result; None if there is none.
        tolerance: How far results may be from the right one.
        check: The caller's own comparison; None takes the tolerance.
        trusted: The config whose results are right where there is no reference; None takes the first that runs.
        work: The least operations and bytes of the problem; None if not known.
        shape: Extents of an operation's problem, as asked for; None for the caller's own arguments.
        dtype: The operation's dtype, as asked for.
        effort: How long screenings and the last comparison may take.
        cold: Whether L2 holds nothing of the kernel's data when a timed launch starts.
        baseline: A config that has worked before, next to which others are timed; None takes the first that works.
        mode: The mode of times that were taken before; None leaves the choice of the timer open.
        odd: Whether results are checked on odd extents too.
        members: Members of an `Enum` that kernels are given in place of their names.
    """

    kernel: Kernel
    problem: Problem
    device: DeviceSpec
    device_name: str
    arguments: GeneratedArguments | CopiedArguments | OwnedArguments
    reference: Callable[..., Any] | None
    work: Work | None
    shape: tuple[int, ...] | None
    dtype: str | None
    effort: Effort
    cold: bool = True
    baseline: Config | None = None
    mode: str | None = None
    odd: bool = True
    members: Members = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    check: Callable[[Any, Any], Any] | None = None
    trusted: Config | None = None


def assignment_of(task: Task, effort: Effort, cold: bool, baseline: Config | None) -> Assignment:
    """The assignment of a station for a task."""
    shape = dtype = None
    if task.named is not None:
        shape, dtype = task.named.shape, task.named.dtype
        shape = task.named.operation.full_shape(shape)
    return Assignment(
        kernel=task.kernel, problem=task.problem, device=task.device, device_name=task.device_name,
        arguments=task.arguments, reference=task.reference, work=task.work, shape=shape, dtype=dtype,
        effort=replace(effort, search=effort.search_name), cold=cold, baseline=baseline,
        tolerance=task.tolerance, check=task.check, trusted=task.space.default_config, members=task.space.members,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StationFacts:
    """What a station has found out so far.

    Attributes:
        mode: The mode in which the station times; None before the first config has worked.
        baseline: The config next to which others are timed; None before the first config has worked.
        against: What results are compared with, in words.
        lost: Why this station cannot use the device any more; None if it can.
        place: Where candidates run, in words.
        notes: Remarks for the caller, such as that inputs are restored before every launch.
        suspicion: Why the reference rather than every config is wrong; empty if nothing says so.
        waited_s: Seconds in which nothing could be tried because nothing was compiled yet.
        turn_key: The name under which measurements on the device take turns; empty where they take none.
        apart: Whether configs are tried in another process.
    """

    mode: str | None = None
    baseline: Config | None = None
    against: str = ""
    lost: str | None = None
    place: str = ""
    notes: tuple[str, ...] = ()
    suspicion: str = ""
    waited_s: float = 0.0
    turn_key: str = ""
    apart: bool = False


class TriesConfigs(Protocol):
    """Tries configs, one after another."""

    @property
    def facts(self) -> StationFacts:
        """What was found out so far."""

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config`; its screening ends early if it is much slower than `best`, the best trial so far."""


class Station(TriesConfigs, Protocol):
    """Tries configs of one task, and compares the best at the end."""

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison, and decide."""

    def close(self) -> None:
        """Release processes and memory; further calls of `close` do nothing."""


class Inline:
    """A station in this process: for debugging, and for callables that exist in this process only.

    A candidate that crashes ends this process, and one that hangs is not ended. Whatever runs here runs with the
    station's GPU as the current one of the thread.

    Args:
        assignment: The work of the station.
        tell: Called with each step that begins, as `Evaluator.tell` is.
        place: Why candidates run inline, in words.
        begun: Called with a config that is going to run, which may end this process, and with None when one that
            leaves no trial has ended without that: in the last comparison, or after Ctrl-C.

    Raises:
        ShapeMismatchError: The arguments cannot be made on the device.
        TargetError: The reference raises.
        KernelTypeError: The reference does not fit the kernel.
        DeviceError: The GPU cannot be used by this process.
    """

    def __init__(
        self,
        assignment: Assignment,
        tell: Callable[[str], None] = lambda _: None,
        place: str = "inline",
        begun: Callable[[Config | None], None] = lambda _: None,
    ) -> None:
        self._assignment = assignment
        self._tell = tell
        self._place, self._begun = place, begun
        self._lost: str | None = None
        with self._on_device():
            self._evaluator = _evaluator(assignment, tell, begun)
            self._turn_key = turn_key(assignment.device, assignment.device_name)
        self._started = assignment.baseline is None
        self._since_s = time.time()

    @property
    def facts(self) -> StationFacts:
        """Facts of this process; nothing is compiled ahead here, so `waited_s` is 0."""
        evaluator = self._evaluator
        restores = evaluator.subject.restores
        restored = ("the kernel writes its inputs, which are restored before every launch",) if restores else ()
        verifier = evaluator.verifier
        against = verifier.against if verifier else "nothing"
        notes = (*restored, *(verifier.notes if verifier else ()))
        return StationFacts(
            mode=evaluator.shared_timer.mode, baseline=evaluator.baseline, against=against, lost=self._lost,
            place=self._place, notes=notes, suspicion=verifier.suspicion if verifier else "", turn_key=self._turn_key,
        )  # fmt: skip

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` here; after a failure the device is probed, and memory that the candidate held is freed."""
        with self._on_device():
            try:
                self._start(config)
                trial = self._evaluator.attempt(config, best)
            except BaseException:
                self._begun(None)  # Ctrl-C or an error of this package
                raise
            if trial.status in (Status.RUNTIME, Status.RESOURCES):
                self._lost = device_lost(self._assignment.device, self._assignment.device_name)
                if self._lost is None and self._assignment.device.kind != "cpu":
                    require("torch", "freeing memory").cuda.empty_cache()  # memory that the failed candidate held
            return trial

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison; a guard of its own reads the device's sensors meanwhile."""
        guard = guard_for(self._assignment.device_name, self._since_s)

        def keep_round() -> bool:
            self._tell(RACE)
            return guard.round_ok()

        try:
            with self._on_device():
                self._start(None)
                found = compare_finalists(self._evaluator, final, self._assignment.effort, keep_round)
        finally:
            self._begun(None)
        return replace(found, guard=guard.summary())

    def close(self) -> None:
        """Do nothing: this process goes on, and frees memory as its owner drops the station."""

    def _on_device(self) -> AbstractContextManager[None]:
        return current_device(self._assignment.device_name)

    def _start(self, config: Config | None) -> None:
        baseline = self._assignment.baseline
        if not self._started and baseline is not None and config != baseline:
            self._begun(baseline)
            self._evaluator.take_baseline(baseline)
        self._started = True


def _evaluator(given: Assignment, tell: Callable[[str], None], begun: Callable[[Config | None], None]) -> Evaluator:
    shared = SharedTimer(given.device, given.device_name, cold=given.cold, mode=given.mode)
    subject = Subject(ArgumentSet(_made(given, given.arguments), given.kernel.outputs), shared.sets)
    verifier = _verifier(given, subject, tell)
    evaluator = Evaluator(
        kernel=given.kernel,
        subject=subject,
        shared_timer=shared,
        policy=given.effort.screen,
        verifier=verifier,
        tell=tell,
        begun=begun,
        members=given.members,
    )
    verifier.tell = evaluator.announce
    return evaluator


def _verifier(given: Assignment, subject: Subject, tell: Callable[[str], None]) -> Verifier:
    reduction = reduction_length(given.problem, given.kernel.outputs, given.work)
    precision = Precision(inputs=tuple(subject.first.input_dtypes), reduction=reduction)
    try:
        return Verifier(
            kernel=given.kernel, subject=subject, reference=given.reference, tell=tell,
            trusted=None if given.trusted is None else given.trusted.with_members(given.members),
            others=further_cases(subject.first, given.arguments, given.device_name),
            ragged=odd_case(given.arguments, given.shape, given.dtype) if given.odd else None,
            standard=Standard(precision=precision, tolerance=given.tolerance, check=given.check),
        )  # fmt: skip
    except TritonKernelError:
        raise
    except (Exception, SystemExit) as error:
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


@runtime_checkable
class TriesAtOnce(Protocol):
    """Tries configs, several at a time; its methods are called by one thread."""

    @property
    def room(self) -> int:
        """How many further configs could be begun now: for each device that tries, one to try and one to follow it."""

    def begin(self, config: Config, best: Trial | None, program: str | None = None) -> None:
        """Begin to try a config.

        Args:
            config: The config.
            best: The best trial so far; the screening of a much slower config ends early.
            program: Fingerprint of what was compiled; configs with equal ones are the same program. None if not known.
        """

    def take(self, ready: Callable[[], bool]) -> list[Trial]:
        """The trials that have finished, in order; some config was begun and not taken.

        This waits until there is one. The list is empty where there is room, and something that could be begun.

        Args:
            ready: Whether a further config could be begun.
        """

    def again(self, trials: Iterable[Trial]) -> list[Config]:
        """The configs among finished trials that are to be tried once more before the last comparison, best first."""


@runtime_checkable
class KeepsEach(Protocol):
    """What tries configs by itself, and can have each trial kept before it begins with the next one."""

    def keep_with(self, keep: Callable[[Trial], None]) -> None:
        """From now on call a function with each trial that is going to be taken, before the next one begins.

        Args:
            keep: The function, which is called in another thread.
        """


class OneAtATime:
    """A station as what has room for one config.

    Args:
        station: The station; it tries the config when the trial is taken.
    """

    def __init__(self, station: TriesConfigs) -> None:
        self._station = station
        self._begun: tuple[Config, Trial | None] | None = None

    @property
    def room(self) -> int:
        """1 if no config was begun."""
        return int(self._begun is None)

    def begin(self, config: Config, best: Trial | None, program: str | None = None) -> None:  # noqa: ARG002 - the role's
        """Note the config."""
        self._begun = config, best

    def take(self, ready: Callable[[], bool]) -> list[Trial]:  # noqa: ARG002 - there is room for one alone
        """Try the config that was begun."""
        assert self._begun is not None
        (config, best), self._begun = self._begun, None
        return [self._station.attempt(config, best)]

    def again(self, trials: Iterable[Trial]) -> list[Config]:  # noqa: ARG002 - the role's signature
        """No config: all were tried by the station that compares the finalists."""
        return []


def at_once(station: TriesConfigs) -> TriesAtOnce:
    """A station as what tries several configs at once: itself if it does, else with room for one."""
    return station if isinstance(station, TriesAtOnce) else OneAtATime(station)


class TakesTurns:
    """A station whose trials and comparisons each take a turn on the device.

    Args:
        station: The station that measures.
        turns: The turns of this tune.
    """

    def __init__(self, station: Station, turns: Turns) -> None:
        self._station, self._turns = station, turns

    @property
    def facts(self) -> StationFacts:
        """The facts of the station that measures; a note says how long others were waited for."""
        found = self._station.facts
        return replace(found, notes=(*found.notes, *self._turns.notes))

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` in a turn."""
        with self._turns.turn(self._station.facts.turn_key):
            return self._station.attempt(config, best)

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison in one turn."""
        with self._turns.turn(self._station.facts.turn_key):
            return self._station.finals(final)

    def close(self) -> None:
        """Close the station that measures."""
        self._station.close()
