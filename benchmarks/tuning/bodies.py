"""Kernels that scripts here tune, in a file that holds nothing else: a worker imports the file of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    """Out = x + y, elementwise."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def norm_kernel(x, y, out, n, BLOCK: tl.constexpr):
    """Out = x / rms(x) * y, one program a row of n elements."""
    row = tl.program_id(0).to(tl.int64) * n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, mask=at < n, other=0.0).to(tl.float32)
        total += part * part
    scale = tl.rsqrt(tl.sum(total) / n + 1e-6)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, mask=at < n).to(tl.float32) * tl.load(y + row + at, mask=at < n).to(tl.float32)
        tl.store(out + row + at, part * scale, mask=at < n)


@triton.jit
def product_kernel(x, y, out, n, BLOCK: tl.constexpr):
    """Out = x @ y for square matrices of n rows, in square tiles."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, 32):
        inner = start + tl.arange(0, 32)
        left = tl.load(x + rows[:, None] * n + inner[None, :], mask=(rows < n)[:, None], other=0.0)
        right = tl.load(y + inner[:, None] * n + columns[None, :], mask=(columns < n)[None, :], other=0.0)
        total = tl.dot(left, right, total)
    inside = (rows < n)[:, None] & (columns < n)[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), mask=inside)


@triton.jit
def persistent_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, PROGRAMS: tl.constexpr
):  # fmt: skip
    """C = A @ B, row-major; PROGRAMS programs walk over all tiles, in groups of GM tile rows."""
    tile_rows, tile_columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tile_rows * tile_columns, PROGRAMS):
        first = tile // (GM * tile_columns) * GM
        here = min(tile_rows - first, GM)
        row, column = first + tile % (GM * tile_columns) % here, tile % (GM * tile_columns) // here
        rows, columns = (row * BM + tl.arange(0, BM)) % M, (column * BN + tl.arange(0, BN)) % N
        inner = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            left = tl.load(a + rows[:, None] * K + (k + inner)[None, :], mask=(k + inner)[None, :] < K, other=0.0)
            right = tl.load(b + (k + inner)[:, None] * N + columns[None, :], mask=(k + inner)[:, None] < K, other=0.0)
            total = tl.dot(left, right, total)
        rows, columns = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


def _grid_of_blocks(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def _grid_of_rows(meta: dict[str, Any]) -> tuple[int]:
    return (meta["n"],)


def _grid_of_tiles(meta: dict[str, Any]) -> tuple[int, int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),) * 2


BODIES: dict[str, tuple[Any, Callable[[dict[str, Any]], tuple[int, ...]], tuple[int, ...]]] = {
    "add": (add_kernel, _grid_of_blocks, (256, 512, 1024, 2048)),
    "norm": (norm_kernel, _grid_of_rows, (512, 1024, 2048, 4096)),
    "product": (product_kernel, _grid_of_tiles, (32, 64, 128, 16)),
}
