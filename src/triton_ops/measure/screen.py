"""The first look at a candidate: one short block of samples, cut short if it is hopeless.

What comes out ranks candidates roughly. It never decides: the finalists are compared side by side afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.measure.timer import Launch, Timer
from triton_ops.trial import Measurement


@dataclass(frozen=True)
class ScreenPolicy:
    """How much a first look may cost.

    Attributes:
        block_ms: Time a block should take, in milliseconds; short, so that the power state cannot drift inside it.
        least: Fewest samples, however long they take.
        most: Most samples, however short they are.
        hopeless: A first sample this many times slower than the best so far is not repeated.
    """

    block_ms: float = 5.0
    least: int = 3
    most: int = 10
    hopeless: float = 3.0


def screen(launch: Launch, timer: Timer, policy: ScreenPolicy, best_ms: float | None = None) -> Measurement:
    """A block of samples of `launch`, which should have run once before.

    Args:
        launch: What is timed.
        timer: The clock.
        policy: How much it may cost.
        best_ms: Median of the best candidate so far; None if there is none yet.

    Raises:
        Exception: Whatever the launch raises.
    """
    launches = timer.launches_per_sample(launch)
    samples = timer.sample(launch, launches, 1)
    if best_ms is not None and samples[0] > policy.hopeless * best_ms:
        return Measurement(tuple(samples), timer.mode)
    wanted = int(policy.block_ms / max(samples[0] * launches, 1e-6))
    count = min(max(wanted, policy.least), policy.most)
    samples += timer.sample(launch, launches, count - 1)
    return Measurement(tuple(samples), timer.mode)
