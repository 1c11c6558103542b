"""How many blocks of a compiled config one multiprocessor of a device holds at a time."""

from __future__ import annotations

from dataclasses import replace

from triton_ops.hardware import Machine
from triton_ops.trial import Compiled

_WARPS = 4  # what Triton takes where a config names none


def with_residents(found: Compiled, machine: Machine | None) -> Compiled:
    """`found` with how many of its blocks a multiprocessor of `machine` holds at a time, where that can be known."""
    made, warps = found.resources, found.config.get("num_warps", _WARPS)
    if machine is None or made is None or made.registers is None or not isinstance(warps, int) or warps < 1:
        return found
    return replace(found, resident=machine.blocks_at_once(made.registers, made.shared_bytes or 0, warps))
