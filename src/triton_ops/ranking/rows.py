"""Rows that are reduced and written, and elements that are mapped: bandwidth, waits and the turnover of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import ceil
from typing import Any

from triton_ops.hardware import Machine
from triton_ops.ranking.resource_guess import row_footprint
from triton_ops.ranking.waves import Wave, overlapped, schedule
from triton_ops.tensors import ITEM_BYTES
from triton_ops.work import Footprint, Schedule, Tile, TilePlan, tile_side, warps_and_stages

_LANES = 128  # instructions of one thread that a multiprocessor issues per cycle
_DEPENDENT_CYCLES = 4  # until an arithmetic result can be used: arXiv:1804.06826 for Volta; later chips are alike


@dataclass(frozen=True)
class RowTiles:
    """The tiles of rows that are each reduced and written, as in a softmax or a norm; a row is read in chunks.

    Attributes:
        rows: Number of rows.
        columns: Elements of one row.
        dtype: Dtype of the input.
        out_dtype: Dtype of the output.
        tile_rows: Rows per program.
        tile_columns: Columns per chunk.
        lanes: Elements of a row per unit of `tile_columns`: 2 where a chunk is counted in pairs.
        passes: Number of walks over a row: 2 for one that reduces the row and one that writes it.
        weight: Arithmetic of an element in one pass over that of a norm (convert, multiply, add, convert).
    """

    rows: int
    columns: int
    _: KW_ONLY
    dtype: str
    out_dtype: str
    tile_rows: Tile
    tile_columns: Tile
    lanes: int = 1
    passes: int = 2
    weight: float = 1.0

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan blocks of rows that are independent of each other."""
        warps, stages = warps_and_stages(config)
        rows, chunk = tile_side(self.tile_rows, config), tile_side(self.tile_columns, config) * self.lanes
        chunks = Chunks(
            blocks=ceil(self.rows / rows),
            rows=rows,
            columns=self.columns,
            chunk=chunk,
            passes=self.passes,
            warps=warps,
            stages=stages,
            read_bytes=ITEM_BYTES[self.dtype],
            written_bytes=ITEM_BYTES[self.out_dtype],
            weight=self.weight,
        )
        return row_plan(chunks, machine)


@dataclass(frozen=True)
class ElementTiles:
    """The tiles of elements that do not depend on each other: a program takes a run of adjacent elements.

    Attributes:
        elements: Number of elements.
        tile: Elements per program.
        read_bytes: Bytes read per element, over all inputs.
        written_bytes: Bytes written per element, over all outputs.
        weight: Arithmetic of an element over that of a norm, as in `RowTiles`.
    """

    elements: int
    tile: Tile
    _: KW_ONLY
    read_bytes: float
    written_bytes: float
    weight: float = 1.0

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan each run of elements as a row of its own with one pass."""
        warps, stages = warps_and_stages(config)
        tile = tile_side(self.tile, config)
        chunks = Chunks(
            blocks=ceil(self.elements / tile),
            rows=1,
            columns=min(tile, self.elements),
            chunk=tile,
            passes=1,
            warps=warps,
            stages=stages,
            read_bytes=self.read_bytes,
            written_bytes=self.written_bytes,
            weight=self.weight,
        )
        return row_plan(chunks, machine)


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """The walk of one block over its rows.

    Attributes:
        blocks: Number of blocks in all.
        rows: Rows per block.
        columns: Columns of a row.
        chunk: Columns per chunk; columns past the row's end are masked, which costs issue and no bytes.
        passes: Number of walks over a row.
        warps: Warps per block.
        stages: Stages that the config asks of the pipeline; plain loads are not pipelined.
        read_bytes: Bytes read per element in each pass.
        written_bytes: Bytes written per element, once.
        weight: Arithmetic per element and pass over that of a norm.
        lines: 128-byte lines that a block touches in all; 0 where its accesses run along memory.
        spread: Bytes that L2 moves for each byte of the block's own rows: more where rows are scattered in memory, or
            where blocks read beside them what all others read too.
    """

    blocks: int
    rows: float
    columns: float
    chunk: int
    passes: int
    warps: int
    stages: int
    read_bytes: float
    written_bytes: float
    weight: float
    lines: float = 0.0
    spread: float = 1.0

    @property
    def count(self) -> int:
        """Number of chunks of one row."""
        return ceil(self.columns / self.chunk)

    @property
    def elements(self) -> float:
        """Elements of a chunk per thread, at least 1: with more threads than elements, some repeat others' work."""
        return max(1.0, self.rows * self.chunk / (32 * self.warps))


def row_plan(chunks: Chunks, machine: Machine) -> TilePlan:
    """The plan of blocks that walk over their rows chunk by chunk."""
    guess = row_footprint(chunks.chunk / (32 * chunks.warps), chunks.warps, ceil(chunks.rows))
    return TilePlan(chunks.warps, guess, lambda footprint: chunk_schedule(chunks, footprint, machine))


def chunk_schedule(chunks: Chunks, footprint: Footprint, machine: Machine) -> Schedule:
    """The schedule of the blocks, which are independent: their waits and rates are overlapped once per wave."""
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, chunks.warps)
    found = schedule(
        chunks.blocks, at_once, machine, lambda depth, count: _wave(chunks, footprint, machine, depth, count)
    )
    plainer = 1 + machine.costs.idle_stage * max(chunks.stages - 1, 0)
    return Schedule(found.time_ms * plainer, found.waves, found.alone_ms)


def _wave(chunks: Chunks, footprint: Footprint, machine: Machine, depth: int, blocks: int) -> Wave:
    costs = machine.costs
    turns = chunks.passes * chunks.count
    spill_ns = 2 * turns * footprint.spill_bytes * 32 * chunks.warps / (costs.spill_bytes_per_cycle * machine.clock_ghz)
    work_cycles = turns * chunks.elements * costs.element_instructions * chunks.weight
    rates = {
        "issue": depth * work_cycles * 32 * chunks.warps / _LANES / machine.clock_ghz,
        "load unit": depth * chunks.lines * costs.line_cycles / machine.clock_ghz,
        **_traffic(chunks, machine, depth, blocks),
        "spills": depth * spill_ns,
    }
    own_bytes = chunks.rows * chunks.columns * chunks.read_bytes * chunks.passes * chunks.spread
    waits = {
        "waits": chunks.count * (costs.chunk_ns + costs.row_ns * (chunks.rows - 1)),
        "one block's loads": own_bytes / costs.plain_gbps,
        "dependent arithmetic": work_cycles * _DEPENDENT_CYCLES / machine.clock_ghz,
        "spill waits": spill_ns,
    }
    both = {"rates": overlapped(rates, costs.overlap), "waits": sum(waits.values())}
    return Wave(overlapped(both, costs.wait_overlap), costs.turn_ns, rates | waits)


def _traffic(chunks: Chunks, machine: Machine, depth: int, blocks: int) -> dict[str, float]:
    """Nanoseconds at DRAM and at L2: a later pass finds its rows in L1, else in L2, else reads them again."""
    row_bytes = chunks.rows * chunks.columns * chunks.read_bytes
    beside = depth * row_bytes  # bytes of the rows of all blocks on one multiprocessor
    again = chunks.passes - 1
    past_l1 = max(0.0, 1 - machine.costs.l1_bytes / beside) if again else 0.0
    past_l2 = max(0.0, 1 - machine.l2_bytes / 2 / (blocks * row_bytes)) if again else 0.0
    written = chunks.rows * chunks.columns * chunks.written_bytes
    dram = blocks * (row_bytes * (1 + again * past_l1 * past_l2) + written)
    through_l2 = depth * machine.units * (row_bytes * (1 + again * past_l1) + written) * chunks.spread
    return {"DRAM": dram / machine.dram_gbps, "L2": through_l2 / machine.l2_gbps}
