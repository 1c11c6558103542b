"""Kernels over one axis: masks, offsets, and what programs share."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_good(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + y, mask=inside)


@triton.jit
def add_bad(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)  # finds: missing-mask
    y = tl.load(y_ptr + at)  # finds: missing-mask
    tl.store(out_ptr + at, x + y)  # finds: missing-mask


@triton.jit
def forgotten_store_bad(a, b, count, WIDTH: tl.constexpr):
    i = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    keep = i < count
    value = tl.load(a + i, mask=keep, other=0.0)
    tl.store(b + i, value * 2.0)  # finds: missing-mask


@triton.jit
def _place(block, WIDTH: tl.constexpr):
    return block * WIDTH + tl.arange(0, WIDTH)


@triton.jit
def _fetch(source, place, limit):
    return tl.load(source + place, mask=place < limit, other=0.0)


@triton.jit
def _put(target, place, value):
    tl.store(target + place, value)  # finds: missing-mask


@triton.jit
def by_helpers_bad(a, b, count, WIDTH: tl.constexpr):
    where = _place(tl.program_id(0), WIDTH)
    _put(b, where, _fetch(a, where, count))


@triton.jit
def by_helpers_good(a, b, count, WIDTH: tl.constexpr):
    where = _place(tl.program_id(0), WIDTH)
    value = _fetch(a, where, count)
    tl.store(b + where, value, mask=where < count)


@triton.jit
def inclusive_bad(src, dst, total, B: tl.constexpr):
    p = tl.program_id(0) * B + tl.arange(0, B)
    ok = p <= total
    v = tl.load(src + p, mask=ok, other=0.0)  # finds: wrong-mask
    tl.store(dst + p, v, mask=ok)  # finds: wrong-mask


@triton.jit
def inclusive_of_the_last_good(src, dst, total, B: tl.constexpr):
    p = tl.program_id(0) * B + tl.arange(0, B)
    ok = p <= total - 1
    tl.store(dst + p, tl.load(src + p, mask=ok, other=0.0), mask=ok)


@triton.jit
def several_steps_good(src, dst, rows, cols, B: tl.constexpr):
    flat = tl.program_id(0) * B + tl.arange(0, B)
    total = rows * cols
    below = total > flat
    above = flat >= 0
    ok = below & above
    v = tl.load(src + flat, mask=ok, other=0.0)
    tl.store(dst + flat, v + 1.0, ok)


@triton.jit
def early_return_good(src, dst, n, B: tl.constexpr):
    first = tl.program_id(0) * B
    if first >= n:
        return
    at = first + tl.arange(0, B)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


@triton.jit
def grid_stride_good(src, dst, n, B: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, B), tl.num_programs(0)):
        at = block * B + tl.arange(0, B)
        tl.store(dst + at, tl.load(src + at, mask=at < n, other=0.0) * 3.0, mask=at < n)


@triton.jit
def wrapped_good(src, dst, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(src + at % n)
    tl.store(dst + at, v, mask=at < n)


@triton.jit
def before_the_start_bad(src, dst, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    left = tl.load(src + at - 1, mask=at < n, other=0.0)  # finds: wrong-mask
    here = tl.load(src + at, mask=at < n, other=0.0)
    tl.store(dst + at, here - left, mask=at < n)


@triton.jit
def before_the_start_good(src, dst, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    left = tl.load(src + at - 1, mask=(at < n) & (at >= 1), other=0.0)
    here = tl.load(src + at, mask=at < n, other=0.0)
    tl.store(dst + at, here - left, mask=at < n)


@triton.jit
def in_place_neighbour_bad(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    right = tl.load(x + at + 1, mask=at + 1 < n, other=0.0)  # finds: overlapping-writes
    here = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, here + right, mask=at < n)


@triton.jit
def in_place_good(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    here = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, here * 2.0, mask=at < n)


@triton.jit
def local_mask_bad(x, y, n, B: tl.constexpr):
    lane = tl.arange(0, B)
    at = tl.program_id(0) * B + lane
    ok = lane < n
    tl.store(y + at, tl.load(x + at, mask=ok, other=0.0), mask=ok)  # finds: wrong-mask


def launch_local_mask(x, y):
    n = x.numel()
    local_mask_bad[(triton.cdiv(n, 128),)](x, y, n, B=128)


@triton.jit
def rounded_grid_bad(x, y, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at) + 1.0)  # finds: missing-mask


def launch_rounded_grid(x, y):
    count = x.numel()
    rounded_grid_bad[((count + 255) // 256,)](x, y, B=256) if count else None
    blocks = (count + 256 - 1) // 256
    rounded_grid_bad[(blocks,)](x, y, B=256)


@triton.jit
def whole_blocks_good(x, y, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at) + 1.0)


def launch_whole_blocks(x, y):
    assert x.numel() % 128 == 0
    whole_blocks_good[(triton.cdiv(x.numel(), 128),)](x, y, B=128)


@triton.jit
def fixed_grid_bad(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


def launch_fixed_grid(x):
    y = torch.empty_like(x)
    fixed_grid_bad[(1024,)](x, y, x.numel(), B=256)  # finds: static-grid
    grid_stride_good[(132,)](x, y, x.numel(), B=256)
    return y


@triton.jit
def even_switch_good(x, y, n, B: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        v = tl.load(x + at)
        tl.store(y + at, v)
    else:
        v = tl.load(x + at, mask=at < n, other=0.0)
        tl.store(y + at, v, mask=at < n)


@triton.jit
def _row_of(base, row, stride):
    return base + row * stride


@triton.jit
def rows_from_a_helper_bad(a, b, count, stride, WIDTH: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    best = tl.max(tl.load(_row_of(a, row, stride) + column, mask=column < count, other=0.0), 0)  # finds: wrong-identity
    tl.store(b + row, best)


@triton.jit
def rows_from_a_helper_good(a, b, count, stride, WIDTH: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    place = _row_of(a, row, stride)
    tl.store(b + row, tl.sum(tl.load(place + column, mask=column < count, other=0.0).to(tl.float32), 0))
