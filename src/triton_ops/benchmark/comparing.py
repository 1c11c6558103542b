"""`compare`: two callables run in turn, to say with an error interval which is faster."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from triton_ops.base import bar_console, excerpt, require
from triton_ops.benchmark.judging import UNCHECKED, Judge
from triton_ops.benchmark.timing import Contestant, blame, blame_calls_of, contestants_of, measuring, prepare
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.request import TuneOptions
from triton_ops.timing import Arm, DuelPolicy, GuardSummary, Interval, Rounds, Sampler, Timer
from triton_ops.values import Measurement, as_callable

_LEAST_LIMIT_S = 5.0  # of one call: the first may have to load what it needs
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

    Of a wrong contestant no time counts: percent are NaN, and `a`, `b` and `guard` are None.

    Attributes:
        verdict: `faster`, `slower` or `not distinguishable`, of a relative to b; `wrong` where a result is.
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
        wrong: By name of a contestant how its results are wrong; empty if all are right.
        disputed: Whether `wrong` names both, since they differ and there is no reference: one of them is wrong.
        verified: What results were compared with, such as `a in float64`; begins with `nothing` where they were not.
    """

    verdict: Literal["faster", "slower", "not distinguishable", "wrong"]
    percent: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    needed: float = math.nan
    noise: float = math.nan
    confidence: str = "ok"
    names: tuple[str, str]
    a: Measurement | None = None
    b: Measurement | None = None
    guard: GuardSummary | None = None
    notes: tuple[str, ...] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)
    disputed: bool = False
    verified: str = f"nothing: {UNCHECKED}"

    @property
    def a_ms(self) -> float:
        """Median milliseconds of one call of a."""
        return math.nan if self.a is None else self.a.median_ms

    @property
    def b_ms(self) -> float:
        """Median milliseconds of one call of b."""
        return math.nan if self.b is None else self.b.median_ms

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
        return math.nan if self.a is None else self.a.spread

    @property
    def b_spread(self) -> float:
        """(p80 − p20) / median of b."""
        return math.nan if self.b is None else self.b.spread

    @property
    def mode(self) -> str:
        """The clock and the state of the cache, such as `host` or `graph-cold`; empty where nothing was timed."""
        return "" if self.a is None else self.a.mode

    @property
    def rounds(self) -> int:
        """The number of rounds in which both were measured."""
        return 0 if self.a is None else self.a.rounds

    def __str__(self) -> str:
        a, b = self.names
        notes = "".join(f"\nNote: {note}" for note in self.notes)
        if self.disputed:
            return f"{a} and {b} differ, and without a reference nothing says which is wrong; {self.wrong[b]}{notes}"
        if self.wrong:
            faults = "; ".join(f"{name} gives a wrong result: {fault}" for name, fault in self.wrong.items())
            return f"{faults}; compared with {self.verified}{notes}"
        if self.verdict == "not distinguishable":
            low, high = self.interval
            text = f"{a} and {b} are not distinguishable ({low:+.1f} to {high:+.1f} %, needed {self.needed:.1f} %)"
        else:
            near, far = sorted(map(abs, self.interval))
            text = (
                f"{a} is {_number(abs(self.percent))} % {self.verdict} than {b} ({_number(near)} to {_number(far)} %)"
            )
        doubt = "" if self.confidence == "ok" else f"; low confidence: {self.confidence}"
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
    reference: Callable[..., Any] | None = None,
    check: bool = True,
) -> Comparison:
    """Find out whether `a` is faster than `b`, by running both in turn, if both give right results.

    Each contestant is a callable, or a pair of an `Operation`, a kernel or a callable, and its config. Both are called
    with the same arguments. Tensors, NumPy arrays, lists, dicts, sets and bytearrays among them are copied, so
    that a contestant changes neither the caller's arguments nor those of the other contestant. If a contestant changes
    arguments that it reads, all of them are restored before every sample of both contestants, outside the timed region.
    Objects of other classes are passed as they are.
    A pair with an `Operation` needs no arguments: it then runs on the operation's default problem.

    Results are judged by the rule for verdicts, before anything is timed and once more afterwards: by the reference,
    else that of an operation among the two, else by a, which is asked in higher precision too. A contestant must
    change the same arguments as a does. Where a result is wrong, the verdict is `wrong`, and no time counts. Where the
    two differ and there is no reference, one of them is wrong, and nothing says which: `disputed` is set.

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
        seconds: No round is started after this time, except for the first 6. A call that takes longer, and more than
            5 s, is ended, if it runs in the main thread.
        seed: Seed of the orders, and of an operation's inputs.
        device: `cpu`, `cuda` or `cuda:N`; None follows the arguments, then an operation. Callables that hold their
            CUDA tensors themselves and take no tensor need `cuda`, or they are timed by the host's clock.
        wait: Whether to wait while another process measures on the same GPU; False raises a `DeviceError` instead.
        reference: Returns the right result for the same arguments.
        check: Whether results are judged; False compares times alone, and says so.

    Returns:
        The verdict with its interval, both times and what the machine said meanwhile.

    Raises:
        KernelTypeError: A contestant is not callable, or not with these arguments.
        TargetError: A contestant raised, takes too long, or gives another result each time, so that nothing is right.
        SettingsError: `rounds`, `seconds`, `names`, `reference` or `check` is none that can be taken.
        DeviceError, SpaceError, ShapeMismatchError: Device, config or arguments do not fit.

    Cost: on a CPU three copies of the tensors, about 15 ms a round for short calls and three calls a round for long
    ones; on a GPU also the copies that keep L2 cold, at most half of the free memory. To judge results takes two more
    copies, four calls of each contestant and two to four of what is right.
    """
    policy, seed = duel_policy(rounds, seconds), TuneOptions(seed=seed).seed
    _check_names(names)
    manner = Manner(cold=cold, seed=seed, wait=wait, reference=as_callable("reference", reference), check=check)
    first, second = contestants_of(dict(zip(names, (a, b), strict=True)), args, kwargs, device, seed)
    with rounds_bar((first.name, second.name), policy.seconds) as follow:
        return compare_contestants(first, second, policy, manner, follow=follow)


def _check_names(names: Any) -> None:
    if not isinstance(names, Sequence) or len(names) != 2 or not all(isinstance(it, str) for it in names):
        raise SettingsError(f"names are {names!r}; two different ones are needed, as text", hint='names=("old", "new")')
    if names[0] == names[1]:
        raise SettingsError(f"names are {tuple(names)!r}; two different ones are needed")


def duel_policy(rounds: Any, seconds: Any) -> DuelPolicy:
    """The limits of a comparison in rounds and seconds; a `SettingsError` if one is out of range."""
    if rounds is not None:
        hint = "fewer bound no difference at 95 %"
        SettingsError.checked("rounds", rounds, DuelPolicy.LEAST_ROUNDS, whole=True, hint=hint)
    limit_s = float(SettingsError.checked("seconds", seconds, finite=False))
    return DuelPolicy(seconds=limit_s) if rounds is None else DuelPolicy(checkpoints=(int(rounds),), seconds=limit_s)


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How two contestants are compared, as for `compare`; `choose` and `clock` are for simulations."""

    cold: bool = True
    seed: int = 0
    wait: bool = True
    reference: Callable[..., Any] | None = None
    check: bool = True
    choose: Callable[..., Timer] | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not isinstance(self.check, bool):
            raise SettingsError(f"check is {excerpt(self.check)}; it must be True or False")
        if self.reference is not None and not self.check:
            raise SettingsError("a reference was given, and results are not to be checked", hint="leave one out")


def compare_contestants(
    a: Contestant, b: Contestant, policy: DuelPolicy, manner: Manner | None = None, *,
    follow: Follow = lambda _rounds, _elapsed_s: None,
) -> Comparison:  # fmt: skip
    """Compare two contestants that take the same arguments; it raises as `compare`."""
    manner = manner or Manner()
    limit_s = max(policy.seconds, _LEAST_LIMIT_S)
    a, b = (replace(each, limit_s=limit_s) for each in (a, b))
    with measuring(a.device_name, manner.wait) as notes:
        judge = Judge((a, b), manner.reference) if manner.check else None
        verified, remark = (judge.against, judge.remark) if judge else (f"nothing: {UNCHECKED}", UNCHECKED)
        wrong = judge.wrong() if judge else {}
        try:
            duel = {} if wrong else _duel(a, b, policy, manner, follow, judge)
        except TritonKernelError:
            if judge is None or not judge.stale:
                raise
        wrong = wrong or (judge.stale or judge.wrong_again() if judge else {})
        remarks = (*notes(), *([f"results were not compared: {remark}"] if remark else []))
        common: dict[str, Any] = {"names": (a.name, b.name), "notes": remarks, "verified": verified}
        if wrong and judge:
            duel = {"verdict": "wrong", "wrong": MappingProxyType(wrong), "disputed": judge.disputed}
        return Comparison(**duel, **common)


def _duel(
    a: Contestant, b: Contestant, policy: DuelPolicy, manner: Manner, follow: Follow, judge: Judge | None
) -> dict[str, Any]:
    """The fields of a comparison that a duel of two contestants fills in; results on new inputs are for the judge."""
    rng, clock, renewal = random.Random(manner.seed), manner.clock, None if judge is None else judge.renewal
    # The second a is the twin.
    timer, samplers = prepare([a, b, a], sets=3, cold=manner.cold, choose=manner.choose, renewal=renewal)
    visit_samples = policy.samples(_longest_ms((a, b), timer, samplers))
    first, second, twin = (Arm(sampler, visit_samples) for sampler in _taking_turns(samplers, rng))
    start = clock()
    rounds, guard = Rounds.guarded(
        timer, a.device_name, rng=rng, clock=clock,
        follow=lambda counts: follow(len(first.visits) + counts, clock() - start),
    )  # fmt: skip
    try:
        outcome = rounds.duel((first, second, twin), policy)
    except TritonKernelError:
        raise
    except Exception as error:
        raise blame(f"{a.name} or {b.name}", error) from error
    summary, mode = guard.summary(), timer.mode
    return {
        "verdict": outcome.verdict, "percent": _percent(outcome.gain.centre),
        "interval": (_percent(outcome.gain.low), _percent(outcome.gain.high)), "needed": _percent(outcome.needed),
        "noise": _percent(outcome.noise), "confidence": _confidence(outcome.itself, (first, second), summary),
        "a": first.measurement(mode), "b": second.measurement(mode), "guard": summary,
    }  # fmt: skip


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
