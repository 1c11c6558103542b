"""Pieces of Triton code that several of the shipped kernels share."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require

triton = require("triton", "the shipped kernels")
tl = require("triton.language", "the shipped kernels")


@triton.jit
def widened(values):
    """The values in the precision in which kernels compute: float64 for float64, else float32."""
    if values.dtype == tl.float64:
        return values
    else:
        return values.to(tl.float32)


@triton.jit
def tile_of(program, tile_rows, tile_columns, GROUP_SIZE_M: tl.constexpr):
    """The row and column, in tiles, of a program's tile.

    Consecutive programs walk down GROUP_SIZE_M tile rows before they step to the next tile column: programs that run at
    the same time then share rows of A and columns of B in L2.
    """
    tiles_per_group = GROUP_SIZE_M * tile_columns
    first_row = program // tiles_per_group * GROUP_SIZE_M
    group_rows = min(tile_rows - first_row, GROUP_SIZE_M)
    place = program % tiles_per_group
    return first_row + place % group_rows, place // group_rows


@triton.jit
def described(base, rows, columns, stride, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """A tensor descriptor of a matrix with `columns` neighbours in memory; rows are multiples of 16 bytes apart."""
    return tl.make_tensor_descriptor(
        base, shape=[rows, columns], strides=[stride, 1], block_shape=[BLOCK_ROWS, BLOCK_COLUMNS]
    )


@triton.jit
def put(tiles, found, m0, n0, TURNED: tl.constexpr, HALVES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write a tile of ROWS by COLUMNS by a descriptor, of the transposed matrix if it is TURNED.

    HALVES go one after the other through half of the shared memory; the descriptor is then of half the columns.
    """
    if TURNED:
        tiles.store([n0, m0], found.T)
    elif HALVES:
        low, high = tl.split(tl.permute(tl.reshape(found, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))
        tiles.store([m0, n0], low)
        tiles.store([m0, n0 + COLUMNS // 2], high)
    else:
        tiles.store([m0, n0], found)


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """relu(x) = max(x, 0), silu(x) = x * sigmoid(x), gelu(x) = x * (1 + erf(x / sqrt(2))) / 2; `none` is x."""
    if ACTIVATION == "none":
        return x
    elif ACTIVATION == "relu":
        return tl.where(x < 0, 0.0, x)  # NaN stays NaN
    elif ACTIVATION == "silu":
        return x * tl.sigmoid(x)
    else:
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def column_sums_kernel(partial, first, second, rows, columns, ROWS: tl.constexpr, SUM_COLUMNS: tl.constexpr):
    """The sums by column of partial[0, rows, columns] to `first`, and of partial[1] to `second` unless that is None.

    They are added up in one order, in the dtype of `partial`, and rounded once.
    """
    part = tl.program_id(1)
    column = tl.program_id(0) * SUM_COLUMNS + tl.arange(0, SUM_COLUMNS)
    start = partial + tl.cast(part, tl.int64) * rows * columns + column[None, :]
    total = tl.zeros((ROWS, SUM_COLUMNS), dtype=partial.dtype.element_ty)
    for above in range(0, rows, ROWS):
        row = (above + tl.arange(0, ROWS))[:, None]
        inside = (row < rows) & (column < columns)[None, :]
        total += tl.load(start + row.to(tl.int64) * columns, mask=inside, other=0.0)
    found = tl.sum(total, 0)
    if second is None:
        tl.store(first + column, found.to(first.dtype.element_ty), mask=column < columns)
    else:
        if part == 0:
            tl.store(first + column, found.to(first.dtype.element_ty), mask=column < columns)
        else:
            tl.store(second + column, found.to(second.dtype.element_ty), mask=column < columns)


INTERPRETED = type(widened).__name__ == "InterpretedFunction"
"""Whether kernels run as Python, as under `TRITON_INTERPRET=1`: then they take tensors on a CPU."""
_BY_BITS = tl.constexpr(INTERPRETED)


@triton.jit
def to_e4m3(values):
    """float32 values within ±448 rounded to E4M3, ties to even; NaN stays NaN.

    The hardware converts. Triton's interpreter rounds up wrongly where the exponent changes (3.6), so there it is done
    on the bits.
    """
    if _BY_BITS:
        # The interpreter drops the carry of a fraction that overflows: triton-lang/triton#11897.
        bits = tl.abs(values).to(tl.int32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
        small = (tl.abs(values) * 512.0 + 8388608.0).to(tl.int32, bitcast=True) & 0xF  # adding 2^23 rounds
        code = tl.where(tl.abs(values) < 0.015625, small, normal)
        code = tl.where(values != values, 0x7F, code) | ((values.to(tl.int32, bitcast=True) >> 24) & 0x80)
        return code.to(tl.uint8).to(tl.float8e4nv, bitcast=True)
    else:
        return values.to(tl.float8e4nv)


@triton.jit
def from_e4m3(codes):
    """E4M3 in float32, which holds every value of it. Triton's interpreter takes NaN for 480 (3.6)."""
    if _BY_BITS:
        code = codes.to(tl.uint8, bitcast=True).to(tl.int32)
        size = code & 0x7F
        normal = ((size << 20) + (120 << 23)).to(tl.float32, bitcast=True)
        found = tl.where(size < 8, size.to(tl.float32) * 0.001953125, normal)
        found = tl.where(size == 0x7F, float("nan"), found)
        return (found.to(tl.int32, bitcast=True) | ((code & 0x80) << 24)).to(tl.float32, bitcast=True)
    else:
        return codes.to(tl.float32)


@triton.jit
def multiplicand(codes):
    """E4M3 as the tensor cores multiply it; in float32 for Triton's interpreter, which takes NaN for 480 (3.6)."""
    if _BY_BITS:
        return from_e4m3(codes)
    else:
        return codes


SUM_COLUMNS = [16, 64]
"""The tunable: columns that a program of the last launch adds up. Fewer make more programs, with shorter walks."""
_TILE, _WARPS = 8192, 8  # elements that a program takes at once: 32 loads of a thread are on their way


def add_up(partial: Any, results: tuple[Any, ...], sum_columns: int) -> None:
    """Write the sums of partial[i], [results, rows, columns], over its rows to results[i], one or two of [columns].

    torch's sums take a launch for each result and another one that rounds it; this is one for all of them.
    """
    count, rows, columns = partial.shape
    second = results[1] if count > 1 else None
    column_sums_kernel[(-(-columns // sum_columns), count)](
        partial, results[0], second, rows, columns,
        ROWS=_TILE // sum_columns, SUM_COLUMNS=sum_columns, num_warps=_WARPS,
    )  # fmt: skip
