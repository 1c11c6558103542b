"""Blocks on a multiprocessor: a guess of the resources that one takes, the number of waves, the time of a wave.

A guess of what a compiler will give is good enough to rank, and never shown as fact.

It was fitted on 1,700 matrix products and 1,500 row kernels that Triton 3.6.0 compiled for sm_90; its standard
deviation is ten registers. The shared memory of pipelined tiles is exact for pointer loads whose rows are aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from triton_ops.device import Machine
from triton_ops.values import Footprint, Resources, Schedule

MOST_REGISTERS = 255  # most registers that a thread can address
_REGISTERS = 65_536  # of a multiprocessor: CUDA C++ Programming Guide, of all since sm_50
_WORD_BYTES = 4
_MOST_COPIES = 64  # of a thread in a step, beyond which their addresses and values are spilled


def footprint_of(guess: Footprint, resources: Resources | None) -> Footprint:
    """The compiler's figures in `resources`, and those of `guess` for each figure that the compiler does not tell."""
    if resources is None:
        return guess
    if resources.registers is None:
        return replace(guess, serialised=resources.serialised)
    return Footprint(
        resources.registers,
        guess.spill_bytes if resources.spill_bytes is None else resources.spill_bytes,
        guess.shared_bytes if resources.shared_bytes is None else resources.shared_bytes,
        known=True,
        serialised=resources.serialised,
    )


def tile_footprint(accumulator: float, copies: float, warp_group: bool, shared_bytes: int, held: float) -> Footprint:
    """The guess for a block of a pipelined product; elements and copies with an address each are per thread.

    Copies that are held pass through registers, 24 compiled tiles of which on an H200 took 2.2 each.
    """
    registers = 14 + 1.15 * accumulator + 3.1 * copies + (0 if warp_group else 22)
    spilled = max(0.0, 2.25 * (accumulator - 183)) if accumulator >= MOST_REGISTERS else 0.0
    spilled += 3.1 * max(0.0, copies - _MOST_COPIES)
    spilled += max(0.0, 14 + 1.15 * accumulator + 2.2 * held - MOST_REGISTERS) if held else 0.0
    return Footprint(_clamp(registers), spilled * _WORD_BYTES, shared_bytes)


def chained_footprint(
    accumulator: float, passing: float, operations: float, warp_group: bool, shared_bytes: int
) -> Footprint:
    """The guess for a block whose products wait for each other, as in attention; elements are per thread.

    Fitted on the 290 blocks of two attention kernels that Triton 3.6.0 compiled for sm_90 (heads of 64 without and of
    128 with a mask); its standard deviation is 13 registers. Shared memory is exact for them. An accumulator stays in
    registers from step to step, the next product takes what is passing, and masks hold more values alive: more
    operations.
    """
    alive = 1.05 * min(max((operations - 2) / 2, 1.0), 2.2)
    registers = 40 + 1.08 * accumulator + alive * passing + (0 if warp_group else 20)
    return Footprint(_clamp(registers), max(0.0, 5.5 * (registers - 300)), shared_bytes)


def row_footprint(elements: float, warps: int, rows: int, alive: float = 0.0, loaded: float = 0.0) -> Footprint:
    """The guess for a block that holds so many words in each thread, `loaded` with loads that are on the way.

    Without them it holds a chunk of each row in float32; elements are those of one row per thread. Each warp leaves its
    part of the reduction in shared memory. All threads share the registers of a multiprocessor; loads wait for room
    there, and what is alive is spilled.
    """
    most = min(MOST_REGISTERS, _REGISTERS // (32 * warps))
    others = 22 + 0.13 * elements
    registers = others + (max(alive, loaded) if loaded else max(elements, alive))
    spilled = max(0.0, others + (alive if loaded else max(elements, alive)) - most)
    return Footprint(min(_clamp(registers), most), spilled * 2 * _WORD_BYTES, rows * warps * _WORD_BYTES)


def _clamp(registers: float) -> int:
    return int(min(max(registers, 30), MOST_REGISTERS))


class Wave(NamedTuple):
    """Blocks that run at the same time."""

    time_ns: float  # from the first step to the last, with resources overlapped
    turn_ns: float  # before the first and after the last step, in which neighbouring blocks work on
    alone_ns: Mapping[str, float]  # of each resource if it were the only one, by name


def overlap_ns(times_ns: Mapping[str, float], exponent: float) -> float:
    """(Σ tᵖ)^(1/p), the time of resources that work together: the longest, and more if others are nearly as long."""
    longest = max(times_ns.values())
    if longest <= 0:
        return 0.0
    # as shares of the longest, because high powers of a small or a large time leave the range of floats
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
