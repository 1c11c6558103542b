"""Products of tiles as pipelined loops: the time of a tile at matrix units, shared memory, load unit, L2, DRAM.

The layouts are Triton's for sm_80 and sm_90, which choose a tile's instruction and the share of each warp (Triton's
`lib/Dialect`, AccelerateMatmul; docs/concepts/model.md derives each figure).

Loads run ahead of the products, and the resources of a step overlap. Where a product of a step waits for another one,
as in attention (`attention_tiles`), or for arithmetic on what was loaded, a block does one after another; only other
blocks fill the gaps.

Products have several algorithms: tiles with a program each, walked over, or shared among programs. The configs name the
algorithm as the shipped products do: ALGORITHM (`tiles`, `persistent`, `split_k`, `stream_k`), PROGRAMS for each
multiprocessor, SPLIT, SWAPPED, LOADS or DESCRIPTORS, HALVES, SUMS and AHEAD. A config that names none of them has one
program for each tile, and pointer loads. With the FORM `gluon` two groups of four warps, beside those of `num_warps`,
promote and multiply by turns, from BUFFERS stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, NamedTuple

from triton_ops.cost_model.blocks import Wave, overlap_ns, schedule, tile_footprint
from triton_ops.device import Machine
from triton_ops.values import (
    ALIGNMENT_BYTES,
    ITEM_BYTES,
    Footprint,
    Schedule,
    TensorSpec,
    Tile,
    TilePlan,
    UnknownTileError,
    tile_side,
    warps_and_stages,
)

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


LINE_BYTES = 128
_COPY_BYTES = 16
_ASYNC_BYTES = 4  # of the least copy that runs ahead of the products: PTX ISA, `cp.async`
_LINE_COPIES = 16  # that cost the load unit a line, however narrow: set on products with copies of 1 and 2 bytes
_GROUP_ROWS = 64  # rows of a warp-group instruction
_WIDEST = 256  # most columns of a warp-group instruction
_INSTRUCTION_CYCLES, _INSTRUCTION_TERMS = 33, 16  # of one warp's matrix instruction of 16 bits: until its sum is there
_ONE_STEP = 32  # elements of 8 bits along K that one instruction takes: in such a step there is one, and none waits
_SERIALISED = 0.5  # chance that 8-bit tiles of 256 columns are serialised: in one of two kernels' texts


@dataclass(frozen=True, kw_only=True)
class GemmTiles:
    """The tiles of C[rows, columns] = A[rows, inner] @ B[inner, columns]: one of C per program, in steps along `inner`.

    Attributes:
        rows: M, in elements.
        columns: N, in elements.
        inner: K, in elements.
        dtype: Dtype of A and B.
        out_dtype: Dtype of C.
        tile_rows: Side of a tile along M.
        tile_columns: Side of a tile along N.
        tile_inner: Length of a step along K.
        group: Number of tile rows that programs walk down before they move on to the next tile column.
        a_along_inner: Whether elements of A that follow each other along `inner` are neighbours in memory.
        b_along_inner: Whether elements of B that follow each other along `inner` are neighbours in memory.
        batch: Number of such products.
        a_copy_bytes: Bytes of A that a load by pointers copies at once: those of an element where rows may begin
            anywhere. Copies of less than 4 bytes do not run ahead. Infinite where a descriptor has A copied.
        b_copy_bytes: The same of B.
        finish: Instructions for each element of C after it is summed, such as those of an activation.
    """

    rows: int = field(kw_only=False)
    columns: int = field(kw_only=False)
    inner: int = field(kw_only=False)
    dtype: str
    out_dtype: str
    tile_rows: Tile
    tile_columns: Tile
    tile_inner: Tile
    group: Tile = 1
    a_along_inner: bool = True
    b_along_inner: bool = False
    batch: int = 1
    a_copy_bytes: float = _COPY_BYTES
    b_copy_bytes: float = _COPY_BYTES
    finish: float = 0.0

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan a pipelined loop along `inner` for each tile of C."""
        return ProductTiles(self).planned(config, _form({}), machine)


def check_matrix_units(machine: Machine, dtype: str) -> None:
    """Raise `UnknownTileError` if the device has no known matrix rate for `dtype`."""
    if dtype not in machine.mma_flops_per_cycle:
        raise UnknownTileError(f"the device has no known matrix rate for {dtype}")


class TileBlock(NamedTuple):
    """The tile of one program, and how the program runs."""

    rows: int
    columns: int
    step: int  # along the inner axis
    warps: int
    stages: int
    group: int  # tile rows that programs walk down before they move on to the next tile column
    item_bytes: int  # of an element of A and B
    parts: int = 1  # of a step, each with a sum of its own
    sums: int = 1  # of the columns, each with instructions of its own

    @property
    def load_bytes(self) -> int:
        """Bytes of A and B that one step loads."""
        return (self.rows + self.columns) * self.step * self.item_bytes


def block_of(product: GemmTiles, config: Mapping[str, Any]) -> TileBlock:
    """The block of a config."""
    warps, stages = warps_and_stages(config)
    rows, columns, step, group = (
        tile_side(side, config) for side in (product.tile_rows, product.tile_columns, product.tile_inner, product.group)
    )
    return TileBlock(
        rows=rows, columns=columns, step=step, group=group, warps=warps, stages=stages,
        item_bytes=ITEM_BYTES[product.dtype],
    )  # fmt: skip


def warp_groups(machine: Machine, rows: int, warps: int) -> bool:
    """Return True for a tile that runs on warp-group instructions."""
    return machine.wgmma and rows >= _GROUP_ROWS and warps % 4 == 0


def operand_bytes(machine: Machine, rows: int, columns: int, step_bytes: int, warps: int) -> float:
    """Bytes that the matrix units read from shared memory for a tile of `rows` by `columns` and a `step_bytes` step."""
    if warp_groups(machine, rows, warps):
        # The four warps together read the rows of A and the columns of B of each instruction once.
        width = min(max(columns // warps_across(machine, rows, columns, warps), 8), _WIDEST)
        group = min(rows, machine.group_rows)
        return rows / group * (columns / width) * (group + width) * step_bytes
    along_rows, along_columns = warp_grid(rows, columns, warps)
    return (rows * along_columns + max(columns, 8 * along_columns) * along_rows) * step_bytes


def warps_across(machine: Machine, rows: int, columns: int, warps: int) -> int:
    """Warps along the columns of a tile; those that have rows in common."""
    if warp_groups(machine, rows, warps):
        return max(warps // max(rows // 16, 1), 1)
    return warp_grid(rows, columns, warps)[1]


def tiles_of_warp(machine: Machine, rows: int, columns: int, warps: int) -> float:
    """Tiles of 16 rows that each warp has of a tile's rows, one below the other; at least 1."""
    return max(1.0, rows / 16 / (warps // warps_across(machine, rows, columns, warps)))


def warp_grid(rows: int, columns: int, warps: int) -> tuple[int, int]:
    """Warps along the rows and along the columns of a tile, for instructions of one warp (16 by 8)."""
    down, across = 1, 1
    while down * across < warps:
        if rows / 16 / down >= columns / 16 / across and down < rows / 16:
            down *= 2
        else:
            across *= 2
    return down, across


def mma_cycles(machine: Machine, block: TileBlock, dtype: str) -> float:
    """Cycles of one multiprocessor's matrix units per step."""
    flops = 2.0 * block.rows * block.columns * block.step
    rate = machine.mma_flops_per_cycle[dtype]
    if warp_groups(machine, block.rows, block.warps):
        return flops / rate
    columns = block.columns // block.sums
    across = warp_grid(block.rows, columns, block.warps)[1] if block.parts == 1 else 1
    repeated = max(1.0, 8 * across / columns)  # with more warps than columns, some repeat the work of others
    return flops * repeated / (rate * machine.mma_sync_share)


def _chain_cycles(machine: Machine, block: TileBlock, dtype: str) -> float:
    """Cycles of a step's instructions of one warp, each of which adds to the sum of the one before.

    Hopper's warps multiply 8-bit floats as 16-bit ones, which takes twice the instructions; no other chain was recorded
    that takes longer than its step's loads.
    """
    if "float8" not in dtype or not machine.wgmma or warp_groups(machine, block.rows, block.warps):
        return 0.0
    return _INSTRUCTION_CYCLES * block.step / block.parts / _INSTRUCTION_TERMS


def gemm_loop(tiles: GemmTiles, block: TileBlock, machine: Machine, footprint: Footprint) -> TileLoop:
    """The loop of one tile of C, by a block that takes `footprint`."""
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, block.warps)
    tile_rows, tile_columns = ceil(tiles.rows / block.rows), ceil(tiles.columns / block.columns)
    blocks = tile_rows * tile_columns * tiles.batch
    steps = ceil(tiles.inner / block.step)
    step_bytes = block.step * block.item_bytes
    reads = block.sums * operand_bytes(machine, block.rows, block.columns // block.sums, step_bytes, block.warps)
    if block.parts > 1:  # rows of a part that are shorter than a line lie in the same banks
        reads *= max(1.0, LINE_BYTES * block.parts / step_bytes)
    return TileLoop(
        blocks=blocks,
        steps=steps,
        stages=block.stages,
        warps=block.warps,
        mma_cycles=mma_cycles(machine, block, tiles.dtype),
        chain_cycles=_chain_cycles(machine, block, tiles.dtype),
        shared_bytes=reads + block.load_bytes,
        lines=_lines(block.rows, block, tiles.a_along_inner, tiles.a_copy_bytes)
        + _lines(block.columns, block, tiles.b_along_inner, tiles.b_copy_bytes),
        load_bytes=block.load_bytes,
        arithmetic_cycles=0.0,
        dram_bytes=_dram_bytes(tiles, block, machine, min(blocks, at_once * machine.units)) / steps,
        mma_excess=machine.mma_excess(tiles.dtype),
        store_bytes=min(block.rows, tiles.rows) * min(block.columns, tiles.columns) * ITEM_BYTES[tiles.out_dtype],
        lockstep=lockstep(machine, block, footprint.serialised),
        finish_cycles=block.rows * block.columns * tiles.finish / LANES * max(1.0, _FINISHING_WARPS / block.warps),
    )


def lockstep(machine: Machine, block: TileBlock, serialised: bool | None) -> float:
    """The share, 0 to 1, in which the matrix units of a block wait for their operands.

    They wait wholly where ptxas has serialised the warp-group instructions. Before a config is compiled nobody knows:
    the same 8-bit tiles of 256 columns and 8 warps had it in one kernel's text (ptxas 12.8: 4 of 96 tiles, and no
    16-bit one) and not in another's, so that the chance is taken for them.
    """
    if not warp_groups(machine, block.rows, block.warps):
        return 0.0
    if serialised is not None:
        return float(serialised)
    widest = block.columns // block.sums == _WIDEST
    doubtful = block.item_bytes == 1 and widest and block.warps == 8 and block.step > _ONE_STEP
    return _SERIALISED if doubtful else 0.0


def _lines(extent: int, block: TileBlock, along_inner: bool, copy_bytes: float) -> float:
    if copy_bytes == inf:
        return 0.0
    runs, length = (extent, block.step) if along_inner else (block.step, extent)
    copies = extent * block.step * block.item_bytes / copy_bytes
    return max(runs * ceil(length * block.item_bytes / LINE_BYTES), copies / _LINE_COPIES)


def _dram_bytes(tiles: GemmTiles, block: TileBlock, machine: Machine, at_once: int) -> float:
    """Bytes of A and B that DRAM delivers for the whole loop of one block, in a wave of `at_once` blocks.

    Data that blocks of a wave share is read once. Data of an earlier wave is found in L2 as far as L2 holds A and B;
    only half of L2 counts where each of the chip's two halves keeps its own copy of a line (Hopper and A100).
    """
    item = block.item_bytes
    tile_rows, tile_columns = ceil(tiles.rows / block.rows), ceil(tiles.columns / block.columns)
    group = max(min(block.group, tile_rows), 1)
    blocks = tile_rows * tile_columns
    resident = min(at_once, blocks)  # blocks of one product in the wave
    across = min(tile_columns, ceil(resident / group))
    down = min(tile_rows, group * ceil(resident / (group * tile_columns)))
    wave = (down * min(block.rows, tiles.rows) + across * min(block.columns, tiles.columns)) * tiles.inner * item
    least = (tiles.rows + tiles.columns) * tiles.inner * item
    waves = blocks / resident
    in_l2 = min(1.0, machine.l2_kept_bytes / least)
    return float((least + max(0.0, wave * waves - least) * (1 - in_l2)) / waves / resident)


LANES = 128
_FINISHING_WARPS = 8  # that keep the lanes busy; with four, a SiLU took twice as long (H200)
_SUM_BYTES = 4  # of a part: float32
_SECOND_LAUNCH_NS = 2500.0  # from the end of a launch to the end of a small one behind it; assumed, not fitted
_DESCRIBED_NS = 1500.0  # in which a program makes its descriptors: 1.4 to 1.7 us at 1024x1024x1024 on an H200
_WAIT_CYCLES = 90  # of an instruction of 32 terms that is waited for; H200
# Fitted on 1,100 configs of 34 products that nobody chose, timed on an H200 with Triton 3.6.0 on 2026-11-29:
_DESCRIBED_PORT, _DESCRIBED_SHARED = 0.65, 0.7  # of the port, and of writes to shared memory, of wide described tiles
_WALKING, _ALONE = 1.4, 1.15  # of programs that share out steps or walk by pointers, over the time of as many steps
_FEW_WARPS = 1.1  # of promoted tiles whose sum fits into registers once, over the time with twice the warps; H200
_MORE_WARPS = 1.05  # of described tiles whose sums four warps hold, over the time of four
_HALF_TILE = 64 * 128  # elements of a tile, whose sums leave room for the addresses of narrow copies
_WHOLE_TILE = 128 * 128  # elements of a tile, up to which a step's sum is promoted whole
_MOST_TERMS = 128  # that the matrix units add up before their sums are promoted
WARPS_BY_TURNS = 8
_TURNS = {"gluon": WARPS_BY_TURNS, "steps": 4}  # in a step of the second form one group multiplies
_ADDS_PER_CYCLE = 128  # of one multiprocessor: float32 lanes, CUDA C++ Programming Guide


@dataclass(frozen=True)
class ProductTiles:
    """The tiles of a product by the algorithm that a config names, with groups of 8 tile rows where it names none."""

    product: GemmTiles  # with one program for each tile
    promoted: bool = False  # sums are added to others after PROMOTE terms, else after every step of at most 128
    scaled: bool = False  # each step reads scales, and waits for them unless it has read them AHEAD steps before
    described: bool = True  # C is written by a descriptor too where A and B are read by them, from shared memory
    products: int = 1  # of A, with matrices whose columns `product` counts together; C has those of one

    @classmethod
    def of(
        cls, extents: tuple[int, int, int], a: TensorSpec, b: TensorSpec, c: TensorSpec, *,
        sides: Sequence[Tile] = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_SIZE_M"), b_inner: int = -2,
        batch: int = 1, finish: float = 0.0, products: int = 1, units: tuple[int, int] = (0, 0), **more: bool,
    ) -> ProductTiles:  # fmt: skip
        """The tiles of C = A @ B with extents M, N and K, whose `sides` are along M, N and K, and of a group of tiles.

        K is the last axis of A, and the axis `b_inner` of B. `batch` and `finish` are as of `GemmTiles`. `units` are
        the elements of A and of B that are copied at once, where a kernel knows of more than strides tell.
        """
        rows, columns, inner = extents
        tile_rows, tile_columns, tile_inner, group = sides
        a_copy, b_copy = (n * ITEM_BYTES[a.dtype] or one.copied_bytes for n, one in zip(units, (a, b), strict=True))
        product = GemmTiles(
            rows, products * columns, inner, dtype=a.dtype, out_dtype=c.dtype, tile_rows=tile_rows,
            tile_columns=tile_columns, tile_inner=tile_inner, group=group, a_along_inner=a.strides[-1] == 1,
            b_along_inner=b.strides[b_inner] == 1, a_copy_bytes=a_copy, b_copy_bytes=b_copy,
            batch=batch, finish=finish,
        )  # fmt: skip
        return cls(product, products=products, **more)

    @property
    def dtype(self) -> str:
        """Dtype of the operands, by which the matrix units' rate is known."""
        return self.product.dtype

    @property
    def unseen(self) -> str:
        """Why no pick is made for such products; empty where measured times bear picks out.

        One of two products at once, of 640x13360x595, took 2.6 times as long as the default (H200).
        """
        if self.products > 1 and self.product.inner * ITEM_BYTES[self.dtype] % ALIGNMENT_BYTES:
            return "unseen: no rows that descriptors cannot read"
        return "" if self.product.inner else "unseen: no products without a sum"

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan the loop of one program, and the second launch of algorithms that share tiles.

        Several products are as one of as many times the columns; where their matrices are not joined, as so many sums.
        """
        if self.products > 1:
            side, sums = str(self.product.tile_columns), 1 if config.get("JOINED", False) else self.products
            config = {**config, side: self.products * tile_side(side, config), "SUMS": sums, "HALVES": True}
        return self.planned({"GROUP_M": 8, "GROUP_SIZE_M": 8, **config}, _form(config), machine)

    def planned(self, config: Mapping[str, Any], form: _Form, machine: Machine) -> TilePlan:
        """As `plan`, by the algorithm of this form."""
        check_matrix_units(machine, self.dtype)
        config = self._pipelined(config, form)
        product = _of_form(self.product, form)
        block = block_of(product, config)._replace(parts=form.step_parts, sums=1 if form.by_turns else form.sums)
        promoted = self.promoted and form.step_parts == 1

        def schedule(footprint: Footprint) -> Schedule:
            if form.descriptors and footprint.serialised is None:  # no tile that descriptors copy has been seen so
                footprint = replace(footprint, serialised=False)
            loop = _copied(gemm_loop(product, block, machine, footprint), block, form, product)
            if promoted and not form.by_turns:  # all warps promote at once, and no product runs beside it
                loop = loop._replace(mma_cycles=loop.mma_cycles + _promotion_cycles(block, config))
                if not self.scaled and _waits_for_each(block, config):
                    loop = loop._replace(chain_cycles=max(loop.chain_cycles, _WAIT_CYCLES * block.step / _ONE_STEP))
            walked = _of_programs(loop, block, form, machine)
            times = loop_schedule(walked, footprint, machine)
            waits_ns = 0.0
            if self.scaled:  # for the scales of each sum, unless they are read steps ahead
                waits_ns = times.waves * walked.steps * machine.costs.load_ns / (1 + form.ahead)
            if form.by_turns and not machine.wgmma:
                waits_ns = inf
            share = _walking_share(form, block) * (_tile_share(form, block, promoted) if machine.wgmma else 1.0)
            time_ms = share * times.time_ms + (form.described_ns + waits_ns) / 1e6
            times = Schedule(time_ms, times.waves, times.alone_ms)
            return _with_second_launch(times, loop, block, form, machine)

        sums = _sums(block, form.sums, promoted, self.scaled) * form.step_parts
        written = self.described and "c" in form.described and form.algorithm != "split_k"
        return TilePlan(block.warps, _form_guess(block, sums, form, machine, product, written), schedule)

    def _pipelined(self, config: Mapping[str, Any], form: _Form) -> Mapping[str, Any]:
        """The config with the warps and the stages that its loop has."""
        if form.by_turns:
            return {**config, "num_warps": form.by_turns, "num_stages": config.get("BUFFERS") or 1}
        if self.scaled and form.ahead > 1:  # the steps are unrolled, and each has stages of its own
            return {**config, "num_stages": int(config.get("num_stages", 1)) * form.ahead}
        return config


class _Form(NamedTuple):
    """The way in which a config's programs share out the tiles and load them."""

    algorithm: str
    programs: int
    parts: int
    swapped: bool
    described: str  # matrices that have descriptors
    described_ns: float
    halves: bool
    sums: int
    ahead: int
    by_turns: int  # warps of groups that promote and multiply by turns; 0 where all promote at once
    step_parts: int  # of a step's terms, each with a sum of its own

    @property
    def descriptors(self) -> bool:
        """Whether they copy both operands."""
        return self.described.startswith("ab")


def _form(config: Mapping[str, Any]) -> _Form:
    programs, sums = int(config.get("PROGRAMS", 0)), max(int(config.get("SUMS", 1)), 1)
    loads = str(config.get("LOADS", "host" if config.get("DESCRIPTORS", False) else "pointers"))
    in_parts = config.get("FORM") == "parts"
    return _Form(
        algorithm=str(config.get("ALGORITHM", "persistent" if programs else "tiles")),
        programs=max(programs, 1),
        parts=max(int(config.get("SPLIT", 1)), 1),
        swapped=bool(config.get("SWAPPED", False)),
        described="" if loads == "pointers" else loads.partition("_")[2] or "abc",  # `host_a` says of which
        described_ns=_DESCRIBED_NS if config.get("DESCRIPTORS", False) or loads == "device" else 0.0,
        halves=bool(config.get("HALVES", False)) or (sums > 1 and not in_parts),
        sums=1 if in_parts else sums,
        ahead=int(config.get("AHEAD", 0)),
        by_turns=_TURNS.get(str(config.get("FORM")), 0),
        step_parts=sums if in_parts else 1,
    )


def _of_form(product: GemmTiles, form: _Form) -> GemmTiles:
    """The product as a form copies its operands; with swapped operands the transposed one: Cᵀ = Bᵀ @ Aᵀ."""
    a_copy = inf if "a" in form.described else product.a_copy_bytes
    b_copy = inf if "b" in form.described else product.b_copy_bytes
    if not form.swapped:
        return replace(product, a_copy_bytes=a_copy, b_copy_bytes=b_copy)
    return replace(
        product, rows=product.columns, columns=product.rows, a_copy_bytes=b_copy, b_copy_bytes=a_copy,
        a_along_inner=product.b_along_inner, b_along_inner=product.a_along_inner,
    )  # fmt: skip


def _of_programs(loop: TileLoop, block: TileBlock, form: _Form, machine: Machine) -> TileLoop:
    """The loop of one program: part of a tile, one tile, or several, whose stores go on beside the next one's loads."""
    tiles, steps = loop.blocks, max(loop.steps, 1)
    part_bytes = block.rows * block.columns * _SUM_BYTES
    if form.algorithm == "split_k":
        return loop._replace(
            blocks=tiles * form.parts, steps=ceil(steps / form.parts), store_bytes=part_bytes, finish_cycles=0.0
        )
    programs = form.programs * machine.units
    if form.algorithm == "stream_k":
        blocks = int(min(programs, tiles * steps))
        turns = tiles / blocks
        loop = loop if tiles % blocks == 0 else loop._replace(store_bytes=part_bytes)
    elif form.algorithm == "persistent":
        blocks = min(programs, tiles)
        turns = ceil(tiles / blocks)
    else:
        return loop
    refills = 1.0 if form.descriptors else turns  # copies of the next tile begin while this one is written
    dram_bytes = loop.dram_bytes + loop.store_bytes / steps
    return loop._replace(
        blocks=blocks, steps=steps * turns, dram_bytes=dram_bytes, entries=max(refills, 1.0), turns=turns
    )


def _with_second_launch(first: Schedule, loop: TileLoop, block: TileBlock, form: _Form, machine: Machine) -> Schedule:
    """The schedule with the launch that adds the parts up, which are still in L2; as it is where tiles are whole."""
    programs = form.programs * machine.units
    if form.algorithm == "split_k":
        parts, tiles = loop.blocks * form.parts, loop.blocks
    elif form.algorithm != "stream_k":
        return first
    else:
        tiles = loop.blocks % programs
        parts = tiles + programs if tiles else 0
    read_ns = parts * block.rows * block.columns * _SUM_BYTES / machine.l2_gbps
    second_ns = _SECOND_LAUNCH_NS + read_ns + tiles * loop.store_bytes / machine.dram_gbps
    return Schedule(first.time_ms + second_ns / 1e6, first.waves, {**first.alone_ms, "second launch": second_ns / 1e6})


def _walking_share(form: _Form, block: TileBlock) -> float:
    """Time of programs that share out steps, or walk over tiles by pointers, over that which their steps tell."""
    if form.algorithm == "stream_k" and not form.descriptors and block.rows * block.columns <= _HALF_TILE:
        return _ALONE if form.programs == 1 else 1.0  # two on a multiprocessor hide each other's loads
    by_pointers = form.algorithm == "persistent" and not form.descriptors
    return _WALKING if form.algorithm == "stream_k" or by_pointers else 1.0


def _tile_share(form: _Form, block: TileBlock, promoted: bool) -> float:
    """Time of tiles with too few or too many warps for their sums, over that of as many steps."""
    if promoted:
        alone = block.rows * block.columns >= 4096 * block.warps  # no other sum has room in registers
        return _FEW_WARPS if alone and not form.by_turns else 1.0
    return _MORE_WARPS if form.descriptors and block.warps > 4 and block.rows * block.columns <= _WHOLE_TILE else 1.0


def _copied(loop: TileLoop, block: TileBlock, form: _Form, product: GemmTiles) -> TileLoop:
    """The loop as a form copies: descriptors take less of the port and of shared memory if both sides are wide.

    Copies through registers do not run ahead.
    """
    if min(product.a_copy_bytes, product.b_copy_bytes) < _ASYNC_BYTES:
        return loop._replace(stages=1)
    if not form.descriptors or min(block.rows, block.columns) < _GROUP_ROWS:
        return loop
    copied, written = _DESCRIBED_PORT * loop.load_bytes, _DESCRIBED_SHARED * loop.load_bytes
    return loop._replace(load_bytes=copied, shared_bytes=loop.shared_bytes - loop.load_bytes + written)


def _promotion_cycles(block: TileBlock, config: Mapping[str, Any]) -> float:
    """Cycles in which a step's sums are added to those of earlier ones."""
    terms = int(config.get("PROMOTE", 0)) or min(block.step, _MOST_TERMS)
    return block.rows * block.columns / _ADDS_PER_CYCLE * max(1.0, block.step / terms)


def _waits_for_each(block: TileBlock, config: Mapping[str, Any]) -> bool:
    """Whether each instruction of a step is waited for: where no step's sum is promoted whole, the compiler does so."""
    return bool(config.get("PROMOTE", 0)) or block.step > _MOST_TERMS or block.rows * block.columns > _WHOLE_TILE


def _sums(block: TileBlock, sums: int, promoted: bool, scaled: bool) -> float:
    """Sums of a thread: of its part of the tile, and of an instruction, or if scaled all, before they are added."""
    own = block.rows * block.columns / (32 * block.warps)
    if not promoted:
        return own
    return own + (own / sums if scaled else min(own / sums, block.columns / 2))


def _form_guess(
    block: TileBlock, sums: float, form: _Form, machine: Machine, product: GemmTiles, written: bool
) -> Footprint:
    threads = 32 * block.warps
    grouped = warp_groups(machine, block.rows, block.warps)
    step_bytes, copies, held, shared = block.step * block.item_bytes, 0.0, 0.0, 0
    for side, copy_bytes in ((block.rows, product.a_copy_bytes), (block.columns, product.b_copy_bytes)):
        own = side * step_bytes / copy_bytes / threads
        copies, held = copies + own, held + own * (copy_bytes < _ASYNC_BYTES)
        ahead = 0 if copy_bytes < _ASYNC_BYTES else block.stages - (not grouped and copy_bytes < inf)
        shared += max(ahead, 1) * side * step_bytes
    if written:  # from shared memory of its own
        shared += block.rows * block.columns * ITEM_BYTES[product.out_dtype] // (2 if form.halves else 1)
    return tile_footprint(sums, copies, grouped, shared, held)
