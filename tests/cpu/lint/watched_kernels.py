"""Kernels that Triton's interpreter runs for the lint: what only a run shows, beside some without fault.

A line that shows something ends in `# shows:` with its kinds.
"""

import torch
import triton
import triton.language as tl

from triton_ops import Operation, TensorSpec, TritonKernel, autotune


@triton.jit
def gather_good(table, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(index + at, mask=at < n, other=0)
    tl.store(out + at, tl.load(table + where, mask=at < n), mask=at < n)


@triton.jit
def gather_bad(table, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(index + at, mask=at < n, other=0)
    result = tl.load(table + where, mask=at < n)  # shows: outside
    tl.store(out + at, result, mask=at < n)


@triton.jit
def fill_rows_good(out, stride, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * stride + at, 1.0, mask=at < columns)


@triton.jit
def fill_rows_bad(out, stride, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * stride + at, 1.0, mask=at < columns)  # shows: outside, unwritten


@triton.jit
def mark_bad(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0) > 0.5, mask=at < n)  # shows: unwritten


@triton.jit
def scatter_good(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(index + at, mask=at < n, other=0)
    tl.store(out + where, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def scatter_bad(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(index + at, mask=at < n, other=0)
    tl.store(out + where, tl.load(x + at, mask=at < n), mask=at < n)  # shows: conflict, unwritten


@triton.jit
def double_good(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def reverse_bad(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    other = tl.load(x + n - 1 - at, mask=at < n)  # shows: conflict
    tl.store(x + at, 2 * other, mask=at < n)  # shows: conflict


@triton.jit
def add_up_good(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at * 0, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def take_turns(x, lock, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1)
    tl.atomic_xchg(lock, 0)


@triton.jit
def endless(x, n, BLOCK: tl.constexpr):
    left = n
    while left > 0:
        left = left + 0
    tl.store(x + tl.arange(0, BLOCK), left)


@triton.jit
def far_bad(small, large, out, n, far, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(small + at + far, mask=at < n)  # shows: outside
    tl.store(out + at, v + tl.load(large + at, mask=at < n), mask=at < n)


_LISTED = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, num_warps=8)]


@triton.autotune(_LISTED, key=["n"])
@triton.jit
def tuned_bad(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at <= n), mask=at < n)  # shows: outside


@autotune(configs=_LISTED, key=["n"])
@triton.jit
def own_tuned_bad(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at <= n), mask=at < n)  # shows: outside


def together():
    """Launches of all kernels but the endless one; returns what they should have written."""
    n, grid = 131, (3,)
    index, x = torch.randperm(n, dtype=torch.int32), torch.rand(n)
    outs = [torch.empty(n) for _ in range(4)]
    gather_good[grid](x, index, outs[0], n, BLOCK=64)
    gather_bad[grid](x[:100], index, outs[1], n, BLOCK=64)
    scatter_good[grid](x, index, outs[2], n, BLOCK=64)
    scatter_bad[grid](x, index // 2, outs[3], n, BLOCK=64)
    rows = [torch.empty(5, 40)[:, :37] for _ in range(2)]
    fill_rows_good[(5,)](rows[0], 40, 37, BLOCK=64)
    fill_rows_bad[(5,)](rows[1], 37, 37, BLOCK=64)
    double_good[grid](x, n, BLOCK=64)
    reverse_bad[grid](x, n, BLOCK=64)
    marks = torch.empty(n, dtype=torch.bool)
    mark_bad[(1,)](x, marks, 64, BLOCK=64)
    total = torch.zeros(1)
    add_up_good[grid](x, total, n, BLOCK=64)
    take_turns[grid](outs[0], torch.zeros(1, dtype=torch.int32), BLOCK=64)
    small = torch.ones(64)
    far_bad[(1,)](small, torch.ones(2_000_000), torch.empty(64), 64, 1_000_000, BLOCK=64)
    for tuned in (tuned_bad, own_tuned_bad):
        tuned[lambda meta: (triton.cdiv(60, meta["BLOCK"]),)](small[:60].clone(), torch.empty(60), 60)
    return *outs, *rows, marks, total, x


def _gathered(n: int = 1000):
    return {
        "table": TensorSpec((128,), "float32"), "index": TensorSpec((n,), "int32"),
        "out": TensorSpec((n,), "float32", fill="empty"), "n": n // 2,
    }  # fmt: skip


def _one(n: int = 100):
    return {"x": TensorSpec((n,), "float32"), "n": n}


def _blocks(values):
    return (triton.cdiv(values["n"], values["BLOCK"]),)


half = Operation("half", TritonKernel(gather_good, _blocks, outputs=("out",)), {"BLOCK": [64]}, _gathered)
never_ends = Operation("never_ends", TritonKernel(endless, _blocks, outputs=("x",)), {"BLOCK": [64]}, _one)
