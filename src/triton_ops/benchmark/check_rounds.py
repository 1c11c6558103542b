"""Rounds in which a candidate, its reference and a twin of that run the same new inputs, each in its own process.

A round draws a block of inputs that no call has had. The time of a block is the parent's. On a CPU it goes from before
the inputs are given away until the results are in its own memory, less the least time of a block that computes nothing.
On a GPU, where copies take several times as long as many kernels, it goes from the arrival of the inputs to the end of
the calls; what passes outside of these, beyond the reference's, counts against the candidate. Every result is judged
by the reference process's for the same inputs, and some, which nobody can foresee, by the reference in higher
precision.

Between some rounds is a block that is judged and not timed. The candidate cannot know it before it sees the inputs: as
many as in a timed block, of nearby extents, other strides, or the last ones again.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from triton_ops.backend import Arguments
from triton_ops.benchmark.check_inputs import Inputs, inputs_near
from triton_ops.benchmark.check_results import Examination, Fault, OutOfTimeError
from triton_ops.benchmark.trial import BlockResult, Sides
from triton_ops.exceptions import TargetError
from triton_ops.timing import Arm, DuelOutcome, DuelPolicy, HostTimer, Interval, Pace, Rounds, Sampler

ZONE = 0.02
"""Differences up to this share count as none: two processes of one program may differ by so much."""
_CHECKPOINTS, _CHANCE = (12, 24, 48, 96), 0.003
_BLOCK_MS, _BLOCK_MS_ON_GPU, _MOST_BLOCK_MS, _MOST_CALLS = 6.0, 1.0, 150.0, 256
_FIRST_BLOCKS, _ECHOES = 3, 4
_BESIDE = 1.1  # of the calls' time: a larger one with what passes outside of them is not to be believed
_MOST_BETWEEN = 6  # rounds, from a block that is not timed to the next
_LONG_MS, _FEW, _BY_FAR = 400.0, 2, math.log(2)  # of long calls two rounds tell if each takes twice as long
_GRACE_S = 30.0  # of a race whose least rounds take longer than its time, as on a busy machine


class FaultError(Exception):
    """A result in a timed call is wrong; `fault` says how."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


@dataclass(frozen=True)
class Race:
    """The outcome of rounds: the duel's, the times of a call in milliseconds, and what else was seen of them.

    `outside` is what passes outside of the candidate's calls, beyond what does so with the reference, as the logarithm
    of the times with it and without. Where the times are those of the `calls_alone`, a candidate is faster only by more
    than that. Elsewhere it could spare the copies of its inputs: it is faster only if its calls are, by `calls_gain`.
    """

    outcome: DuelOutcome
    reference_ms: float
    candidate_ms: float
    outside: Interval
    calls_gain: Interval
    calls: int
    rounds: int
    moved_bytes: int
    calls_alone: bool = False

    @property
    def gain(self) -> Interval:
        """The logarithm of the reference's time over the candidate's: positive if the candidate is faster."""
        gain = self.outcome.gain
        return Interval(-gain.centre, -gain.high, -gain.low)

    @property
    def verdict(self) -> str:
        """The answer: faster, slower, same or undecided."""
        if self.is_few:
            return "slower" if self.candidate_ms > _LONG_MS and self.gain.high < -_BY_FAR else "undecided"
        if self.outcome.verdict == "faster":  # the first of the duel, the reference
            return "slower"
        if self.outcome.verdict == "slower":
            return "undecided" if self.may_gain_outside else "faster"
        return "same" if max(abs(self.gain.low), abs(self.gain.high)) <= ZONE else "undecided"

    @property
    def is_few(self) -> bool:
        """Tell rounds of long calls that are too few for any verdict but one that is plain."""
        return self.rounds < DuelPolicy.LEAST_ROUNDS

    @property
    def may_gain_outside(self) -> bool:
        """Tell whether what the candidate gains may be outside of its calls."""
        may = self.gain.low <= self.outside.high if self.calls_alone else self.calls_gain.low <= 0
        return self.outcome.verdict == "slower" and may

    @property
    def works_outside(self) -> bool:
        """Tell whether more than a tenth of the candidate's time passed outside of its calls, and not so there.

        Fewer rounds than a verdict needs tell nothing on a busy machine.
        """
        return self.rounds >= _CHECKPOINTS[0] and self.outside.low > math.log(_BESIDE)

    def joined(self, again: Race) -> Race:
        """This race and another one in new processes as one: what both say, with the wider ends of their intervals."""
        one, two = self.outcome, again.outcome
        ends = Interval(
            (one.gain.centre + two.gain.centre) / 2, min(one.gain.low, two.gain.low), max(one.gain.high, two.gain.high)
        )
        verdict = one.verdict if one.verdict == two.verdict else "not distinguishable"
        needed = max(one.needed, two.needed)
        outside = self.outside if self.outside.low <= again.outside.low else again.outside
        calls_gain = self.calls_gain if self.calls_gain.low <= again.calls_gain.low else again.calls_gain
        return replace(
            self, outcome=DuelOutcome(verdict, ends, two.itself, needed), outside=outside, calls_gain=calls_gain,
            rounds=self.rounds + again.rounds,
        )  # fmt: skip


class TimedRounds:
    """Rounds at one shape, whose results are judged."""

    def __init__(self, sides: Sides, asked: Inputs, device: str, arena_bytes: int, judge: Examination) -> None:
        self._sides, self._asked, self._device, self._judge = sides, asked, device, judge
        self._calls_alone = device != "cpu"
        self._block_ms = _BLOCK_MS_ON_GPU if self._calls_alone else _BLOCK_MS
        self._pace = Pace() if self._calls_alone else Pace(duty=1.0)
        self._arena_bytes, self._call_bytes = arena_bytes, 2 * asked.nbytes + 1  # padded rows take more
        self._turns: dict[str, int] = defaultdict(int)
        self._turn, self._block, self._results = 0, list[Arguments](), dict[str, BlockResult]()
        self._near, self._due = inputs_near(asked, random.Random(secrets.randbits(64))), 1
        self._inputs = list[Inputs]()
        self._times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._calls, self._echo_ns, self._moved_bytes = 1, 0, asked.nbytes

    def run(self, seconds: float) -> Race:
        """The outcome after some seconds at most; `FaultError` at the first wrong result.

        At least six rounds are run, or two of long calls. `OutOfTimeError` where even these take far too long.
        """
        self._judge.check_time()
        is_long = self._calibrate()
        end = time.monotonic() + seconds  # from here, since other processes may have started
        self._end, self._due = end + seconds + _GRACE_S, self._due + (_FEW if is_long else 0)
        first, second, twin = (Arm(Sampler.of_taken(partial(self._taken, name), self._calls)) for name in Sides.NAMES)
        arms = first, second, twin
        rounds, _ = Rounds.guarded(HostTimer(), self._device, rng=random.Random(secrets.randbits(64)))
        while True:
            left_s, few = end - time.monotonic(), is_long and not arms[0].visits
            policy = DuelPolicy(
                checkpoints=(_FEW,) if few else _CHECKPOINTS, seconds=left_s, zone=ZONE, chance=_CHANCE)  # fmt: skip
            race = self._race(rounds.duel(arms, policy), arms)
            more = race.verdict == "undecided" if few else race.may_gain_outside and race.rounds < _CHECKPOINTS[-1]
            if not more or time.monotonic() > end:
                self._check()
                return race

    def _race(self, outcome: DuelOutcome, arms: Sequence[Arm]) -> Race:
        reference_ms, candidate_ms, _ = (statistics.median(arm.values_ms) for arm in arms)
        own, found = ([calls for _, calls in self._times[name]] for name in ("reference", "candidate"))
        return Race(
            outcome, reference_ms, candidate_ms, self._outside(), Interval.of_gain(own, found), self._calls,
            len(arms[0].visits), self._moved_bytes, self._calls_alone,
        )  # fmt: skip

    def _calibrate(self) -> bool:
        """Find the number of calls in a block, and what a block costs without them; blocks look as they do later.

        Gives whether one call is longer than a block, so that nothing more is to be found out.
        """
        call_ms = dict.fromkeys(Sides.NAMES, math.inf)
        for _ in range(_FIRST_BLOCKS):
            self._first_block()
            for name, ((wall_ns, calls_ns),) in self._times.items():
                block_ns = calls_ns if self._calls_alone else max(wall_ns - self._echo_ns, 1e3)
                call_ms[name] = min(call_ms[name], block_ns / self._calls / 1e6)
            if self._calls == 1 and max(call_ms.values()) > _LONG_MS:
                break
            wanted = min(self._block_ms / min(call_ms.values()), _MOST_BLOCK_MS / max(call_ms.values()))
            fitting = self._arena_bytes // self._call_bytes
            self._calls = max(1, min(math.ceil(wanted), _MOST_CALLS, fitting))
        else:
            self._first_block()
        self._times.clear()
        return max(call_ms.values()) > _LONG_MS

    def _first_block(self) -> None:
        """A block whose times include what it costs without calls, which is found out after it."""
        self._renew()
        self._times.clear()
        self._echo_ns = 0
        for name in Sides.NAMES:
            self._times[name].append(self._time_ns(name))
        own = self._results["reference"]
        self._call_bytes = max(self._call_bytes, own.used_bytes // self._calls + 1)
        if not self._calls_alone:
            self._echo_ns = min(self._sides.echo(self._block, own.results) for _ in range(_ECHOES))
        made = () if any(own.aliases[0]) else Arguments((own.results[0],)).tensors()
        self._moved_bytes = self._asked.nbytes + sum(each.nbytes for each in made)
        self._check()

    def _renew(self) -> None:
        self._inputs = [replace(self._asked, seed=secrets.randbits(62)) for _ in range(self._calls)]
        self._block = [each.made(self._device) for each in self._inputs]

    def _between(self) -> None:
        """Sometimes, before a round, a block that is not timed."""
        if self._turn >= self._due:
            self._due = self._turn + 1 + secrets.randbelow(_MOST_BETWEEN)
            near = next(self._near)
            if fault := self._judge.fault_between([replace(near, seed=each.seed) for each in self._inputs]):
                raise FaultError(fault)

    def _taken(self, name: str, count: int) -> list[float]:
        """Samples of a side, of which the first to come in a round draws its inputs."""
        samples = []
        for _ in range(count):
            self._turns[name] += 1
            if self._turns[name] > self._turn:
                self._check()
                if time.monotonic() > self._end:
                    raise OutOfTimeError("its calls take longer in the race than before it: more seconds would tell")
                self._turn = self._turns[name]
                self._between()
                self._renew()
            wall_ns, calls_ns = self._time_ns(name)
            self._times[name].append((wall_ns, calls_ns))
            samples.append((calls_ns if self._calls_alone else wall_ns) / self._calls / 1e6)
        return samples

    def _time_ns(self, name: str) -> tuple[float, float]:
        """The time of the block on a side, as a whole and with its calls."""
        with self._pace.stretch():  # results are judged outside, which counts as rest
            run = self._judge.candidate_block if name == "candidate" else self._sides.by_name[name].run
            done = run(self._block)
        if done.refused:
            if name == "candidate" and (fault := self._judge.timed_fault(self._asked, self._block, done, done)):
                raise FaultError(fault)
            message = f"the reference, in a block of {self._calls} calls at {self._asked.shape}: {done.refused}"
            raise TargetError(message, hint="check it at smaller shapes, or with more free memory")
        self._results[name] = done
        return max(done.wall_ns - self._echo_ns, 0.01 * done.wall_ns), max(done.calls_ns, 1)

    def _check(self) -> None:
        """Judge the results of the block that was run last."""
        if {"reference", "candidate"} <= self._results.keys():
            found, own = self._results["candidate"], self._results["reference"]
            if fault := self._judge.timed_fault(self._asked, self._block, found, own):
                raise FaultError(fault)
        self._results.clear()

    def _outside(self) -> Interval:
        """The candidate's time with what passes outside of its calls, beyond that of the reference, over without."""
        pairs = list(zip(self._times["candidate"], self._times["reference"], strict=True))
        more = [max(wall - calls - (own_wall - own_calls), -calls / 2)
                for (wall, calls), (own_wall, own_calls) in pairs]  # fmt: skip
        alone = [calls for (_, calls), _ in pairs]
        return Interval.of_gain([sum(each) for each in zip(alone, more, strict=True)], alone)
