"""The work and the model of a recording, by its declared work or by the kind of kernel that it names.

Their tiles are named as the recordings name them: BM by BN elements of the result, and steps of BK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec

from triton_ops.cost_model import AttentionTiles, ElementTiles, GemmTiles, Model, ProductTiles, RowTiles
from triton_ops.device import Calibration, machine_of, spec_named
from triton_ops.exceptions import SpaceError
from triton_ops.values import ITEM_BYTES, Tile, Work

_FAMILIES: dict[str, type[Any]] = {
    "gemm": GemmTiles,
    "products": ProductTiles,
    "attention": AttentionTiles,
    "rows": RowTiles,
    "elements": ElementTiles,
}


def work_json(work: Work) -> dict[str, Any]:
    """A work as plain values for a recording; `work_of` reads them back.

    The user's own tiles are left out, because a recording may be read where their class is unknown.
    """
    plain: dict[str, Any] = {"flops": work.flops, "bytes": work.bytes}
    for family, kind in _FAMILIES.items():
        if isinstance(work.tiles, kind):
            plain["tiles"] = {"family": family, **asdict(work.tiles)}
    return plain


def work_of(plain: Mapping[str, Any]) -> Work:
    """The work that `work_json` wrote; `SpaceError` for an unknown family, or one that lacks a field."""
    tiles = dict(plain.get("tiles") or {})
    family = tiles.pop("family", None)
    if family is None:
        return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0))
    if family not in _FAMILIES:
        raise SpaceError(
            f"tiles of family {family!r} are not known; known are {', '.join(_FAMILIES)}",
            hint="leave the tiles out; the model then makes no forecast",
        )
    try:
        return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0), msgspec.convert(tiles, _FAMILIES[family]))
    except msgspec.ValidationError as error:
        raise SpaceError(f"tiles of family {family} cannot be read: {error}") from error


_WIDE = "bfloat16"  # dtype of what products of 8-bit operands write


def _product_tiles(rows: int, columns: int, inner: int, dtype: str, group: Tile) -> GemmTiles:
    """The tiles of C[rows, columns] = A[rows, inner] @ B[inner, columns]; 8-bit matrix units want B along `inner`."""
    eight_bit = ITEM_BYTES[dtype] == 1
    return GemmTiles(
        rows, columns, inner, dtype=dtype, out_dtype=_WIDE if eight_bit else dtype,
        tile_rows="BM", tile_columns="BN", tile_inner="BK", group=group, b_along_inner=eight_bit,
    )  # fmt: skip


def _product_work(tiles: GemmTiles) -> Work:
    item, out = ITEM_BYTES[tiles.dtype], ITEM_BYTES[tiles.out_dtype]
    traffic = (tiles.rows + tiles.columns) * tiles.inner * item + tiles.rows * tiles.columns * out
    return Work(2.0 * tiles.rows * tiles.columns * tiles.inner, float(traffic), tiles)


def _row_work(rows: int, columns: int, dtype: str, tile_rows: Tile, tile_columns: Tile, weight: float = 1.0) -> Work:
    """The work of rows that are each read, reduced and written, as in a norm."""
    tiles = RowTiles(
        rows, columns, dtype=dtype, out_dtype=dtype, tile_rows=tile_rows, tile_columns=tile_columns, weight=weight
    )
    return Work(0.0, 2.0 * rows * columns * ITEM_BYTES[dtype], tiles)


def textbook_work(family: str, extents: Sequence[int], dtype: str) -> Work:
    """The work of a matrix product, of a norm over rows, or of attention with as many keys as queries.

    Families `product`, `rows` and `attention`; extents are rows, columns and inner extent; rows and columns; batch,
    heads, queries and head_dim.
    """
    if family == "product":
        rows, columns, inner = extents
        product = _product_tiles(rows, columns, inner, dtype, "GROUP_M")
        return replace(_product_work(product), tiles=ProductTiles(product))
    if family == "rows":
        rows, columns = extents
        return _row_work(rows, columns, dtype, "BM", "BN")
    batch, heads, queries, head_dim = extents
    tiles = AttentionTiles(batch * heads, queries, queries, head_dim, dtype=dtype, tile_queries="BM", tile_keys="BN")
    elements = batch * heads * queries * head_dim
    return Work(4.0 * elements * queries, 4.0 * elements * ITEM_BYTES[dtype], tiles)


_SOFTMAX_WEIGHT = 2.0  # arithmetic of a softmax over that of a norm: an exponential and a running maximum more


def recorded_work(recording: Mapping[str, Any]) -> Work | None:
    """The work of a recording's head, declared or by its kind; None for an unknown one, `SpaceError` if unreadable."""
    if declared := recording.get("work"):
        return work_of(declared)
    kind, space = recording.get("kind"), recording.get("space") or {}
    shape = [int(extent) for extent in recording.get("shape") or ()]
    if kind in ("matmul", "fp8") and len(shape) == 3 and {"BM", "BN", "BK"} <= set(space):
        dtype, group = "float8_e4m3fn" if kind == "fp8" else "bfloat16", "GM" if "GM" in space else "GROUP_M"
        rows, columns, inner = shape
        return _product_work(_product_tiles(rows, columns, inner, dtype, group))
    if kind in ("rms", "softmax") and len(shape) == 2 and {"BLOCK", "ROWS"} <= set(space):
        rows, columns = shape
        weight = _SOFTMAX_WEIGHT if kind == "softmax" else 1.0
        return _row_work(rows, columns, "bfloat16", "ROWS", "BLOCK", weight)
    return None


def recorded_model(recording: Mapping[str, Any], calibration: Calibration | None = None) -> Model | None:
    """The model of a recording's space on the device that it names; None if the model would make no forecast."""
    work = recorded_work(recording)
    spec = spec_named(str(recording.get("gpu", "")))
    machine = machine_of(spec, calibration) if spec is not None else None
    return None if work is None or work.tiles is None or machine is None else Model(work, machine)
