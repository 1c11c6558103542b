"""Matrix products by several algorithms: tiles with a program each, walked over, or shared among programs.

The configs name the algorithm as the shipped products do: ALGORITHM (`tiles`, `persistent`, `split_k`, `stream_k`),
PROGRAMS for each multiprocessor, SPLIT, SWAPPED, LOADS or DESCRIPTORS, HALVES, SUMS and AHEAD. A config that names none
of them has one program for each tile, and pointer loads. With the FORM `gluon` two groups of four warps, beside those
of `num_warps`, promote and multiply by turns, from BUFFERS stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, NamedTuple

from triton_ops.cost_model.blocks import tile_footprint
from triton_ops.cost_model.gemm_tiles import (
    GemmTiles,
    TileBlock,
    TileLoop,
    block_of,
    check_matrix_units,
    gemm_loop,
    lockstep,
    loop_schedule,
    warp_groups,
)
from triton_ops.device import Machine
from triton_ops.values import ITEM_BYTES, Footprint, Schedule, TilePlan

_SUM_BYTES = 4  # of a part: float32
_SECOND_LAUNCH_NS = 2500.0  # from the end of a launch to the end of a small one behind it; assumed, not fitted
_DESCRIBED_NS = 1500.0  # in which a program makes its descriptors: 1.4 to 1.7 us at 1024x1024x1024 on an H200
_COPY_BYTES = 16
_MOST_TERMS = 128  # that the matrix units add up before their sums are promoted
_WARPS_BY_TURNS = 8
_ADDS_PER_CYCLE = 128  # of one multiprocessor: float32 lanes, CUDA C++ Programming Guide


@dataclass(frozen=True)
class ProductTiles:
    """The tiles of a product by the algorithm that a config names, with groups of 8 tile rows where it names none."""

    product: GemmTiles  # with one program for each tile
    promoted: bool = False  # sums are added to others after PROMOTE terms, else after every step of at most 128
    scaled: bool = False  # each step reads scales, and waits for them unless it has read them AHEAD steps before

    @property
    def dtype(self) -> str:
        """Dtype of the operands, by which the matrix units' rate is known."""
        return self.product.dtype

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan the loop of one program, and the second launch of algorithms that share tiles."""
        check_matrix_units(machine, self.dtype)
        form = _form(config)
        if form.by_turns:
            config = {**config, "num_warps": _WARPS_BY_TURNS, "num_stages": config.get("BUFFERS") or 1}
        elif self.scaled and form.ahead > 1:  # the steps are unrolled, and each has stages of its own
            config = {**config, "num_stages": int(config.get("num_stages", 1)) * form.ahead}
        product = _transposed(self.product) if form.swapped else self.product
        block = block_of(product, {"GROUP_M": 8, "GROUP_SIZE_M": 8, **config})

        def schedule(footprint: Footprint) -> Schedule:
            if form.descriptors and footprint.serialised is None:  # no tile that descriptors copy has been seen so
                footprint = replace(footprint, serialised=False)
            loop = gemm_loop(product, block, machine, footprint)
            loop = loop._replace(lines=0.0) if form.descriptors else loop
            if form.sums > 1:  # matrix instructions are of the columns of one sum
                one = block._replace(columns=block.columns // form.sums)
                loop = loop._replace(lockstep=lockstep(machine, one, footprint.serialised))
            if self.promoted and not form.by_turns:  # all warps promote at once, and no product runs beside it
                loop = loop._replace(mma_cycles=loop.mma_cycles + _promotion_cycles(block, config))
            walked = _of_programs(loop, block, form, machine)
            times = loop_schedule(walked, footprint, machine)
            waits_ns = 0.0
            if self.scaled:  # for the scales of each sum, unless they are read steps ahead
                waits_ns = times.waves * walked.steps * form.sums * machine.costs.load_ns / (1 + form.ahead)
            if form.by_turns and not machine.wgmma:
                waits_ns = inf
            time_ms = times.time_ms + (form.described_ns + waits_ns) / 1e6
            times = Schedule(time_ms, times.waves, times.alone_ms)
            return (
                _with_second_launch(times, loop, block, form, machine)
                if form.algorithm in ("split_k", "stream_k")
                else times
            )

        sums = _sums(block, form.sums, self.promoted, self.scaled)
        return TilePlan(block.warps, _guess(block, sums, form, machine, ITEM_BYTES[product.out_dtype]), schedule)


class _Form(NamedTuple):
    """The way in which a config's programs share out the tiles and load them."""

    algorithm: str
    programs: int
    parts: int
    swapped: bool
    descriptors: bool
    described_ns: float
    halves: bool
    sums: int
    ahead: int
    by_turns: bool


def _form(config: Mapping[str, Any]) -> _Form:
    programs = int(config.get("PROGRAMS", 0))
    return _Form(
        algorithm=str(config.get("ALGORITHM", "persistent" if programs else "tiles")),
        programs=max(programs, 1),
        parts=max(int(config.get("SPLIT", 1)), 1),
        swapped=bool(config.get("SWAPPED", False)),
        descriptors=bool(config.get("DESCRIPTORS", False)) or config.get("LOADS", "pointers") != "pointers",
        described_ns=_DESCRIBED_NS if config.get("DESCRIPTORS", False) or config.get("LOADS") == "device" else 0.0,
        halves=bool(config.get("HALVES", False)) or int(config.get("SUMS", 1)) > 1,
        sums=max(int(config.get("SUMS", 1)), 1),
        ahead=int(config.get("AHEAD", 0)),
        by_turns=config.get("FORM") == "gluon",
    )


def _transposed(product: GemmTiles) -> GemmTiles:
    """The transposed product: Cᵀ = Bᵀ @ Aᵀ."""
    return replace(
        product, rows=product.columns, columns=product.rows,
        a_along_inner=product.b_along_inner, b_along_inner=product.a_along_inner,
    )  # fmt: skip


def _of_programs(loop: TileLoop, block: TileBlock, form: _Form, machine: Machine) -> TileLoop:
    """The loop of one program: part of a tile, one tile, or several, whose stores go on beside the next one's loads."""
    tiles, steps = loop.blocks, max(loop.steps, 1)
    part_bytes = block.rows * block.columns * _SUM_BYTES
    if form.algorithm == "split_k":
        return loop._replace(blocks=tiles * form.parts, steps=ceil(steps / form.parts), store_bytes=part_bytes)
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
    return loop._replace(blocks=blocks, steps=steps * turns, dram_bytes=dram_bytes, entries=max(refills, 1.0))


def _with_second_launch(first: Schedule, loop: TileLoop, block: TileBlock, form: _Form, machine: Machine) -> Schedule:
    """The schedule with the launch that adds the parts up, which are still in L2."""
    programs = form.programs * machine.units
    if form.algorithm == "split_k":
        parts, tiles = loop.blocks * form.parts, loop.blocks
    else:
        tiles = loop.blocks % programs
        parts = tiles + programs if tiles else 0
    read_ns = parts * block.rows * block.columns * _SUM_BYTES / machine.l2_gbps
    second_ns = _SECOND_LAUNCH_NS + read_ns + tiles * loop.store_bytes / machine.dram_gbps
    alone = {**first.alone_ms, "second launch": second_ns / 1e6}
    return Schedule(first.time_ms + second_ns / 1e6, first.waves, alone)


def _promotion_cycles(block: TileBlock, config: Mapping[str, Any]) -> float:
    """Cycles in which a step's sums are added to those of earlier ones; of two sums, one is beside a product."""
    terms = int(config.get("PROMOTE", 0)) or min(block.step, _MOST_TERMS)
    return (
        block.rows * block.columns / _ADDS_PER_CYCLE * max(1.0, block.step / terms) / max(int(config.get("SUMS", 1)), 1)
    )


def _sums(block: TileBlock, sums: int, promoted: bool, scaled: bool) -> float:
    """Sums of a thread: of its part of the tile, and of an instruction, or if scaled all, before they are added."""
    own = block.rows * block.columns / (32 * block.warps)
    if not promoted:
        return own
    return own + (own / sums if scaled else min(own / sums, block.columns / 2))


def _guess(block: TileBlock, sums: float, form: _Form, machine: Machine, out_bytes: int) -> Footprint:
    threads = 32 * block.warps
    grouped = warp_groups(machine, block.rows, block.warps)
    buffers = block.stages if grouped or form.descriptors else max(block.stages - 1, 1)
    copies = 0.0 if form.descriptors else block.load_bytes / _COPY_BYTES / threads
    shared = buffers * block.load_bytes
    tile = block.rows * block.columns * out_bytes
    if form.descriptors and form.algorithm != "split_k":  # a tile of C is written from shared memory of its own
        shared += tile // (2 if form.halves else 1)
    return tile_footprint(sums, copies, grouped, shared)
