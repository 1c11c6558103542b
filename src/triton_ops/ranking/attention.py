"""Attention: two products and an exponential per step, along the keys. Not checked against recorded spaces yet."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from triton_ops.hardware import Machine
from triton_ops.ranking.estimate import Footprint, settled, tile_footprint
from triton_ops.ranking.gemm import Block, mma_cycles, operand_bytes, warp_groups
from triton_ops.ranking.loop import Loop
from triton_ops.tensors import ITEM_BYTES
from triton_ops.trial import Resources
from triton_ops.work import AttentionTiles

_EXPONENTIALS_PER_CYCLE = 16  # of one multiprocessor; CUDA C++ Programming Guide, arithmetic throughput, 8.0 and 9.0
_LANES = 128
_SCORE_INSTRUCTIONS = 8  # per score beside its exponential: scale, mask, maximum, subtract, sum, convert
_LINE_BYTES = 128


def attention_loop(
    tiles: AttentionTiles, queries: int, keys: int, warps: int, stages: int, machine: Machine, found: Resources | None
) -> tuple[Loop, Footprint]:
    """The loop of one tile of queries along its keys, and what a block of it takes."""
    item, dim = ITEM_BYTES[tiles.dtype], tiles.head_dim
    scores = Block(queries, keys, dim, warps, stages, 1, item)  # Q @ Kᵀ
    values = replace(scores, columns=dim, step=keys)  # P @ V
    loads = 2 * keys * dim * item
    grouped = warp_groups(machine, queries, warps)
    footprint = settled(_guess(scores, dim, loads, grouped), found)
    at_once = machine.blocks_at_once(footprint.registers, footprint.shared_bytes, warps)
    per_head = ceil(tiles.queries / queries)
    steps = max(1, round(ceil(tiles.keys / keys) * (0.5 + 0.5 / per_head if tiles.causal else 1.0)))
    heads_at_once = min(tiles.heads, ceil(at_once * machine.units / per_head))
    # P comes out of registers, so only V's side of the second product is read.
    reads = operand_bytes(machine, queries, keys, dim * item, warps) + keys * dim * item * max(queries // 64, 1)
    loop = Loop(
        blocks=per_head * tiles.heads,
        steps=steps,
        stages=stages,
        warps=warps,
        mma_cycles=mma_cycles(machine, scores, tiles.dtype) + mma_cycles(machine, values, tiles.dtype),
        shared_bytes=reads + loads,
        lines=2 * keys * ceil(dim * item / _LINE_BYTES),
        load_bytes=loads,
        arithmetic_cycles=queries * keys * (1 / _EXPONENTIALS_PER_CYCLE + _SCORE_INSTRUCTIONS / _LANES),
        dram_bytes=heads_at_once * loads / min(per_head * tiles.heads, at_once * machine.units),
        mma_excess=machine.mma_excess(tiles.dtype),
        store_bytes=queries * dim * item,
    )
    return loop, footprint


def _guess(scores: Block, dim: int, loads: int, grouped: bool) -> Footprint:
    threads = 32 * scores.warps
    held = scores.rows * (scores.columns + dim) / threads  # the scores and the output
    shared = scores.stages * loads + scores.rows * dim * scores.item_bytes
    return tile_footprint(held, loads / 16 / threads, grouped, shared)
