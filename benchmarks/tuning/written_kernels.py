"""Kernels as people write them, each with its author's list, which `benchmarks.tuning.hidden_lists` hides.

Four are convolutions as products that are never stored whole, in four styles: 3 x 3 taps around each pixel, channels
last, weights [9 * channels, filters]. The others are a bag of embeddings, and a product with weights of 4 bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.tuning.hidden_list_cases import Case, rows, whole

SHARED_BYTES, SUMS = 227 * 1024, 4096  # of a program of an sm_90, and of a warp


def products(sides: Sequence[Mapping[str, int]], depths: Sequence[int], **more: int) -> list[Any]:
    """Configs of products of halves whose operands fit in shared memory, and whose sums fit in registers."""
    return [
        triton.Config({**side, "BN": columns, "BK": depth, **more}, num_warps=warps, num_stages=stages)
        for side, columns, depth, warps, stages in itertools.product(sides, (64, 128, 256), depths, (4, 8), (3, 4, 5))
        if (math.prod(side.values()) + columns) * depth * 2 * stages <= SHARED_BYTES
        and SUMS // 4 <= math.prod(side.values()) * columns // warps <= SUMS
    ]


@triton.autotune(products([{"BM": rows} for rows in (64, 128, 256)], (32, 64, 128)), key=["channels", "filters"])
@triton.jit
def conv_pixels(
    x, w, y, images, height, width, channels, filters, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Tiles of pixels of all images, of which each knows its image, row and column; masks guard the edges."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    image, rest = m // (height * width), m % (height * width)
    row, column = rest // width, rest % width
    total = tl.zeros((BM, BN), tl.float32)
    for tap in range(9):
        down, right = row + tap // 3 - 1, column + tap % 3 - 1
        inside = (down >= 0) & (down < height) & (right >= 0) & (right < width) & (image < images)
        at = ((image * height + down) * width + right) * channels
        for first in range(0, channels, BK):
            k = first + tl.arange(0, BK)
            a = tl.load(x + at[:, None] + k[None, :], mask=inside[:, None] & (k < channels)[None, :], other=0.0)
            rows = (tap * channels + k) * filters
            known = (k < channels)[:, None] & (n < filters)[None, :]
            b = tl.load(w + rows[:, None] + n[None, :], mask=known, other=0.0)
            total = tl.dot(a, b, total)
    stored = (m < images * height * width)[:, None] & (n < filters)[None, :]
    tl.store(y + m[:, None] * filters + n[None, :], total.to(tl.float16), mask=stored)


@triton.autotune(
    products([{"BH": 4, "BW": 16}, {"BH": 8, "BW": 8}, {"BH": 2, "BW": 64}, {"BH": 8, "BW": 16}, {"BH": 16, "BW": 16}],
             (32, 64)),
    key=["channels", "filters"],
)  # fmt: skip
@triton.jit
def conv_axes(
    x, w, y, height, width, channels, filters,
    BH: tl.constexpr, BW: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Tiles of some rows and some columns of one image, whose axes stay apart until the product."""
    across = tl.cdiv(width, BW)
    row = tl.program_id(0) // across * BH + tl.arange(0, BH)
    column = tl.program_id(0) % across * BW + tl.arange(0, BW)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    image = tl.program_id(2) * height * width
    total = tl.zeros((BH * BW, BN), tl.float32)
    for ky in range(3):
        for kx in range(3):
            down, right = row + ky - 1, column + kx - 1
            inside = ((down >= 0) & (down < height))[:, None] & ((right >= 0) & (right < width))[None, :]
            at = (image + down[:, None] * width + right[None, :]) * channels
            for first in range(0, channels, BK):
                k = first + tl.arange(0, BK)
                a = tl.load(x + at[:, :, None] + k, mask=inside[:, :, None] & (k < channels), other=0.0)
                rows = ((ky * 3 + kx) * channels + k) * filters
                b = tl.load(w + rows[:, None] + n, mask=(k < channels)[:, None] & (n < filters), other=0.0)
                total = tl.dot(tl.reshape(a, (BH * BW, BK)), b, total)
    at = (image + row[:, None] * width + column[None, :]) * filters
    stored = (row < height)[:, None, None] & (column < width)[None, :, None] & (n < filters)
    tl.store(y + at[:, :, None] + n, tl.reshape(total, (BH, BW, BN)).to(tl.float16), mask=stored)


@triton.autotune(products([{"BW": columns} for columns in (16, 32, 64)], (32, 64, 128)), key=["channels", "filters"])
@triton.jit
def conv_blocks(x, w, y, height, width, channels, filters, BW: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tiles of one row of an image, by block pointers whose bounds are the edges."""
    first, n, line = tl.program_id(0) * BW, tl.program_id(1) * BN, tl.program_id(2)
    row = line % height
    total = tl.zeros((BW, BN), tl.float32)
    for tap in range(9):
        down, right = row + tap // 3 - 1, first + tap % 3 - 1
        seen = tl.where((down >= 0) & (down < height), width, 0)
        base = x + (line + tap // 3 - 1) * width * channels
        a = tl.make_block_ptr(base, (seen, channels), (channels, 1), (right, 0), (BW, BK), (1, 0))
        base = w + tap * channels * filters
        b = tl.make_block_ptr(base, (channels, filters), (filters, 1), (0, n), (BK, BN), (1, 0))
        for _ in range(0, channels, BK):
            left = tl.load(a, boundary_check=(0, 1), padding_option="zero")
            total = tl.dot(left, tl.load(b, boundary_check=(0, 1), padding_option="zero"), total)
            a, b = tl.advance(a, (0, BK)), tl.advance(b, (BK, 0))
    base = y + line * width * filters
    out = tl.make_block_ptr(base, (width, filters), (filters, 1), (first, n), (BW, BN), (1, 0))
    tl.store(out, total.to(tl.float16), boundary_check=(0, 1))


@triton.autotune(products([{"BM": rows} for rows in (64, 128, 256)], (32, 64, 128), GROUP=8), key=["C", "F"])
@triton.jit
def conv_wrapped(x, w, y, N, H, W, C, F, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """Tiles of pixels in groups, as products are written: one loop through taps and channels; `%` wraps tiles."""
    pixels, deep = N * H * W, 9 * C
    down, across = tl.cdiv(pixels, BM), tl.cdiv(F, BN)
    program = tl.program_id(0)
    first = program // (GROUP * across) * GROUP
    group = min(down - first, GROUP)
    m = (first + program % (GROUP * across) % group) * BM + tl.arange(0, BM)
    n = program % (GROUP * across) // group * BN + tl.arange(0, BN)
    pixel, column = m % pixels, n % F
    ow, oh, image = pixel % W, pixel // W % H, pixel // (H * W)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(deep, BK)):
        k = step * BK + tl.arange(0, BK)
        tap, channel = k // C, k % C
        ih, iw = oh[:, None] + (tap // 3)[None, :] - 1, ow[:, None] + (tap % 3)[None, :] - 1
        inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & (k < deep)[None, :]
        a = tl.load(x + ((image[:, None] * H + ih) * W + iw) * C + channel[None, :], mask=inside, other=0.0)
        b = tl.load(w + k[:, None] * F + column[None, :], mask=(k < deep)[:, None], other=0.0)
        total += tl.dot(a, b)
    tl.store(y + m[:, None] * F + n[None, :], total.to(tl.float16), mask=(m < pixels)[:, None] & (n < F)[None, :])


@triton.autotune(
    [triton.Config({"BLOCK_L": rows, "BLOCK_D": wide}, num_warps=warps)
     for rows, wide, warps in itertools.product((1, 2, 4, 8, 16, 32, 64), (64, 128, 256, 512), (1, 2, 4, 8))
     if 64 * warps <= rows * wide <= 4096 * warps],
    key=["width"],
)  # fmt: skip
@triton.jit
def embedding_bag(table, indices, offsets, out, width, BLOCK_L: tl.constexpr, BLOCK_D: tl.constexpr):
    """The sum of a bag's rows of a table, some rows at a time."""
    bag = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    begin, end = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    total = tl.zeros((BLOCK_D,), tl.float32)
    for at in range(begin, end, BLOCK_L):
        place = at + tl.arange(0, BLOCK_L)
        row = tl.load(indices + place, mask=place < end, other=0).to(tl.int64)
        inside = (place < end)[:, None] & (column < width)[None, :]
        values = tl.load(table + row[:, None] * width + column[None, :], mask=inside, other=0.0)
        total += tl.sum(values.to(tl.float32), axis=0)
    tl.store(out + bag * width + column, total.to(tl.float16), mask=column < width)


@triton.autotune(
    [triton.Config({"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}, num_warps=warps, num_stages=stages)
     for rows, columns, depth, warps, stages in itertools.product(
         (16, 32, 64), (64, 128, 256), (32, 64, 128), (4, 8), (2, 3, 4))
     if 512 * warps <= columns * depth <= 2048 * warps],
    key=["M", "N", "K"],
)  # fmt: skip
@triton.jit
def int4_matmul(
    a, packed, scales, c, M, N, K,
    GROUP_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A product with weights of 4 bits, 8 of them along K in an int32, and a scale for GROUP_K of them."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    rows, columns = m < M, n < N
    shift = (k % 8) * 4
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        left = tl.load(a + m[:, None] * K + (first + k)[None, :], mask=rows[:, None], other=0.0)
        word = tl.load(packed + ((first + k) // 8)[:, None] * N + n[None, :], mask=columns[None, :], other=0)
        scale = tl.load(scales + first // GROUP_K * N + n, mask=columns, other=0.0)
        weight = (((word >> shift[:, None]) & 15) - 8).to(tl.float16) * scale[None, :]
        total = tl.dot(left, weight, total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=rows[:, None] & columns[None, :])


GRIDS: dict[str, Callable[..., tuple[int, ...]]] = {
    "conv_pixels": lambda at, n, h, w, f: (triton.cdiv(n * h * w, at["BM"]), triton.cdiv(f, at["BN"])),
    "conv_axes": lambda at, n, h, w, f: (
        triton.cdiv(h, at["BH"]) * triton.cdiv(w, at["BW"]), triton.cdiv(f, at["BN"]), n),
    "conv_blocks": lambda at, n, h, w, f: (triton.cdiv(w, at["BW"]), triton.cdiv(f, at["BN"]), n * h),
    "conv_wrapped": lambda at, n, h, w, f: (triton.cdiv(n * h * w, at["BM"]) * triton.cdiv(f, at["BN"]),),
}  # fmt: skip


def convolved(style: str, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Images [n, h, w, c] convolved with weights [9 * c, f] by the kernel of one style."""
    (images, height, width, channels), filters = x.shape, w.shape[1]
    y = x.new_empty(images, height, width, filters)
    sizes = (images, height, width, channels, filters)
    given = sizes if style in ("conv_pixels", "conv_wrapped") else sizes[1:]
    globals()[style][lambda at: GRIDS[style](at, images, height, width, filters)](x, w, y, *given)
    return y


def bagged(table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The sums of rows of a table [rows, width]; bag i has the indices from offsets[i] to offsets[i + 1]."""
    bags, width = len(offsets) - 1, table.shape[1]
    out = table.new_empty(bags, width)
    embedding_bag[lambda at: (bags, triton.cdiv(width, at["BLOCK_D"]))](table, indices, offsets, out, width)
    return out


def int4_product(a: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The product of halves [m, k] and weights [k // 8, n] in int32, with scales [k // group, n]."""
    (m, k), n = a.shape, packed.shape[1]
    c = a.new_empty(m, n)
    int4_matmul[lambda at: (triton.cdiv(m, at["BLOCK_M"]), triton.cdiv(n, at["BLOCK_N"]))](
        a, packed, scales, c, m, n, k, GROUP_K=k // len(scales)
    )
    return c


def _ends(bags: int, longest: int) -> torch.Tensor:
    """Where bags of random lengths begin, and the last one ends."""
    lengths = torch.randint(1, longest + 1, (bags,), device="cuda")
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _bagged() -> torch.Tensor:
    ends = _ends(8192, 64)
    indices = whole(100_000, int(ends[-1]), dtype=torch.int64)
    return bagged(rows(100_000, 512, dtype=torch.float16), indices, ends)


def _convolved(style: str) -> torch.Tensor:
    images, weights = rows(32, 56, 56, 128, dtype=torch.float16), rows(9 * 128, 256, dtype=torch.float16)
    return convolved(style, images, weights)


def _int4_product() -> torch.Tensor:
    a, scales = rows(64, 4096, dtype=torch.float16), rows(32, 12288, dtype=torch.float16)
    return int4_product(a, whole(1 << 30, 512, 12288), scales)


def _case(kernel: str, call: Callable[[], Any]) -> Case:
    return Case("this repository", "benchmarks/tuning/written_kernels.py", kernel, lambda _: call())


WRITTEN = {
    **{style: _case(style, partial(_convolved, style)) for style in GRIDS},
    "embedding_bag": _case("embedding_bag", _bagged),
    "int4_matmul": _case("int4_matmul", _int4_product),
}
