"""The Triton kernels of C = act(A @ B + bias), in tiles of BM by BN and steps of BK along K.

ALGORITHM says which program computes what:

- `tiles`: one program, one tile. Pointer loads run on every GPU that Triton knows and take any strides.
- `persistent`: PROGRAMS programs for each multiprocessor walk over the tiles, so that the loads of one begin while
  another is written.
- `split_k`: SPLIT programs share a tile, each with its part of K: for products of few tiles.
- `stream_k`: as `persistent`, but the tiles of a last wave that is not full are shared out evenly in steps of K. Each
  has a program for its first steps, all at the same place of K, so that they share operands in L2; the other programs
  take what is left, one tile after the other.

The parts of shared tiles go to scratch in float32, and a second launch adds them up in the order of K: equal calls give
equal bits. LOADS are of `pointers`, or of tensor descriptors, whose tiles Hopper's TMA copies: each program makes them
on the `device`, which costs it 1.5 microseconds, or they are made on the `host` before each launch. Where rows of a
matrix begin at no multiples of 16 bytes, `host_a`, `host_b` and `host_ab` are descriptors of the others alone. With
SWAPPED the transposed product is computed, whose rows are the columns of B: matrix instructions take 64 rows at least,
and any multiple of 8 columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.backend import matrix_descriptor
from triton_ops.base import require
from triton_ops_kernels.jit import activated, described, put, tile_of
from triton_ops_kernels.tiles import programs_for

triton = require("triton", "the matmul kernel")
tl = require("triton.language", "the matmul kernel")

DESCRIBED = {"host": "abc", "host_ab": "ab", "host_a": "a", "host_b": "b"}
"""The matrices that have descriptors of the host, by LOADS."""
CHUNK = 1024  # elements that a program of the second launch adds up


def tiles_of(meta: Mapping[str, Any]) -> int:
    """The tiles of the product, or of the transposed one."""
    rows, columns = (meta["N"], meta["M"]) if meta["SWAPPED"] else (meta["M"], meta["N"])
    tiles: int = triton.cdiv(rows, meta["BM"]) * triton.cdiv(columns, meta["BN"])  # of sizes that may be symbolic
    return tiles


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    """The programs of a config, in one axis."""
    tiles, algorithm = tiles_of(meta), meta["ALGORITHM"]
    if algorithm == "split_k":
        return (tiles * meta["SPLIT"],)
    if algorithm == "stream_k":
        steps = max(1, triton.cdiv(meta["K"], meta["BK"]))
        return programs_for(tiles * steps, meta, "a")
    return programs_for(tiles, {**meta, "PROGRAMS": meta["PROGRAMS"] if algorithm == "persistent" else 0}, "a")


def sum_grid(meta: Mapping[str, Any]) -> tuple[int, int]:
    """The programs of the second launch: the chunks of every shared tile."""
    tiles, programs = tiles_of(meta), meta["programs"]
    if meta["ALGORITHM"] == "stream_k":
        tiles %= programs
    return max(tiles, 1), triton.cdiv(meta["BM"] * meta["BN"], CHUNK)


def shares_tiles(meta: Mapping[str, Any]) -> bool:
    """Tell whether a config shares tiles among programs, whose parts a second launch adds up."""
    return meta["ALGORITHM"] in ("split_k", "stream_k")


def parts_elements(meta: Mapping[str, Any], programs: int) -> int:
    """Elements of the parts that programs leave: one tile each, or with all beginnings of shares in other tiles two."""
    each = 2 if meta["ALGORITHM"] == "stream_k" else 1
    elements: int = programs * each * meta["BM"] * meta["BN"]
    return elements


def host_descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The descriptors that a config is given, by the kernel's parameters; none unless it asks for those of the host."""
    described = DESCRIBED.get(meta["LOADS"], "")
    rows, columns, step = meta["BM"], meta["BN"], meta["BK"]
    (a_side, b_side), stored = ((columns, rows), columns) if meta["SWAPPED"] else ((rows, columns), rows)
    made = {}
    if "a" in described:
        made["a_tiles"] = matrix_descriptor(meta["a"], (a_side, step), turned=not meta["A_ALONG_K"])
    if "b" in described:
        made["b_tiles"] = matrix_descriptor(meta["b"], (step, b_side), turned=bool(meta["B_ALONG_K"]))
    if "c" in described and meta["ALGORITHM"] != "split_k":
        across = rows if meta["SWAPPED"] else columns // 2 if meta["HALVES"] else columns
        made["c_tiles"] = matrix_descriptor(meta["c"], (stored, across))
    return made


@triton.jit
def operand(base, rows, inner, stride_row, stride_inner, ALONG_K: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    """The descriptor of an operand's tiles, in the order of its memory: ROWS by STEP, or turned."""
    if ALONG_K:
        return described(base, rows, inner, stride_row, ROWS, STEP)
    else:  # noqa: RET505 - the compiler takes code after a branch for reachable
        return described(base, inner, rows, stride_inner, STEP, ROWS)


@triton.jit
def multiple(size, UNIT: tl.constexpr):
    """A size that is a multiple of UNIT, as the compiler then sees."""
    return size // UNIT * UNIT if UNIT > 1 else size


@triton.jit
def summed(
    x, y, x_tiles, y_tiles, m0, n0, k_first, k_last, M, N, stride_xm, stride_xk, stride_yk, stride_yn,
    X_ALONG_K: tl.constexpr, Y_ALONG_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The tile at m0, n0 of X @ Y, summed from k_first, a multiple of BK, to k_last: K or another one.

    What has no descriptor is read by pointers, for any strides; nothing from k_last on is read.
    """
    # A tile's corner is addressed in 64 bits, since M * K may pass 2^31; inside the tile 32 bits do, and keep the
    # registers for the accumulator.
    at, k = tl.cast(k_first, tl.int64), tl.arange(0, BK)
    if x_tiles is None:
        m = tl.arange(0, BM)[:, None]
        x_tile = x + (m0.to(tl.int64) * stride_xm + at * stride_xk) + (m * stride_xm + k[None, :] * stride_xk)
    if y_tiles is None:
        n = tl.arange(0, BN)[None, :]
        y_tile = y + (n0.to(tl.int64) * stride_yn + at * stride_yk) + (k[:, None] * stride_yk + n * stride_yn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(k_first, k_last, BK):
        if x_tiles is None:
            left = tl.load(x_tile, mask=(m < M - m0) & (k[None, :] < k_last - k0), other=0.0)
            x_tile += BK * stride_xk
        else:
            left = x_tiles.load([m0, k0]) if X_ALONG_K else x_tiles.load([k0, m0]).T
        if y_tiles is None:
            right = tl.load(y_tile, mask=(n < N - n0) & (k[:, None] < k_last - k0), other=0.0)
            y_tile += BK * stride_yk
        else:
            right = y_tiles.load([n0, k0]).T if Y_ALONG_K else y_tiles.load([k0, n0])
        total = tl.dot(left, right, total)
    return total


@triton.jit
def gelu(x):
    """A GELU for results of 16 bits, x * (1 + erf(x / sqrt(2))) / 2: max(x, 0), less |x| times the normal tail.

    The tail of the normal distribution at |x| is two to the power of a polynomial. The result is off by 6e-6 of itself
    from -4 on, by 2e-4 from -5 on, and by less than 1e-8 below. With `erf` it takes three times the instructions.
    """
    size = tl.minimum(tl.abs(x), 8.0)
    power = 3.23391007e-05 * size - 0.000747252623
    power = power * size + 0.00793749282
    power = power * size - 0.053042985
    power = power * size - 0.459177533
    power = power * size - 1.15103482
    power = power * size - 1.0000076
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) - size * tl.exp2(power)


@triton.jit
def finished(total, bias, m, n, M, N, SWAPPED: tl.constexpr, ACTIVATION: tl.constexpr):
    """Sums at the rows `m` and columns `n` with the bias added and the activation applied."""
    if bias is not None:
        if SWAPPED:
            total += tl.load(bias + m, mask=m < M, other=0.0).to(tl.float32)[:, None]
        else:
            total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "gelu":
        return gelu(total)
    else:  # noqa: RET505 - as above
        return activated(total, ACTIVATION)


@triton.jit
def written(
    total, z, z_tiles, bias, m0, n0, M, N, stride_zm, stride_zn, SWAPPED: tl.constexpr,
    ACTIVATION: tl.constexpr, HALVES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Finish a tile, and write it, rounded once."""
    m = m0 + tl.arange(0, BM)
    n = n0 + tl.arange(0, BN)
    found = finished(total, bias, m, n, M, N, SWAPPED, ACTIVATION).to(z.dtype.element_ty)
    if z_tiles is None:
        corner = z + m0.to(tl.int64) * stride_zm + n0.to(tl.int64) * stride_zn
        place = tl.arange(0, BM)[:, None] * stride_zm + tl.arange(0, BN)[None, :] * stride_zn
        tl.store(corner + place, found, mask=(m < M)[:, None] & (n < N)[None, :])
    else:
        put(z_tiles, found, m0, n0, SWAPPED, HALVES, BM, BN)


@triton.jit
def kept(total, parts, slot, BM: tl.constexpr, BN: tl.constexpr):
    """Leave the part of a shared tile to the second launch."""
    place = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(parts + slot.to(tl.int64) * (BM * BN) + place, total)


@triton.jit
def shares_of(shared, steps, programs):
    """Of tiles that are shared: the steps that each one's own program takes, and those of each other program."""
    own = tl.minimum(tl.cdiv(shared * steps, programs), steps)
    return own, tl.cdiv(shared * (steps - own), programs - shared)


@triton.jit
def product(
    x, y, z, x_tiles, y_tiles, z_tiles, bias, parts, M, N, K,
    stride_xm, stride_xk, stride_yk, stride_yn, stride_zm, stride_zn,
    X_ALONG_K: tl.constexpr, Y_ALONG_K: tl.constexpr, ACTIVATION: tl.constexpr, SWAPPED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, ALGORITHM: tl.constexpr,
    LOADS: tl.constexpr, SPLIT: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Z[M, N] = X[M, K] @ Y[K, N]; with SWAPPED, Z is the transposed result, and bias belongs to its rows."""
    tile_rows, tile_columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tiles = tile_rows * tile_columns
    if LOADS == "device":
        x_tiles = operand(x, M, K, stride_xm, stride_xk, X_ALONG_K, BM, BK)
        y_tiles = operand(y, N, K, stride_yn, stride_yk, Y_ALONG_K, BN, BK)
        if ALGORITHM != "split_k":
            z_tiles = operand(z, M, N, stride_zm, stride_zn, not SWAPPED, BM, BN // 2 if HALVES else BN)
    program = tl.program_id(0)
    if ALGORITHM == "split_k":
        tile, part = program // SPLIT, program % SPLIT
        tile_row, tile_column = tile_of(tile, tile_rows, tile_columns, GROUP_M)
        each = tl.cdiv(tl.cdiv(K, BK), SPLIT) * BK
        total = summed(
            x, y, x_tiles, y_tiles, tile_row * BM, tile_column * BN, part * each, tl.minimum(part * each + each, K),
            M, N, stride_xm, stride_xk, stride_yk, stride_yn, X_ALONG_K, Y_ALONG_K, BM, BN, BK,
        )  # fmt: skip
        kept(total, parts, program, BM, BN)
    else:
        # With one program for each tile the compiler sees no loop over tiles.
        step = 1 if ALGORITHM == "tiles" else tl.num_programs(0)
        last = program + 1 if ALGORITHM == "tiles" else tiles
        if ALGORITHM == "stream_k":
            last = tiles // step * step
        for tile in tl.range(program, last, step, flatten=ALGORITHM == "persistent"):
            tile_row, tile_column = tile_of(tile, tile_rows, tile_columns, GROUP_M)
            m0, n0 = tile_row * BM, tile_column * BN
            total = summed(
                x, y, x_tiles, y_tiles, m0, n0, 0, K, M, N, stride_xm, stride_xk, stride_yk, stride_yn,
                X_ALONG_K, Y_ALONG_K, BM, BN, BK,
            )  # fmt: skip
            written(
                total, z, z_tiles, bias, m0, n0, M, N, stride_zm, stride_zn,
                SWAPPED, ACTIVATION, HALVES, BM, BN,
            )  # fmt: skip
        if ALGORITHM == "stream_k":
            steps = tl.maximum(tl.cdiv(K, BK), 1)
            shared = tiles - last
            own, each = shares_of(shared, steps, step)
            # The first programs have the first steps of a tile each; the others divide the rest of all tiles.
            leads = program < shared
            rest = tl.maximum(steps - own, 1)
            begin = (program - shared) * each
            end = tl.minimum(begin + each, shared * (steps - own))
            first = tl.where(leads, program, begin // rest)
            for nth in range(first, tl.where(leads, program + 1, tl.cdiv(end, rest))):
                tile_row, tile_column = tile_of(last + nth, tile_rows, tile_columns, GROUP_M)
                m0, n0 = tile_row * BM, tile_column * BN
                k_first = tl.where(leads, 0, own + tl.maximum(begin - nth * rest, 0)) * BK
                k_last = tl.minimum(tl.where(leads, own, own + tl.minimum(end - nth * rest, rest)) * BK, K)
                total = summed(
                    x, y, x_tiles, y_tiles, m0, n0, k_first, k_last, M, N, stride_xm, stride_xk, stride_yk, stride_yn,
                    X_ALONG_K, Y_ALONG_K, BM, BN, BK,
                )  # fmt: skip
                if own == steps:
                    written(
                        total, z, z_tiles, bias, m0, n0, M, N, stride_zm, stride_zn,
                        SWAPPED, ACTIVATION, HALVES, BM, BN,
                    )  # fmt: skip
                else:
                    kept(total, parts, tl.where(leads, program, program + nth), BM, BN)


@triton.jit
def matmul_kernel(
    a, b, c, bias, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    A_ALONG_K: tl.constexpr, B_ALONG_K: tl.constexpr, A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    ACTIVATION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr = 8,
    ALGORITHM: tl.constexpr = "tiles", LOADS: tl.constexpr = "pointers", SWAPPED: tl.constexpr = False,
    PROGRAMS: tl.constexpr = 1, SPLIT: tl.constexpr = 1, HALVES: tl.constexpr = False,
    parts=None, a_tiles=None, b_tiles=None, c_tiles=None,
):  # fmt: skip
    """C[M, N] = act(A[M, K] @ B[K, N] + bias[N]); float32 sums, rounded once to C's dtype; strides in elements.

    `bias` is None for 0, `parts` for algorithms that share no tiles, and descriptors unless the host makes them.
    A_ALONG_K and B_ALONG_K say which operands have their neighbours in memory along K, for descriptors; C is then
    row-major. A_UNIT and B_UNIT neighbours may be copied at once: extents and strides are multiples of them.
    """
    if A_ALONG_K:
        K, stride_am = multiple(K, A_UNIT), multiple(stride_am, A_UNIT)
    else:
        M, stride_ak = multiple(M, A_UNIT), multiple(stride_ak, A_UNIT)
    if B_ALONG_K:
        K, stride_bn = multiple(K, B_UNIT), multiple(stride_bn, B_UNIT)
    else:
        N, stride_bk = multiple(N, B_UNIT), multiple(stride_bk, B_UNIT)
    if SWAPPED:
        product(
            b, a, c, b_tiles, a_tiles, c_tiles, bias, parts, N, M, K, stride_bn, stride_bk, stride_ak, stride_am,
            stride_cn, stride_cm, B_ALONG_K, A_ALONG_K, ACTIVATION, SWAPPED, BM, BN, BK, GROUP_M, ALGORITHM, LOADS,
            SPLIT, HALVES,
        )  # fmt: skip
    else:
        product(
            a, b, c, a_tiles, b_tiles, c_tiles, bias, parts, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
            stride_cm, stride_cn, A_ALONG_K, B_ALONG_K, ACTIVATION, SWAPPED, BM, BN, BK, GROUP_M, ALGORITHM, LOADS,
            SPLIT, HALVES,
        )  # fmt: skip


@triton.jit
def added(
    z, bias, parts, programs, M, N, K, stride_zm, stride_zn, ACTIVATION: tl.constexpr, SWAPPED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, ALGORITHM: tl.constexpr,
    SPLIT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write one chunk of one shared tile of Z, ROWS by BN, from the parts of the `programs` of the first launch."""
    tile = tl.program_id(0)
    tile_rows, tile_columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BN)
    place = row[:, None] * BN + column[None, :]
    if ALGORITHM == "split_k":
        slot, last = tile * SPLIT, tile * SPLIT + SPLIT
        total = tl.zeros((ROWS, BN), dtype=tl.float32)
    else:
        tiles, steps = tile_rows * tile_columns, tl.maximum(tl.cdiv(K, BK), 1)
        shared = tiles % programs
        own, each = shares_of(shared, steps, programs)
        if (shared == 0) | (own == steps):  # one program has written it
            return
        # The part of its own program, then those of the others, whose places also count the tiles before.
        total = tl.load(parts + tile.to(tl.int64) * (BM * BN) + place)
        slot = shared + tile * (steps - own) // each + tile
        last = shared + ((tile + 1) * (steps - own) - 1) // each + tile + 1
        tile += tiles - shared
    for part in range(slot, last):
        total += tl.load(parts + tl.cast(part, tl.int64) * (BM * BN) + place)
    tile_row, tile_column = tile_of(tile, tile_rows, tile_columns, GROUP_M)
    m, n = tile_row * BM + row, tile_column * BN + column
    found = finished(total, bias, m, n, M, N, SWAPPED, ACTIVATION).to(z.dtype.element_ty)
    corner = z + (tile_row * BM).to(tl.int64) * stride_zm + (tile_column * BN).to(tl.int64) * stride_zn
    place = row[:, None] * stride_zm + column[None, :] * stride_zn
    tl.store(corner + place, found, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit(do_not_specialize=["programs"])
def sum_parts_kernel(
    c, bias, parts, programs, M, N, K, stride_cm, stride_cn,
    ACTIVATION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr,
    ALGORITHM: tl.constexpr, SWAPPED: tl.constexpr, SPLIT: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The tiles of C that programs of the first launch have shared: their parts, added up in the order of K."""
    ROWS: tl.constexpr = min(BM, CHUNK // BN)
    if SWAPPED:
        added(
            c, bias, parts, programs, N, M, K, stride_cn, stride_cm, ACTIVATION, SWAPPED, BM, BN, BK, GROUP_M,
            ALGORITHM, SPLIT, ROWS,
        )  # fmt: skip
    else:
        added(
            c, bias, parts, programs, M, N, K, stride_cm, stride_cn, ACTIVATION, SWAPPED, BM, BN, BK, GROUP_M,
            ALGORITHM, SPLIT, ROWS,
        )  # fmt: skip
