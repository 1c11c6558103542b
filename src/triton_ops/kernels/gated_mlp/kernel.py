"""The Triton kernels of the gated MLP: act(x @ gate_weight.T) * (x @ up_weight.T), and the gradient of its last step.

A program computes a BLOCK_M by BLOCK_N tile of both products at once, from one tile of x, and multiplies them in
registers. Loads are of pointers, for any strides, or of tensor descriptors, which Hopper's TMA copies. With PROGRAMS a
program walks over many tiles, so that the loads of one begin while another is written.
"""

from triton_ops._optional import require
from triton_ops.kernels.jit import activated, described, tile_of, widened
from triton_ops.kernels.tiles import programs_for

triton = require("triton", "the gated_mlp kernel")
tl = require("triton.language", "the gated_mlp kernel")


def grid(meta):
    """One program per tile of the result, or PROGRAMS per multiprocessor."""
    tiles = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return programs_for(tiles, meta, "x")


def gradient_grid(meta):
    """One program per BLOCK_SIZE elements."""
    return (triton.cdiv(meta["gate"].numel(), meta["BLOCK_SIZE"]),)


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
    m0, n0, x, gate_weight, up_weight, M, N, K, stride_xm, stride_xk, stride_gn, stride_gk, stride_un, stride_uk,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The tiles at m0, n0 of x @ gate_weight.T and x @ up_weight.T, by pointers."""
    # A tile's corner is addressed in 64 bits, since M * K may pass 2^31; inside the tile 32 bits do, and keep the
    # registers for the accumulators.
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_tile = x + m0.to(tl.int64) * stride_xm + (m[:, None] * stride_xm + k[None, :] * stride_xk)
    g_tile = gate_weight + n0.to(tl.int64) * stride_gn + (k[:, None] * stride_gk + n[None, :] * stride_gn)
    u_tile = up_weight + n0.to(tl.int64) * stride_un + (k[:, None] * stride_uk + n[None, :] * stride_un)
    in_m = m[:, None] < M - m0
    in_n = n[None, :] < N - n0
    g = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x.dtype.element_ty))
    u = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x.dtype.element_ty))
    for k0 in range(0, K, BLOCK_K):
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
    m0, n0, x_tiles, g_tiles, u_tiles, K,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same by tensor descriptors."""
    g = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x_tiles.dtype))
    u = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x_tiles.dtype))
    for k0 in range(0, K, BLOCK_K):
        left = x_tiles.load([m0, k0])
        g = tl.dot(left, g_tiles.load([n0, k0]).T, g, input_precision=PRECISION, out_dtype=g.dtype)
        u = tl.dot(left, u_tiles.load([n0, k0]).T, u, input_precision=PRECISION, out_dtype=u.dtype)
    return g, u


@triton.jit
def store_tile(base, values, m0, n0, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write a tile of a row-major matrix, rounded once to its dtype."""
    row = m0 + tl.arange(0, BLOCK_M)
    column = n0 + tl.arange(0, BLOCK_N)
    place = row.to(tl.int64)[:, None] * N + column[None, :]
    tl.store(base + place, values.to(base.dtype.element_ty), mask=(row < M)[:, None] & (column < N)[None, :])


@triton.jit
def gated_mlp_kernel(
    x,
    gate_weight,
    up_weight,
    out,
    gate,
    up,
    M,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_gn,
    stride_gk,
    stride_un,
    stride_uk,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr = 8,
    DESCRIPTORS: tl.constexpr = False,
    PROGRAMS: tl.constexpr = 0,
):
    """out[M, N] = act(x[M, K] @ gate_weight[N, K].T) * (x @ up_weight[N, K].T), rounded once; strides in elements.

    `out` is row-major. `gate` and `up` are None, or row-major [M, N] and take the two products, for the gradient.
    """
    tile_rows, tile_columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if DESCRIPTORS:
        x_tiles = described(x, M, K, stride_xm, BLOCK_M, BLOCK_K)
        g_tiles = described(gate_weight, N, K, stride_gn, BLOCK_N, BLOCK_K)
        u_tiles = described(up_weight, N, K, stride_un, BLOCK_N, BLOCK_K)
        out_tiles = described(out, M, N, N, BLOCK_M, BLOCK_N)
    # Without PROGRAMS there are as many programs as tiles, and each has one: the compiler sees no loop.
    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = tile_rows * tile_columns if PROGRAMS > 0 else first + 1
    for tile in tl.range(first, last, step, flatten=PROGRAMS > 0):
        tile_row, tile_column = tile_of(tile, tile_rows, tile_columns, GROUP_SIZE_M)
        m0, n0 = tile_row * BLOCK_M, tile_column * BLOCK_N
        if DESCRIPTORS:
            g, u = both_products_described(m0, n0, x_tiles, g_tiles, u_tiles, K, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K)
        else:
            g, u = both_products(
                m0, n0, x, gate_weight, up_weight, M, N, K,
                stride_xm, stride_xk, stride_gn, stride_gk, stride_un, stride_uk,
                PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        found = activated(g, ACTIVATION) * u
        if DESCRIPTORS:
            out_tiles.store([m0, n0], found.to(out.dtype.element_ty))
        else:
            store_tile(out, found, m0, n0, M, N, BLOCK_M, BLOCK_N)
        if gate is not None:
            store_tile(gate, g, m0, n0, M, N, BLOCK_M, BLOCK_N)
            store_tile(up, u, m0, n0, M, N, BLOCK_M, BLOCK_N)


@triton.jit
def gated_mlp_backward_kernel(
    gate,
    up,
    grad,
    dgate,
    dup,
    elements,
    ACTIVATION: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Dgate = grad * up * act'(gate) and dup = grad * act(gate), element by element, rounded once."""
    place = tl.cast(tl.program_id(0), tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = place < elements
    g = widened(tl.load(gate + place, mask=inside, other=0.0))
    u = widened(tl.load(up + place, mask=inside, other=0.0))
    d = widened(tl.load(grad + place, mask=inside, other=0.0))
    tl.store(dgate + place, (d * u * slope(g, ACTIVATION)).to(dgate.dtype.element_ty), mask=inside)
    tl.store(dup + place, (d * activated(g, ACTIVATION)).to(dup.dtype.element_ty), mask=inside)
