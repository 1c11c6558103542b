"""Stations try candidates: each config is compiled, verified and screened, and the best are compared at the end.

A station works here, or in a worker process that a candidate may crash; the search does not know which kind it uses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import ClassVar, Protocol

from triton_ops.backend import ArgumentSet, CandidateError, CompilesAhead
from triton_ops.base import require
from triton_ops.device import Allowance, TorchDevice, Turns
from triton_ops.evaluation.cases import Subject, further_cases, odd_case
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.evaluation.expected import Standard
from triton_ops.evaluation.finals import FinalRequest, compare_finalists
from triton_ops.evaluation.idle_worker import Needs
from triton_ops.evaluation.judges import Precision, reduction_length
from triton_ops.evaluation.memory import TuneMemory
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.questions import StationFacts, StationStep, TriesConfigs
from triton_ops.evaluation.renewal import Renewal
from triton_ops.evaluation.verify import Verifier
from triton_ops.exceptions import ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.request import Effort, KernelProblem, Patience, TuneOptions, TuneRequest
from triton_ops.space import Config, Members
from triton_ops.timing import SharedTimer, guard_for
from triton_ops.values import Status, Trial, Work


@dataclass(frozen=True, kw_only=True)
class Assignment(KernelProblem):
    """The part of a request that a station needs; it can be sent to another process.

    Others are timed next to `baseline`, which has worked before; None takes the first that works. `mode` is that of
    earlier times; None leaves the timer open. Without a reference the results of `trusted` are right; None takes the
    first that runs. `in_turn` has the keys of the devices on which whoever asks has the turn already.
    """

    options: TuneOptions
    work: Work | None
    baseline: Config | None = None
    mode: str | None = None
    odd: bool = True
    members: Members = field(default_factory=dict)
    trusted: Config | None = None
    environment: ClassVar[Mapping[str, str]] = {}  # of a worker, as it is
    in_turn: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: TuneRequest, options: TuneOptions, baseline: Config | None) -> Assignment:
        """The assignment of a station for a request, without its search, which may be none for other processes."""
        common = {each.name: getattr(request, each.name) for each in fields(KernelProblem)}
        settled = options.of_effort(replace(options.settled(), search="auto"))
        return cls(
            **common, work=request.work, baseline=baseline, options=settled, trusted=request.space.default_config,
            members=request.space.members,
        )  # fmt: skip

    @property
    def effort(self) -> Effort:
        """The effort of the options, which is settled."""
        return self.options.settled()

    @property
    def patience(self) -> Patience:
        """When a worker has hung."""
        return self.effort.patience

    @property
    def needs(self) -> Needs:
        """Packages and device of a worker."""
        return Needs.of(self.kernel, self.device, self.device_name)

    @property
    def imports(self) -> tuple[str, ...]:
        """Torch for tensors, and what the kernel imports to compile, which a worker imports before it loads the task.

        Left to the first compilation, the import would not read this package's bytecode: it would take 2 to 3 s of the
        first trial where Python keeps none.
        """
        tensors = self.problem.specs if self.originals is None else [*self.originals.tensors()]
        module = self.kernel.compile_imports if isinstance(self.kernel, CompilesAhead) else ""
        return tuple(dict.fromkeys(filter(None, ("torch" if tensors else "", module))))

    @property
    def limits_s(self) -> dict[str, float]:
        """Limits of the steps that a worker announces, in seconds."""
        own_s, compile_s, step = self.patience.launch_s, self.patience.compile_s, StationStep
        launched = dict.fromkeys((step.LAUNCH, step.ODD, step.RACE), own_s)
        return {step.COMPILE: compile_s, **launched, step.BASELINE: compile_s + own_s, step.TURN: math.inf}

    @property
    def loaded(self) -> str:
        """What a worker makes as it loads the task, in words."""
        return f"the arguments of {self.problem}, or its reference"

    def station(self, tell: Callable[[str], None]) -> Station:
        """The station of a worker; `tell` is called with each step that begins."""
        return Inline(self, tell)


class Station(TriesConfigs, Protocol):
    """Tries configs of one problem, one after another, and compares the best at the end."""

    @property
    def facts(self) -> StationFacts:
        """The facts so far."""

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison, and decide."""

    def close(self) -> None:
        """Release processes and memory; further calls of `close` do nothing."""


class Inline:
    """A station in this process: for debugging, and for callables that exist in this process only.

    A candidate that crashes ends this process, and one that hangs is not ended. `note_config` is called with a config
    that is going to run, which may end this process, and with None when one that leaves no trial has ended without
    that: in the last comparison, or after Ctrl-C. A `TritonKernelError` says that the arguments cannot be made, or that
    the reference raises or does not fit.
    """

    def __init__(
        self,
        assignment: Assignment,
        tell: Callable[[str], None] = lambda _: None,
        place: str = "inline",
        note_config: Callable[[Config | None], None] = lambda _: None,
    ) -> None:
        self._assignment, self._tell, self._place, self._note_config = assignment, tell, place, note_config
        self.lost: str | None = None
        self._allowance: Allowance | None = None
        if (most := assignment.options.memory_bytes) is not None:
            with self._on_device():
                self._allowance = Allowance.begin(assignment.device_name, int(most))
        with self._on_device(), self._within_memory():
            self._turn_key = Turns.key_of(assignment.device, assignment.device_name)
            self._turns = Turns(assignment.device_name, begun=True, tell=partial(tell, StationStep.TURN))
            self._evaluator = self._make_evaluator()
        self._started = assignment.baseline is None
        self._since_s = time.time()

    @property
    def facts(self) -> StationFacts:
        """Facts of this process."""
        evaluator, verifier = self._evaluator, self._verifier
        restores = evaluator.subject.restores
        restored = ("the kernel writes its inputs, which are restored before every launch",) if restores else ()
        return StationFacts(
            mode=evaluator.shared_timer.mode, baseline=evaluator.baseline, against=verifier.against, lost=self.lost,
            place=self._place, notes=(*restored, *verifier.notes, *self._turns.notes), suspicion=verifier.suspicion,
            turn_key=self._turn_key, uncompared=verifier.not_compared,
        )  # fmt: skip

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` here; after a failure the device is probed, and memory that the candidate held is freed."""
        with self._on_device(), self._within_memory():
            try:
                self._start(config)
                trial = self._evaluator.attempt(config, best)
            except BaseException:
                self._note_config(None)  # Ctrl-C or an error of this package
                raise
            if trial.status.facts.hurts_device and not self._assignment.device.is_cpu:
                self.lost = _gpu_lost(self._assignment.device_name)
                if self.lost is None:
                    require("torch", "freeing memory").cuda.empty_cache()  # memory that the failed candidate held
            return trial

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison; a guard of its own reads the device's sensors meanwhile."""
        effort, guard = self._assignment.effort, guard_for(self._assignment.device_name, self._since_s)

        def keep_round() -> bool:
            self._tell(StationStep.RACE)
            return guard.round_ok()

        try:
            with self._on_device(), self._within_memory():
                self._start(None)
                outcome = compare_finalists(self._evaluator, final, effort, keep_round, turn=self._turn)
        finally:
            self._note_config(None)
        return replace(outcome, guard=guard.summary())

    def close(self) -> None:
        """Let go of what refers to itself, which would stay in memory until Python looks for such objects."""
        for verifier in filter(None, (self._verifier, self._verifier.same_bits)):
            verifier.tell = self._tell
        self._evaluator.turn = nullcontext

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        within = nullcontext() if self._allowance is None else self._allowance.inside()
        with TorchDevice(self._assignment.device_name).current(), within:
            yield

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        """Inside, the tune ends where its memory is not enough; what candidates lack is their own fault."""
        if (allowance := self._allowance) is None:
            yield
            return
        assignment, needed = self._assignment, TuneMemory.of(self._assignment)
        try:
            yield
        except TritonKernelError as error:
            cause = error.__cause__ or error
            if CandidateError.of(cause, Status.RUNTIME).status is not Status.RESOURCES:
                raise
            raise needed.refusal(assignment, allowance.most_bytes, CandidateError.one_line(cause)) from error
        if (taken := allowance.taken_bytes) > allowance.most_bytes:
            raise needed.refusal(assignment, allowance.most_bytes, f"it has taken {taken:,} bytes")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._turns.turn("" if self._turn_key in self._assignment.in_turn else self._turn_key):
            self._tell(StationStep.LAUNCH)
            yield

    def _start(self, config: Config | None) -> None:
        baseline = self._assignment.baseline
        if not self._started and baseline is not None and config != baseline:
            self._note_config(baseline)
            self._evaluator.take_baseline(baseline)
        self._started = True

    def _make_evaluator(self) -> Evaluator:
        assignment = self._assignment
        shared = SharedTimer(assignment.device, assignment.device_name, cold=assignment.cold, mode=assignment.mode)
        subject = self._subject(shared)
        for each in (subject, *subject.contents) if assignment.device.is_cpu else ():
            each.renewal = Renewal(each.arguments, assignment.reference, {})
        self._verifier = self._make_verifier(subject)
        evaluator = Evaluator(
            kernel=assignment.kernel, subject=subject, shared_timer=shared, policy=assignment.effort.screen,
            verifier=self._verifier, tell=self._tell, note_config=self._note_config, members=assignment.members,
            turn=self._turn,
        )  # fmt: skip
        for verifier in filter(None, (self._verifier, self._verifier.same_bits)):
            verifier.tell = evaluator.announce
        return evaluator

    def _make_verifier(self, subject: Subject) -> Verifier:
        assignment, kernel, trusted = self._assignment, self._assignment.kernel, self._assignment.trusted
        reduction = reduction_length(assignment.problem, kernel.outputs, assignment.work)
        precision = Precision(inputs=tuple(subject.first.input_dtypes), reduction=reduction)
        what = f"the reference of {assignment.problem} raised"
        with CandidateError.as_error(TargetError, what, "call it with the same arguments to try"):
            verifier = Verifier(
                kernel=kernel, subject=subject, reference=assignment.reference, tell=self._tell,
                trusted=None if trusted is None else trusted.with_members(assignment.members),
                others=further_cases(subject.first, assignment),
                ragged=odd_case(assignment) if assignment.odd else None,
                standard=Standard(precision=precision, tolerance=assignment.tolerance, check=assignment.check),
            )  # fmt: skip
        if assignment.same_bits_as is not None:
            verifier.same_bits = replace(
                verifier, reference=None, standard=Standard(precision=precision, bits=True),
                others=[replace(case, expected=None) for case in verifier.others],
                ragged=None if verifier.ragged is None else replace(verifier.ragged, expected=None),
            )  # fmt: skip
        return verifier

    def _subject(self, shared: SharedTimer) -> Subject:
        assignment = self._assignment
        outputs, seed = assignment.kernel.outputs, assignment.options.seed
        what = f"the arguments of {assignment.problem} cannot be made on {assignment.device_name}:"
        with CandidateError.as_error(ShapeMismatchError, what, "take a smaller problem", MemoryError, RuntimeError):
            if assignment.contents is None:
                kept = None if self._allowance is None else TuneMemory.of(assignment).within(self._allowance.most_bytes)
                arguments, on_host = assignment.arguments(), kept is not None and not kept.inputs
                return Subject(ArgumentSet(arguments, outputs, on_host=on_host), shared.sets)
            return Subject.over(assignment.contents, assignment.arguments(), outputs, shared.sets, seed)


def _gpu_lost(device_name: str) -> str | None:
    """The reason why this process can no longer use a GPU; None if it can.

    An illegal access leaves the whole process without its GPU. A small computation on the device finds that out.
    """
    # Inductor goes on in such a process, where every later choice fails too: pytorch/pytorch#170130.
    torch = require("torch", "asking the GPU")
    try:
        torch.cuda.synchronize(device_name)
        works = torch.ones(1, device=device_name).add_(1).item() == 2
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None if works else "the device computes 1 + 1 wrongly"
