"""Rows that are reduced or mapped without products of tiles: bandwidth, waits, arithmetic and the turnover of blocks.

Each warp first reduces the rows that its own lanes hold. Warps that hold rows of the same columns then leave their part
in shared memory, where the parts of a column lie side by side (Triton 3.6.0, `ReduceOpToLLVM`; counted in the PTX of
nine tiles for sm_90), and read the result back. Lanes hold runs of columns, so that they meet in the same banks: eight
bfloat16 columns and four warps along the rows put all 32 lanes into one bank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, exp, log2
from typing import Any, NamedTuple

from triton_ops.cost_model.blocks import Wave, overlap_ns, row_footprint, schedule
from triton_ops.device import Machine
from triton_ops.values import ITEM_BYTES, Footprint, Schedule, Tile, TilePlan, tile_side, warps_and_stages

_TILE_REDUCTION_LANES = 32
_BANKS = 32  # of shared memory, each 4 bytes wide: CUDA C++ Programming Guide


class TileReduction(NamedTuple):
    """Reductions or scans of tiles of one shape along `length`; `inner` elements lie between two steps along it."""

    length: int
    inner: int
    elements: int
    vector: int  # the most adjacent elements that a lane loads at once
    operands: int
    operations: int  # that make one element of two
    executions: float  # how often a block reduces or scans such a tile
    scans: bool = False
    across: bool = False  # a reduction across rows that lie along memory

    def instructions(self, warps: int) -> tuple[float, float]:
        """Instructions of each warp over all executions, and its words through the shuffle unit or shared memory.

        Of a reduction they are those of each further result of a warp; the first one's are waits. Triton 3.6.0,
        `ScanOpToLLVM`: a lane scans the neighbours that it holds, lanes pass on the last of these by halvings, each
        warp adds up what all warps have left in shared memory, and every element gets what is before it.
        """
        run, _, lanes, _, down = self._layout(warps)
        each, halvings = max(1.0, self.elements / (_TILE_REDUCTION_LANES * warps)), log2(lanes)
        if self.scans:
            passed = each / (run if self.inner == 1 else 1) * (halvings + (down if down > 1 else 0))
            own = (2 * each + passed) * (self.operands + self.operations)
        else:
            results = max(1.0, each * lanes * down / self.length) - 1
            passed = results * (halvings + (log2(down) + 2 if down > 1 else 0))
            own = passed * self.operations
        words = passed * self.operands
        return self.executions * (own + words), self.executions * words

    def exchange_cycles(self, warps: int) -> float:
        """Cycles of shared memory for the exchange of a reduction across rows among a block's warps."""
        run, columns, _, beside, down = self._layout(warps)
        if down < 2 or not self.across:
            return 0.0
        words = max(1, self.inner // (columns * beside))  # of each lane
        stride = run * down
        at_once = columns * min(stride, _BANKS) / _BANKS if columns * stride > _BANKS else 1.0
        return 2.0 * self.executions * words * max(at_once, 1.0) * warps  # written and read back

    def _layout(self, warps: int) -> tuple[int, int, int, int, int]:
        """Neighbours of a lane, lanes along memory and across it, and warps along and across; of a row all are along.

        The first two of a row are those of its own axis.
        """
        along = self.length if self.inner == 1 else self.inner
        run = max(1, min(self.vector, self.elements // (_TILE_REDUCTION_LANES * warps), along))
        columns = max(1, min(_TILE_REDUCTION_LANES, along // run))
        beside = max(1, min(warps, along // (run * columns)))
        if self.inner == 1:
            return run, 1, columns, 1, beside
        lanes = max(1, min(_TILE_REDUCTION_LANES // columns, self.length))
        return run, columns, lanes, beside, max(1, min(warps // beside, self.length // lanes))


_LANES = 85.0  # instructions of one thread that a multiprocessor issues per cycle: two thirds of 128; fitted
_DEPENDENT_CYCLES = 4  # until an arithmetic result can be used: arXiv:1804.06826 for Volta; later chips are alike
_WARP_STEPS = 5  # halvings of 32 lanes, each a shuffle and the operation
_BLOCK_STEPS = 4  # to shared memory, a barrier, back, and the barrier before it is used again
_ON_THE_WAY = 1.25  # loads of a thread at a time, of tiles that are added up; set on recorded sums of columns
_WHOLE = 64.0  # turns times elements of a thread up to which a loop is unrolled wholly, in the same machine code
_UNROLLED = 4.0  # times as many turns are then on the way as where ptxas unrolls by four
_LONE_CYCLES = 2.0  # per instruction of a warp with enough independent ones; fitted with the costs of rows


class TileWork(NamedTuple):
    """Instructions that a block issues for each element of tiles of one size."""

    instructions: float
    elements: float


class Again(NamedTuple):
    """Bytes that a block reads which it, or a block before it on its multiprocessor, has read before."""

    read_bytes: float
    own_bytes: float  # different bytes that were read meanwhile and that no other block reads
    common_bytes: float  # those that other blocks read too, of which the multiprocessor needs one copy


@dataclass(frozen=True, kw_only=True)
class Turning:
    """The loads of a loop, for which a block waits turn by turn."""

    entries: float  # of the loop by a block
    turns: float  # over all entries
    elements: float  # of the largest tile that a turn loads
    serial: float  # loads of all threads in a turn that each wait for earlier ones; 0 if they are on the way together
    constant: bool  # the compiler knows the turns

    def waits(self, threads: int) -> float:
        """The number of times that a block of so many threads waits for memory."""
        waits = self.turns * max(1.0, self.serial / threads / _ON_THE_WAY)
        unrolled = self.turns / max(self.entries, 1.0) * max(1.0, self.elements / threads)
        return waits / _UNROLLED if self.constant and unrolled <= _WHOLE else waits


@dataclass(frozen=True, kw_only=True)
class MemoryWalk:
    """The accesses, the arithmetic and the waits of one block."""

    blocks: int
    warps: int
    stages: int  # that the config asks for; plain loads are not pipelined
    work: tuple[TileWork, ...]  # arithmetic and accesses
    batches: float  # waits for loads from memory, one after another, outside of `loops`
    near: float  # waits for loads that it has made before
    turns: float  # walks through registers that may be spilled
    own_bytes: float  # that it reads and that no other block reads
    again: tuple[Again, ...]  # what it reads once more
    common: tuple[Again, ...]  # what other blocks read too, the next one on its multiprocessor soon after it
    written_bytes: float
    through_bytes: float  # that L2 moves for its first reads and its writes, in whole sectors
    streamed_bytes: float  # that it reads in all
    restarts: float = 0.0  # rows that it begins after another one, with none of their loads on the way
    lines: float = 0.0  # of 128 bytes that it touches; 0 where its accesses run along memory
    reductions: float = 0.0  # of a tile by its threads together
    reduced: tuple[TileReduction, ...] = ()
    loops: tuple[Turning, ...] = ()  # with loads

    @property
    def waits(self) -> float:
        """The number of times that it waits for loads from memory."""
        return self.batches + sum(each.waits(32 * self.warps) for each in self.loops)

    @property
    def instructions(self) -> float:
        """Instructions of each warp; with more threads than elements, some repeat the work of others."""
        threads = 32 * self.warps
        own = sum(part.instructions * max(1.0, part.elements / threads) for part in self.work)
        return own + sum(tile.instructions(self.warps)[0] for tile in self.reduced)

    @property
    def steps(self) -> float:
        """Steps of one reduction: halvings within a warp, and what warps leave in shared memory for each other."""
        return _WARP_STEPS + (_BLOCK_STEPS + log2(self.warps) if self.warps > 1 else 0.0)

    @property
    def dependent_cycles(self) -> float:
        """Cycles of a warp that is alone: elements of one thread do not depend on each other, and hide the latency."""
        threads = 32 * self.warps
        each = [(part.instructions, max(1.0, part.elements / threads)) for part in self.work]
        own = sum(count * max(_DEPENDENT_CYCLES, _LONE_CYCLES * own) for count, own in each)
        return own + sum(_LONE_CYCLES * tile.instructions(self.warps)[0] for tile in self.reduced if tile.scans)


def walk_schedule(walk: MemoryWalk, footprint: Footprint, machine: Machine) -> Schedule:
    """The schedule of the blocks, which are independent: their waits and rates are overlapped once per wave."""
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, walk.warps)
    result = schedule(walk.blocks, at_once, machine, lambda depth, count: _wave(walk, footprint, machine, depth, count))
    plainer = 1 + machine.costs.idle_stage * max(walk.stages - 1, 0)
    late_ms = result.time_ms * machine.costs.straggle / max(result.waves, 1.0)
    return Schedule((result.time_ms + late_ms) * plainer, result.waves, {**result.alone_ms, "stragglers": late_ms})


def _wave(walk: MemoryWalk, footprint: Footprint, machine: Machine, depth: int, blocks: int) -> Wave:
    costs, clock = machine.costs, machine.clock_ghz
    spilled = 2 * walk.turns * footprint.spill_bytes * 32 * walk.warps
    spill_ns = spilled / (costs.spill_bytes_per_cycle * clock)
    rates = {
        "issue": depth * walk.instructions * 32 * walk.warps / _LANES / clock,
        "shuffles": depth * walk.warps * sum(tile.instructions(walk.warps)[1] for tile in walk.reduced) / clock,
        "block launch": blocks * costs.block_ns,
        "load unit": depth * walk.lines * costs.line_cycles / clock,
        **_traffic(walk, machine, depth, blocks),
        "spills": depth * spill_ns,
    }
    waits = {
        "waits": walk.waits * costs.chunk_ns + walk.near * costs.near_ns + walk.restarts * costs.row_ns,
        "one block's loads": walk.streamed_bytes / costs.plain_gbps,
        "dependent arithmetic": walk.dependent_cycles / clock,
        "reductions": walk.reductions * walk.steps * costs.reduce_ns,
        "spill waits": spill_ns,
    }
    # a block exchanges behind barriers, with no loads on the way: other blocks hide that no better than its waits
    exchange = {"exchange": depth * sum(tile.exchange_cycles(walk.warps) for tile in walk.reduced) / clock}
    parts = {"rates": overlap_ns(rates, costs.overlap), "waits": sum(waits.values()), **exchange}
    return Wave(overlap_ns(parts, costs.wait_overlap), costs.turn_ns, rates | waits | exchange)


def _traffic(walk: MemoryWalk, machine: Machine, depth: int, blocks: int) -> dict[str, float]:
    """Nanoseconds at DRAM and at L2: what is read again is found in L1, else in L2, else read anew."""
    l1_bytes = machine.costs.l1_bytes
    past_l1 = [bytes_ * _l1_miss_share((own * depth + others) / l1_bytes) for bytes_, own, others in walk.again]
    shares = [machine.l2_kept_bytes / max(blocks * own, 1e-9) for _, own, _ in walk.again]  # shares, at most all
    missed = [max(0.0, 1 - share) for share in shares]
    anew = sum(one * share for one, share in zip(past_l1, missed, strict=True))
    common = sum(bytes_ * _l1_miss_share((own + others) / l1_bytes) for bytes_, own, others in walk.common)
    dram = blocks * (walk.own_bytes + anew + walk.written_bytes)
    through_l2 = depth * machine.units * (walk.through_bytes + sum(past_l1) + common)
    return {"DRAM": dram / machine.dram_gbps, "L2": through_l2 / machine.l2_gbps}


def _l1_miss_share(passed: float) -> float:
    """The share of what was read that L1 no longer holds, when so many times its size has passed through it.

    A cache in which the oldest line makes room would hold all or nothing. The blocks of a multiprocessor are not in
    step, and a line's place is not free, so that the edge is soft.
    """
    return 1 - exp(-passed * passed)


_LEAST_COPY_BYTES = 8
_INSTRUCTIONS = 4.0  # per element and pass of a norm; counted in its machine code for sm_90


@dataclass(frozen=True, kw_only=True)
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
        parts: Programs that share a row; a second launch writes what they have found.
        kept: Whether a row that is one chunk stays in registers between its passes, and is read once. A program then
            has its rows at once, as one tile, and else one after the other.
        inputs: Tensors of this shape and dtype that are read.
    """

    rows: int = field(kw_only=False)
    columns: int = field(kw_only=False)
    dtype: str
    out_dtype: str
    tile_rows: Tile
    tile_columns: Tile
    lanes: int = 1
    passes: int = 2
    weight: float = 1.0
    parts: Tile = 1
    kept: bool = False
    inputs: int = 1

    @property
    def unseen(self) -> str:
        """In words, that no recording stands behind rows of this length; empty if one does.

        Loads of such rows bring less than 8 bytes each, and what they take in registers is not known before compiling.
        """
        whole = self.columns * ITEM_BYTES[self.dtype] % _LEAST_COPY_BYTES == 0
        return "" if whole else f"unseen: no rows of {self.columns} elements, which loads of 8 bytes do not divide"

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan blocks of rows that are independent of each other."""
        rows, chunk = tile_side(self.tile_rows, config), tile_side(self.tile_columns, config) * self.lanes
        parts = tile_side(self.parts, config)
        return _plan(
            blocks=ceil(self.rows / rows) * parts, rows=rows, columns=ceil(self.columns / parts), chunk=chunk,
            passes=self.passes, reads=1 if self.kept and parts == 1 and chunk >= self.columns else self.passes,
            config=config, read_bytes=ITEM_BYTES[self.dtype] * self.inputs, written_bytes=ITEM_BYTES[self.out_dtype],
            weight=self.weight, machine=machine, at_once=rows if self.kept else 1,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ElementTiles:
    """The tiles of elements that do not depend on each other: a program takes a run of adjacent elements.

    Attributes:
        elements: Number of elements.
        tile: Elements per program.
        read_bytes: Bytes read per element, over all inputs.
        written_bytes: Bytes written per element, over all outputs.
        weight: Arithmetic of an element over that of a norm, as in `RowTiles`.
    """

    elements: int = field(kw_only=False)
    tile: Tile = field(kw_only=False)
    read_bytes: float
    written_bytes: float
    weight: float = 1.0

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan each run of elements as a row of its own with one pass."""
        tile = tile_side(self.tile, config)
        return _plan(
            blocks=ceil(self.elements / tile), rows=1, columns=min(tile, self.elements), chunk=tile, passes=1, reads=1,
            config=config, read_bytes=self.read_bytes, written_bytes=self.written_bytes, weight=self.weight,
            machine=machine,
        )  # fmt: skip


def _plan(
    *, blocks: int, rows: int, columns: int, chunk: int, passes: int, reads: int, config: Mapping[str, Any],
    read_bytes: float, written_bytes: float, weight: float, machine: Machine, at_once: int = 1,
) -> TilePlan:  # fmt: skip
    """Plan blocks that walk over their rows chunk by chunk; a later pass over a row reads it again.

    Columns of a chunk past the row's end are masked, which costs issue and no bytes. Bytes are per element, read in
    each pass and written once; `reads` are the passes in which a row is read, `weight` is as in `RowTiles`. So many
    rows as are `at_once` are waited for and reduced together.
    """
    warps, stages = warps_and_stages(config)
    chunks, later = ceil(columns / chunk) * rows, reads - 1
    waits, held = chunks / at_once, chunk * at_once / (32 * warps)
    turns, row_bytes = passes * chunks, rows * columns * read_bytes
    stored = rows * columns * written_bytes
    walk = MemoryWalk(
        blocks=blocks, warps=warps, stages=stages, work=(TileWork(turns * _INSTRUCTIONS * weight, chunk),),
        batches=waits, near=waits * later, turns=turns, own_bytes=row_bytes,
        again=(Again(later * row_bytes, row_bytes / rows, 0.0),) if later else (), common=(), written_bytes=stored,
        through_bytes=row_bytes + stored, streamed_bytes=row_bytes * reads,
        reductions=rows / at_once if passes > 1 else 0.0, restarts=rows / at_once - 1,
    )  # fmt: skip
    return TilePlan(warps, row_footprint(held, warps, rows), lambda footprint: walk_schedule(walk, footprint, machine))
