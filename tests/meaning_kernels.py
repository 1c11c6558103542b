"""Kernels in each of which a constant that looks like a tile is a part of the result, with a call of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

N, ROWS = 192, 4


@triton.jit
def scaled_groups(x, out, n, GROUP: tl.constexpr):
    at = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, value / tl.max(tl.abs(value), 0), mask=at < n)


@triton.jit
def partial_sums(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))


@triton.jit
def strided_rows(x, out, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * n + at, tl.load(x + tl.program_id(0) * WIDTH + at, mask=at < n), mask=at < n)


@triton.jit
def power(x, out, n, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    for _ in range(TIMES):
        value = value * value
    tl.store(out + at, value, mask=at < n)


@triton.jit
def windows(x, out, n, WINDOW: tl.constexpr):
    at = tl.program_id(0) + tl.arange(0, WINDOW)
    tl.store(out + tl.program_id(0), tl.max(tl.load(x + at, mask=at < n, other=0.0), 0))


@triton.jit
def numbered_tiles(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, value + tl.program_id(0), mask=at < n)


@triton.jit
def restarted_scan(x, out, n, CHUNK: tl.constexpr):
    at = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    tl.store(out + at, tl.cumsum(tl.load(x + at, mask=at < n, other=0.0), 0), mask=at < n)


@triton.jit
def block_dropout(x, out, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed + tl.program_id(0), tl.arange(0, BLOCK)) > 0.5
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=at < n), 0.0), mask=at < n)


@triton.jit
def cut_rows(x, out, n, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=(at < n) & (at % HEAD < HEAD // 2), other=0.0), mask=at < n)


@triton.jit
def averaged(x, out, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.max(tl.load(x + at, mask=at < n, other=0.0), 0)
    tl.store(out, total)


class Planted(NamedTuple):
    """A kernel, the constant that is a part of its result, and the tiles by which its programs are counted."""

    kernel: Any
    constant: str
    by: str
    values: dict[str, Any] = {}  # noqa: RUF012 - of a tuple


PLANTED = (
    Planted(scaled_groups, "GROUP", "GROUP"), Planted(partial_sums, "BLOCK", "BLOCK"),
    Planted(strided_rows, "WIDTH", "", {"n": N // ROWS}), Planted(power, "TIMES", "BLOCK"),
    Planted(windows, "WINDOW", ""), Planted(numbered_tiles, "BLOCK", "BLOCK"),
    Planted(restarted_scan, "CHUNK", "CHUNK"), Planted(block_dropout, "BLOCK", "BLOCK", {"seed": 7}),
    Planted(cut_rows, "HEAD", "BLOCK"), Planted(averaged, "BLOCK", ""),
)  # fmt: skip


def call(planted: Planted) -> tuple[Any, dict[str, Any]]:
    """The grid and the arguments of a call that gives no constant."""
    values = {"x": torch.rand(N) + 0.5, "out": torch.zeros(N), "n": N, **planted.values}
    programs = {"": lambda _: (ROWS,), None: None}.get(planted.by) or (lambda meta: (triton.cdiv(N, meta[planted.by]),))
    return programs, values


@triton.jit
def every_second(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=(at < n) & (at % 2 == 0))
