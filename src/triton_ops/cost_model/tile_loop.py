"""The loop of a tile's steps: its time at matrix units, shared memory, load unit, L2 and DRAM.

Loads run ahead of the products, and the resources of a step overlap. Where a product of a step waits for another one,
as in attention (`attention_tiles`), or for arithmetic on what was loaded, a block does one after another; only other
blocks fill the gaps.
"""

from __future__ import annotations

from typing import NamedTuple

from triton_ops.cost_model.blocks import Wave, overlap_ns, schedule
from triton_ops.device import Machine
from triton_ops.values import Footprint, Schedule

LINE_BYTES = 128
LANES = 128  # of float32 of one multiprocessor
_SCHEDULERS = 4  # of a multiprocessor, each with its own warps


class TileLoop(NamedTuple):
    """The work of one block; cycles of a multiprocessor, bytes and lines are per step, but for what ends a tile."""

    blocks: int
    steps: float  # per block
    stages: int  # of the pipeline; loads run `stages` - 1 steps ahead
    warps: int
    mma_cycles: float  # of the matrix units
    shared_bytes: float  # that loads write and matrix units read
    lines: float  # of 128 bytes that loads touch
    load_bytes: float  # through the port from L2
    arithmetic_cycles: float  # of the other units
    dram_bytes: float  # of one block in a full wave, without those that another block has read
    store_bytes: float  # of one block after its last step
    mma_excess: float = 1.0  # matrix rate at the highest clock over that which the device sustains at its power limit
    entries: float = 1.0  # of the loop by a block: a persistent block fills its pipeline anew for each of its tiles
    lockstep: float = 0.0  # how far a block's matrix units wait for operands instead of working during loads, 0 to 1
    links: int = 0  # products of a step of which one waits for another, or for arithmetic; 0 if none does
    exchanged: bool = False  # warps exchange what they reduce between such products, because they share rows
    tall: float = 1.0  # tiles of 16 rows that each warp has, one below the other
    at_once: int = 0  # blocks that run on a multiprocessor; 0 for as many as fit
    turns: float = 1.0  # tiles of a block, one after the other
    finish_cycles: float = 0.0  # of what is computed of a tile's sums after its last step
    chain_cycles: float = 0.0  # of a step's matrix instructions that wait for each other's sums


def loop_schedule(loop: TileLoop, footprint: Footprint, machine: Machine) -> Schedule:
    """The schedule of the loop on a machine: a first load, steps in which resources overlap, and a last store."""
    at_once = loop.at_once or machine.blocks_at_once(footprint.registers, footprint.shared_bytes, loop.warps)
    return schedule(loop.blocks, at_once, machine, lambda depth, count: _wave(loop, footprint, machine, depth, count))


def _wave(loop: TileLoop, footprint: Footprint, machine: Machine, depth: int, blocks: int) -> Wave:
    costs, clock = machine.costs, machine.clock_ghz
    busy = min(1.0, blocks / machine.units)
    dram_ns = loop.dram_bytes * blocks / machine.dram_gbps
    # The loads of a step must arrive before the step: one wait and one tile's transfer in stages - 1 steps.
    wait_ns = costs.load_ns + max(dram_ns, loop.load_bytes / costs.stream_gbps)
    # power limits the clock as far as the device's units are busy
    mma_ns = depth * loop.mma_cycles / clock * max(1.0, busy * loop.mma_excess)
    shared_ns = depth * loop.shared_bytes / (machine.shared_bytes_per_cycle * costs.shared_share * clock)
    spilled = 2 * footprint.spill_bytes * 32 * loop.warps  # written and read again in every step
    times = {
        "matrix units": max(mma_ns, loop.chain_cycles / clock) + loop.lockstep * shared_ns,
        "shared memory": shared_ns,
        "load unit": depth * loop.lines * costs.line_cycles / clock,
        "L2": depth * loop.load_bytes / (machine.port_bytes_per_cycle * clock),
        "DRAM": dram_ns,
        "load latency": wait_ns / max(loop.stages - 1, 1),
        "arithmetic": depth * loop.arithmetic_cycles / clock,
        "spills": depth * spilled / (costs.spill_bytes_per_cycle * clock),
    }
    step_ns = overlap_ns(times, costs.overlap)
    if loop.links:
        times["chain"] = _chain_ns(loop, machine, times["matrix units"] / depth, wait_ns, spilled)
        step_ns = overlap_ns({"rates": step_ns, "chain": times["chain"]}, costs.wait_overlap)
    step_ns += costs.step_cycles / clock
    out_ns = max(
        depth * loop.store_bytes / (costs.store_bytes_per_cycle * clock), blocks * loop.store_bytes / machine.dram_gbps
    )
    alone = {name: loop.steps * each for name, each in times.items()}
    alone["loop"] = loop.steps * costs.step_cycles / clock
    finish_ns = loop.finish_cycles / clock
    between_ns = max(0.0, loop.entries - 1) * (wait_ns + costs.drain_ns) + max(0.0, loop.turns - 1) * finish_ns
    return Wave(loop.steps * step_ns + between_ns, wait_ns + costs.drain_ns + out_ns + depth * finish_ns, alone)


def _chain_ns(loop: TileLoop, machine: Machine, mma_ns: float, wait_ns: float, spilled: float) -> float:
    """Time of one block's step in which products and arithmetic follow each other."""
    costs = machine.costs
    lone = max(1.0, costs.lone_warp * _SCHEDULERS / loop.warps)  # a scheduler with one warp waits for its results
    link = costs.link_cycles * (1 + costs.tall_link * (loop.tall - 1))
    cycles = loop.arithmetic_cycles * lone + loop.links * link + spilled / costs.spill_bytes_per_cycle
    cycles += costs.exchange_cycles if loop.exchanged else 0.0
    unhidden_ns = costs.unhidden * wait_ns if loop.stages == 1 else 0.0
    return mma_ns + cycles / machine.clock_ghz + unhidden_ns
