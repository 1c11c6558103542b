"""The Triton kernel: C = A @ B of 8-bit floats, divided by their scales, in tiles of BLOCK_M by BLOCK_N.

Hopper's tensor cores keep about 14 bits while they add up products of 8-bit floats. So their sums are promoted: added
to float32 registers after every PROMOTE terms, unless the caller takes the faster sums. With a scale for every block of
128 terms, each step's sum is promoted by its scales anyway.

LOADS are of `pointers`, for any strides, or of tensor descriptors that the `host` makes before each launch, whose tiles
Hopper's TMA copies. With PROGRAMS a program walks over many tiles, so that the loads of one begin while another is
written; where two programs share a multiprocessor, one multiplies while the other promotes. With SWAPPED the transposed
product is computed, whose rows are the columns of B: matrix instructions take 64 rows at least, and any multiple of 8
columns. The scales of a block are read AHEAD steps before they are needed, so that no short step waits.

Triton's own promotion (`max_num_imprecise_acc`) adds up a sum before it has waited for the instruction that makes it,
and the assembler then has every matrix instruction wait for the one before (3.6). So whole steps are added up here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.backend import matrix_descriptor
from triton_ops.base import require
from triton_ops_kernels.jit import multiplicand, put, tile_of
from triton_ops_kernels.tiles import programs_for

triton = require("triton", "the fp8_gemm kernel")
tl = require("triton.language", "the fp8_gemm kernel")


def grid(meta):
    """One program per tile of C, or PROGRAMS per multiprocessor."""
    rows, columns = (meta["N"], meta["M"]) if meta["SWAPPED"] else (meta["M"], meta["N"])
    return programs_for(triton.cdiv(rows, meta["BLOCK_M"]) * triton.cdiv(columns, meta["BLOCK_N"]), meta, "a")


def host_descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The descriptors that a config is given, by the kernel's parameters; none unless it asks for those of the host."""
    if meta["LOADS"] != "host":
        return {}
    rows, columns, step = meta["BLOCK_M"], meta["BLOCK_N"], meta["BLOCK_K"]
    a_side, b_side = (columns, rows) if meta["SWAPPED"] else (rows, columns)
    made = {
        "a_tiles": matrix_descriptor(meta["a"], (a_side, step)),
        "b_tiles": matrix_descriptor(meta["b"], (step, b_side), turned=True),
    }
    if meta["C_DESCRIBED"]:
        across = b_side // 2 if meta["HALVES"] else b_side
        made["c_tiles"] = matrix_descriptor(meta["c"], (a_side, across))
    return made


@triton.jit
def own_scales(scale, block, first, extent, stride, stride_k, inside, SIDE: tl.constexpr):
    """The scale of each of SIDE rows, or columns, for one block of terms; 1 where there is none."""
    place = first + tl.arange(0, SIDE)
    mask = ((place < extent) & inside) != 0  # Triton 3.9 keeps integers for it where kernels run as Python
    return tl.load(scale + place * stride + block * stride_k, mask=mask, other=1.0)


@triton.jit
def shared_scales(scale, block, first, extent, stride, stride_k, inside, SIDE: tl.constexpr):
    """The same of an operand whose rows, or columns, share a scale by 128: one number if all SIDE of them do."""
    if SIDE <= 128:
        mask = ((first < extent) & inside) != 0
        found = tl.load(scale + block * stride_k + first // 128 * stride, mask=mask, other=1.0)
    else:
        place = first + tl.arange(0, SIDE)
        mask = ((place < extent) & inside) != 0
        found = tl.load(scale + block * stride_k + place // 128 * stride, mask=mask, other=1.0)
    return found


@triton.jit
def row_scales(scale, k0, K, first, extent, stride, stride_k, SWAPPED: tl.constexpr, SIDE: tl.constexpr):
    """Divisors of the sums of the step at k0 along the rows: those of A, or with SWAPPED those of B."""
    if SWAPPED:
        found = shared_scales(scale, k0 // 128, first, extent, stride, stride_k, k0 < K, SIDE)
    else:
        found = own_scales(scale, k0 // 128, first, extent, stride, stride_k, k0 < K, SIDE)
    return found


@triton.jit
def factors_of(rows, columns, SWAPPED: tl.constexpr, BLOCK_M: tl.constexpr, SIDE: tl.constexpr):
    """Factors of one step's sums, from the scales along the rows and along the columns."""
    if SWAPPED and BLOCK_M <= 128:
        factors = (1.0 / (rows * columns))[None, :]
    elif not SWAPPED and SIDE <= 128:
        factors = (1.0 / (rows * columns))[:, None]
    else:
        factors = (1.0 / rows)[:, None] * (1.0 / columns)[None, :]
    return factors


@triton.jit
def summed(
    left, right, total, FAST: tl.constexpr, PROMOTE: tl.constexpr,
    BLOCK_M: tl.constexpr, SIDE: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`total` with the products of one step added."""
    if PROMOTE > 0:
        found = tl.dot(left, right, total, max_num_imprecise_acc=PROMOTE)
    elif FAST:
        found = tl.dot(left, right, total)
    elif BLOCK_K <= 128 and BLOCK_M * SIDE <= 128 * 128:
        found = total + tl.dot(left, right, out_dtype=tl.float32)
    else:  # a second sum of this size does not fit into registers
        found = tl.dot(left, right, total, max_num_imprecise_acc=min(128, BLOCK_K))
    return found


@triton.jit
def written(
    total, z, z_tiles, x_scale, y_scale, bias, m0, n0, M, N, stride_xsm, stride_ysn, stride_zm, stride_zn,
    BLOCKED: tl.constexpr, EARLY: tl.constexpr, DESCRIBED: tl.constexpr, SWAPPED: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_M: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """Divide sums by their scales, which were read before if EARLY, unless that is done; add the bias; round once."""
    row, column = m0 + tl.arange(0, BLOCK_M), n0 + tl.arange(0, SIDE)
    if not BLOCKED:
        if not EARLY:
            x_scale = tl.load(x_scale + row * stride_xsm, mask=row < M, other=1.0)
            y_scale = tl.load(y_scale + column * stride_ysn, mask=column < N, other=1.0)
        total = total * (1.0 / x_scale)[:, None] * (1.0 / y_scale)[None, :]
    if bias is not None:
        if SWAPPED:
            total += tl.load(bias + row, mask=row < M, other=0.0).to(tl.float32)[:, None]
        else:
            total += tl.load(bias + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
    found = total.to(z.dtype.element_ty)
    if DESCRIBED:
        put(z_tiles, found, m0, n0, SWAPPED, HALVES, BLOCK_M, SIDE)
    else:
        place = row.to(tl.int64)[:, None] * stride_zm + column.to(tl.int64)[None, :] * stride_zn
        tl.store(z + place, found, mask=(row < M)[:, None] & (column < N)[None, :])


@triton.jit
def product(
    x, y, z, x_tiles, y_tiles, z_tiles, x_scale, y_scale, bias, M, N, K, stride_xm, stride_xk, stride_yk, stride_yn,
    stride_xsm, stride_xsk, stride_ysk, stride_ysn, stride_zm, stride_zn,
    BLOCKED: tl.constexpr, FAST: tl.constexpr, Z_DESCRIBED: tl.constexpr, SWAPPED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    PROMOTE: tl.constexpr, LOADS: tl.constexpr, PROGRAMS: tl.constexpr, HALVES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Z[M, N] = (X[M, K] / x_scale) @ (Y[K, N] / y_scale); with SWAPPED, Z is transposed, and bias is of its rows."""
    DESCRIBED: tl.constexpr = LOADS != "pointers" and Z_DESCRIBED
    EARLY: tl.constexpr = not BLOCKED and PROGRAMS == 0  # then nothing waits for the scales at the end
    tile_rows, tile_columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    # Without PROGRAMS there are as many programs as tiles, and each has one: the compiler sees no loop.
    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = tile_rows * tile_columns if PROGRAMS > 0 else first + 1
    for tile in tl.range(first, last, step, flatten=PROGRAMS > 0):
        tile_row, tile_column = tile_of(tile, tile_rows, tile_columns, GROUP_SIZE_M)
        m0, n0 = tile_row * BLOCK_M, tile_column * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        x_own, y_own = x_scale, y_scale
        if EARLY:
            x_own = own_scales(x_scale, 0, m0, M, stride_xsm, 0, True, BLOCK_M)
            y_own = own_scales(y_scale, 0, n0, N, stride_ysn, 0, True, BLOCK_N)
        if LOADS == "pointers":
            # A tile's corner is addressed in 64 bits, since M * K may pass 2^31; inside the tile 32 bits do.
            m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
            x_tile = x + m0.to(tl.int64) * stride_xm + (m[:, None] * stride_xm + k[None, :] * stride_xk)
            y_tile = y + n0.to(tl.int64) * stride_yn + (k[:, None] * stride_yk + n[None, :] * stride_yn)
            in_m = m[:, None] < M - m0
            in_n = n[None, :] < N - n0
        if BLOCKED and AHEAD > 0:
            x_next, y_next = (), ()
            for ahead in tl.static_range(AHEAD):
                k1 = ahead * BLOCK_K
                x_next += (row_scales(x_scale, k1, K, m0, M, stride_xsm, stride_xsk, SWAPPED, BLOCK_M),)
                y_next += (row_scales(y_scale, k1, K, n0, N, stride_ysn, stride_ysk, not SWAPPED, BLOCK_N),)
        # Unrolled, the steps hold scales in registers of their own: none is moved, which would wait for its load.
        for k0 in tl.range(0, K, BLOCK_K, loop_unroll_factor=AHEAD if AHEAD > 1 and PROGRAMS == 0 else None):
            if BLOCKED:
                k1 = k0 + AHEAD * BLOCK_K
                x_now = row_scales(x_scale, k1, K, m0, M, stride_xsm, stride_xsk, SWAPPED, BLOCK_M)
                y_now = row_scales(y_scale, k1, K, n0, N, stride_ysn, stride_ysk, not SWAPPED, BLOCK_N)
                if AHEAD > 0:
                    x_next += (x_now,)
                    y_next += (y_now,)
                    x_now, x_next = x_next[0], x_next[1:]
                    y_now, y_next = y_next[0], y_next[1:]
            if LOADS == "pointers":
                left = tl.load(x_tile, mask=in_m & (k[None, :] < K - k0), other=0.0)
                right = tl.load(y_tile, mask=in_n & (k[:, None] < K - k0), other=0.0)
            else:
                left, right = x_tiles.load([m0, k0]), y_tiles.load([n0, k0]).T
            left, right = multiplicand(left), multiplicand(right)
            if BLOCKED:
                factors = factors_of(x_now, y_now, SWAPPED, BLOCK_M, BLOCK_N)
                total += tl.dot(left, right, out_dtype=tl.float32) * factors
            else:
                total = summed(left, right, total, FAST, PROMOTE, BLOCK_M, BLOCK_N, BLOCK_K)
            if LOADS == "pointers":
                x_tile += BLOCK_K * stride_xk
                y_tile += BLOCK_K * stride_yk
        written(
            total, z, z_tiles, x_own, y_own, bias, m0, n0, M, N, stride_xsm, stride_ysn, stride_zm, stride_zn,
            BLOCKED, EARLY, DESCRIBED, SWAPPED, HALVES, BLOCK_M, BLOCK_N,
        )  # fmt: skip


@triton.jit
def fp8_gemm_kernel(
    a, b, c, a_scale, b_scale, bias, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_asm, stride_ask,
    stride_bsk, stride_bsn,
    BLOCKED: tl.constexpr, FAST: tl.constexpr, C_DESCRIBED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr = 8, PROMOTE: tl.constexpr = 0, LOADS: tl.constexpr = "pointers",
    SWAPPED: tl.constexpr = False, PROGRAMS: tl.constexpr = 0, HALVES: tl.constexpr = False, AHEAD: tl.constexpr = 0,
    a_tiles=None, b_tiles=None, c_tiles=None,
):  # fmt: skip
    """C[M, N] = (A[M, K] / a_scale) @ (B[K, N] / b_scale) + bias, rounded once; C is row-major; strides in elements.

    Not BLOCKED: a scale for each row of A and each column of B, where a stride of 0 shares one. BLOCKED: a scale for
    each 128 terms of a row of A, and for each 128 by 128 tile of B. `bias` is [N], or None. With descriptors, which
    are None unless the host makes them, the neighbours in memory of A and of B are those along K. C_DESCRIBED says
    whether C can have a descriptor too.
    """
    if SWAPPED:
        product(
            b, a, c, b_tiles, a_tiles, c_tiles, b_scale, a_scale, bias, N, M, K,
            stride_bn, stride_bk, stride_ak, stride_am,
            stride_bsn, stride_bsk, stride_ask, stride_asm, 1, N, BLOCKED, FAST, C_DESCRIBED, SWAPPED,
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, PROMOTE, LOADS, PROGRAMS, HALVES, AHEAD,
        )  # fmt: skip
    else:
        product(
            a, b, c, a_tiles, b_tiles, c_tiles, a_scale, b_scale, bias, M, N, K,
            stride_am, stride_ak, stride_bk, stride_bn,
            stride_asm, stride_ask, stride_bsk, stride_bsn, N, 1, BLOCKED, FAST, C_DESCRIBED, SWAPPED,
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, PROMOTE, LOADS, PROGRAMS, HALVES, AHEAD,
        )  # fmt: skip


def parts_grid(meta: Mapping[str, Any]) -> tuple[int]:
    """One program for each tile of the form of parts."""
    return (triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"]),)


@triton.jit
def parts_kernel(
    a, b, c, a_scale, b_scale, bias, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_asm, stride_bsn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SUMS: tl.constexpr = 4,
):  # fmt: skip
    """As `fp8_gemm_kernel` without scales by block, for few rows: each of SUMS sums has its part of every step's terms.

    A tile of few rows is multiplied by the instructions of single warps, each of which waits for the sum of the one
    before. Several sums for a tile make these chains shorter, and its warps need not repeat each other's work. Hopper
    multiplies 8-bit floats as 16-bit ones there, and adds up in float32: no sum is promoted.
    """
    PART: tl.constexpr = BLOCK_K // SUMS
    tile_columns = tl.cdiv(N, BLOCK_N)
    m0, n0 = tl.program_id(0) // tile_columns * BLOCK_M, tl.program_id(0) % tile_columns * BLOCK_N
    m, n = tl.arange(0, BLOCK_M)[None, :, None], tl.arange(0, BLOCK_N)[None, None, :]
    k = tl.arange(0, SUMS)[:, None] * PART + tl.arange(0, PART)[None, :]
    left_k, right_k = k[:, None, :], k[:, :, None]
    left_tile = a + m0.to(tl.int64) * stride_am + (m * stride_am + left_k * stride_ak)
    right_tile = b + n0.to(tl.int64) * stride_bn + (right_k * stride_bk + n * stride_bn)
    sums = tl.zeros((SUMS, BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        left = multiplicand(tl.load(left_tile, mask=(m < M - m0) & (left_k < K - k0), other=0.0))
        right = multiplicand(tl.load(right_tile, mask=(n < N - n0) & (right_k < K - k0), other=0.0))
        sums = tl.dot(left, right, sums)
        left_tile += BLOCK_K * stride_ak
        right_tile += BLOCK_K * stride_bk
    written(
        tl.sum(sums, 0), c, None, a_scale, b_scale, bias, m0, n0, M, N, stride_asm, stride_bsn, N, 1,
        False, False, False, False, False, BLOCK_M, BLOCK_N,
    )  # fmt: skip
