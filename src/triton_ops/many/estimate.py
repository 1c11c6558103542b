"""What a tune is expected to gain and to take, from the records of the same kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from triton_ops.cache import Record

GAIN = 0.2
"""The share of its time that a tune is expected to save where nothing is known of its kernel."""
SECONDS = 4.0
"""What a tune is expected to take where nothing is known of its kernel."""
_LEAST_GAIN = 0.005  # below which a comparison counts two configs as equal: no problem is worth nothing
_LEAST_S = 0.1


@dataclass(frozen=True)
class Estimate:
    """What a tune is expected to gain, as a share of the default's time, and to take."""

    gain: float = GAIN
    seconds: float = SECONDS


def estimates_of(records: Iterable[Record]) -> dict[str, Estimate]:
    """What is expected of a kernel's next problem, by its name: the medians of its records."""
    gains: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for record in records:
        seconds.setdefault(record.key.kernel, []).append(record.elapsed_s)
        if not record.undecided and (gain := _gain_of(record)) is not None:
            gains.setdefault(record.key.kernel, []).append(gain)
    return {
        kernel: Estimate(
            max(_LEAST_GAIN, median(gains[kernel])) if kernel in gains else GAIN, max(_LEAST_S, median(took))
        )
        for kernel, took in seconds.items()
    }


def _gain_of(record: Record) -> float | None:
    """The share of the default's time that a record's winner saves; None if the default was not measured."""
    if record.raced_gain is not None and record.raced_gain > 0:
        return 1.0 - 1.0 / max(record.raced_gain, 1.0)
    if record.default_timing is None or record.default_timing.median_ms <= 0:
        return None
    return max(0.0, 1.0 - record.timing.median_ms / record.default_timing.median_ms)
