"""Rounds over launches side by side: a screening of each, then the race of the finalists, or a duel of two.

A round visits every surviving arm once, in a new random order; every second round runs the previous order backwards.
A visit takes a few samples, because the drift of clocks and temperatures is the same for all arms only in a short
round, and counts by the mean of their middle (`Measurement.middle_mean`). At a few scheduled rounds, the checkpoints,
an arm is dropped if it is slower than the leader by more than the indifference zone, with confidence. The race ends
when all remaining arms are proven equal, or, if its policy says so, when no rival can be much faster than the leader;
or when the budget is spent.

Source: racing by blocks (irace, López-Ibáñez 2016) with an indifference zone. The design and its simulation are in
docs/concepts/measurement.md.

A screening takes a few samples of a candidate. It ranks candidates roughly and never decides.

A duel has a twin of its first launch as a third arm: that launch once more. The first and its twin differ only by
noise, so a difference between the two launches counts only if it is larger.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

from triton_ops.base import warn
from triton_ops.device import DeviceSpec, TorchDevice
from triton_ops.timing.gpu_timers import CaptureError, choose_gpu_timer, sets_needed, timer_of
from triton_ops.timing.policies import DuelPolicy, RacePolicy, ScreenPolicy, fitting
from triton_ops.timing.race_statistics import (
    Z95,
    DuelOutcome,
    Interval,
    Name,
    Standing,
    by_far,
    clearly_beats,
    few_tell,
    gaps_to,
    is_plain,
    judge,
    relative_levels,
)
from triton_ops.timing.timer import BURST_MS, Guard, HostTimer, Launch, Pending, Sampler, Timer, guard_for
from triton_ops.values import Measurement

_COARSEST_TICK_MS = 0.001024  # the coarsest step of a GPU's events met so far; most clocks are finer
_FEW_TICKS = 20  # a time of fewer ticks of its clock is known to no better than 5 %


@dataclass
class Arm:
    """One launch in a comparison, with its samples in milliseconds: a list for each round that counted.

    `dropped_at` is how many rounds it had run when it was dropped; None while it takes part. An arm with an error,
    which the launch raised, runs no further round.
    """

    LEAST_SAMPLE_MS: ClassVar[float] = _FEW_TICKS * _COARSEST_TICK_MS  # a longer one is known to 5 %, on any clock

    sampler: Sampler
    visit_samples: int = 1
    _: KW_ONLY
    visits: list[list[float]] = field(default_factory=list)
    dropped_at: int | None = None
    error: Exception | None = None

    @property
    def values_ms(self) -> list[float]:
        """The value of each visit, one per round that counted."""
        return [Measurement.middle_mean(samples) for samples in self.visits]

    @property
    def samples_ms(self) -> list[float]:
        """All samples in the order taken."""
        return [sample for samples in self.visits for sample in samples]

    @property
    def visit_ms(self) -> float:
        """The time of the arm's last visit; 0 before the first visit."""
        return statistics.median(self.visits[-1]) * self.sampler.launches * self.visit_samples if self.visits else 0.0

    @property
    def running(self) -> bool:
        """Check whether the arm takes part in the next round."""
        return self.dropped_at is None and self.error is None

    @property
    def tick_ms(self) -> float:
        """Step of the clock, per launch: the smallest difference of two samples.

        It is at most that of the coarsest clock, because samples may also be few, far apart, or all the same.
        """
        steps = [b - a for a, b in pairwise(sorted(set(self.samples_ms)))]
        return min([*steps, _COARSEST_TICK_MS / self.sampler.launches])

    @property
    def coarse(self) -> bool:
        """Check whether its shortest sample is so few ticks of the clock that it is known to no better than 5 %."""
        return min(self.samples_ms) < _FEW_TICKS * self.tick_ms

    def measurement(self, mode: str) -> Measurement:
        """Its samples of all rounds that counted, at least one, in the mode of the timer."""
        return Measurement(tuple(self.samples_ms), mode, len(self.visits))


def next_order(arms: Sequence[Arm], before: Sequence[Arm], turn: int, rng: random.Random) -> list[Arm]:
    """The order of round `turn`: a new random order in even rounds, and the previous order backwards in odd rounds.

    No arm therefore always follows the same other arm: the heat and the cache contents that an arm leaves behind fall
    on all others alike.
    """
    if turn % 2:
        return [arm for arm in reversed(before) if arm.running]
    running = [arm for arm in arms if arm.running]
    return rng.sample(running, len(running))


def visit(order: Sequence[Arm], timer: Timer) -> list[tuple[Arm, list[float]]]:
    """Run one round, in bursts short enough for a GPU's highest clock; the samples of the arms that did not fail."""
    samples: list[tuple[Arm, list[float]]] = []
    for burst in _bursts(order):
        with timer.round():
            queued = [(arm, pending) for arm in burst if (pending := _queue_visit(arm)) is not None]
        samples += [(arm, collect()) for arm, collect in queued]
    return samples


def _bursts(order: Sequence[Arm]) -> list[list[Arm]]:
    """The arms in their order, split wherever the work would last longer than one burst."""
    bursts: list[list[Arm]] = [[]]
    took_ms = 0.0
    for arm in order:
        took_ms += arm.visit_ms
        if bursts[-1] and took_ms > BURST_MS:
            bursts.append([])
            took_ms = arm.visit_ms
        bursts[-1].append(arm)
    return bursts


def _queue_visit(arm: Arm) -> Pending | None:
    try:
        return arm.sampler.queue(arm.visit_samples)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - one candidate's failure is its own, SystemExit too; the others go on
        failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        arm.error = failure.with_traceback(None)  # the traceback's frames would keep the launch's memory allocated
        return None


_PATIENCE = 8  # rounds after which the time limit holds even if fewer than two counted
_LONG_ROUND_S = 0.1  # no passing state of a device lasts for several rounds so long
_FEW_ROUNDS = (4, 6, 8, 12, 16)  # of long launches, after which a race asks whether it can tell, up to the last
_LONGEST_SCREENING_MS = 1000.0
_LONG_MS, _BY_FAR = 1.0, 2.0  # of a launch; the clock of a busy chip does not change so much between two launches
_ESTIMATE = ScreenPolicy(screening_ms=3.0, least=1, most=5)
_MOST_QUEUED = 32  # samples in a round: with more, a GPU's queue is full, and waiting for the host enters the times


@dataclass(kw_only=True)
class Rounds:
    """Rounds in which launches run side by side, on one timer.

    `rng` draws the orders. `keep` is called after every round; False discards it for all arms alike, as a round in
    which the GPU was throttled. Each screening, race and duel is inside a `turn`, in which nobody else measures.
    """

    timer: Timer
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    keep: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    turn: Callable[[], AbstractContextManager[object]] = nullcontext

    @classmethod
    def guarded(
        cls, timer: Timer, device_name: str, *, since_s: float | None = None,
        follow: Callable[[bool], object] = lambda _: None, **more: Any,
    ) -> tuple[Rounds, Guard]:  # fmt: skip
        """Rounds that count as the guard of a device says, and that guard, which watches from `since_s` on, or now.

        `follow` is called after each round with whether it counts; `more` are further fields.
        """
        guard = guard_for(device_name, since_s)

        def keep() -> bool:
            counts = guard.round_ok()
            follow(counts)
            return counts

        return cls(timer=timer, keep=keep, **more), guard

    def run(self, arms: Sequence[Arm], count: int) -> None:
        """Run up to `count` rounds over arms, whose visits and errors are filled in; only one that fails is dropped."""
        rounds = self._rounds(arms)
        for _ in range(count):
            self._counts(next(rounds))

    def race(
        self, arms: Sequence[Arm], policy: RacePolicy, *, beside: Sequence[Arm] = (), default: Arm | None = None
    ) -> str:
        """Run rounds until the survivors are decided, the last checkpoint is reached, or the time is used up.

        The arms' visits, errors and `dropped_at` are filled in, by `drop_slower`. Arms `beside` run in every round, are
        never dropped, and cause no arm to be dropped: twins, by which the noise is known. Returns why the race ended:
        `proven`, `rounds`, `seconds`, or `one arm`.
        """
        with self.turn():
            now = self.clock()
            end, longest_s = now + policy.seconds, 0.0
            rounds, turn, counted = self._rounds([*arms, *beside]), 0, 0
            while counted < policy.checkpoints[-1]:
                if sum(arm.running for arm in arms) < 2:
                    return "one arm"
                is_late, fits = now > end, now + longest_s <= end + policy.few_s
                if is_late and (counted >= 2 or turn >= _PATIENCE) and not (fits and counted < _FEW_ROUNDS[-1]):
                    return "seconds"
                counted, turn = counted + self._counts(next(rounds)), turn + 1
                before, now = now, self.clock()
                longest_s, is_late = max(longest_s, now - before), now > end
                running = [arm for arm in arms if arm.running]
                if is_late and counted == 2 and all_plain(running):
                    return "proven"
                due = counted in policy.checkpoints or (is_late and counted in _FEW_ROUNDS)
                if due and not drop_slower(running, policy, default, is_late=is_late, few=longest_s > _LONG_ROUND_S):
                    return "proven"
            return "rounds"

    def duel(self, arms: tuple[Arm, Arm, Arm], policy: DuelPolicy) -> DuelOutcome:
        """Run rounds of a first arm, a second and the first's twin until the answer is clear, or a limit is reached.

        The arms' visits and errors are filled in; what a launch raised is raised.
        """
        with self.turn():
            end = self.clock() + policy.seconds
            rounds, counted = self._rounds(arms), 0
            while counted < policy.checkpoints[-1] and not (counted >= policy.LEAST_ROUNDS and self.clock() > end):
                samples = next(rounds)
                for arm in arms:
                    if arm.error is not None:
                        raise arm.error
                if self._counts(samples):
                    counted += 1
                    if counted in policy.checkpoints and _is_clear(_judge_arms(arms, policy), arms, policy):
                        break
            return _judge_arms(arms, policy)

    @staticmethod
    def standing(arms: Mapping[Name, Arm], default: Name | None = None, **more: Any) -> Standing[Name]:
        """The standing of arms by name after their rounds; `more` are further fields of it."""
        rows_ms = {name: arm.values_ms for name, arm in arms.items()}
        dropped = [name for name, arm in arms.items() if arm.dropped_at is not None]
        return Standing(rows_ms=rows_ms, default=default, dropped=dropped, **more)

    def screen(
        self, sampler: Sampler, policy: ScreenPolicy, best: float | None = None, *, beside: Sampler | None = None,
        best_ms: float = 0.0,
    ) -> tuple[list[float], float]:  # fmt: skip
        """Take a few samples, in milliseconds per launch; also the launch's time over that of the launch `beside`.

        The two take samples in turn, so that they share one power state and one load. Ratios to the same launch are
        therefore comparable even if minutes or a compilation lie between two screenings. The times of `policy` are
        those of both together. `best` is the ratio of the best candidate so far, or its milliseconds where nothing runs
        beside, whose ratio is 1; None for the first. `best_ms` are the milliseconds of that candidate. Where it takes
        1 ms or more, a launch that takes twice as long, and is hopeless, is not compared with the launch `beside`.
        """
        with self.turn():
            if best is not None and beside is not None and best_ms >= _LONG_MS:
                samples = sampler.take(self.timer, 1)
                if samples[0] > max(_BY_FAR, policy.hopeless) * best_ms:
                    return samples, best * samples[0] / best_ms
                others = beside.take(self.timer, 1)
            else:
                samples, others = self._in_turn(sampler, beside, 1)
            unit_ms = others[0] if others else 1.0
            if best is not None and samples[0] > policy.hopeless * best * unit_ms:
                return samples, samples[0] / max(unit_ms, 1e-9) if others else 1.0
            both_ms = samples[0] * sampler.launches + (0.0 if beside is None else unit_ms * beside.launches)
            least = fitting(both_ms, _LONGEST_SCREENING_MS, 1, policy.least)
            most = fitting(both_ms, policy.screening_ms, least, policy.most)
            more, more_others = self._in_turn(sampler, beside, most - 1)
        samples, others = samples + more, others + more_others
        return samples, math.exp(Interval.of_gap(samples, others).centre) if others else 1.0

    def sample_ms(self, sampler: Sampler) -> float:
        """Milliseconds of one sample, by the median of a few."""
        return statistics.median(self.screen(sampler, _ESTIMATE)[0]) * sampler.launches

    def sample(self, sampler: Sampler, count: int, seconds: float = math.inf) -> list[float]:
        """Take so many samples; those of a round that does not count are taken again, in up to so many seconds.

        Where no round counts in time, the samples of the last one are returned.
        """
        end = self.clock() + seconds
        samples: list[float] = []
        while True:
            part = sampler.take(self.timer, min(count - len(samples), _MOST_QUEUED))
            samples += part if self.keep() else []
            if len(samples) >= count or self.clock() >= end:
                return samples or part

    def _in_turn(self, sampler: Sampler, beside: Sampler | None, samples: int) -> tuple[list[float], list[float]]:
        """Take samples of one or of both; every second pair runs in the opposite order."""
        if beside is None:
            return sampler.take(self.timer, samples), []
        own: list[Pending] = []
        others: list[Pending] = []
        pair = [(beside, others), (sampler, own)]
        with self.timer.round():
            for turn in range(samples):
                for which, queued in reversed(pair) if turn % 2 else pair:
                    queued.append(which.queue(1))
        return [sample for collect in own for sample in collect()], [ms for collect in others for ms in collect()]

    def _rounds(self, arms: Sequence[Arm]) -> Iterator[list[tuple[Arm, list[float]]]]:
        """The samples of one round after another; no arm's visit of a round counts yet."""
        order: list[Arm] = []
        for turn in itertools.count():
            order = next_order(arms, order, turn, self.rng)
            yield visit(order, self.timer)

    def _counts(self, samples: Sequence[tuple[Arm, list[float]]]) -> bool:
        """Give the arms the samples of a round, if it counts."""
        if not self.keep():
            return False
        for arm, visit_ms in samples:
            arm.visits.append(visit_ms)
        return True


def drop_slower(
    running: Sequence[Arm], policy: RacePolicy, default: Arm | None = None, *, is_late: bool = False, few: bool = False
) -> bool:
    """Drop the arms that are proven slower than the leader; returns whether the policy is undecided about another.

    The arms must all have the same number of rounds. The arm `default` is undecided until the leader clearly beats it,
    and is dropped only where it is slower by far: whoever wins is compared with it in the rounds that both have. Where
    the race is late, and another one leads, it alone is waited for.
    """
    if len(running) < 2:
        return False
    rows = [arm.values_ms for arm in running]
    lead = leader(rows)
    undecided = False
    for i, (gap, error) in enumerate(gaps_to(rows, lead)):
        if i == lead:
            continue
        margin = policy.confidence * error
        if running[i] is default:
            # What lasts for a few rounds, such as the boost of a rested chip, can look like a gain near the zone.
            beats = few_tell if few or policy.few else clearly_beats
            beaten = gap > policy.zone + (policy.regret or 0.0) and beats(rows[lead], rows[i], policy.zone)
            undecided |= gap + margin > policy.zone and not beaten
            is_far = gap - margin > policy.zone and by_far(rows[lead], rows[i])
            running[i].dropped_at = len(rows[i]) if beaten and is_far else None
        elif gap - margin > policy.zone and Interval.of_gain(rows[i], rows[lead]).low > 0:  # few may agree by chance
            running[i].dropped_at = len(rows[i])
        elif not is_late or running[lead] is default:
            undecided |= policy.undecided(gap, error, len(rows[i]))
    return undecided


def all_plain(running: Sequence[Arm]) -> bool:
    """Check whether few rounds say enough of the leader beside each of the other arms."""
    rows = [arm.values_ms for arm in running]
    lead = leader(rows)
    return all(is_plain(rows[lead], row) for at, row in enumerate(rows) if at != lead)


def leader(rows_ms: Sequence[Sequence[float]]) -> int:
    """Position of the arm with the smallest time relative to the medians of its rounds."""
    levels = relative_levels(rows_ms)
    return min(range(len(levels)), key=levels.__getitem__)


def _judge_arms(arms: Sequence[Arm], policy: DuelPolicy) -> DuelOutcome:
    tick_ms = max(arm.tick_ms for arm in arms)
    first, second, twin = (arm.values_ms for arm in arms)
    return judge(first, second, twin, tick_ms=tick_ms, zone=policy.zone, chance=policy.chance)


def _is_clear(outcome: DuelOutcome, arms: Sequence[Arm], policy: DuelPolicy) -> bool:
    """Check whether more rounds would not change the answer: different by far, or proven to be within the zone."""
    if outcome.verdict == "not distinguishable":
        return max(abs(outcome.gain.low), abs(outcome.gain.high)) <= policy.zone
    error = Interval.of_gap(arms[1].values_ms, arms[0].values_ms).margin / Z95
    return abs(outcome.gain.centre) - policy.errors * error > outcome.needed


_SAMPLES = 3  # to find out whether a launch is too short for its timer
T = TypeVar("T")


def choose_timer(device: DeviceSpec, name: str, launch: Launch, *, cold: bool = True, capture: bool = True) -> Timer:
    """The clock of a device that suits a launch: on a CPU the host's."""
    return HostTimer() if device.is_cpu else choose_gpu_timer(name, launch, cold=cold, capture=capture)


class SharedTimer:
    """The timer of one tune or comparison: the first timed launch chooses it, and all later launches use it.

    `cold` says for a GPU whether L2 holds nothing of the arguments when a launch starts. `mode` is that of times taken
    before, with which new times must be comparable; None leaves the choice open. `choose` None is `choose_timer`, and
    something else only in simulations. `timer` is None until it is chosen.
    """

    def __init__(
        self, device: DeviceSpec, device_name: str, *, cold: bool = True, mode: str | None = None,
        choose: Callable[..., Timer] | None = None,
    ) -> None:  # fmt: skip
        self.device, self.device_name, self.cold = device, device_name, cold
        self.timer: Timer | None = None
        self._mode, self._choose = mode, choose or choose_timer

    @property
    def mode(self) -> str | None:
        """The mode of the timer, or, before there is one, the mode that was asked for; None if none was."""
        return self._mode if self.timer is None else self.timer.mode

    def start(self, launch: Launch) -> Timer:
        """The timer; `launch` chooses it if none is chosen yet."""
        if self.timer is None and self._mode is not None:
            on_gpu = self._mode.startswith(("event", "graph"))
            self.timer = timer_of(self._mode, self.device_name) if on_gpu else HostTimer()
        if self.timer is None:
            self.timer = self._choose(self.device, self.device_name, launch, cold=self.cold)
        return self.timer

    def start_by_length(self, launch: Launch) -> Timer:
        """The timer, warm where `launch` is too short for event pairs and has no tensors to rotate."""
        timer = self.start(launch)
        if timer.mode != "event-flushed" or launch.reset is not None:
            return timer
        took_ms = statistics.median(timer.prepare(launch).take(timer, _SAMPLES))
        if took_ms >= Arm.LEAST_SAMPLE_MS:
            return timer
        warm = self._choose(self.device, self.device_name, launch, cold=False)
        if warm.mode.startswith("graph"):
            warn("%.4f ms is too short for event pairs, and no tensors were given to rotate: timed warm", took_ms)
            self.timer = timer = warm
        return timer

    def prepare(self, launch: Launch) -> Sampler:
        """A sampler of a launch, as of `prepare_all`."""
        return self.prepare_all(launch, launch.sampler)

    def prepare_all(self, launch: Launch, prepare: Callable[[Timer], T]) -> T:
        """The result of `prepare` with the timer, made anew with another one where a launch cannot be captured.

        None is captured from then on. The timers are chosen by `launch`, one of those that are prepared.
        """
        try:
            return prepare(self.start(launch))
        except CaptureError as error:
            warn("%s: timed by event pairs instead", error)
            self.timer = self._choose(self.device, self.device_name, launch, cold=self.cold, capture=False)
            return prepare(self.timer)

    def sets(self, tensors: Iterable[Any]) -> int:
        """The number of sets of such tensors that keep L2 cold; 1 on a CPU and for a timer that flushes."""
        if not self.cold or (self.mode or "").endswith("flushed") or self.device.is_cpu:
            return 1
        touched = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sets_needed(sum(touched.values()), self.device.l2_bytes, TorchDevice(self.device_name).free_bytes) or 1
