"""Attention: scores of keys beyond the end, online softmax, and heads whose width is a block."""

import triton
import triton.language as tl


@triton.jit
def forward_good(q, k, v, out, scale, length, sq, sk, sv, so, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + m[:, None] * sq + d[None, :], mask=m[:, None] < length, other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        key = tl.load(k + n[:, None] * sk + d[None, :], mask=n[:, None] < length, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(n[None, :] < length, score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        p = tl.exp(score - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + n[:, None] * sv + d[None, :], mask=n[:, None] < length, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p.to(value.dtype), value)
        top = higher
    tl.store(out + m[:, None] * so + d[None, :], acc / total[:, None], mask=m[:, None] < length)


@triton.jit
def forward_without_where_bad(q, k, v, out, scale, length, sq, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + m[:, None] * sq + d[None, :], mask=m[:, None] < length, other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        key = tl.load(k + n[:, None] * sq + d[None, :], mask=n[:, None] < length, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        higher = tl.maximum(top, tl.max(score, 1))  # finds: wrong-identity
        p = tl.exp(score - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(p, 1)  # finds: wrong-identity
        value = tl.load(v + n[:, None] * sq + d[None, :], mask=n[:, None] < length, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p.to(value.dtype), value)
        top = higher
    tl.store(out + m[:, None] * sq + d[None, :], acc / total[:, None], mask=m[:, None] < length)


@triton.jit
def _step(acc, total, top, query, k, v, start, length, pitch, D: tl.constexpr, BN: tl.constexpr):
    n = start + tl.arange(0, BN)
    d = tl.arange(0, D)
    key = tl.load(k + n[None, :] * pitch + d[:, None], mask=n[None, :] < length, other=0.0)
    score = tl.dot(query, key) + tl.where(n < length, 0.0, float("-inf"))[None, :]
    higher = tl.maximum(top, tl.max(score, 1))
    p = tl.math.exp2(score - higher[:, None])
    shrink = tl.math.exp2(top - higher)
    value = tl.load(v + n[:, None] * pitch + d[None, :], mask=n[:, None] < length, other=0.0)
    acc = acc * shrink[:, None]
    acc = tl.dot(p.to(value.dtype), value, acc)
    return acc, total * shrink + tl.sum(p, 1), higher


@triton.jit
def forward_by_steps_good(q, k, v, out, length, pitch, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * pitch
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + head + m[:, None] * pitch + d[None, :], mask=m[:, None] < length, other=0.0)
    top = tl.zeros([BM], tl.float32) - float("inf")
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, length, BN):
        acc, total, top = _step(acc, total, top, query, k + head, v + head, start, length, pitch, D, BN)
    place = out + head + m[:, None] * pitch + d[None, :]
    tl.store(place, (acc / total[:, None]).to(out.dtype.element_ty), mask=m[:, None] < length)


@triton.jit
def lengths_good(q, k, out, starts, pitch, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    batch = tl.program_id(1)
    first = tl.load(starts + batch)
    length = tl.load(starts + batch + 1) - first
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + (first + m)[:, None] * pitch + d[None, :], mask=(m < length)[:, None], other=0.0)
    best = tl.full([BM], float("-inf"), tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        key = tl.load(k + (first + n)[:, None] * pitch + d[None, :], mask=(n < length)[:, None], other=0.0)
        score = tl.where((n < length)[None, :], tl.dot(query, key.T), float("-inf"))
        best = tl.maximum(best, tl.max(score, axis=1))
    tl.store(out + first + m, best, mask=m < length)


@triton.jit
def state_good(q, k, v, out, T, pitch, D: tl.constexpr, B: tl.constexpr):
    d = tl.arange(0, D)
    state = tl.zeros([D, D], tl.float32)
    for start in range(0, T, B):
        t = start + tl.arange(0, B)
        inside = (t < T)[:, None]
        query = tl.load(q + t[:, None] * pitch + d[None, :], mask=inside, other=0.0)
        key = tl.load(k + t[:, None] * pitch + d[None, :], mask=inside, other=0.0)
        value = tl.load(v + t[:, None] * pitch + d[None, :], mask=inside, other=0.0)
        value = (value - tl.dot(key, state.to(key.dtype))).to(key.dtype)
        tl.store(out + t[:, None] * pitch + d[None, :], tl.dot(query, state.to(query.dtype)), mask=inside)
        state += tl.dot(tl.trans(key), value)
