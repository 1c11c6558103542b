"""Screening: one short block of samples of each candidate, cut short if the candidate is hopeless.

The result ranks candidates roughly. It never decides: the finalists race side by side afterwards.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from triton_ops.measure.stats import contrasts
from triton_ops.measure.timer import Pending, Sampler, Timer


@dataclass(frozen=True)
class ScreenPolicy:
    """How much the screening of one candidate may cost.

    Attributes:
        block_ms: Time a block should take, in milliseconds; short, so that the power state cannot drift inside it.
        least: Fewest samples, however long they take.
        most: Most samples, however short they are.
        hopeless: A first sample this many times slower than the best so far is not repeated.
    """

    block_ms: float = 3.0
    least: int = 3
    most: int = 10
    hopeless: float = 1.5


def screen(sampler: Sampler, timer: Timer, policy: ScreenPolicy, best_ms: float | None = None) -> list[float]:
    """A block of samples, in milliseconds per launch, in the order taken.

    Args:
        sampler: Of the launch, from `timer`.
        timer: The clock.
        policy: How much it may cost.
        best_ms: Median of the best candidate so far; None if there is none yet.

    Raises:
        Exception: Whatever the launch raises.
    """
    samples = take(sampler, timer, 1)
    if best_ms is not None and samples[0] > policy.hopeless * best_ms:
        return samples
    count = fitting(samples[0] * sampler.launches, policy.block_ms, policy.least, policy.most)
    return samples + take(sampler, timer, count - 1)


def screen_beside(
    sampler: Sampler, reference: Sampler, timer: Timer, policy: ScreenPolicy, best: float | None = None
) -> tuple[list[float], float]:
    """A block of samples, each beside one of a reference; and the launch's time over the reference's.

    Both are in the same power state and under the same load, whatever happened since the reference was last measured:
    that makes screenings comparable that lie minutes, or a compilation, apart.

    Args:
        sampler: Of the launch, from `timer`.
        reference: Of the config that all others are compared with, from `timer`.
        timer: The clock.
        policy: How much it may cost; its times are those of both together.
        best: What the best candidate so far takes, over what the reference takes; None if there is none yet.

    Raises:
        Exception: Whatever a launch raises.
    """
    samples, beside = _in_turn(sampler, reference, timer, 1)
    if best is not None and samples[0] > policy.hopeless * best * beside[0]:
        return samples, samples[0] / max(beside[0], 1e-9)
    pair_ms = samples[0] * sampler.launches + beside[0] * reference.launches
    count = fitting(pair_ms, policy.block_ms, policy.least, policy.most)
    more, more_beside = _in_turn(sampler, reference, timer, count - 1)
    samples, beside = samples + more, beside + more_beside
    return samples, math.exp(statistics.median(contrasts(samples, beside)))


def take(sampler: Sampler, timer: Timer, count: int) -> list[float]:
    """`count` samples now, in milliseconds per launch; waits for them."""
    with timer.round():
        pending = sampler.queue(count)
    return pending()


def fitting(sample_ms: float, block_ms: float, least: int, most: int) -> int:
    """How many samples of `sample_ms` fill `block_ms`, within bounds."""
    return min(max(int(block_ms / max(sample_ms, 1e-6)), least), most)


def _in_turn(sampler: Sampler, reference: Sampler, timer: Timer, count: int) -> tuple[list[float], list[float]]:
    """`count` samples of each, in turn, the order of a pair backwards every second time."""
    own: list[Pending] = []
    beside: list[Pending] = []
    pair = [(reference, beside), (sampler, own)]
    with timer.round():
        for turn in range(count):
            for which, queued in reversed(pair) if turn % 2 else pair:
                queued.append(which.queue(1))
    return _collected(own), _collected(beside)


def _collected(queued: Sequence[Pending]) -> list[float]:
    return [sample for collect in queued for sample in collect()]
