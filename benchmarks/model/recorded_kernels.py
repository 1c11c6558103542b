"""Kernels with the tiles, the accesses and the tunables of those whose spaces were recorded without their source."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
):  # fmt: skip
    """The product of A and B, a tile of C per program, programs in groups of GM tile rows."""
    pid = tl.program_id(0)
    tile_rows, tile_columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    per_group = GM * tile_columns
    first = pid // per_group * GM
    here = min(tile_rows - first, GM)
    row, column = first + pid % per_group % here, pid % per_group // here
    rows, columns = (row * BM + tl.arange(0, BM)) % M, (column * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    at_a = a + rows[:, None] * sam + inner[None, :] * sak
    at_b = b + inner[:, None] * sbk + columns[None, :] * sbn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(at_a, mask=inner[None, :] < K - k * BK, other=0.0)
        right = tl.load(at_b, mask=inner[:, None] < K - k * BK, other=0.0)
        total = tl.dot(left, right, total)
        at_a += BK * sak
        at_b += BK * sbk
    out_rows, out_columns = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    mask = (out_rows[:, None] < M) & (out_columns[None, :] < N)
    tl.store(c + out_rows[:, None] * scm + out_columns[None, :] * scn, total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm(x, y, rows, columns, eps, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Each row over the root of its mean square, ROWS rows per program, each read twice in chunks."""
    lanes = tl.arange(0, BLOCK)
    for each in range(ROWS):
        row = tl.program_id(0) * ROWS + each
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        for at in range(0, columns, BLOCK):
            inside = (at + lanes < columns) & (row < rows)
            values = tl.load(x + row * columns + at + lanes, mask=inside, other=0.0).to(tl.float32)
            squares += values * values
        scale = tl.rsqrt(tl.sum(squares) / columns + eps)
        for at in range(0, columns, BLOCK):
            inside = (at + lanes < columns) & (row < rows)
            values = tl.load(x + row * columns + at + lanes, mask=inside, other=0.0).to(tl.float32)
            tl.store(y + row * columns + at + lanes, (values * scale).to(y.dtype.element_ty), mask=inside)


@triton.jit
def softmax(x, y, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """The softmax of each row, ROWS rows per program, each read twice in chunks."""
    lanes = tl.arange(0, BLOCK)
    for each in range(ROWS):
        row = tl.program_id(0) * ROWS + each
        top = float("-inf")
        total = 0.0
        for at in range(0, columns, BLOCK):
            inside = (at + lanes < columns) & (row < rows)
            values = tl.load(x + row * columns + at + lanes, mask=inside, other=float("-inf")).to(tl.float32)
            new = tl.maximum(top, tl.max(values))
            total = total * tl.exp(top - new) + tl.sum(tl.exp(values - new))
            top = new
        for at in range(0, columns, BLOCK):
            inside = (at + lanes < columns) & (row < rows)
            values = tl.load(x + row * columns + at + lanes, mask=inside, other=0.0).to(tl.float32)
            tl.store(y + row * columns + at + lanes, (tl.exp(values - top) / total).to(y.dtype.element_ty), mask=inside)
