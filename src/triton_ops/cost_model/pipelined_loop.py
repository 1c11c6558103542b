"""Blocks that walk through tiles in a pipelined loop: matrix products and attention.

Loads run ahead of the products, and the resources of a step overlap. Where a product of a step waits for another one,
as in attention, or for arithmetic on what was loaded, a block does one after another; only other blocks fill the gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.cost_model.waves import Wave, overlapped, schedule
from triton_ops.device import Machine
from triton_ops.values import Footprint, Schedule

_SCHEDULERS = 4  # of a multiprocessor, each with its own warps


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The work of one block, and the resources that blocks share. Cycles are those of one multiprocessor.

    Attributes:
        steps: Steps of the loop, per block.
        stages: Stages of the pipeline; loads run `stages` - 1 steps ahead.
        mma_cycles: Cycles of the matrix units per step.
        shared_bytes: Bytes of shared memory that loads write and matrix units read, per step.
        lines: Number of 128-byte lines that the loads of a step touch.
        load_bytes: Bytes through the port from L2, per step.
        arithmetic_cycles: Cycles of the other units per step.
        dram_bytes: Bytes from DRAM per step of one block in a full wave, without bytes that another block has read.
        store_bytes: Bytes that one block stores after its last step.
        mma_excess: Matrix rate at the highest clock over the rate that the whole device sustains at its power limit.
        entries: How often a block enters the loop: a persistent block fills its pipeline anew for each of its tiles.
        lockstep: How far the matrix units of a block wait for their operands instead of working during loads, 0 to 1.
        links: Products of a step of which one waits for another, or for arithmetic; 0 if none does.
        exchanged: Whether warps exchange what they reduce between such products, because they share rows.
        tall: Tiles of 16 rows that each warp has, one below the other.
    """

    blocks: int
    steps: float
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
    entries: float = 1.0
    lockstep: float = 0.0
    links: int = 0
    exchanged: bool = False
    tall: float = 1.0


def loop_schedule(loop: Loop, footprint: Footprint, machine: Machine) -> Schedule:
    """The schedule of the loop on a machine: a first load, steps in which resources overlap, and a last store."""
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, loop.warps)
    return schedule(loop.blocks, at_once, machine, lambda depth, count: _wave(loop, footprint, machine, depth, count))


def _wave(loop: Loop, footprint: Footprint, machine: Machine, depth: int, blocks: int) -> Wave:
    """The wave of `blocks` blocks, at most `depth` of them on one multiprocessor."""
    costs, clock = machine.costs, machine.clock_ghz
    busy = min(1.0, blocks / machine.units)
    dram_ns = loop.dram_bytes * blocks / machine.dram_gbps
    # The loads of a step must arrive before the step: one wait and one tile's transfer in stages - 1 steps.
    wait_ns = costs.load_ns + max(dram_ns, loop.load_bytes / costs.stream_gbps)
    mma_ns = depth * loop.mma_cycles / clock * max(1.0, busy * loop.mma_excess)
    shared_ns = depth * loop.shared_bytes / (machine.shared_bytes_per_cycle * costs.shared_share * clock)
    spilled = 2 * footprint.spill_bytes * 32 * loop.warps  # written and read again in every step
    times = {
        "matrix units": mma_ns + loop.lockstep * shared_ns,
        "shared memory": shared_ns,
        "load unit": depth * loop.lines * costs.line_cycles / clock,
        "L2": depth * loop.load_bytes / (machine.port_bytes_per_cycle * clock),
        "DRAM": dram_ns,
        "load latency": wait_ns / max(loop.stages - 1, 1),
        "arithmetic": depth * loop.arithmetic_cycles / clock,
        "spills": depth * spilled / (costs.spill_bytes_per_cycle * clock),
    }
    step_ns = overlapped(times, costs.overlap)
    if loop.links:
        times["chain"] = _chain_ns(loop, machine, mma_ns / depth, wait_ns, spilled)
        step_ns = overlapped({"rates": step_ns, "chain": times["chain"]}, costs.wait_overlap)
    step_ns += costs.step_cycles / clock
    out_ns = max(
        depth * loop.store_bytes / (costs.store_bytes_per_cycle * clock),
        blocks * loop.store_bytes / machine.dram_gbps,
    )
    alone = {name: loop.steps * each for name, each in times.items()}
    alone["loop"] = loop.steps * costs.step_cycles / clock
    refill_ns = max(0.0, loop.entries - 1) * (wait_ns + costs.drain_ns)
    return Wave(loop.steps * step_ns + refill_ns, wait_ns + costs.drain_ns + out_ns, alone)


def _chain_ns(loop: Loop, machine: Machine, mma_ns: float, wait_ns: float, spilled: float) -> float:
    """Time of one block's step in which products and arithmetic follow each other."""
    costs = machine.costs
    lone = max(1.0, costs.lone_warp * _SCHEDULERS / loop.warps)  # a scheduler with one warp waits for its results
    link = costs.link_cycles * (1 + costs.tall_link * (loop.tall - 1))
    cycles = loop.arithmetic_cycles * lone + loop.links * link + spilled / costs.spill_bytes_per_cycle
    cycles += costs.exchange_cycles if loop.exchanged else 0.0
    unhidden_ns = costs.unhidden * wait_ns if loop.stages == 1 else 0.0
    return mma_ns + cycles / machine.clock_ghz + unhidden_ns
