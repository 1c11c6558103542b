"""Blocks that walk through tiles in a pipelined loop: matrix products and attention."""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.hardware import Machine
from triton_ops.ranking.waves import Wave, overlapped, schedule
from triton_ops.work import Footprint, Schedule


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One block's work, and what it shares with the others. Cycles are those of one multiprocessor.

    Attributes:
        blocks: In all.
        steps: Of the loop, per block.
        stages: Of the pipeline: loads run `stages` - 1 steps ahead.
        warps: Per block.
        mma_cycles: Of the matrix units, per step.
        shared_bytes: Written by loads and read by the matrix units, per step.
        lines: 128-byte lines that the loads touch, per step.
        load_bytes: Through the port from L2, per step.
        arithmetic_cycles: Of the other units, per step.
        dram_bytes: Of one block in a full wave, per step: what others have read for it is not counted.
        store_bytes: Of one block, after its last step.
        mma_excess: The matrix rate at the highest clock over what the whole device sustains at its power limit.
        lockstep: Whether the matrix units wait for their operands instead of running while others load.
    """

    blocks: int
    steps: int
    stages: int
    warps: int
    mma_cycles: float
    shared_bytes: float
    lines: float
    load_bytes: float
    arithmetic_cycles: float
    dram_bytes: float
    store_bytes: float
    mma_excess: float = 1.0
    lockstep: bool = False


def loop_schedule(loop: Loop, footprint: Footprint, machine: Machine) -> Schedule:
    """The loop on a machine: steps whose resources overlap, between a first load and a last store."""
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, loop.warps)
    return schedule(loop.blocks, at_once, machine, lambda depth, count: _wave(loop, footprint, machine, depth, count))


def _wave(loop: Loop, footprint: Footprint, machine: Machine, depth: int, blocks: int) -> Wave:
    """`blocks` of them at a time, `depth` on the fullest multiprocessor."""
    costs, clock = machine.costs, machine.clock_ghz
    busy = min(1.0, blocks / machine.units)
    dram_ns = loop.dram_bytes * blocks / machine.dram_gbps
    # A step's loads must be there when its turn comes: one wait and one tile's transfer in stages - 1 steps.
    wait_ns = costs.load_ns + max(dram_ns, loop.load_bytes / costs.stream_gbps)
    mma_ns = depth * loop.mma_cycles / clock * max(1.0, busy * loop.mma_excess)
    shared_ns = depth * loop.shared_bytes / (machine.shared_bytes_per_cycle * costs.shared_share * clock)
    spilled = 2 * footprint.spill_bytes * 32 * loop.warps  # written and read again in every step
    times = {
        "matrix units": mma_ns + (shared_ns if loop.lockstep else 0.0),
        "shared memory": shared_ns,
        "load unit": depth * loop.lines * costs.line_cycles / clock,
        "L2": depth * loop.load_bytes / (machine.port_bytes_per_cycle * clock),
        "DRAM": dram_ns,
        "load latency": wait_ns / max(loop.stages - 1, 1),
        "arithmetic": depth * loop.arithmetic_cycles / clock,
        "spills": depth * spilled / (costs.spill_bytes_per_cycle * clock),
    }
    step_ns = overlapped(times, costs.overlap) + costs.step_cycles / clock
    out_ns = max(
        depth * loop.store_bytes / (costs.store_bytes_per_cycle * clock),
        blocks * loop.store_bytes / machine.dram_gbps,
    )
    alone = {name: loop.steps * each for name, each in times.items()}
    alone["loop"] = loop.steps * costs.step_cycles / clock
    return Wave(loop.steps * step_ns, wait_ns + costs.drain_ns + out_ns, alone)
