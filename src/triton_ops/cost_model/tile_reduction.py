"""Reductions of tiles along an axis that does not run along memory, such as column sums: what their exchange costs.

Each warp first reduces the rows that its own lanes hold. Warps that hold rows of the same columns then leave their part
in shared memory, where the parts of a column lie side by side (Triton 3.6.0, `ReduceOpToLLVM`; counted in the PTX of
nine tiles for sm_90), and read the result back. Lanes hold runs of columns, so that they meet in the same banks: eight
bfloat16 columns and four warps along the rows put all 32 lanes into one bank.
"""

from __future__ import annotations

from typing import NamedTuple

_LANES = 32
_BANKS = 32  # of shared memory, each 4 bytes wide: CUDA C++ Programming Guide


class Across(NamedTuple):
    """Reductions of tiles of one shape across their rows.

    Attributes:
        rows: Rows of the tile, which are reduced.
        columns: Columns of the tile, which lie along memory.
        vector: The most adjacent columns that a lane loads at once.
        executions: How often a block reduces such a tile.
    """

    rows: int
    columns: int
    vector: int
    executions: float


def exchange_cycles(tile: Across, warps: int) -> float:
    """Cycles of a multiprocessor's shared memory for the exchange among a block's warps, over all executions."""
    elements = max(1, tile.rows * tile.columns // (_LANES * warps))
    run = max(1, min(tile.vector, elements, tile.columns))
    lanes = max(1, min(_LANES, tile.columns // run))  # along the columns; the others are along the rows
    across = max(1, min(warps, tile.columns // (run * lanes)))
    down = min(warps // across, max(1, tile.rows * lanes // _LANES))
    if down < 2:
        return 0.0
    words = max(1, tile.columns // (lanes * across))  # of each lane
    stride = run * down
    at_once = lanes * min(stride, _BANKS) / _BANKS if lanes * stride > _BANKS else 1.0
    return 2.0 * tile.executions * words * max(at_once, 1.0) * warps  # written and read back
