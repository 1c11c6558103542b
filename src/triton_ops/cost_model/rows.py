"""Rows that are reduced and written, and elements that are mapped: bandwidth, waits and the turnover of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import ceil
from typing import Any

from triton_ops.cost_model.resource_guess import row_footprint
from triton_ops.cost_model.row_walk import Again, Walk, Work, walk_schedule
from triton_ops.device import Machine
from triton_ops.values import ITEM_BYTES, Tile, TilePlan, tile_side, warps_and_stages

_INSTRUCTIONS = 4.0  # per element and pass of a norm; counted in its machine code for sm_90


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
        parts: Programs that share a row; a second launch writes what they have found.
        kept: Whether a row that is one chunk stays in registers between its passes, and is read once.
        inputs: Tensors of this shape and dtype that are read.
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
    parts: Tile = 1
    kept: bool = False
    inputs: int = 1

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """Plan blocks of rows that are independent of each other."""
        rows, chunk = tile_side(self.tile_rows, config), tile_side(self.tile_columns, config) * self.lanes
        parts = tile_side(self.parts, config)
        return _plan(
            blocks=ceil(self.rows / rows) * parts,
            rows=rows,
            columns=ceil(self.columns / parts),
            chunk=chunk,
            passes=self.passes,
            reads=1 if self.kept and parts == 1 and chunk >= self.columns else self.passes,
            config=config,
            read_bytes=ITEM_BYTES[self.dtype] * self.inputs,
            written_bytes=ITEM_BYTES[self.out_dtype],
            weight=self.weight,
            machine=machine,
        )


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
        tile = tile_side(self.tile, config)
        return _plan(
            blocks=ceil(self.elements / tile),
            rows=1,
            columns=min(tile, self.elements),
            chunk=tile,
            passes=1,
            reads=1,
            config=config,
            read_bytes=self.read_bytes,
            written_bytes=self.written_bytes,
            weight=self.weight,
            machine=machine,
        )


def _plan(
    *, blocks: int, rows: int, columns: int, chunk: int, passes: int, reads: int, config: Mapping[str, Any],
    read_bytes: float, written_bytes: float, weight: float, machine: Machine,
) -> TilePlan:  # fmt: skip
    """Plan blocks that walk over their rows chunk by chunk; a later pass over a row reads it again.

    Columns of a chunk past the row's end are masked, which costs issue and no bytes.

    Args:
        blocks: Number of blocks in all.
        rows: Rows per block.
        columns: Columns of a row.
        chunk: Columns per chunk.
        passes: Number of walks over a row.
        reads: Passes in which a row is read.
        config: The config, for its warps and stages; plain loads are not pipelined.
        read_bytes: Bytes read per element in each pass.
        written_bytes: Bytes written per element, once.
        weight: Arithmetic per element and pass over that of a norm.
        machine: The device.
    """
    warps, stages = warps_and_stages(config)
    chunks, later = ceil(columns / chunk) * rows, reads - 1
    turns, row_bytes = passes * chunks, rows * columns * read_bytes
    stored = rows * columns * written_bytes
    walk = Walk(
        blocks=blocks,
        warps=warps,
        stages=stages,
        work=(Work(turns * _INSTRUCTIONS * weight, chunk),),
        batches=chunks,
        near=chunks * later,
        turns=turns,
        own_bytes=row_bytes,
        again=(Again(later * row_bytes, row_bytes / rows, 0.0),) if later else (),
        common=(),
        written_bytes=stored,
        through_bytes=row_bytes + stored,
        streamed_bytes=row_bytes * reads,
        reductions=rows if passes > 1 else 0.0,
    )
    guess = row_footprint(chunk / (32 * warps), warps, rows)
    return TilePlan(warps, guess, lambda footprint: walk_schedule(walk, footprint, machine))
