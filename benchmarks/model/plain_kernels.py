"""Kernels on plain tensors as users write them, without declared work, and the problems and spaces to be recorded.

`matmul_kernel`, `rmsnorm_kernel` and `softmax_kernel` have the tiles, the accesses and the tunables of kernels whose
spaces were recorded without their source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl

from benchmarks.correctness.verdict_kernels import attention, by_row, layer_norm_kernel
from benchmarks.kernels.layer_norm_backward import launch as layer_norm_backward
from benchmarks.kernels.matmul import launch as split_in_two
from triton_ops import LauncherKernel, Operation, TensorSpec, TritonKernel
from triton_ops_kernels import load

_MULTIPROCESSORS = 132  # of an H100 and an H200


@dataclass(frozen=True)
class Recorded:
    """One space to record.

    Attributes:
        name: Name of the file.
        operation: The kernel with its arguments; its own space is not used.
        space: The tunables' values.
        shape: Shape of the problem.
        dtype: Dtype of the problem; None where the operation takes none.
    """

    name: str
    operation: Operation
    space: dict[str, list[Any]] = field(hash=False)
    shape: tuple[int, ...]
    dtype: str | None = "bfloat16"


@triton.jit
def _attend(
    total, weight, highest, queries, at_k, at_v, m, start, stop,
    D: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    for at in range(start, stop, BN):
        n = at + tl.arange(0, BN)
        d = tl.arange(0, D)
        keys = tl.load(at_k + n[None, :] * D + d[:, None])
        scores = tl.dot(queries, keys)
        if MASKED:
            scores = tl.where(n[None, :] <= m[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        rescale = tl.exp2(highest - higher)
        weight = weight * rescale + tl.sum(p, 1)
        total = total * rescale[:, None]
        values = tl.load(at_v + n[:, None] * D + d[None, :])
        total = tl.dot(p.to(values.dtype), values, total)
        highest = higher
    return total, weight, highest


@triton.jit
def flash_kernel(
    q, k, v, out, S, scale, D: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Attention over [heads, S, D] without a mask off the diagonal; S is a multiple of BM and BN."""
    m0 = tl.program_id(0) * BM
    base = tl.program_id(1).to(tl.int64) * S * D
    m = m0 + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + base + m[:, None] * D + d[None, :])
    queries = (queries * (scale * 1.4426950408889634)).to(queries.dtype)
    highest = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    diagonal = S
    if CAUSAL:
        diagonal = m0 // BN * BN
    total, weight, highest = _attend(total, weight, highest, queries, k + base, v + base, m, 0, diagonal, D, BN, False)
    if CAUSAL:
        total, weight, highest = _attend(
            total, weight, highest, queries, k + base, v + base, m, diagonal, m0 + BM, D, BN, True
        )
    tl.store(out + base + m[:, None] * D + d[None, :], (total / weight[:, None]).to(out.dtype.element_ty))


def _flash_arguments(B: int, H: int, S: int, D: int, causal: bool, dtype: str) -> dict[str, Any]:
    spec = TensorSpec((B, H, S, D), dtype)
    return {
        "q": spec, "k": spec, "v": spec, "out": TensorSpec((B, H, S, D), dtype, fill="empty"),
        "S": S, "scale": 1 / math.sqrt(D), "D": D, "CAUSAL": causal,
    }  # fmt: skip


def _flash(causal: bool) -> Operation:
    return Operation(
        "flash_causal" if causal else "flash",
        TritonKernel(
            flash_kernel,
            lambda meta: (triton.cdiv(meta["S"], meta["BM"]), meta["q"].shape[0] * meta["q"].shape[1]),
            outputs=("out",),
        ),
        ATTENTION_SPACE,
        lambda B=2, H=16, S=4096, D=64, dtype="bfloat16": _flash_arguments(B, H, S, D, causal, dtype),
        dtypes=("bfloat16", "float16"),
    )


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


@triton.jit
def split_atomic_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):  # fmt: skip
    """C += A @ B of float32 zeros: SPLIT programs add their parts of a tile."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(part * BK, K, SPLIT * BK):
        at = start + inner
        left = tl.load(a + row[:, None] * K + at[None, :], mask=(row < M)[:, None] & (at < K)[None, :], other=0.0)
        right = tl.load(
            b + at[:, None] * N + column[None, :], mask=(column < N)[None, :] & (at < K)[:, None], other=0.0
        )
        total = tl.dot(left, right, total)
    inside = (row < M)[:, None] & (column < N)[None, :]
    tl.atomic_add(c + row[:, None] * N + column[None, :], total, mask=inside, sem="relaxed")


@triton.jit
def matmul_kernel(
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
def rmsnorm_kernel(x, y, rows, columns, eps, BLOCK: tl.constexpr, ROWS: tl.constexpr):
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
def softmax_kernel(x, y, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
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


@triton.jit
def column_sum_kernel(x, out, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr):
    """out[columns] += the sums of ROWS * STEPS rows of BLOCK columns, by atomic additions."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for step in range(STEPS):
        row = (tl.program_id(1) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(out + column, tl.sum(total, 0), mask=column < columns, sem="relaxed")


def _tiles(meta: Any) -> int:
    return triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"])


def _product(M: int, N: int, K: int, dtype: str, out: str = "", fill: str = "empty") -> dict[str, Any]:
    return {
        "a": TensorSpec((M, K), dtype), "b": TensorSpec((K, N), dtype),
        "c": TensorSpec((M, N), out or dtype, fill=fill), "M": M, "N": N, "K": K,
    }  # fmt: skip


def _strided(M: int, N: int, K: int, dtype: str) -> dict[str, Any]:
    """The arguments of the recorded matmul; of 8-bit operands B is stored by columns."""
    narrow = dtype.startswith("float8")
    return {
        "a": TensorSpec((M, K), dtype), "b": TensorSpec((N, K) if narrow else (K, N), dtype),
        "c": TensorSpec((M, N), "bfloat16", fill="empty"), "M": M, "N": N, "K": K, "sam": K, "sak": 1,
        "sbk": 1 if narrow else N, "sbn": K if narrow else 1, "scm": N, "scn": 1,
    }  # fmt: skip


def _rows(rows: int, columns: int, dtype: str, **more: Any) -> dict[str, Any]:
    return {
        "x": TensorSpec((rows, columns), dtype), "y": TensorSpec((rows, columns), dtype, fill="empty"),
        "rows": rows, "columns": columns, **more,
    }  # fmt: skip


def _backward(rows: int, columns: int, dtype: str) -> dict[str, Any]:
    matrix, vector = TensorSpec((rows, columns), dtype), TensorSpec((rows,), "float32")
    sums = TensorSpec((columns,), "float32", fill="empty")
    return {
        "dy": matrix, "x": matrix, "weight": TensorSpec((columns,), dtype), "mean": vector, "scale": vector,
        "dx": TensorSpec((rows, columns), dtype, fill="empty"), "dweight": sums, "dbias": sums,
    }  # fmt: skip


ATTENTION_SPACE = {
    "BM": [128, 32, 64, 256], "BN": [64, 16, 32, 128], "num_warps": [8, 4], "num_stages": [2, 1, 3, 4, 5],
}  # fmt: skip
MATMUL_SPACE = {
    "BM": [128, 16, 64, 256], "BN": [128, 32, 64, 256], "BK": [64, 32, 128], "GM": [8], "num_warps": [8, 4],
    "num_stages": [3, 2, 4],
}  # fmt: skip
ROW_SPACE = {"BLOCK": [2048, 256, 512, 1024, 4096, 8192], "ROWS": [1, 2, 4, 8], "num_warps": [4, 1, 2, 8, 16]}

_by_rows = TritonKernel(softmax_kernel, lambda meta: (triton.cdiv(meta["rows"], meta["ROWS"]),), outputs=("y",))
flash, flash_causal = _flash(False), _flash(True)
matmul = Operation(
    "plain_matmul",
    TritonKernel(matmul_kernel, lambda meta: (_tiles(meta),), outputs=("c",)),
    MATMUL_SPACE,
    lambda M=4096, N=4096, K=4096, dtype="bfloat16": _strided(M, N, K, dtype),
    dtypes=("bfloat16", "float16", "float8_e4m3fn"),
)
persistent = Operation(
    "persistent_matmul",
    TritonKernel(persistent_kernel, lambda meta: (min(meta["PROGRAMS"], _tiles(meta)),), outputs=("c",)),
    MATMUL_SPACE,
    lambda M=4096, N=4096, K=4096, dtype="bfloat16": _product(M, N, K, dtype),
    dtypes=("bfloat16", "float16"),
)
split_atomic = Operation(
    "split_k_atomic",
    TritonKernel(
        split_atomic_kernel,
        lambda meta: (triton.cdiv(meta["M"], meta["BM"]), triton.cdiv(meta["N"], meta["BN"]), meta["SPLIT"]),
        outputs=("c",),
        reset_to_zero=("c",),
    ),
    MATMUL_SPACE,
    lambda M=64, N=4096, K=16384, dtype="bfloat16": _product(M, N, K, dtype, "float32", "zeros"),
    dtypes=("bfloat16", "float16"),
)
split_two = Operation(
    "split_k_two_launches",
    LauncherKernel(split_in_two, outputs=("c",)),
    MATMUL_SPACE,
    lambda M=64, N=4096, K=16384, dtype="bfloat16": {
        "a": TensorSpec((M, K), dtype), "b": TensorSpec((N, K), dtype), "c": TensorSpec((M, N), dtype, fill="empty"),
    },
    dtypes=("bfloat16", "float16"),
)  # fmt: skip
softmax = Operation(
    "plain_softmax",
    _by_rows,
    ROW_SPACE,
    lambda rows=8192, columns=4096, dtype="bfloat16": _rows(rows, columns, dtype),
    dtypes=("bfloat16", "float16", "float32"),
)
rmsnorm = Operation(
    "plain_rmsnorm",
    TritonKernel(rmsnorm_kernel, lambda meta: (triton.cdiv(meta["rows"], meta["ROWS"]),), outputs=("y",)),
    ROW_SPACE,
    lambda rows=8192, columns=4096, dtype="bfloat16": _rows(rows, columns, dtype, eps=1e-5),
    dtypes=("bfloat16", "float16", "float32"),
)
layer_norm = Operation(
    "plain_layer_norm",
    TritonKernel(layer_norm_kernel, by_row, outputs=("out",)),
    {"BLOCK": [1024]},
    lambda rows=8192, columns=4096, dtype="bfloat16": {
        "x": TensorSpec((rows, columns), dtype), "weight": TensorSpec((columns,), dtype),
        "bias": TensorSpec((columns,), dtype), "out": TensorSpec((rows, columns), dtype, fill="empty"), "N": columns,
    },
    dtypes=("bfloat16", "float16", "float32"),
)  # fmt: skip
norm_backward = Operation(
    "layer_norm_backward",
    LauncherKernel(layer_norm_backward, outputs=("dx", "dweight", "dbias")),
    {"PROGRAMS": [_MULTIPROCESSORS], "TILE": [64], "num_warps": [8]},
    lambda rows=8192, columns=4096, dtype="bfloat16": _backward(rows, columns, dtype),
    dtypes=("bfloat16", "float16", "float32"),
)
column_sum = Operation(
    "column_sum_atomic",
    TritonKernel(
        column_sum_kernel,
        lambda meta: (
            triton.cdiv(meta["columns"], meta["BLOCK"]), triton.cdiv(meta["rows"], meta["ROWS"] * meta["STEPS"]),
        ),
        outputs=("out",),
        reset_to_zero=("out",),
    ),
    {"BLOCK": [128]},
    lambda rows=16384, columns=4096, dtype="bfloat16": {
        "x": TensorSpec((rows, columns), dtype), "out": TensorSpec((columns,), "float32", fill="zeros"),
        "rows": rows, "columns": columns,
    },
    dtypes=("bfloat16", "float16", "float32"),
)  # fmt: skip

SPACES = (  # what matters most comes first
    Recorded("attention_causal_d128", attention, ATTENTION_SPACE, (4, 32, 2048, 128)),
    Recorded(
        "gated_mlp",
        load("gated_mlp"),
        {
            "BLOCK_M": [128, 64, 256], "BLOCK_N": [64, 32, 128], "BLOCK_K": [64, 32, 128], "GROUP_SIZE_M": [8],
            "LOADS": ["pointers", "host"], "PROGRAMS": [0], "num_warps": [8, 4], "num_stages": [3, 2, 4],
        },
        (2048, 8192, 4096),
    ),
    Recorded(
        "layer_norm_backward",
        norm_backward,
        {
            "PROGRAMS": [_MULTIPROCESSORS * part // 2 for part in (2, 1, 4, 8, 16)], "TILE": [64, 16, 32, 128],
            "num_warps": [8, 1, 2, 4, 16],
        },
        (8192, 4096),
    ),
    Recorded(
        "layer_norm_gradient",  # the shipped one, whole rows and rows in chunks
        load("layer_norm_backward"),
        {"BLOCK_SIZE": [8192, 1024, 2048, 4096], "ROWS": [1], "num_warps": [16, 2, 4, 8], "PROGRAMS": [2, 1, 4, 8]},
        (8192, 8192),
    ),
    Recorded("flash_d64", flash, ATTENTION_SPACE, (2, 16, 4096, 64)),
    Recorded(
        "persistent_matmul",
        persistent,
        {
            "BM": [128, 64], "BN": [128, 64, 256], "BK": [64, 32, 128], "GM": [8],
            "PROGRAMS": [_MULTIPROCESSORS, 2 * _MULTIPROCESSORS], "num_warps": [8, 4], "num_stages": [3, 2, 4],
        },
        (3072, 5120, 4096),
    ),
    Recorded(
        "split_k_atomic",
        split_atomic,
        {
            "BM": [64, 16], "BN": [128, 64], "BK": [64, 128], "SPLIT": [4, 1, 2, 8, 16], "num_warps": [4, 8],
            "num_stages": [3, 2, 4],
        },
        (64, 4096, 16384),
    ),
    Recorded(
        "column_sum_atomic",
        column_sum,
        {
            "BLOCK": [128, 64, 256, 512, 1024], "ROWS": [8, 1, 4, 16], "STEPS": [8, 1, 64], "num_warps": [4, 2, 8],
        },
        (16384, 4096),
    ),
    Recorded(
        "layer_norm",
        layer_norm,
        {
            "BLOCK": [1024, 256, 512, 2048, 4096, 8192], "num_warps": [4, 1, 2, 8, 16, 32], "num_stages": [2, 1, 3],
        },
        (8192, 6144),
    ),
    Recorded("matmul_fp8", matmul, MATMUL_SPACE, (2048, 7168, 4096), "float8_e4m3fn"),
    Recorded("softmax_wide", softmax, ROW_SPACE, (2048, 16384)),
    Recorded("flash_causal_d128", flash_causal, ATTENTION_SPACE, (1, 16, 8192, 128)),
    Recorded("rmsnorm_narrow", rmsnorm, ROW_SPACE, (32768, 1536)),
    Recorded("matmul_bf16", matmul, MATMUL_SPACE, (8192, 3072, 1024)),
    Recorded(
        "split_k_two_launches",
        split_two,
        {
            "BM": [64, 16], "BN": [128, 64], "BK": [64, 128], "SPLIT": [4, 1, 2, 8, 16], "num_warps": [4],
            "num_stages": [3, 2, 4],
        },
        (16, 5120, 13824),
    ),
)  # fmt: skip
