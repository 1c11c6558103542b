"""The first calls of a compiled model: which of their seconds are paid once, and when the calls are steady."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_CALLS = 3
"""With CUDA graphs the first call runs as usual, the second records, and the third is the first that replays."""
MOST_CALLS = 20
_ALIKE = 1.25  # times: two calls that differ by less are taken for steady
_PROTOCOL_CALLS = 50


@dataclass(frozen=True)
class FirstCalls:
    """The seconds of the first calls, in order, and what they tell.

    Attributes:
        calls_s: Seconds of each call, waited for to its end.
    """

    calls_s: tuple[float, ...]

    @property
    def first_s(self) -> float:
        """Seconds of the first call, in which most is compiled."""
        return self.calls_s[0] if self.calls_s else 0.0

    @property
    def steady_s(self) -> float:
        """Seconds of a call when nothing is compiled or recorded any more: the median of the last two."""
        return statistics.median(self.calls_s[-2:]) if self.calls_s else 0.0

    @property
    def one_off_s(self) -> float:
        """Seconds that are paid once: how much longer the first calls took than steady ones would have."""
        return sum(max(each - self.steady_s, 0.0) for each in self.calls_s)

    @property
    def after_first_s(self) -> float:
        """The part of `one_off_s` that falls on later calls than the first, such as recording a CUDA graph."""
        return sum(max(each - self.steady_s, 0.0) for each in self.calls_s[1:])

    def naive_ms(self, calls: int = _PROTOCOL_CALLS) -> float:
        """What a mean of `calls` calls after a single warm-up call would show, in milliseconds."""
        later = list(self.calls_s[1 : calls + 1])
        return 1e3 * (sum(later) + (calls - len(later)) * self.steady_s) / calls


def is_steady(calls_s: Sequence[float], busy: bool, least: int = LEAST_CALLS) -> bool:
    """Whether enough calls were made.

    Args:
        calls_s: Seconds of the calls so far.
        busy: Whether the last call compiled or recorded something.
        least: Calls that are made in any case.
    """
    if len(calls_s) < least or busy:
        return False
    if len(calls_s) >= MOST_CALLS:
        return True
    low, high = sorted(calls_s[-2:])
    return high <= _ALIKE * low


def too_few(calls: int, cudagraphs: bool) -> str:
    """Why a number of warm-up calls is too small; empty if it is not."""
    if not cudagraphs or calls >= LEAST_CALLS:
        return ""
    return (
        f"{calls} warm-up {'call is' if calls == 1 else 'calls are'} too few where CUDA graphs are used: call 1 runs "
        f"as usual, call 2 records, and call {LEAST_CALLS} is the first that replays"
    )


def break_even(one_off_s: float, eager_ms: float, own_ms: float) -> float:
    """After how many calls the seconds paid once are won back; infinite for a mode that is not faster than eager."""
    won_ms = eager_ms - own_ms
    return math.ceil(1e3 * one_off_s / won_ms) if won_ms > 0 else math.inf
