"""What a problem makes a device do, and how its kernel cuts it into tiles: declared by the author in a few lines.

The least work is enough for throughput and for a lower bound. A tiling adds which tunable is which side of a tile,
and with that the model can rank configs (`ranking/predict.py`); without one it says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from triton_ops.exceptions import SpaceError

Tile: TypeAlias = "str | int"
"""One side of a tile: the name of the tunable that holds it, or its fixed length in elements."""


@dataclass(frozen=True)
class GemmTiles:
    """C[rows, columns] = A[rows, inner] @ B[inner, columns]: a program makes one tile of C, in steps along `inner`.

    Attributes:
        rows: M, in elements.
        columns: N.
        inner: K.
        dtype: Of A and B.
        out_dtype: Of C.
        tile_rows: M's side of a tile.
        tile_columns: N's side.
        tile_inner: K's step.
        group: How many tile rows programs walk down before they step to the next tile column.
        a_along_inner: Whether elements of A that follow each other along `inner` are neighbours in memory.
        b_along_inner: The same of B.
        batch: How many such products.
    """

    rows: int
    columns: int
    inner: int
    dtype: str
    out_dtype: str
    tile_rows: Tile
    tile_columns: Tile
    tile_inner: Tile
    group: Tile = 1
    a_along_inner: bool = True
    b_along_inner: bool = False
    batch: int = 1


@dataclass(frozen=True)
class AttentionTiles:
    """softmax(Q @ Kᵀ) @ V for `heads` heads in all: a program takes a tile of queries and walks along the keys.

    Attributes:
        heads: Batch times heads.
        queries: Queries per head.
        keys: Keys per head.
        head_dim: Elements of one query, key or value.
        dtype: Of Q, K and V.
        tile_queries: Queries per program.
        tile_keys: Keys per step.
        causal: Whether a query sees only the keys up to its own position: half of the steps.
    """

    heads: int
    queries: int
    keys: int
    head_dim: int
    dtype: str
    tile_queries: Tile
    tile_keys: Tile
    causal: bool = False


@dataclass(frozen=True)
class RowTiles:
    """Rows that are each reduced and written again, such as softmax or a norm; the row is read in chunks.

    Attributes:
        rows: How many.
        columns: Elements of one row.
        dtype: Of the input.
        out_dtype: Of the output.
        tile_rows: Rows per program.
        tile_columns: Columns per chunk.
        lanes: Elements of a row per unit of `tile_columns`: 2 where a chunk is counted in pairs.
        passes: How often a row is walked: once to reduce it and once to write it are 2.
        weight: How much arithmetic an element costs in one pass, in that of a norm (convert, multiply, add, convert).
    """

    rows: int
    columns: int
    dtype: str
    out_dtype: str
    tile_rows: Tile
    tile_columns: Tile
    lanes: int = 1
    passes: int = 2
    weight: float = 1.0


@dataclass(frozen=True)
class ElementTiles:
    """Elements that do not depend on each other: a program takes one run of them.

    Attributes:
        elements: How many.
        tile: Elements per program.
        read_bytes: Per element, over all inputs.
        written_bytes: Per element, over all outputs.
        weight: As in `RowTiles`.
    """

    elements: int
    tile: Tile
    read_bytes: float
    written_bytes: float
    weight: float = 1.0


Tiling: TypeAlias = "GemmTiles | AttentionTiles | RowTiles | ElementTiles"
_FAMILIES = {"gemm": GemmTiles, "attention": AttentionTiles, "rows": RowTiles, "elements": ElementTiles}


@dataclass(frozen=True)
class Work:
    """The least a problem makes the device do, whatever the config; and how the kernel cuts it into tiles.

    Attributes:
        flops: Floating-point operations; 0 where they are not what limits.
        bytes: Bytes through device memory: each input read once, each output written once.
        tiles: Which tunable is which side of a tile; None keeps the model silent.
    """

    flops: float = 0.0
    bytes: float = 0.0
    tiles: Tiling | None = None

    def tflops(self, latency_ms: float) -> float:
        """Achieved 10^12 operations per second."""
        return self.flops / (latency_ms * 1e9)

    def gbps(self, latency_ms: float) -> float:
        """Achieved 10^9 bytes per second."""
        return self.bytes / (latency_ms * 1e6)


def work_json(work: Work) -> dict[str, Any]:
    """A work as plain values, as recordings keep it; `work_of` reads it back."""
    plain: dict[str, Any] = {"flops": work.flops, "bytes": work.bytes}
    if work.tiles is not None:
        family = next(name for name, kind in _FAMILIES.items() if isinstance(work.tiles, kind))
        plain["tiles"] = {"family": family, **asdict(work.tiles)}
    return plain


def work_of(plain: Mapping[str, Any]) -> Work:
    """The work that `work_json` wrote.

    Raises:
        SpaceError: A family that this version does not know, or fields that are not its own.
    """
    tiles = dict(plain.get("tiles") or {})
    family = tiles.pop("family", None)
    if family is None:
        return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0))
    if family not in _FAMILIES:
        raise SpaceError(
            f"tiles of family {family!r} are not known; known are {', '.join(_FAMILIES)}",
            hint="leave the tiles out, and the model says nothing of them",
        )
    try:
        made = _FAMILIES[family](**tiles)
    except TypeError as error:
        raise SpaceError(f"tiles of family {family} cannot be read: {error}") from error
    return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0), made)
