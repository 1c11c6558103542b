"""A guess of the resources that a compiler will give a config: good enough to rank, never shown as fact.

The guess was fitted on 1,700 matrix products and 1,500 row kernels that Triton 3.6.0 compiled for sm_90; its standard
deviation is ten registers. The shared memory of pipelined tiles is exact for pointer loads whose rows are aligned.
"""

from __future__ import annotations

from dataclasses import replace

from triton_ops.values import Footprint, Resources

MOST_REGISTERS = 255  # most registers that a thread can address
_WORD_BYTES = 4


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


def tile_footprint(accumulator: float, copies: float, warp_group: bool, shared_bytes: int) -> Footprint:
    """The guess for a block of a pipelined product; elements and 16-byte copies with an address each are per thread."""
    registers = 14 + 1.15 * accumulator + 3.1 * copies + (0 if warp_group else 22)
    spilled = max(0.0, 2.25 * (accumulator - 183)) if accumulator >= MOST_REGISTERS else 0.0
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


def row_footprint(elements: float, warps: int, rows: int, alive: float = 0.0) -> Footprint:
    """The guess for a block that holds a chunk of each row in float32, or so many values alive if they are more.

    Elements are those of one row per thread. Each warp leaves its part of the reduction in shared memory.
    """
    registers = 22 + 0.13 * elements + max(elements, alive)
    return Footprint(
        _clamp(registers), max(0.0, registers - MOST_REGISTERS) * 2 * _WORD_BYTES, rows * warps * _WORD_BYTES
    )


def _clamp(registers: float) -> int:
    return int(min(max(registers, 30), MOST_REGISTERS))
