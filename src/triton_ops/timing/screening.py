"""Screening: a few samples of each candidate, cut short if the candidate is far too slow.

The result ranks candidates roughly and never decides: the finalists race side by side afterwards.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from triton_ops.timing.race_statistics import contrasts
from triton_ops.timing.timer import Pending, Sampler, Timer


@dataclass(frozen=True)
class ScreenPolicy:
    """The limits of the screening of one candidate.

    Attributes:
        screening_ms: Time that the samples should take; short, so that the power state cannot drift meanwhile.
        least: Fewest samples, however long they take.
        most: Most samples, however short they are.
        hopeless: A candidate whose first sample is this many times slower than the best so far gets no second sample.
    """

    screening_ms: float = 3.0
    least: int = 3
    most: int = 10
    hopeless: float = 1.5


def screen(sampler: Sampler, timer: Timer, policy: ScreenPolicy, best_ms: float | None = None) -> list[float]:
    """Take a few samples; milliseconds per launch, in the order taken. `best_ms` is None for the first candidate.

    Raises:
        Exception: Whatever the launch raises.
    """
    samples = take(sampler, timer, 1)
    if best_ms is not None and samples[0] > policy.hopeless * best_ms:
        return samples
    count = fitting(samples[0] * sampler.launches, policy.screening_ms, policy.least, policy.most)
    return samples + take(sampler, timer, count - 1)


def screen_beside(
    sampler: Sampler, baseline: Sampler, timer: Timer, policy: ScreenPolicy, best: float | None = None
) -> tuple[list[float], float]:
    """Take a few samples, each beside a sample of a baseline; also the launch's time over the baseline's.

    Launch and baseline share one power state and one load. Ratios to the baseline are therefore comparable even if
    minutes or a compilation lie between two screenings.

    Args:
        sampler: The launch's sampler, made by `timer`.
        baseline: The sampler of the config beside which all others are screened, made by `timer`.
        timer: The clock.
        policy: How much the screening may cost; its times are those of launch and baseline together.
        best: The time of the best candidate so far over the baseline's; None for the first candidate.

    Raises:
        Exception: Whatever a launch raises.
    """
    samples, beside = _sample_in_turn(sampler, baseline, timer, 1)
    if best is not None and samples[0] > policy.hopeless * best * beside[0]:
        return samples, samples[0] / max(beside[0], 1e-9)
    pair_ms = samples[0] * sampler.launches + beside[0] * baseline.launches
    count = fitting(pair_ms, policy.screening_ms, policy.least, policy.most)
    more, more_beside = _sample_in_turn(sampler, baseline, timer, count - 1)
    samples, beside = samples + more, beside + more_beside
    return samples, math.exp(statistics.median(contrasts(samples, beside)))


def take(sampler: Sampler, timer: Timer, count: int) -> list[float]:
    """Take `count` samples now and wait for them; milliseconds per launch."""
    with timer.round():
        pending = sampler.queue(count)
    return pending()


def fitting(sample_ms: float, wanted_ms: float, least: int, most: int) -> int:
    """Number of samples of `sample_ms` that fill `wanted_ms`, at least `least` and at most `most`."""
    return min(max(int(wanted_ms / max(sample_ms, 1e-6)), least), most)


def _sample_in_turn(sampler: Sampler, baseline: Sampler, timer: Timer, count: int) -> tuple[list[float], list[float]]:
    """Take `count` samples of each in turn; every second pair runs in the opposite order."""
    own: list[Pending] = []
    beside: list[Pending] = []
    pair = [(baseline, beside), (sampler, own)]
    with timer.round():
        for turn in range(count):
            for which, queued in reversed(pair) if turn % 2 else pair:
                queued.append(which.queue(1))
    return _collect(own), _collect(beside)


def _collect(queued: Sequence[Pending]) -> list[float]:
    return [sample for collect in queued for sample in collect()]
