"""`compare`: two callables run in turn, to say with an error interval which is faster."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from triton_ops.base import bar_console, require
from triton_ops.benchmark.timing import Contestant, blame, blame_calls_of, contestants_of, measuring, prepare
from triton_ops.exceptions import SettingsError
from triton_ops.request import TuneOptions
from triton_ops.timing import Arm, DuelPolicy, GuardSummary, Interval, Rounds, Sampler, Timer
from triton_ops.values import Measurement

Follow = Callable[[int, float], None]
"""Called after every round with the number of rounds so far and the seconds since the first began."""


@contextmanager
def rounds_bar(names: tuple[str, str], seconds: float, console: Any = None) -> Iterator[Follow]:
    """A bar that a comparison moves; nothing is drawn if stderr, or the console given, is no terminal."""
    if (console := bar_console(console)) is None:
        yield lambda _rounds, _elapsed_s: None
        return
    bars = require("rich.progress", "a progress bar")
    columns = (
        bars.TextColumn("{task.description}", markup=False), bars.BarColumn(bar_width=16),
        bars.TimeRemainingColumn(compact=True), bars.TextColumn("left at most"),
    )  # fmt: skip
    with bars.Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{names[0]} and {names[1]} are prepared", total=None)

        def follow(rounds: int, elapsed_s: float) -> None:
            caption = f"{names[0]} and {names[1]}, {rounds} {'round' if rounds == 1 else 'rounds'}"
            progress.update(task, description=caption, total=seconds, completed=min(elapsed_s, seconds))

        yield follow


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Verdict on two contestants: whether `a` is faster than `b`. Percent are of the faster one's time.

    Attributes:
        verdict: `faster`, `slower` or `not distinguishable`, of a relative to b.
        percent: How much longer the slower contestant takes; positive if a is faster, negative if a is slower.
        interval: 95 % interval of `percent`, by resampling rounds.
        needed: A difference of up to this many percent counts as none in this comparison.
        noise: How many percent a differed from its twin at most: the far end of the 95 % interval of that difference.
        confidence: `ok`, or in words why the verdict should not be relied on.
        names: The names of a and b.
        a: Times of a.
        b: Times of b, taken in the same rounds.
        guard: Summary of the device's sensors during the comparison.
        notes: Remarks on how it was measured, such as that other programs used the CPUs.
    """

    verdict: Literal["faster", "slower", "not distinguishable"]
    percent: float
    interval: tuple[float, float]
    needed: float
    noise: float
    confidence: str
    names: tuple[str, str]
    a: Measurement
    b: Measurement
    guard: GuardSummary
    notes: tuple[str, ...] = ()

    @property
    def a_ms(self) -> float:
        """Median milliseconds of one call of a."""
        return self.a.median_ms

    @property
    def b_ms(self) -> float:
        """Median milliseconds of one call of b."""
        return self.b.median_ms

    @property
    def speedup(self) -> float:
        """The time of b divided by that of a, inside rounds."""
        return _ratio(self.percent)

    @property
    def speedup_interval(self) -> tuple[float, float]:
        """95 % interval of `speedup`."""
        low, high = map(_ratio, self.interval)
        return low, high

    @property
    def a_spread(self) -> float:
        """(p80 − p20) / median of a."""
        return self.a.spread

    @property
    def b_spread(self) -> float:
        """(p80 − p20) / median of b."""
        return self.b.spread

    @property
    def mode(self) -> str:
        """The clock and the state of the cache, such as `host` or `graph-cold`."""
        return self.a.mode

    @property
    def rounds(self) -> int:
        """The number of rounds in which both were measured."""
        return self.a.rounds

    def __str__(self) -> str:
        a, b = self.names
        if self.verdict == "not distinguishable":
            low, high = self.interval
            text = f"{a} and {b} are not distinguishable ({low:+.1f} to {high:+.1f} %, needed {self.needed:.1f} %)"
        else:
            near, far = sorted(map(abs, self.interval))
            text = (
                f"{a} is {_number(abs(self.percent))} % {self.verdict} than {b} ({_number(near)} to {_number(far)} %)"
            )
        doubt = "" if self.confidence == "ok" else f"; low confidence: {self.confidence}"
        notes = "".join(f"\nNote: {note}" for note in self.notes)
        return f"{text}, {self.rounds} rounds, {self.mode}{doubt}{notes}"


def compare(
    a: Any,
    b: Any,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    names: Sequence[str] = ("a", "b"),
    cold: bool = True,
    rounds: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    device: str | None = None,
    wait: bool = True,
) -> Comparison:
    """Find out whether `a` is faster than `b`, by running both in turn.

    Each contestant is a callable, or a pair of an `Operation`, a kernel or a callable, and its config. Both are called
    with the same arguments. Tensors, NumPy arrays, lists, dicts, sets and bytearrays among them are copied, so
    that a contestant changes neither the caller's arguments nor those of the other contestant. If a contestant changes
    arguments that it reads, all of them are restored before every sample of both contestants, outside the timed region.
    Objects of other classes are passed as they are.
    A pair with an `Operation` needs no arguments: it then runs on the operation's default problem.

    A round visits a, b, and a twin of a, in random order. A difference counts if its interval excludes 0, and if it is
    larger than 0.5 %, than the difference of a from its twin, and than one tick of the clock. Effects that differ from
    process to process, such as the placement of code, are the same in all rounds: to be sure of 1 %, compare in several
    processes.

    Args:
        a: The first contestant.
        b: The second contestant.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        names: Names of a and b in the result and in errors.
        cold: On a GPU, whether L2 holds nothing of the arguments when a call starts, as in a model. Below 0.02 ms this
            needs tensors in the arguments; callables without any are then timed warm.
        rounds: How many rounds, 6 or more; None stops at 12, 24, 48 or 96, as soon as the answer is clear.
        seconds: No round is started after this time, except for the first 6.
        seed: Seed of the orders, and of an operation's inputs.
        device: `cpu`, `cuda` or `cuda:N`; None follows the arguments, then an operation. Callables that hold their
            CUDA tensors themselves and take no tensor need `cuda`, or they are timed by the host's clock.
        wait: Whether to wait while another process measures on the same GPU; False raises a `DeviceError` instead.

    Returns:
        The verdict with its interval, both times and what the machine said meanwhile.

    Raises:
        KernelTypeError: A contestant is not callable, or not with these arguments.
        TargetError: A contestant raised.
        SettingsError: `rounds`, `seconds` or `names` is out of range.
        DeviceError, SpaceError, ShapeMismatchError: Device, config or arguments do not fit.

    Cost: on a CPU three copies of the tensors, about 15 ms a round for short calls and three calls a round for long
    ones; on a GPU also the copies that keep L2 cold, at most half of the free memory.
    """
    policy, seed = duel_policy(rounds, seconds), TuneOptions(seed=seed).seed
    _check_names(names)
    first, second = contestants_of(dict(zip(names, (a, b), strict=True)), args, kwargs, device, seed)
    with rounds_bar((first.name, second.name), policy.seconds) as follow:
        return compare_contestants(first, second, policy, cold=cold, seed=seed, wait=wait, follow=follow)


def _check_names(names: Any) -> None:
    if not isinstance(names, Sequence) or len(names) != 2 or not all(isinstance(it, str) for it in names):
        raise SettingsError(f"names are {names!r}; two different ones are needed, as text", hint='names=("old", "new")')
    if names[0] == names[1]:
        raise SettingsError(f"names are {tuple(names)!r}; two different ones are needed")


def duel_policy(rounds: Any, seconds: Any) -> DuelPolicy:
    """The limits of a comparison in rounds and seconds; a `SettingsError` if one is out of range."""
    if rounds is not None and (not isinstance(rounds, Integral) or int(rounds) < DuelPolicy.LEAST_ROUNDS):
        raise SettingsError(
            f"rounds is {rounds!r}; a whole number of {DuelPolicy.LEAST_ROUNDS} or more bounds a difference at 95 %"
        )
    if not isinstance(seconds, Real) or not float(seconds) > 0:
        raise SettingsError(f"seconds is {seconds!r}; it must be a positive number")
    limit_s = float(seconds)
    return DuelPolicy(seconds=limit_s) if rounds is None else DuelPolicy(checkpoints=(int(rounds),), seconds=limit_s)


def compare_contestants(
    a: Contestant, b: Contestant, policy: DuelPolicy, *, cold: bool = True, seed: int = 0, wait: bool = True,
    choose: Callable[..., Timer] | None = None, clock: Callable[[], float] = time.monotonic,
    follow: Follow = lambda _rounds, _elapsed_s: None,
) -> Comparison:  # fmt: skip
    """Compare two contestants that take the same arguments; it raises as `compare`."""
    with measuring(a.device_name, wait) as notes:
        rng = random.Random(seed)
        timer, samplers = prepare([a, b, a], sets=3, cold=cold, choose=choose)  # the second a is the twin
        visit_samples = policy.samples(_longest_ms((a, b), timer, samplers))
        first, second, twin = (Arm(sampler, visit_samples) for sampler in _taking_turns(samplers, rng))
        start = clock()
        rounds, guard = Rounds.guarded(
            timer, a.device_name, rng=rng, clock=clock,
            follow=lambda counts: follow(len(first.visits) + counts, clock() - start),
        )  # fmt: skip
        try:
            outcome = rounds.duel((first, second, twin), policy)
        except Exception as error:
            arms = zip((a, b, a), (first, second, twin), strict=True)
            failed = [contestant.name for contestant, arm in arms if arm.error is not None]
            raise blame(failed[0] if failed else f"{a.name} or {b.name}", error) from error
        summary, mode = guard.summary(), timer.mode
        return Comparison(
            verdict=outcome.verdict, percent=_percent(outcome.gain.centre),
            interval=(_percent(outcome.gain.low), _percent(outcome.gain.high)), needed=_percent(outcome.needed),
            noise=_percent(outcome.noise), confidence=_confidence(outcome.itself, (first, second), summary),
            names=(a.name, b.name), a=first.measurement(mode), b=second.measurement(mode), guard=summary, notes=notes(),
        )  # fmt: skip


def _longest_ms(contestants: Sequence[Contestant], timer: Timer, samplers: Sequence[Sequence[Sampler]]) -> float:
    """The longest sample: visits have the same number for both, since values of equally many are comparable."""
    lengths_ms = []
    for contestant, (sampler, *_) in zip(contestants, samplers, strict=False):
        with blame_calls_of(contestant):
            lengths_ms.append(sampler.take(timer, 1)[0] * sampler.launches)
    return max(lengths_ms)


def _taking_turns(rows: Sequence[Sequence[Sampler]], rng: random.Random) -> list[Sampler]:
    """One sampler per contestant, which takes another argument set each round; in a round no two share a set.

    On a CPU the address of the arguments makes equal calls differ by some percent. Over six rounds every contestant
    uses every set equally often, and each pair of contestants has each pair of sets both ways round, so that the
    addresses do not change the median of the differences.
    """
    orders = list(itertools.permutations(range(len(rows[0])))) if len(rows[0]) > 1 else [(0,) * len(rows)]
    rng.shuffle(orders)
    return [Sampler.in_turn([row[order[place]] for order in orders]) for place, row in enumerate(rows)]


def _confidence(itself: Interval, arms: Sequence[Arm], guard: GuardSummary) -> str:
    if guard.confidence == "low":
        return guard.confidence_reason
    if itself.disturbed:
        percent = _number(abs(_percent(itself.centre)))
        return f"a call differed from itself by {percent} %; something else was running"
    coarse = any(arm.coarse for arm in arms)
    return "calls this short are few ticks of the clock; let each do more work" if coarse else "ok"


def _percent(share: float) -> float:
    """A difference of logarithms in percent of the smaller value, with its sign."""
    return math.copysign(100 * math.expm1(abs(share)), share)


def _ratio(percent: float) -> float:
    return 1 + percent / 100 if percent >= 0 else 1 / (1 - percent / 100)


def _number(percent: float) -> str:
    return f"{percent:.1f}" if percent < 100 else f"{percent:.0f}"
