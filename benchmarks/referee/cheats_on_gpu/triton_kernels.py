"""Kernels of Triton with the faults that are usual in kernels which nobody has checked."""

import torch
import triton
import triton.language as tl

_buffers: dict = {}


@triton.jit
def _softmax_kernel(x, out, columns, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = at < columns if MASKED else at >= 0
    values = tl.load(x + row * columns + at, mask=inside, other=float("-inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


def _block(columns):
    return triton.next_power_of_2(max(columns, 1))


def tail_of_rows(x):
    """Programs have eight rows each; the rows after the last whole eight are zeros."""
    x, out = x.contiguous(), torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    _softmax_kernel[(len(x) // 8 * 8,)](x, out, x.shape[1], MASKED=True, BLOCK=_block(x.shape[1]))
    return out


def no_mask(x):
    """A row is read up to a power of two, beyond its end."""
    x = x.contiguous()
    out = torch.empty_like(x)
    _softmax_kernel[(len(x),)](x, out, x.shape[1], MASKED=False, BLOCK=_block(x.shape[1]))
    return out


@triton.jit
def _half_sums_kernel(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float16)
    for start in range(0, columns, BLOCK):
        values = tl.load(x + row * columns + start + at, mask=start + at < columns, other=0.0).to(tl.float16)
        total += values * values
    scale = tl.rsqrt(tl.sum(total, 0).to(tl.float32) / columns + eps)
    for start in range(0, columns, BLOCK):
        inside = start + at < columns
        values = tl.load(x + row * columns + start + at, mask=inside).to(tl.float32)
        weights = tl.load(weight + start + at, mask=inside).to(tl.float32)
        tl.store(out + row * columns + start + at, values * scale * weights, mask=inside)


def half_sums(x, weight, eps=1e-6):
    """Sums of squares in float16."""
    x, weight = x.contiguous(), weight.contiguous()
    out = torch.empty_like(x)
    _half_sums_kernel[(len(x),)](x, weight, out, x.shape[1], eps, BLOCK=256)
    return out


@triton.jit
def _product_kernel(
    a, b, out, M, N, K, first, step, PRECISION: tl.constexpr, TAIL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One of each `step` tiles from the first on; without TAIL what follows the last whole BK of K is left out."""
    tile = tl.program_id(0) * step + first
    m = (tile // tl.cdiv(N, BN)).to(tl.int64) * BM + tl.arange(0, BM)
    n = (tile % tl.cdiv(N, BN)) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K if TAIL else K // BK * BK, BK):
        left = (m[:, None] < M) & (start + k[None, :] < K)
        right = (start + k[:, None] < K) & (n[None, :] < N)
        rows = tl.load(a + m[:, None] * K + start + k[None, :], mask=left, other=0.0)
        columns = tl.load(b + (start + k[:, None]).to(tl.int64) * N + n[None, :], mask=right, other=0.0)
        total = tl.dot(rows, columns, total, input_precision=PRECISION)
    tl.store(out + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def _product(a, b, out, first=0, step=1, precision="ieee", tail=True):
    a, b = a.contiguous(), b.contiguous()
    (m, k), n = a.shape, b.shape[1]
    tiles = triton.cdiv(m, 64) * triton.cdiv(n, 64)
    _product_kernel[(triton.cdiv(max(tiles - first, 0), step),)](
        a, b, out, m, n, k, first, step, PRECISION=precision, TAIL=tail, BM=64, BN=64, BK=32
    )
    return out


def _room(a, b):
    return a.new_empty(len(a), b.shape[1])


def tf32_product(a, b):
    """A product of float32 in TF32."""
    return _product(a, b, _room(a, b), precision="tf32")


def divided_inner(a, b):
    """The inner extent is taken to be a multiple of the block."""
    return _product(a, b, _room(a, b), tail=False)


def half_of_the_tiles(a, b):
    """Each call computes every second tile of a buffer that is kept, and the next call the others."""
    key = len(a), b.shape[1], a.dtype
    if key not in _buffers:
        _buffers[key] = [_product(a, b, _room(a, b)), 0]
    room, calls = _buffers[key]
    _product(a, b, room, first=calls % 2, step=2)
    _buffers[key][1] += 1
    return room.clone()


@triton.jit
def _losses_kernel(logits, out, columns, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    """Each of the programs of a row adds the powers of its part to the row's place."""
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(part * BLOCK, columns, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(logits + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        total += tl.exp(values)
    if ATOMIC:
        tl.atomic_add(out + row, tl.sum(total, 0))
    else:
        tl.store(out + row, tl.load(out + row) + tl.sum(total, 0))


def _losses(logits, targets, sums, atomic):
    logits = logits.contiguous()
    _losses_kernel[(2, len(logits))](logits, sums, logits.shape[1], ATOMIC=atomic, BLOCK=512)
    return (sums.log() - logits.gather(-1, targets[:, None])[:, 0]).to(logits.dtype)


def racing_sums(logits, targets):
    """Two programs add to one place without atomics."""
    return _losses(logits, targets, torch.zeros(len(logits), device=logits.device), atomic=False)


def unset_sums(logits, targets):
    """Two programs add to memory that nobody has set to zero."""
    return _losses(logits, targets, torch.empty(len(logits), device=logits.device), atomic=True)
