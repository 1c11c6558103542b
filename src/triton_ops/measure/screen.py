"""The first look at a candidate: one short block of samples, cut short if it is hopeless.

What comes out ranks candidates roughly. It never decides: the finalists race side by side afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.measure.timer import Sampler, Timer


@dataclass(frozen=True)
class ScreenPolicy:
    """How much a first look may cost.

    Attributes:
        block_ms: Time a block should take, in milliseconds; short, so that the power state cannot drift inside it.
        least: Fewest samples, however long they take.
        most: Most samples, however short they are.
        hopeless: A first sample this many times slower than the best so far is not repeated.
    """

    block_ms: float = 3.0
    least: int = 3
    most: int = 10
    hopeless: float = 2.0


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


def take(sampler: Sampler, timer: Timer, count: int) -> list[float]:
    """`count` samples now, in milliseconds per launch; waits for them."""
    with timer.round():
        pending = sampler.queue(count)
    return pending()


def fitting(sample_ms: float, block_ms: float, least: int, most: int) -> int:
    """How many samples of `sample_ms` fill `block_ms`, within bounds."""
    return min(max(int(block_ms / max(sample_ms, 1e-6)), least), most)
