"""The number of blocks of a compiled config that one multiprocessor of a device holds at a time."""

from __future__ import annotations

from dataclasses import replace

from triton_ops.hardware import Machine
from triton_ops.trial import Compiled

_WARPS = 4  # Triton's default for a config that names none


def with_residents(found: Compiled, machine: Machine | None) -> Compiled:
    """`found` with the number of its blocks on a multiprocessor of `machine` at a time, if that is known."""
    made, warps = found.resources, found.config.get("num_warps", _WARPS)
    if machine is None or made is None or made.registers is None or not isinstance(warps, int) or warps < 1:
        return found
    return replace(found, resident=machine.blocks_at_once(made.registers, made.shared_bytes or 0, warps))
