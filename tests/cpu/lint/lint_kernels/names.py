"""Kernels with names of all kinds, and launches in classes and by lambdas."""

import torch
import triton
import triton.language as tl

own_jit = triton.jit


@own_jit
def alpha_good(beta, gamma, delta, epsilon: tl.constexpr):
    zeta = tl.program_id(0)
    eta = tl.arange(0, epsilon)
    theta = zeta * epsilon
    theta += eta
    iota = theta < delta
    kappa = tl.load(beta + theta, iota)
    tl.store(gamma + theta, kappa, iota)


@own_jit
def l2norm_bad(X, Y, D, s, BD: tl.constexpr):
    i = tl.program_id(0)
    X += i * s
    Y += i * s
    c = tl.arange(0, BD)
    b = tl.load(X + c, mask=c < D, other=1.0).to(tl.float32)
    v = tl.sum(b * b)  # finds: wrong-identity
    tl.store(Y + c, b / tl.sqrt(v), mask=c < D)


@own_jit
def desc_good(x, y, T, D, B: tl.constexpr, BD: tl.constexpr):
    d = tl.make_tensor_descriptor(x, shape=[T, D], strides=[D, 1], block_shape=[B, BD])
    acc = tl.zeros([B], tl.float32)
    for k in range(0, D, BD):
        acc += tl.sum(d.load([tl.program_id(0) * B, k]).to(tl.float32), 1)
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, acc, mask=o < T)


@own_jit
def desc_max_bad(x, y, T, D, B: tl.constexpr, BD: tl.constexpr):
    d = tl.make_tensor_descriptor(x, shape=[T, D], strides=[D, 1], block_shape=[B, BD])
    acc = tl.full([B], float("-inf"), tl.float32)
    for k in range(0, D, BD):
        block = d.load([tl.program_id(0) * B, k]).to(tl.float32)
        acc = tl.maximum(acc, tl.max(block, 1))  # finds: wrong-identity
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, acc, mask=o < T)


@own_jit
def var_masked_mult_good(x, o, s, n, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    m = (c < n).to(tl.float32)
    v = tl.load(x + r * s + c, mask=c < n, other=0.0).to(tl.float32)
    mu = tl.sum(v, 0) / n
    dv = (v - mu) * m
    tl.store(o + r, tl.sum(dv * dv, 0) / n)


@own_jit
def carry_prod_bad(x, o, n, B: tl.constexpr):
    acc = tl.full([B], 1.0, tl.float32)
    for k in range(0, n, B):
        c = k + tl.arange(0, B)
        acc *= tl.load(x + c, mask=c < n, other=0.0)
    tl.store(o, tl.reduce(acc, 0, _mul))  # finds: wrong-identity


@own_jit
def _mul(a, b):
    return a * b


@own_jit
def any_nan_good(x, o, n, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + c, mask=c < n, other=0.0)
    bad = tl.max((v != v).to(tl.int32), 0)
    tl.atomic_max(o, bad)


@own_jit
def half_dot_bad(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i[:, None] * N + i[None, :])
    y = tl.load(b + i[:, None] * N + i[None, :])
    z = tl.dot(x, y, out_dtype=tl.float16)  # finds: low-precision-sum
    tl.store(c + i[:, None] * N + i[None, :], z)


class Launcher:
    def __call__(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        alpha_good[(triton.cdiv(n, 256),)](x, y, n, epsilon=256)
        return y


@triton.autotune(configs=[triton.Config({"BM": 64, "BN": 64}), triton.Config({"BM": 128, "BN": 64})], key=["N"])
@own_jit
def tuned_bad(x, y, M, N, xs, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (i[:, None] < M) & (j[None, :] < N)
    tl.store(y + i[:, None] * xs + j[None, :], tl.load(x + i[:, None] * xs + j[None, :], mask=ok, other=0), mask=ok)


def launch_tuned(x, y):
    M, N = x.shape
    tuned_bad[(triton.cdiv(M, 64), triton.cdiv(N, 64))](x, y, M, N, x.stride(0))  # finds: static-grid


@own_jit
def linear_bad(x, w, y, M, N, K, sx, sw, sy, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for kk in range(0, K, BK):
        a = tl.load(x + i[:, None] * sx + (kk + k)[None, :], mask=(i[:, None] < M) & ((kk + k)[None, :] < K), other=0.0)
        inside = (j[:, None] < N) & ((kk + k)[None, :] < K)
        b = tl.load(w + j[:, None] * sw + (kk + k)[None, :], mask=inside, other=0.0)  # finds: stride-order
        acc += tl.dot(a, tl.trans(b))
    tl.store(y + i[:, None] * sy + j[None, :], acc.to(tl.bfloat16), mask=(i[:, None] < M) & (j[None, :] < N))


def launch_linear(x, w):
    M, K = x.shape
    N, K = w.shape
    y = torch.empty(M, N)
    linear_bad[lambda META: (triton.cdiv(M, META["BM"]), triton.cdiv(N, META["BN"]))](
        x, w, y, M, N, K, x.stride(0), w.stride(1), y.stride(0), BM=64, BN=64, BK=32
    )
