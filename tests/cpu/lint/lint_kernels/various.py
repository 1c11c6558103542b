"""Kernels of many kinds, written after the rules were."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def rms_fwd_good(Y, Y_s, X, X_s, W, R, n_cols, eps, offset, BLOCK_SIZE: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK_SIZE)
    m = c < n_cols
    X += r * X_s
    Y += r * Y_s
    x = tl.load(X + c, mask=m, other=0).to(tl.float32)
    w = tl.load(W + c, mask=m, other=0)
    ms = tl.sum(x * x, axis=0) / n_cols
    rs = libdevice.rsqrt(ms + eps)
    tl.store(R + r, rs)
    tl.store(Y + c, (x * rs * (offset + w)).to(Y.dtype.element_ty), mask=m)


@triton.jit
def while_tail_bad(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B
    step = tl.num_programs(0) * B
    while i < n:
        at = i + tl.arange(0, B)
        v = tl.load(x + at, mask=at < n, other=0.0)
        tl.store(y + at, v * 0.5)  # finds: missing-mask
        i += step


@triton.jit
def dropout_good(x, y, n, p, seed, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    m = at < n
    v = tl.load(x + at, mask=m)
    keep = tl.rand(seed, at) > p
    tl.store(y + at, tl.where(keep, v / (1 - p), 0.0), mask=m)


@triton.jit
def rope_good(q, cos, sin, sl, hd: tl.constexpr, nh: tl.constexpr, pad_hd: tl.constexpr, pad_nh: tl.constexpr):
    pid = tl.program_id(0)
    q = q + pid * nh * hd
    d = tl.arange(0, pad_hd // 2)
    h = tl.arange(0, pad_nh)
    c = tl.load(cos + (pid % sl) * (hd // 2) + d, mask=d < hd // 2, other=0)
    s = tl.load(sin + (pid % sl) * (hd // 2) + d, mask=d < hd // 2, other=0)
    o1 = h[:, None] * hd + d[None, :]
    m1 = (h[:, None] < nh) & (d[None, :] < hd // 2)
    a = tl.load(q + o1, mask=m1, other=0)
    b = tl.load(q + o1 + hd // 2, mask=m1, other=0)
    tl.store(q + o1, a * c - b * s, mask=m1)
    tl.store(q + o1 + hd // 2, b * c + a * s, mask=m1)


@triton.jit
def logsumexp_scaled_bad(x, o, s, n, scale, B: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, B)
    keep = k < n
    t = tl.load(x + r * s + k, mask=keep, other=float("-inf"))
    t = tl.where(keep, t * scale, 0.0)
    mx = tl.max(t, 0)  # finds: wrong-identity
    tl.store(o + r, mx + tl.log(tl.sum(tl.exp(t - mx), 0)))  # finds: wrong-identity


@triton.jit
def mean_good(x, o, s, n, B: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, B)
    t = tl.load(x + r * s + k, mask=k < n, other=0.0).to(tl.float32)
    tl.store(o + r, tl.sum(t, 0) / n)


@triton.jit
def conv1d_good(x, w, y, L, K: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for k in tl.static_range(K):
        src = t - k
        xv = tl.load(x + src, mask=(src >= 0) & (src < L), other=0.0)
        acc += xv * tl.load(w + k)
    tl.store(y + t, acc, mask=t < L)


@triton.jit
def conv1d_bad(x, w, y, L, K: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for k in tl.static_range(K):
        src = t - k
        xv = tl.load(x + src, mask=src < L, other=0.0)  # finds: wrong-mask
        acc += xv * tl.load(w + k)
    tl.store(y + t, acc, mask=t < L)


@triton.jit
def pool2d_good(x, y, H, W, BH: tl.constexpr, BW: tl.constexpr):
    i = tl.program_id(0) * BH + tl.arange(0, BH)[:, None]
    j = tl.program_id(1) * BW + tl.arange(0, BW)[None, :]
    b = tl.program_id(2)
    base = x + b * H * W
    ok = (i < H // 2) & (j < W // 2)
    p = base + (2 * i) * W + 2 * j
    v = tl.maximum(tl.load(p, mask=ok, other=-float("inf")), tl.load(p + 1, mask=ok, other=-float("inf")))
    v2 = tl.maximum(tl.load(p + W, mask=ok, other=-float("inf")), tl.load(p + W + 1, mask=ok, other=-float("inf")))
    tl.store(y + b * (H // 2) * (W // 2) + i * (W // 2) + j, tl.maximum(v, v2), mask=ok)


@triton.jit
def bias_unmasked_bad(x, b, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (i[:, None] < M) & (j[None, :] < N)
    v = tl.load(x + i[:, None] * N + j[None, :], mask=ok, other=0.0)
    bb = tl.load(b + j)  # finds: missing-mask
    tl.store(y + i[:, None] * N + j[None, :], v + bb[None, :], mask=ok)


@triton.jit
def swapped_mask_bad(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (i[:, None] < N) & (j[None, :] < M)
    v = tl.load(x + i[:, None] * N + j[None, :], mask=ok, other=0.0)  # finds: stride-order
    tl.store(y + i[:, None] * N + j[None, :], v, mask=ok)  # finds: stride-order


@triton.jit
def scan_good(x, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.cumsum(v, 0), mask=at < n)


@triton.jit
def quant_group_good(x, q, s, G: tl.constexpr):
    at = tl.program_id(0) * G + tl.arange(0, G)
    v = tl.load(x + at).to(tl.float32)
    m = tl.max(tl.abs(v)) / 448.0
    tl.store(q + at, (v / m).to(q.dtype.element_ty))
    tl.store(s + tl.program_id(0), m)


def launch_quant_group(x):
    assert x.size(-1) % 128 == 0
    q = torch.empty_like(x)
    s = x.new_empty(x.numel() // 128)
    quant_group_good[(triton.cdiv(x.numel(), 128),)](x, q, s, G=128)


@triton.jit
def moe_like_good(
    a,
    b,
    c,
    ids,
    eids,
    N,
    K,
    am,
    bn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    top: tl.constexpr,
    cd: tl.constexpr,
):
    pid = tl.program_id(0)
    pm = pid // tl.cdiv(N, BN)
    pn = pid % tl.cdiv(N, BN)
    tok = tl.load(ids + pm * BM + tl.arange(0, BM))
    tm = tok < 1000
    e = tl.load(eids + pm)
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    pa = a + (tok[:, None] // top) * am + rk[None, :]
    pb = b + e * N * K + rk[:, None] + rn[None, :] * bn
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(pa, mask=tm[:, None] & (rk[None, :] < K - k * BK), other=0.0)
        y = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        acc += tl.dot(x, y)
        pa += BK
        pb += BK
    cn = pn * BN + tl.arange(0, BN)
    tl.store(c + tok[:, None] * N + cn[None, :], acc.to(cd), mask=tm[:, None] & (cn[None, :] < N))
