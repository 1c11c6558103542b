"""Stations try candidates: in this process, or in a worker process that a candidate may crash.

Both kinds have the same methods, so the search does not know which kind it uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from triton_ops.backend import Arguments, CandidateError, CompilesAhead, ScratchAllocator
from triton_ops.base import require
from triton_ops.device import DeviceSpec, TorchDevice, Turns
from triton_ops.evaluation.candidate import COMPILE, Evaluator
from triton_ops.evaluation.finals import RACE, FinalRequest, Outcome, compare_finalists
from triton_ops.evaluation.idle_worker import Needs
from triton_ops.evaluation.judges import Precision, reduction_length
from triton_ops.evaluation.standard import Standard
from triton_ops.evaluation.subject import ArgumentSet, Subject
from triton_ops.evaluation.verify import BASELINE, LAUNCH, ODD, Verifier, further_cases, odd_case
from triton_ops.exceptions import ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.request import Effort, KernelProblem, Task, TuneOptions
from triton_ops.space import Config, Members
from triton_ops.timing import SharedTimer, guard_for
from triton_ops.values import Trial, Work


@dataclass(frozen=True, kw_only=True)
class Assignment(KernelProblem):
    """The part of a task that a station needs; it can be sent to another process.

    `shape` are the extents of an operation's problem, as asked for; None for the caller's own arguments. `baseline` has
    worked before, and others are timed next to it; None takes the first that works. `mode` is that of times that were
    taken before; None leaves the choice of the timer open. Where there is no reference, the results of `trusted` are
    right; None takes the first that runs.
    """

    work: Work | None
    shape: tuple[int, ...] | None
    dtype: str | None
    options: TuneOptions
    baseline: Config | None = None
    mode: str | None = None
    odd: bool = True
    members: Members = field(default_factory=dict)
    trusted: Config | None = None

    @classmethod
    def of(cls, task: Task, options: TuneOptions, baseline: Config | None) -> Assignment:
        """The assignment of a station for a task; it takes no search along, which may be none for other processes."""
        shape = dtype = None
        if task.named is not None:
            shape, dtype = task.named.operation.full_shape(task.named.shape), task.named.dtype
        return cls(
            **task.common, work=task.work, shape=shape, dtype=dtype, baseline=baseline,
            options=options.of_effort(replace(Effort.of(options), search="auto")), trusted=task.space.default_config,
            members=task.space.members,
        )  # fmt: skip

    @property
    def effort(self) -> Effort:
        """The effort of the options, which is settled."""
        return Effort.of(self.options)

    @property
    def needs(self) -> Needs:
        """Packages and device of a worker."""
        return Needs.of(self.kernel, self.device, self.device_name)

    @property
    def imports(self) -> tuple[str, ...]:
        """Packages that a worker imports before it loads the task, since the kernel needs them when it compiles.

        Left to the first compilation, the import would not read this package's bytecode: it would take 2 to 3 s of the
        first trial where Python keeps none.
        """
        module = self.kernel.compile_imports if isinstance(self.kernel, CompilesAhead) else ""
        return (module,) if module else ()

    @property
    def limits_s(self) -> dict[str, float]:
        """Limits of the steps that a worker announces, in seconds."""
        own, compile_s = self.effort.patience.launch_s, self.effort.patience.compile_s
        return {COMPILE: compile_s, LAUNCH: own, ODD: own, RACE: own, BASELINE: compile_s + own}

    @property
    def environment(self) -> dict[str, str]:
        """Changes of a worker's environment: none."""
        return {}

    def allocator(self) -> bytes | None:
        """The allocator that the user has given to Triton by now, packed; None if there is none."""
        return ScratchAllocator.packed()

    def station(self, tell: Callable[[str], None]) -> Station:
        """The station of a worker; `tell` is called with each step that begins."""
        return Inline(self, tell)


@dataclass(frozen=True, kw_only=True)
class StationFacts:
    """The facts that a station has found out so far.

    `mode` and `baseline` are None before the first config has worked. `against` says what results are compared with,
    `lost` why this station cannot use the device any more, `suspicion` why the reference rather than every config is
    wrong. In `waited_s` nothing was compiled yet. Measurements on the device take turns under `turn_key`. `apart` tells
    that configs are tried in another process.
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


class Station(Protocol):
    """Tries configs of one task, one after another, and compares the best at the end."""

    @property
    def facts(self) -> StationFacts:
        """The facts so far."""

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config`; its screening ends early if it is much slower than `best`, the best trial so far."""

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison, and decide."""

    def close(self) -> None:
        """Release processes and memory; further calls of `close` do nothing."""


class Inline:
    """A station in this process: for debugging, and for callables that exist in this process only.

    A candidate that crashes ends this process, and one that hangs is not ended. Whatever runs here runs with the
    station's GPU as the current one of the thread. `note_config` is called with a config that is going to run, which
    may end this process, and with None when one that leaves no trial has ended without that: in the last comparison, or
    after Ctrl-C. A `TritonKernelError` says that the arguments cannot be made, or that the reference raises or does not
    fit.
    """

    def __init__(
        self,
        assignment: Assignment,
        tell: Callable[[str], None] = lambda _: None,
        place: str = "inline",
        note_config: Callable[[Config | None], None] = lambda _: None,
    ) -> None:
        self._assignment = assignment
        self._tell = tell
        self._place, self._note_config = place, note_config
        self._lost: str | None = None
        with self._on_device():
            self._evaluator = _evaluator(assignment, tell, note_config)
            self._turn_key = Turns.key_of(assignment.device, assignment.device_name)
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
                self._note_config(None)  # Ctrl-C or an error of this package
                raise
            if trial.status.facts.hurts_device:
                self._lost = _device_lost(self._assignment.device, self._assignment.device_name)
                if self._lost is None and not self._assignment.device.is_cpu:
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
                outcome = compare_finalists(self._evaluator, final, self._assignment.effort, keep_round)
        finally:
            self._note_config(None)
        return replace(outcome, guard=guard.summary())

    def close(self) -> None:
        """Do nothing: this process goes on, and frees memory as its owner drops the station."""

    def _on_device(self) -> AbstractContextManager[None]:
        return TorchDevice(self._assignment.device_name).current()

    def _start(self, config: Config | None) -> None:
        baseline = self._assignment.baseline
        if not self._started and baseline is not None and config != baseline:
            self._note_config(baseline)
            self._evaluator.take_baseline(baseline)
        self._started = True


def _evaluator(
    assignment: Assignment, tell: Callable[[str], None], note_config: Callable[[Config | None], None]
) -> Evaluator:
    shared = SharedTimer(assignment.device, assignment.device_name, cold=assignment.cold, mode=assignment.mode)
    subject = Subject(
        ArgumentSet(_own_arguments(assignment, assignment.arguments), assignment.kernel.outputs), shared.sets
    )
    verifier = _verifier(assignment, subject, tell)
    evaluator = Evaluator(
        kernel=assignment.kernel,
        subject=subject,
        shared_timer=shared,
        policy=assignment.effort.screen,
        verifier=verifier,
        tell=tell,
        note_config=note_config,
        members=assignment.members,
    )
    verifier.tell = evaluator.announce
    return evaluator


def _verifier(assignment: Assignment, subject: Subject, tell: Callable[[str], None]) -> Verifier:
    reduction = reduction_length(assignment.problem, assignment.kernel.outputs, assignment.work)
    precision = Precision(inputs=tuple(subject.first.input_dtypes), reduction=reduction)
    try:
        return Verifier(
            kernel=assignment.kernel, subject=subject, reference=assignment.reference, tell=tell,
            trusted=None if assignment.trusted is None else assignment.trusted.with_members(assignment.members),
            others=further_cases(subject.first, assignment),
            ragged=odd_case(assignment, assignment.shape, assignment.dtype) if assignment.odd else None,
            standard=Standard(precision=precision, tolerance=assignment.tolerance, check=assignment.check),
        )  # fmt: skip
    except TritonKernelError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"the reference of {assignment.problem} raised {CandidateError.one_line(error)}",
            hint="call it with the same arguments to try",
        ) from error


def _own_arguments(assignment: Assignment, arguments: Callable[[], Arguments]) -> Arguments:
    try:
        return arguments()
    except (MemoryError, RuntimeError) as error:
        place, reason = assignment.device_name, CandidateError.one_line(error)
        raise ShapeMismatchError(
            f"the arguments of {assignment.problem} cannot be made on {place}: {reason}",
            hint="take a smaller problem",
        ) from error


class TakesTurns:
    """A station whose trials and comparisons each take a turn on the device; `check` raises before if it is to end."""

    def __init__(self, station: Station, turns: Turns, check: Callable[[], None] = lambda: None) -> None:
        self._station, self._turns, self._check = station, turns, check

    @property
    def facts(self) -> StationFacts:
        """The facts of the station that measures; a note says how long others were waited for."""
        facts = self._station.facts
        return replace(facts, notes=(*facts.notes, *self._turns.notes))

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` in a turn."""
        self._check()
        with self._turns.turn(self._station.facts.turn_key):
            return self._station.attempt(config, best)

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison in one turn."""
        self._check()
        with self._turns.turn(self._station.facts.turn_key):
            return self._station.finals(final)

    def close(self) -> None:
        """Close the station that measures."""
        self._station.close()


def _device_lost(device: DeviceSpec, device_name: str) -> str | None:
    """The reason why this process can no longer use a device; None if it can.

    An illegal access leaves the whole process without its GPU. A small computation on the device finds that out.
    """
    if device.is_cpu:
        return None
    torch = require("torch", "asking the GPU")
    try:
        torch.cuda.synchronize(device_name)
        if torch.ones(1, device=device_name).add_(1).item() == 2:
            return None
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "the device computes 1 + 1 wrongly"
