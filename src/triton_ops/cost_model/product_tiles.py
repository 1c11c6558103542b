"""Products of matrices as loops of tiles (`tile_loop`), which matrix units multiply (`mma`).

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

from triton_ops.cost_model import mma
from triton_ops.cost_model.blocks import tile_footprint
from triton_ops.cost_model.tile_loop import LANES, LINE_BYTES, TileLoop, loop_schedule
from triton_ops.device import Machine
from triton_ops.values import (
    ITEM_BYTES,
    Footprint,
    Schedule,
    TensorSpec,
    Tile,
    TilePlan,
    tile_side,
    warps_and_stages,
)

_COPY_BYTES = 16
_ASYNC_BYTES = 4  # of the least copy that runs ahead of the products: PTX ISA, `cp.async`
_LINE_COPIES = 16  # that cost the load unit a line, however narrow: set on products with copies of 1 and 2 bytes


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


def block_of(product: GemmTiles, config: Mapping[str, Any]) -> mma.TileBlock:
    """The block of a config."""
    warps, stages = warps_and_stages(config)
    rows, columns, step, group = (
        tile_side(side, config) for side in (product.tile_rows, product.tile_columns, product.tile_inner, product.group)
    )
    return mma.TileBlock(
        rows=rows, columns=columns, step=step, group=group, warps=warps, stages=stages,
        item_bytes=ITEM_BYTES[product.dtype],
    )  # fmt: skip


def gemm_loop(tiles: GemmTiles, block: mma.TileBlock, machine: Machine, footprint: Footprint) -> TileLoop:
    """The loop of one tile of C, by a block that takes `footprint`."""
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, block.warps)
    tile_rows, tile_columns = ceil(tiles.rows / block.rows), ceil(tiles.columns / block.columns)
    blocks = tile_rows * tile_columns * tiles.batch
    steps = ceil(tiles.inner / block.step)
    step_bytes = block.step * block.item_bytes
    reads = block.sums * mma.operand_bytes(machine, block.rows, block.columns // block.sums, step_bytes, block.warps)
    if block.parts > 1:  # rows of a part that are shorter than a line lie in the same banks
        reads *= max(1.0, LINE_BYTES * block.parts / step_bytes)
    return TileLoop(
        blocks=blocks,
        steps=steps,
        stages=block.stages,
        warps=block.warps,
        mma_cycles=mma.cycles(machine, block, tiles.dtype),
        chain_cycles=mma.chain_cycles(machine, block, tiles.dtype),
        shared_bytes=reads + block.load_bytes,
        lines=_lines(block.rows, block, tiles.a_along_inner, tiles.a_copy_bytes)
        + _lines(block.columns, block, tiles.b_along_inner, tiles.b_copy_bytes),
        load_bytes=block.load_bytes,
        arithmetic_cycles=0.0,
        dram_bytes=_dram_bytes(tiles, block, machine, min(blocks, at_once * machine.units)) / steps,
        mma_excess=machine.mma_excess(tiles.dtype),
        store_bytes=min(block.rows, tiles.rows) * min(block.columns, tiles.columns) * ITEM_BYTES[tiles.out_dtype],
        lockstep=mma.lockstep(machine, block, footprint.serialised),
        finish_cycles=block.rows * block.columns * tiles.finish / LANES * max(1.0, _FINISHING_WARPS / block.warps),
    )


def _lines(extent: int, block: mma.TileBlock, along_inner: bool, copy_bytes: float) -> float:
    if copy_bytes == inf:
        return 0.0
    runs, length = (extent, block.step) if along_inner else (block.step, extent)
    copies = extent * block.step * block.item_bytes / copy_bytes
    return max(runs * ceil(length * block.item_bytes / LINE_BYTES), copies / _LINE_COPIES)


def _dram_bytes(tiles: GemmTiles, block: mma.TileBlock, machine: Machine, at_once: int) -> float:
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
        """Why no pick is made for such products; empty where measured times bear picks out."""
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
        mma.check(machine, self.dtype)
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
                    loop = loop._replace(chain_cycles=max(loop.chain_cycles, _WAIT_CYCLES * block.step / mma.ONE_STEP))
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
    parts = max(int(config.get("SPLIT", 1)), 1)
    loads = str(config.get("LOADS", "host" if config.get("DESCRIPTORS", False) else "pointers"))
    in_parts = config.get("FORM") == "parts"
    return _Form(
        algorithm=str(config.get("ALGORITHM", "split_k" if parts > 1 else "persistent" if programs else "tiles")),
        programs=max(programs, 1),
        parts=parts,
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


def _of_programs(loop: TileLoop, block: mma.TileBlock, form: _Form, machine: Machine) -> TileLoop:
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


def _with_second_launch(
    first: Schedule, loop: TileLoop, block: mma.TileBlock, form: _Form, machine: Machine
) -> Schedule:
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


def _walking_share(form: _Form, block: mma.TileBlock) -> float:
    """Time of programs that share out steps, or walk over tiles by pointers, over that which their steps tell."""
    if form.algorithm == "stream_k" and not form.descriptors and block.rows * block.columns <= _HALF_TILE:
        return _ALONE if form.programs == 1 else 1.0  # two on a multiprocessor hide each other's loads
    by_pointers = form.algorithm == "persistent" and not form.descriptors
    return _WALKING if form.algorithm == "stream_k" or by_pointers else 1.0


def _tile_share(form: _Form, block: mma.TileBlock, promoted: bool) -> float:
    """Time of tiles with too few or too many warps for their sums, over that of as many steps."""
    if promoted:
        alone = block.rows * block.columns >= 4096 * block.warps  # no other sum has room in registers
        return _FEW_WARPS if alone and not form.by_turns else 1.0
    return _MORE_WARPS if form.descriptors and block.warps > 4 and block.rows * block.columns <= _WHOLE_TILE else 1.0


def _copied(loop: TileLoop, block: mma.TileBlock, form: _Form, product: GemmTiles) -> TileLoop:
    """The loop as a form copies: descriptors take less of the port and of shared memory if both sides are wide.

    Copies through registers do not run ahead.
    """
    if min(product.a_copy_bytes, product.b_copy_bytes) < _ASYNC_BYTES:
        return loop._replace(stages=1)
    if not form.descriptors or min(block.rows, block.columns) < mma.GROUP_ROWS:
        return loop
    copied, written = _DESCRIBED_PORT * loop.load_bytes, _DESCRIBED_SHARED * loop.load_bytes
    return loop._replace(load_bytes=copied, shared_bytes=loop.shared_bytes - loop.load_bytes + written)


def _promotion_cycles(block: mma.TileBlock, config: Mapping[str, Any]) -> float:
    """Cycles in which a step's sums are added to those of earlier ones."""
    terms = int(config.get("PROMOTE", 0)) or min(block.step, _MOST_TERMS)
    return block.rows * block.columns / _ADDS_PER_CYCLE * max(1.0, block.step / terms)


def _waits_for_each(block: mma.TileBlock, config: Mapping[str, Any]) -> bool:
    """Whether each instruction of a step is waited for: where no step's sum is promoted whole, the compiler does so."""
    return bool(config.get("PROMOTE", 0)) or block.step > _MOST_TERMS or block.rows * block.columns > _WHOLE_TILE


def _sums(block: mma.TileBlock, sums: int, promoted: bool, scaled: bool) -> float:
    """Sums of a thread: of its part of the tile, and of an instruction, or if scaled all, before they are added."""
    own = block.rows * block.columns / (32 * block.warps)
    if not promoted:
        return own
    return own + (own / sums if scaled else min(own / sums, block.columns / 2))


def _form_guess(
    block: mma.TileBlock, sums: float, form: _Form, machine: Machine, product: GemmTiles, written: bool
) -> Footprint:
    threads = 32 * block.warps
    grouped = mma.warp_groups(machine, block.rows, block.warps)
    step_bytes, copies, held, shared = block.step * block.item_bytes, 0.0, 0.0, 0
    for side, copy_bytes in ((block.rows, product.a_copy_bytes), (block.columns, product.b_copy_bytes)):
        own = side * step_bytes / copy_bytes / threads
        copies, held = copies + own, held + own * (copy_bytes < _ASYNC_BYTES)
        # pointer loads have a buffer less than stages, unless warp groups read them; narrow ones are not pipelined
        ahead = 0 if copy_bytes < _ASYNC_BYTES else block.stages - (not grouped and copy_bytes < inf)
        shared += max(ahead, 1) * side * step_bytes
    if written:  # from shared memory of its own
        shared += block.rows * block.columns * ITEM_BYTES[product.out_dtype] // (2 if form.halves else 1)
    return tile_footprint(sums, copies, grouped, shared, held)
