"""The Triton kernels of the gated MLP: act(x @ gate_weight.T) * (x @ up_weight.T), and the gradient of its last step.

A program computes a BLOCK_M by BLOCK_N tile of both products at once, from one tile of x, and multiplies them in
registers. LOADS are of `pointers`, for any strides, or of tensor descriptors that the `host` makes before each launch,
whose tiles Hopper's TMA copies: descriptors that each program makes would cost it some microseconds. With PROGRAMS a
program walks over many tiles.

JOINED weights have one descriptor: it shows both as one tensor of [2, N, K], whose first step is the distance between
them in memory, so that they need not be neighbours there. One copy then brings a tile of each, and one matrix
instruction of twice the columns makes both products. Only so does a program that walks begin to load a tile while it
writes the one before: with two products in that loop ptxas has every matrix instruction wait for the one before (12.8).

SPLIT programs share a tile of few, each with its part of K. Their sums of both products go to scratch in float32, and a
second launch adds them up in the order of K: equal calls give equal bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.backend import matrix_descriptor
from triton_ops.base import require
from triton_ops.exceptions import ConfigValueError
from triton_ops.values import ALIGNMENT_BYTES
from triton_ops_kernels.jit import activated, put, tile_of, widened
from triton_ops_kernels.tiles import programs_for

triton = require("triton", "the gated_mlp kernel")
tl = require("triton.language", "the gated_mlp kernel")

_FARTHEST_BYTES = 2**40  # between two steps of a descriptor
CHUNK = 1024  # elements of the result that a program of the second launch makes


def tiles_of(meta: Mapping[str, Any]) -> int:
    """The tiles of the result."""
    tiles: int = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return tiles


def grid(meta):
    """One program per part of a tile of the result, or PROGRAMS per multiprocessor."""
    return programs_for(tiles_of(meta) * meta["SPLIT"], meta, "x")


def sum_grid(meta):
    """The programs of the second launch: the chunks of every tile."""
    return tiles_of(meta), triton.cdiv(meta["BLOCK_M"] * meta["BLOCK_N"], CHUNK)


def shares_tiles(meta: Mapping[str, Any]) -> bool:
    """Tell whether a config shares tiles among programs, whose parts a second launch adds up."""
    return bool(meta["SPLIT"] > 1)


def parts_elements(meta: Mapping[str, Any], programs: int) -> int:
    """Elements of the parts of all tiles, each with its sums of both products."""
    elements: int = tiles_of(meta) * meta["SPLIT"] * 2 * meta["BLOCK_M"] * meta["BLOCK_N"]
    return elements


def gradient_grid(meta):
    """One program per BLOCK_SIZE elements."""
    return (triton.cdiv(meta["gate"].numel(), meta["BLOCK_SIZE"]),)


def host_descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The descriptors that a config is given, by the kernel's parameters; none unless it asks for those of the host."""
    if meta["LOADS"] != "host":
        return {}
    rows, columns, step = meta["BLOCK_M"], meta["BLOCK_N"], meta["BLOCK_K"]
    made = {
        "x_tiles": matrix_descriptor(meta["x"], (rows, step)),
        "out_tiles": matrix_descriptor(meta["out"], (rows, columns // 2 if meta["HALVES"] else columns)),
    }
    weights = meta["gate_weight"], meta["up_weight"]
    if meta["JOINED"]:
        return made | joined_descriptor(*weights, (columns, step))
    g_tiles, u_tiles = (matrix_descriptor(weight, (columns, step)) for weight in weights)
    return {**made, "g_tiles": g_tiles, "u_tiles": u_tiles}


def joined_descriptor(gate_weight: Any, up_weight: Any, block: tuple[int, int]) -> dict[str, Any]:
    """One descriptor of both weights, that with the lower address first, and whether that is `up_weight`."""
    apart = distance(gate_weight, up_weight)
    if not apart:
        raise ConfigValueError(
            "JOINED is true, and no tensor descriptor can show both weights: they are one, differ in their strides, or "
            "lie 2^40 bytes or more apart in memory",
            hint="leave JOINED out, or pass the halves of one tensor",
        )
    made = matrix_descriptor(gate_weight if apart > 0 else up_weight, block)
    made.shape, made.strides = [2, *made.shape], [abs(apart), *made.strides]
    made.block_shape = [2, *made.block_shape]
    return {"g_tiles": made, "up_first": int(apart < 0)}


def distance(gate_weight: Any, up_weight: Any) -> int:
    """Elements from `gate_weight` to `up_weight` in memory; 0 where no descriptor can show both."""
    if tuple(gate_weight.stride()) != tuple(up_weight.stride()):
        return 0
    first, second = gate_weight.data_ptr(), up_weight.data_ptr()
    if max(first, second) < ALIGNMENT_BYTES:  # where there is no memory, nothing is launched
        return int(gate_weight.numel())
    apart = second - first
    fits = abs(apart) < _FARTHEST_BYTES and apart % ALIGNMENT_BYTES == 0
    return int(apart // gate_weight.element_size()) if fits else 0


@triton.jit
def slope(g, ACTIVATION: tl.constexpr):
    """The derivative of the activation."""
    if ACTIVATION == "silu":
        s = tl.sigmoid(g)
        return s * (1.0 + g * (1.0 - s))
    density = tl.exp(-0.5 * g * g) * 0.3989422804014327
    return 0.5 * (1.0 + tl.erf(g * 0.7071067811865476)) + g * density


@triton.jit
def both_products(
    m0, n0, k_first, k_last, x, gate_weight, up_weight, M, N, K,
    stride_xm, stride_xk, stride_gn, stride_gk, stride_un, stride_uk,
    UNIT: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The tiles at m0, n0 of x @ gate_weight.T and x @ up_weight.T, by pointers, summed from k_first to k_last.

    Both are multiples of BLOCK_K, or k_last is K. Where UNIT is over 1, K and the strides of rows are multiples of it,
    and elements along K are neighbours: the compiler then sees that as many may be copied at once.
    """
    if UNIT > 1:
        K = K // UNIT * UNIT
        stride_xm, stride_gn, stride_un = (
            stride_xm // UNIT * UNIT, stride_gn // UNIT * UNIT, stride_un // UNIT * UNIT,
        )  # fmt: skip
    # A tile's corner is addressed in 64 bits, since M * K may pass 2^31; inside the tile 32 bits do, and keep the
    # registers for the accumulators.
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    at, m_at, n_at = tl.cast(k_first, tl.int64), m0.to(tl.int64), n0.to(tl.int64)
    x_tile = x + (m_at * stride_xm + at * stride_xk) + (m[:, None] * stride_xm + k[None, :] * stride_xk)
    g_tile = gate_weight + (n_at * stride_gn + at * stride_gk) + (k[:, None] * stride_gk + n[None, :] * stride_gn)
    u_tile = up_weight + (n_at * stride_un + at * stride_uk) + (k[:, None] * stride_uk + n[None, :] * stride_un)
    in_m = m[:, None] < M - m0
    in_n = n[None, :] < N - n0
    g = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x.dtype.element_ty))
    u = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x.dtype.element_ty))
    for k0 in range(k_first, k_last, BLOCK_K):
        left = tl.load(x_tile, mask=in_m & (k[None, :] < K - k0), other=0.0)
        inside = in_n & (k[:, None] < K - k0)
        g = tl.dot(left, tl.load(g_tile, mask=inside, other=0.0), g, input_precision=PRECISION, out_dtype=g.dtype)
        u = tl.dot(left, tl.load(u_tile, mask=inside, other=0.0), u, input_precision=PRECISION, out_dtype=u.dtype)
        x_tile += BLOCK_K * stride_xk
        g_tile += BLOCK_K * stride_gk
        u_tile += BLOCK_K * stride_uk
    return g, u


@triton.jit
def both_products_described(
    m0, n0, k_first, k_last, x_tiles, g_tiles, u_tiles,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same by a tensor descriptor for each weight."""
    g = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x_tiles.dtype))
    u = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x_tiles.dtype))
    for k0 in range(k_first, k_last, BLOCK_K):
        left = x_tiles.load([m0, k0])
        g = tl.dot(left, g_tiles.load([n0, k0]).T, g, input_precision=PRECISION, out_dtype=g.dtype)
        u = tl.dot(left, u_tiles.load([n0, k0]).T, u, input_precision=PRECISION, out_dtype=u.dtype)
    return g, u


@triton.jit
def both_products_joined(
    m0, n0, k_first, k_last, x_tiles, w_tiles, up_first,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same by one descriptor of both weights, as one product."""
    both = widened(tl.zeros((BLOCK_M, 2 * BLOCK_N), dtype=x_tiles.dtype))
    for k0 in range(k_first, k_last, BLOCK_K):
        weights = tl.reshape(w_tiles.load([0, n0, k0]), (2 * BLOCK_N, BLOCK_K))
        both = tl.dot(x_tiles.load([m0, k0]), weights.T, both, input_precision=PRECISION, out_dtype=both.dtype)
    low, high = tl.split(tl.permute(tl.reshape(both, (BLOCK_M, 2, BLOCK_N)), (0, 2, 1)))
    return tl.where(up_first != 0, high, low), tl.where(up_first != 0, low, high)


@triton.jit
def store_tile(base, values, m0, n0, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write a tile of a row-major matrix, rounded once to its dtype."""
    row = m0 + tl.arange(0, BLOCK_M)
    column = n0 + tl.arange(0, BLOCK_N)
    place = row.to(tl.int64)[:, None] * N + column[None, :]
    tl.store(base + place, values.to(base.dtype.element_ty), mask=(row < M)[:, None] & (column < N)[None, :])


@triton.jit
def finish(out, gate, up, g, u, m0, n0, M, N, ACTIVATION: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write a tile of the result from the sums of both products, and these where they are kept; None is not written."""
    if out is not None:
        store_tile(out, activated(g, ACTIVATION) * u, m0, n0, M, N, ROWS, BLOCK_N)
    if gate is not None:
        store_tile(gate, g, m0, n0, M, N, ROWS, BLOCK_N)
        store_tile(up, u, m0, n0, M, N, ROWS, BLOCK_N)


@triton.jit(do_not_specialize=["up_first"])
def gated_mlp_kernel(
    x, gate_weight, up_weight, out, gate, up, M, N, K, stride_xm, stride_xk, stride_gn, stride_gk, stride_un,
    stride_uk,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, UNIT: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr = 8, LOADS: tl.constexpr = "pointers",
    JOINED: tl.constexpr = False, PROGRAMS: tl.constexpr = 0, HALVES: tl.constexpr = False, SPLIT: tl.constexpr = 1,
    up_first=0, parts=None, x_tiles=None, g_tiles=None, u_tiles=None, out_tiles=None,
):  # fmt: skip
    """out[M, N] = act(x[M, K] @ gate_weight[N, K].T) * (x @ up_weight[N, K].T), rounded once; strides in elements.

    `out` is row-major. `gate` and `up` are None, or row-major [M, N] and take the two products, for the gradient. The
    descriptors are None unless the host makes them, and `parts` unless programs share tiles; the descriptor of JOINED
    weights is `g_tiles`.
    """
    tile_rows, tile_columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    # Without PROGRAMS there are as many programs as parts of tiles, and each has one: the compiler sees no loop.
    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = tile_rows * tile_columns * SPLIT if PROGRAMS > 0 else first + 1
    for part in tl.range(first, last, step, flatten=PROGRAMS > 0 and JOINED):
        tile_row, tile_column = tile_of(part // SPLIT, tile_rows, tile_columns, GROUP_SIZE_M)
        m0, n0, k_first, k_last = tile_row * BLOCK_M, tile_column * BLOCK_N, 0, K
        if SPLIT > 1:
            each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K
            k_first = part % SPLIT * each
            k_last = tl.minimum(k_first + each, K)
        if JOINED:
            g, u = both_products_joined(
                m0, n0, k_first, k_last, x_tiles, g_tiles, up_first, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        elif LOADS == "host":
            g, u = both_products_described(
                m0, n0, k_first, k_last, x_tiles, g_tiles, u_tiles, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        else:
            g, u = both_products(
                m0, n0, k_first, k_last, x, gate_weight, up_weight, M, N, K,
                stride_xm, stride_xk, stride_gn, stride_gk, stride_un, stride_uk,
                UNIT, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        if SPLIT > 1:
            place = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            slot = parts + tl.cast(part, tl.int64) * (2 * BLOCK_M * BLOCK_N) + place
            tl.store(slot, g)
            tl.store(slot + BLOCK_M * BLOCK_N, u)
        elif LOADS == "host":
            found = activated(g, ACTIVATION) * u
            put(out_tiles, found.to(out.dtype.element_ty), m0, n0, False, HALVES, BLOCK_M, BLOCK_N)
            finish(None, gate, up, g, u, m0, n0, M, N, ACTIVATION, BLOCK_M, BLOCK_N)
        else:
            finish(out, gate, up, g, u, m0, n0, M, N, ACTIVATION, BLOCK_M, BLOCK_N)


@triton.jit
def sum_parts_kernel(
    out, gate, up, parts, M, N, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr, SPLIT: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One chunk of one tile of the result, from the sums that SPLIT programs have left, added up in the order of K."""
    ROWS: tl.constexpr = min(BLOCK_M, CHUNK // BLOCK_N)
    tile, above = tl.program_id(0), tl.program_id(1) * ROWS
    tile_row, tile_column = tile_of(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_SIZE_M)
    place = (above + tl.arange(0, ROWS))[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    slot = parts + tile.to(tl.int64) * (SPLIT * 2 * BLOCK_M * BLOCK_N) + place
    g, u = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32), tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for _ in tl.static_range(SPLIT):
        g += tl.load(slot)
        u += tl.load(slot + BLOCK_M * BLOCK_N)
        slot += 2 * BLOCK_M * BLOCK_N
    finish(out, gate, up, g, u, tile_row * BLOCK_M + above, tile_column * BLOCK_N, M, N, ACTIVATION, ROWS, BLOCK_N)


@triton.jit
def gated_mlp_backward_kernel(
    gate, up, grad, dgate, dup, elements,
    ACTIVATION: tl.constexpr, UNIT: tl.constexpr, BLOCK_SIZE: tl.constexpr, EVICT: tl.constexpr = "none",
):  # fmt: skip
    """Dgate = grad * up * act'(gate) and dup = grad * act(gate), element by element, rounded once.

    `elements` is a multiple of UNIT, which the compiler sees by the product below: so many neighbours are read at once.
    With EVICT `stores`, what is written leaves L2 before what is read; with `none` neither has precedence.
    """
    READ: tl.constexpr = "evict_last" if EVICT == "stores" else ""
    elements = elements // UNIT * UNIT
    place = tl.cast(tl.program_id(0), tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = place < elements
    g = widened(tl.load(gate + place, mask=inside, other=0.0, eviction_policy=READ))
    u = widened(tl.load(up + place, mask=inside, other=0.0, eviction_policy=READ))
    d = widened(tl.load(grad + place, mask=inside, other=0.0, eviction_policy=READ))
    tl.store(dgate + place, (d * u * slope(g, ACTIVATION)).to(dgate.dtype.element_ty), mask=inside)
    tl.store(dup + place, (d * activated(g, ACTIVATION)).to(dup.dtype.element_ty), mask=inside)
