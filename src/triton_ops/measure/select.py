"""A whole selection: first looks at all candidates, a race of those near the best, the decision.

What `tune` does step by step, for launches that are all there at once and need no checking.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from triton_ops.measure.arm import Arm
from triton_ops.measure.decision import Preference, decide, gap
from triton_ops.measure.race import RacePolicy, race
from triton_ops.measure.screen import ScreenPolicy, screen_beside, take
from triton_ops.measure.stats import Interval
from triton_ops.measure.timer import Launch, Timer


@dataclass(frozen=True)
class SelectPolicy:
    """How much a selection may cost.

    Attributes:
        screen: The first look at every candidate.
        near: Every candidate this near the best by first looks is raced.
        least: At least this many are, however far.
        race: How long the race may last, and when an arm is out.
    """

    screen: ScreenPolicy = field(default_factory=ScreenPolicy)
    near: float = 0.15
    least: int = 8
    race: RacePolicy = field(default_factory=RacePolicy)


@dataclass(frozen=True)
class Selection:
    """What a selection found; candidates are positions in the list that was given.

    Attributes:
        winner: The one to use.
        ties: Those that could not be told from the fastest, itself included, best first.
        raced: Those that were raced, best first look first.
        rounds: How many rounds of the race counted.
        ended: Why it ended.
        noise: Half-width of a typical 95 % interval of a difference, as a share of the time.
        itself: By which share the best by first looks differed from itself, with its 95 % interval; None if it was not
            raced.
    """

    winner: int
    ties: tuple[int, ...]
    raced: tuple[int, ...]
    rounds: int
    ended: str
    noise: float
    itself: Interval | None


def select(
    launches: Sequence[Launch],
    preference: Sequence[Preference],
    timer: Timer,
    policy: SelectPolicy,
    rng: random.Random,
    *,
    default: int = 0,
    kept: Collection[int] = (),
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Selection:
    """The candidate to use.

    Args:
        launches: The candidates; each should have run once before.
        preference: Per candidate a sort key, no two equal: among equals the smallest wins. Orders are drawn from the
            candidates sorted by it, so the order of the list does not matter.
        timer: The clock.
        policy: How much it may cost.
        rng: Draws the orders.
        default: Position of the default: the reference of first looks, always raced, and beaten by the winner.
        kept: Positions of what is in use: always raced.
        keep_round: Asked after every round of the race; False discards it.
        clock: Seconds, monotonic.

    Raises:
        Exception: Whatever a launch raises before the race; one that fails later drops out, but for the last one.
    """
    ranks = first_looks(launches, preference, timer, policy.screen, rng, reference=default)
    raced = finalists(ranks, preference, {default, *kept}, policy)
    arms = {i: _arm(launches[i], timer, policy.race) for i in raced}
    twin = _arm(launches[raced[0]], timer, policy.race)
    ended = race(list(arms.values()), timer, policy.race, rng, beside=[twin], keep_round=keep_round, clock=clock)
    alive = {i: arm for i, arm in arms.items() if arm.error is None and arm.blocks}
    if not alive:
        return _unraced(arms, ended)
    return _decided(alive, twin, arms, preference, {default, *kept}, default, ended)


def first_looks(
    launches: Sequence[Launch],
    preference: Sequence[Preference],
    timer: Timer,
    policy: ScreenPolicy,
    rng: random.Random,
    *,
    reference: int,
) -> list[float]:
    """Per candidate its time over the reference's, measured beside it; in an order drawn from `rng`."""
    beside = timer.prepare(launches[reference])
    ranks = [math.inf] * len(launches)
    best = ranks[reference] = 1.0
    order = sorted((i for i in range(len(launches)) if i != reference), key=preference.__getitem__)
    for i in rng.sample(order, len(order)):
        _, ranks[i] = screen_beside(timer.prepare(launches[i]), beside, timer, policy, best)
        best = min(best, ranks[i])
    return ranks


def finalists(
    ranks: Sequence[float], preference: Sequence[Preference], always: Collection[int], policy: SelectPolicy
) -> list[int]:
    """Every candidate near the best by first looks, best first; no hard cut where candidates are close."""
    ranked = sorted(range(len(ranks)), key=lambda i: (ranks[i], preference[i]))
    limit = ranks[ranked[0]] * (1 + policy.near)
    return [i for place, i in enumerate(ranked) if ranks[i] <= limit or i in always or place < policy.least]


def _arm(launch: Launch, timer: Timer, policy: RacePolicy) -> Arm:
    """An arm with visits of the right length; takes one sample to see how long they are."""
    sampler = timer.prepare(launch)
    return Arm(sampler, policy.samples(take(sampler, timer, 1)[0] * sampler.launches))


def _unraced(arms: Mapping[int, Arm], ended: str) -> Selection:
    """The best by first looks, where there was nothing to race it with, or no round counted."""
    raced = tuple(arms)
    working = [i for i, arm in arms.items() if arm.error is None]
    if not working:
        raise next(arm.error for arm in arms.values() if arm.error is not None)
    return Selection(working[0], (working[0],), raced, 0, ended, 0.0, None)


def _decided(
    alive: Mapping[int, Arm],
    twin: Arm,
    arms: Mapping[int, Arm],
    preference: Sequence[Preference],
    kept: Collection[int],
    default: int,
    ended: str,
) -> Selection:
    candidates = list(alive)
    place = {i: at for at, i in enumerate(candidates)}
    decision = decide(
        [arm.medians_ms for arm in alive.values()],
        [preference[i] for i in candidates],
        kept=[place[i] for i in kept if i in place],
        default=place.get(default),
        dropped=[place[i] for i, arm in alive.items() if arm.dropped_at is not None],
    )
    first = next(iter(arms.values()))
    return Selection(
        candidates[decision.winner],
        tuple(candidates[i] for i in decision.ties),
        tuple(arms),
        max(len(arm.blocks) for arm in alive.values()),
        ended,
        decision.noise,
        gap(twin.medians_ms, first.medians_ms) if twin.blocks and first.blocks else None,
    )
