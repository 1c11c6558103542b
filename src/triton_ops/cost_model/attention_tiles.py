"""Attention as a pipelined loop of products of tiles, each of which waits for the other and for the exponentials.

With the FORM `gluon` the exponentials of one of two groups of four warps run beside the products of the other, as if
each were a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any

from triton_ops.cost_model import mma
from triton_ops.cost_model.blocks import chained_footprint
from triton_ops.cost_model.product_tiles import WARPS_BY_TURNS
from triton_ops.cost_model.tile_loop import LANES, LINE_BYTES, TileLoop, loop_schedule
from triton_ops.device import Machine
from triton_ops.values import ITEM_BYTES, Footprint, Schedule, Tile, TilePlan, tile_side, warps_and_stages

_EXPONENTIALS_PER_CYCLE = 16  # per multiprocessor; CUDA C++ Programming Guide, arithmetic throughput, 8.0 and 9.0
_SCORE_INSTRUCTIONS = 8  # per score without its exponential: scale, mask, maximum, subtract, sum, convert
_SCORE_OPERATIONS = 4  # of them those of floating point: maximum, subtract, sum, convert


@dataclass(frozen=True, kw_only=True)
class AttentionTiles:
    """The tiles of softmax(Q @ Kᵀ) @ V: a program takes a tile of one head's queries and walks along the keys.

    A config may have SPLITS parts of the keys, each with programs of its own.

    Attributes:
        heads: Number of heads in all: batch size times heads.
        queries: Queries per head.
        keys: Keys per head.
        head_dim: Elements of one query, key or value.
        dtype: Dtype of Q, K and V.
        tile_queries: Queries per program.
        tile_keys: Keys per step.
        causal: Whether a query sees only the keys up to its own position, which halves the steps.
    """

    heads: int = field(kw_only=False)
    queries: int = field(kw_only=False)
    keys: int = field(kw_only=False)
    head_dim: int = field(kw_only=False)
    dtype: str
    tile_queries: Tile
    tile_keys: Tile
    causal: bool = False

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan a pipelined loop along the keys for each tile of queries."""
        mma.check(machine, self.dtype)
        by_turns = config.get("FORM") == "gluon"
        queries, keys = tile_side(self.tile_queries, config), tile_side(self.tile_keys, config)
        if by_turns:  # each group of warps is as a block of half the rows
            config, queries = {**config, "num_warps": WARPS_BY_TURNS // 2, "num_stages": 2}, queries // 2
        warps, stages = warps_and_stages(config)
        parts = int(config.get("SPLITS", 1))
        tiles = replace(self, heads=self.heads * parts, keys=ceil(self.keys / parts))
        scores = mma.TileBlock(  # Q @ Kᵀ
            rows=queries, columns=keys, step=self.head_dim, group=1, warps=warps, stages=stages,
            item_bytes=ITEM_BYTES[self.dtype],
        )  # fmt: skip

        def schedule(footprint: Footprint) -> Schedule:
            loop = attention_loop(tiles, scores, machine, footprint)
            if by_turns:  # a group waits for one of its products; both share what is copied
                copied = loop.load_bytes / 2
                loop = loop._replace(
                    at_once=2, links=1, lines=0.0, load_bytes=copied, shared_bytes=loop.shared_bytes - copied,
                    steps=loop.steps if machine.wgmma else inf,
                )  # fmt: skip
            return loop_schedule(loop, footprint, machine)

        guess = _attention_guess(scores, _step_bytes(scores), mma.warp_groups(machine, queries, warps))
        return TilePlan(warps, guess, schedule)


def attention_loop(tiles: AttentionTiles, scores: mma.TileBlock, machine: Machine, footprint: Footprint) -> TileLoop:
    """The loop of one tile of queries along its keys, by a block that takes `footprint`."""
    item, dim, queries, keys, warps = scores.item_bytes, scores.step, scores.rows, scores.columns, scores.warps
    values = scores._replace(columns=dim, step=keys)  # P @ V
    loads = _step_bytes(scores)
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, warps)
    per_head = ceil(tiles.queries / queries)
    steps = max(1, round(ceil(tiles.keys / keys) * (0.5 + 0.5 / per_head if tiles.causal else 1.0)))
    heads_at_once = min(tiles.heads, ceil(at_once * machine.units / per_head))
    # P is in registers, so the second product reads only V from shared memory.
    reads = mma.operand_bytes(machine, queries, keys, dim * item, warps) + keys * dim * item * max(queries // 64, 1)
    return TileLoop(
        blocks=per_head * tiles.heads,
        steps=steps,
        stages=scores.stages,
        warps=warps,
        mma_cycles=mma.cycles(machine, scores, tiles.dtype) + mma.cycles(machine, values, tiles.dtype),
        shared_bytes=reads + loads,
        lines=2 * keys * ceil(dim * item / LINE_BYTES),
        load_bytes=loads,
        arithmetic_cycles=queries * keys * max(1 / _EXPONENTIALS_PER_CYCLE, _SCORE_INSTRUCTIONS / LANES),
        dram_bytes=heads_at_once * loads / min(per_head * tiles.heads, at_once * machine.units),
        mma_excess=machine.mma_excess(tiles.dtype),
        store_bytes=queries * dim * item,
        links=2,
        lockstep=mma.lockstep(machine, scores, footprint.serialised),
        exchanged=mma.warps_across(machine, queries, keys, warps) > 1,
        tall=mma.tiles_of_warp(machine, queries, keys, warps),
    )


def _step_bytes(scores: mma.TileBlock) -> int:
    return 2 * scores.columns * scores.step * scores.item_bytes


def _attention_guess(scores: mma.TileBlock, loads: int, grouped: bool) -> Footprint:
    """Resources of a block; without a pipeline the values take the place of the keys."""
    threads, dim = 32 * scores.warps, scores.step
    shared = (scores.stages * loads if scores.stages > 1 else loads // 2) + scores.rows * dim * scores.item_bytes
    if not grouped:  # probabilities go through shared memory into the layout of an operand
        shared += scores.rows * scores.columns * scores.item_bytes
    result, passing = scores.rows * dim / threads, scores.rows * scores.columns / threads
    return chained_footprint(result, passing, _SCORE_OPERATIONS, grouped, shared)
