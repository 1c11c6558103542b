"""Blocks on multiprocessors: the number of waves, the time of a wave, and the part of each resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from triton_ops.device import Machine
from triton_ops.values import Schedule


@dataclass(frozen=True)
class Wave:
    """Blocks that run at the same time."""

    time_ns: float  # from the first step to the last, with resources overlapped
    turn_ns: float  # before the first and after the last step, in which neighbouring blocks work on
    alone_ns: Mapping[str, float]  # of each resource if it were the only one, by name


def overlap_ns(times_ns: Mapping[str, float], exponent: float) -> float:
    """(Σ tᵖ)^(1/p), the time of resources that work together: the longest, and more if others are nearly as long."""
    longest = max(times_ns.values())
    if longest <= 0:
        return 0.0
    return float(longest * sum((time / longest) ** exponent for time in times_ns.values()) ** (1 / exponent))


def schedule(blocks: int, at_once: int, machine: Machine, wave: Callable[[int, int], Wave]) -> Schedule:
    """The schedule of full waves and a last wave that may be partial.

    Neighbouring blocks work on while a block starts or ends, so a wave costs only its share of that time, and the last
    wave all of it. `at_once` blocks fit on one multiprocessor; `wave` makes a wave from the most blocks on any of them,
    and the blocks of the wave.
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
