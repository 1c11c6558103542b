"""Products of tiles: tails, types of sums, strides, atomic sums, block pointers and descriptors."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_good(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * am + rk[None, :] * ak
    pb = b + rk[:, None] * bk + rn[None, :] * bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for done in range(0, K, BK):
        left = tl.load(pa, mask=(rm[:, None] < M) & (rk[None, :] < K - done), other=0.0)
        right = tl.load(pb, mask=(rk[:, None] < K - done) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
        pa += BK * ak
        pb += BK * bk
    tl.store(c + rm[:, None] * cm + rn[None, :] * cn, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def matmul_tail_bad(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * am + rk[None, :] * ak
    pb = b + rk[:, None] * bk + rn[None, :] * bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        left = tl.load(pa, mask=rm[:, None] < M, other=0.0)  # finds: missing-mask
        right = tl.load(pb, mask=rn[None, :] < N, other=0.0)  # finds: missing-mask
        acc += tl.dot(left, right)
        pa += BK * ak
        pb += BK * bk
    tl.store(c + rm[:, None] * cm + rn[None, :] * cn, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def matmul_wrapped_good(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid = tl.program_id(axis=0)
    tall = tl.cdiv(M, BM)
    wide = tl.cdiv(N, BN)
    in_group = GROUP * wide
    first = pid // in_group * GROUP
    height = min(tall - first, GROUP)
    pm = first + pid % in_group % height
    pn = pid % in_group // height
    om = (pm * BM + tl.arange(0, BM)) % M
    on = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    pa = a + (om[:, None] * am + ok[None, :] * ak)
    pb = b + (ok[:, None] * bk + on[None, :] * bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(pa, mask=ok[None, :] < K - k * BK, other=0.0)
        right = tl.load(pb, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(left, right, acc)
        pa += BK * ak
        pb += BK * bk
    cmr = pm * BM + tl.arange(0, BM)
    cnr = pn * BN + tl.arange(0, BN)
    tl.store(
        c + cm * cmr[:, None] + cn * cnr[None, :], acc.to(tl.float16), mask=(cmr[:, None] < M) & (cnr[None, :] < N)
    )


@triton.jit
def half_accumulator_bad(a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float16)
    for k in range(0, K, BK):  # finds: low-precision-sum
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * am + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * bk + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(left, right).to(tl.float16)
    tl.store(c + rm[:, None] * cm + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def accumulator_of_the_inputs_bad(a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], dtype=c.dtype.element_ty)
    for k in tl.range(0, K, BK):  # finds: low-precision-sum
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * am + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * bk + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        total = (total + tl.dot(left, right)).to(c.dtype.element_ty)
    tl.store(c + rm[:, None] * cm + rn[None, :], total, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def split_k_bad(a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.program_id(2) * BK, K, BK * tl.num_programs(2)):
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * am + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * bk + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    inside = (rm[:, None] < M) & (rn[None, :] < N)
    tl.atomic_add(c + rm[:, None] * cm + rn[None, :], acc, mask=inside)  # finds: cross-program-atomic


@triton.jit
def split_k_partial_good(a, b, parts, M, N, K, am, bk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.program_id(2) * BK, K, BK * tl.num_programs(2)):
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * am + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * bk + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    own = parts + tl.program_id(2) * M * N
    tl.store(own + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def split_k_stores_bad(a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.program_id(2) * BK, K, BK * tl.num_programs(2)):
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * am + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * bk + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    at = c + rm[:, None] * cm + rn[None, :]
    tl.store(at, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))  # finds: overlapping-writes


@triton.jit
def descriptors_good(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(da.load([pm * BM, k]), db.load([pn * BN, k]).T, acc)
    dc.store([pm * BM, pn * BN], acc.to(c.dtype.element_ty))


@triton.jit
def scale_good(x, y, M, N, xm, xn, ym, yn, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (i < M)[:, None] & (j < N)[None, :]
    v = tl.load(x + i[:, None] * xm + j[None, :] * xn, mask=ok, other=0.0)
    tl.store(y + i[:, None] * ym + j[None, :] * yn, v * 2.0, mask=ok)


def launch_scale(x):
    y = torch.empty_like(x)
    M, N = x.shape
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    scale_good[grid](x, y, M, N, x.stride(0), x.stride(1), y.stride(0), y.stride(1), BM=32, BN=32)
    return y


@triton.jit
def scale_swapped_bad(x, y, M, N, xm, xn, ym, yn, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (i < M)[:, None] & (j < N)[None, :]
    v = tl.load(x + i[:, None] * xm + j[None, :] * xn, mask=ok, other=0.0)  # finds: stride-order
    tl.store(y + i[:, None] * ym + j[None, :] * yn, v * 2.0, mask=ok)


def launch_scale_swapped(x):
    y = torch.empty_like(x)
    M, N = x.shape
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    scale_swapped_bad[grid](x, y, M, N, x.stride(1), x.stride(0), *y.stride(), BM=32, BN=32)
    return y


@triton.jit
def scale_in_the_kernel_bad(x, y, h, w, s0, s1, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (i < h)[:, None] & (j < w)[None, :]
    v = tl.load(x + i[:, None] * s1 + j[None, :] * s0, mask=ok, other=0.0)  # finds: stride-order
    tl.store(y + i[:, None] * w + j[None, :], v, mask=ok)


def launch_scale_in_the_kernel(x, y):
    h, w = x.size(0), x.size(1)
    scale_in_the_kernel_bad[(triton.cdiv(h, 16), triton.cdiv(w, 16))](
        x, y, h, w, x.stride(0), x.stride(1), BM=16, BN=16
    )


@triton.jit
def transpose_good(x, y, M, N, xm, xn, ym, yn, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    v = tl.load(x + i[:, None] * xm + j[None, :] * xn, mask=(i < M)[:, None] & (j < N)[None, :], other=0.0)
    tl.store(y + j[:, None] * ym + i[None, :] * yn, tl.trans(v), mask=(j < N)[:, None] & (i < M)[None, :])


def launch_transpose(x):
    M, N = x.shape
    y = torch.empty(N, M, device=x.device)
    transpose_good[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
        x, y, M, N, x.stride(0), x.stride(1), y.stride(0), y.stride(1), BM=32, BN=32
    )
    return y


@triton.jit
def pitch_of_rows_bad(x, y, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (i[:, None] < rows) & (j[None, :] < cols)
    v = tl.load(x + i[:, None] * cols + j[None, :], mask=ok, other=0.0)
    tl.store(y + i[:, None] * rows + j[None, :], v, mask=ok)  # finds: stride-order


@triton.jit
def one_in_the_tail_bad(a, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.arange(0, BM)
    j = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        at = k + tl.arange(0, BK)
        left = tl.load(a + i[:, None] * K + at[None, :], mask=at[None, :] < K, other=1.0)
        right = tl.load(b + j[None, :] * K + at[:, None], mask=at[:, None] < K, other=1.0)
        acc = tl.dot(left, right, acc)  # finds: wrong-identity
    tl.store(out + i[:, None] * BN + j[None, :], acc)


@triton.jit
def large_tile_bad(  # finds: register-spill
    a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * am + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * bk + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + rm[:, None] * cm + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def launch_large_tile(a, b, c):
    M, K = a.shape
    N = b.shape[1]
    grid = (triton.cdiv(M, 256), triton.cdiv(N, 128))
    large_tile_bad[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BM=256, BN=128, BK=32, num_warps=4)


@triton.jit
def product_by_hand_bad(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.arange(0, BM)
    j = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        at = k + tl.arange(0, BK)
        left = tl.load(a + i[:, None] * K + at[None, :], mask=at[None, :] < K, other=0.0).to(tl.float32)
        right = tl.load(b + j[:, None] * K + at[None, :], mask=at[None, :] < K, other=0.0).to(tl.float32)
        acc += tl.sum(left[:, None, :] * right[None, :, :], axis=2)  # finds: no-tensor-core
    tl.store(c + i[:, None] * BN + j[None, :], acc)


@triton.jit
def vector_times_matrix_good(a, x, y, M, K, BM: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), dtype=tl.float32)
    for k in range(0, K, BK):
        at = k + tl.arange(0, BK)
        rows = tl.load(a + i[:, None] * K + at[None, :], mask=(i[:, None] < M) & (at[None, :] < K), other=0.0)
        part = tl.load(x + at, mask=at < K, other=0.0)
        acc += tl.sum(rows.to(tl.float32) * part.to(tl.float32)[None, :], axis=1)
    tl.store(y + i, acc, mask=i < M)
