"""A contest of what other processes hold, such as a model that was compiled in several ways, beside a baseline.

Each takes samples when it is asked. Its times are compared with those of the baseline in the same rounds.
"""

from __future__ import annotations

import math
import random
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from triton_ops.backend import CandidateError
from triton_ops.base import gain_text
from triton_ops.device import CpuLoad, Turns, probe
from triton_ops.evaluation.questions import Question
from triton_ops.evaluation.task_worker import TaskWorker, WorkerTask
from triton_ops.exceptions import TritonKernelError
from triton_ops.timing import Arm, DuelPolicy, HostTimer, Interval, RacePolicy, Rounds, Sampler
from triton_ops.values import Measurement, Status

_VISITS = DuelPolicy(visit_ms=25.0, longest=5)
_SCREENING_ROUNDS = 5


class Contender(ABC):
    """What a process holds, with its times in the last rounds; `relative` is their ratio to the baseline's."""

    def __init__(self, name: str, task: WorkerTask) -> None:
        self.name, self._task, self._end = name, task, "its process has ended"
        self.arm = Arm(Sampler(lambda _: list))
        self.relative = math.inf
        self._worker: TaskWorker | None = None

    @abstractmethod
    def take(self, count: int) -> list[float]:
        """Take so many samples now, in milliseconds; a `CandidateError`, as of `ask`, if there are no more."""

    def begin(self, question: Question) -> Any:
        """The answer to a first question, for which the process is started: once, a second one would find files.

        A `CandidateError` if it is lost, a `TritonKernelError` if it cannot be started, or says so.
        """
        self._worker = TaskWorker(self._task)
        return self._worker.ask(question)

    def ask(self, question: Question) -> Any:
        """The answer to a further question; a `CandidateError` if the process is or was lost, or cannot answer."""
        if self._worker is None:
            raise CandidateError(Status.CRASH, self._end)
        try:
            return self._worker.ask_again(question)
        except (CandidateError, TritonKernelError) as error:
            self.close()
            self._end = str(error)  # which its other arm in these rounds, a twin, is told as well
            raise CandidateError(Status.CRASH, self._end) from error

    def close(self) -> None:
        """End the process with all that it has started."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @property
    def alive(self) -> bool:
        """Tell whether the process can take samples."""
        return self._worker is not None

    @property
    def loss(self) -> str:
        """How the process was lost in the last rounds; empty if it was not."""
        return "" if self.arm.error is None else str(self.arm.error)

    @property
    def measurement(self) -> Measurement | None:
        """The samples of the last rounds; None if no round counted, or the process was lost."""
        return None if self.loss or not self.arm.visits else self.arm.measurement("wall")

    @property
    def one_ms(self) -> float:
        """Milliseconds of one sample so far, or of a typical one."""
        return statistics.median(self.arm.samples_ms or [_VISITS.visit_ms / 3])

    def enter(self, samples: int) -> Arm:
        """The arm for the next rounds, with so many samples in a visit."""
        self.arm = self.twin(samples)
        return self.arm

    def twin(self, samples: int) -> Arm:
        """A further arm beside that of the process."""
        return Arm(Sampler.of_taken(self.take), samples)

    def compare(self, baseline: Contender) -> None:
        """Take the ratio of the last rounds, in which both took part."""
        same = self is baseline
        self.relative = 1.0 if same else math.exp(Interval.of_gap(self.arm.values_ms, baseline.arm.values_ms).centre)


C = TypeVar("C", bound=Contender)


class Contest:
    """Rounds of contenders on a device, in turn with others who measure there; `wait` as for these `Turns`."""

    def __init__(self, device_name: str, wait: bool, rng: random.Random) -> None:
        self._wait, self._rng, self._load = wait, rng, CpuLoad()
        self.move(device_name)

    def move(self, device_name: str) -> None:
        """Go on on another device, which the contenders have chosen."""
        self.device_name, self.device = device_name, probe(device_name)
        self._turns = Turns(device_name, self._wait)
        self._timer = HostTimer.for_processes(device_name)  # one, so that a GPU rests between different rounds too

    def turn(self) -> AbstractContextManager[None]:
        """A turn on the device, to be held while anything runs there."""
        return self._turns.turn(Turns.key_of(self.device, self.device_name))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on waits, and on other programs that kept a CPU busy."""
        return (*self._turns.notes, *self._load.notes(self.device))

    def screen(self, one: Contender, baseline: Contender) -> None:
        """Time one beside the baseline in a few rounds; they have no ratio if one of them is lost."""
        arms = [each.enter(_VISITS.samples(each.one_ms)) for each in dict.fromkeys((one, baseline))]
        Rounds(timer=self._timer, rng=self._rng).run(arms, _SCREENING_ROUNDS)
        if not (one.loss or baseline.loss):
            one.compare(baseline)

    def race(self, baseline: C, others: Sequence[C], seconds: float, cost: Callable[[C], float]) -> C:
        """Race some beside the baseline; the winner, which is the baseline where none is proven faster.

        Among equals it is the one of least cost. Equal is what differs by no more than the one that was fastest so far
        and its twin. The baseline is no measure of that: its calls may wait for the host, whose times vary by tens of
        percent where a recorded graph's vary by one.
        """
        contenders = [baseline, *others]
        first = min(contenders, key=lambda each: each.relative)
        samples = _VISITS.samples(max(5.0, *(each.one_ms for each in contenders)))  # equally many are comparable
        twin, policy = first.twin(samples), RacePolicy(seconds=seconds)
        arms = [each.enter(samples) for each in contenders]
        self._guarded().race(arms, policy, beside=[twin], default=baseline.arm)
        timed = [each for each in contenders if each.measurement]
        if baseline not in timed:
            return baseline
        noise = Interval.of_gain(twin.values_ms, first.arm.values_ms) if twin.visits and first in timed else None
        standing = Rounds.standing(
            {each: each.arm for each in timed},
            baseline,
            preference={each: (cost(each), place) for place, each in enumerate(timed)},
            zone=policy.zone if noise is None else max(policy.zone, abs(noise.low), abs(noise.high)),
        )
        for each in timed:
            each.compare(baseline)
        return standing.decision.winner

    def confirm(self, best: Contender, baseline: Contender, seconds: float) -> tuple[float | None, str]:
        """Duel of one with the baseline in fresh processes: the ratio of times if it is faster, and that in words."""
        policy = replace(_VISITS, seconds=seconds)
        samples = policy.samples(max(best.one_ms, baseline.one_ms))
        try:
            arms = best.enter(samples), baseline.enter(samples), best.twin(samples)
            outcome = self._guarded().duel(arms, policy)
        except CandidateError as error:
            return None, f"a fresh process was lost: {error}"
        low, centre, high = (math.exp(it) for it in (outcome.gain.low, outcome.gain.centre, outcome.gain.high))
        text = (
            f"in fresh processes {best.name} is {gain_text(centre, (low, high))} as fast as {baseline.name}, "
            f"{len(best.arm.visits)} rounds, noise {outcome.noise:.1%}"
        )
        return 1 / centre if outcome.verdict == "faster" else None, text

    def _guarded(self) -> Rounds:
        return Rounds.guarded(self._timer, self.device_name, rng=self._rng)[0]
