"""Blocks on multiprocessors: how many waves there are, what a wave costs, and what each resource contributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from triton_ops.hardware import Machine
from triton_ops.work import Schedule


@dataclass(frozen=True)
class Wave:
    """Blocks that run at the same time.

    Attributes:
        time_ns: From their first step to their last, overlapped.
        turn_ns: Before and after it, where blocks beside each other hide one another.
        alone_ns: What each resource would take if it were the only one, by name.
    """

    time_ns: float
    turn_ns: float
    alone_ns: Mapping[str, float]


def overlapped(times_ns: Mapping[str, float], exponent: float) -> float:
    """(Σ tᵖ)^(1/p): the longest of times that pass together, and some more where others are nearly as long."""
    longest = max(times_ns.values())
    if longest <= 0:
        return 0.0
    return float(longest * sum((time / longest) ** exponent for time in times_ns.values()) ** (1 / exponent))


def schedule(blocks: int, at_once: int, machine: Machine, wave: Callable[[int, int], Wave]) -> Schedule:
    """Full waves, and a last one that may be partial.

    The way in and out of a wave is hidden by the blocks beside it, so each wave pays its share of it, and the last one
    all of it.

    Args:
        blocks: In all.
        at_once: That fit on one multiprocessor.
        machine: How many multiprocessors there are.
        wave: From blocks per multiprocessor (the most on any of them) and blocks in the wave to its cost.
    """
    filled = at_once * machine.units
    full, rest = divmod(blocks, filled)
    parts = [(full, at_once, wave(at_once, filled))] if full else []
    if rest:
        deepest = ceil(rest / machine.units)
        parts.append((1, deepest, wave(deepest, rest)))
    time_ns = sum(count * (part.time_ns + part.turn_ns / depth) for count, depth, part in parts)
    _, depth, last = parts[-1]
    time_ns += last.turn_ns * (1 - 1 / depth)
    alone: dict[str, float] = {}
    for count, depth, part in parts:
        for name, each_ns in part.alone_ns.items():
            alone[name] = alone.get(name, 0.0) + count * each_ns / 1e6
        alone["turnover"] = alone.get("turnover", 0.0) + count * part.turn_ns / depth / 1e6
    return Schedule(time_ns / 1e6, blocks / filled, alone)
