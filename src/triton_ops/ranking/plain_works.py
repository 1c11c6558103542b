"""The work of plain kernels by their extents: one product, rows that are reduced, and attention.

Their tiles are named as the recordings name them: BM by BN elements of the result, and steps of BK.
"""

from __future__ import annotations

from triton_ops.ranking.attention import AttentionTiles
from triton_ops.ranking.gemm import GemmTiles
from triton_ops.ranking.rows import RowTiles
from triton_ops.tensors import ITEM_BYTES
from triton_ops.work import Tile, Work

_WIDE = "bfloat16"  # dtype of what products of 8-bit operands write


def product_tiles(rows: int, columns: int, inner: int, dtype: str, group: Tile) -> GemmTiles:
    """The tiles of C[rows, columns] = A[rows, inner] @ B[inner, columns]; 8-bit matrix units want B along `inner`."""
    eight_bit = ITEM_BYTES[dtype] == 1
    return GemmTiles(
        rows, columns, inner, dtype=dtype, out_dtype=_WIDE if eight_bit else dtype,
        tile_rows="BM", tile_columns="BN", tile_inner="BK", group=group, b_along_inner=eight_bit,
    )  # fmt: skip


def product_work(tiles: GemmTiles) -> Work:
    """The work of one product."""
    item, out = ITEM_BYTES[tiles.dtype], ITEM_BYTES[tiles.out_dtype]
    moved = (tiles.rows + tiles.columns) * tiles.inner * item + tiles.rows * tiles.columns * out
    return Work(2.0 * tiles.rows * tiles.columns * tiles.inner, float(moved), tiles)


def row_work(rows: int, columns: int, dtype: str, tile_rows: Tile, tile_columns: Tile, weight: float = 1.0) -> Work:
    """The work of rows that are each read, reduced and written, as in a norm.

    Args:
        rows: Number of rows.
        columns: Elements of one row.
        dtype: Dtype of what is read and written.
        tile_rows: Rows per program.
        tile_columns: Columns per chunk.
        weight: Arithmetic of an element over that of a norm.
    """
    tiles = RowTiles(
        rows, columns, dtype=dtype, out_dtype=dtype, tile_rows=tile_rows, tile_columns=tile_columns, weight=weight
    )
    return Work(0.0, 2.0 * rows * columns * ITEM_BYTES[dtype], tiles)


def attention_work(heads: int, queries: int, head_dim: int, dtype: str, causal: bool = False) -> Work:
    """The work of softmax(Q @ Kᵀ) @ V with as many keys as queries; `heads` counts those of all batches."""
    tiles = AttentionTiles(
        heads, queries, queries, head_dim, dtype=dtype, tile_queries="BM", tile_keys="BN", causal=causal
    )
    flops = 4.0 * heads * queries * queries * head_dim * (0.5 if causal else 1.0)
    return Work(flops, 4.0 * heads * queries * head_dim * ITEM_BYTES[dtype], tiles)
