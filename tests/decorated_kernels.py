"""Decorated kernels as they stand in a module, so that they are found again by the names that misses have."""

import triton
import triton.language as tl

import triton_ops

CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=4), triton.Config({"BLOCK": 128}, num_warps=8)]


@triton_ops.autotune(CONFIGS, key=["n"], on_miss="default", buckets={"n": "pow2"})
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x + tl.load(y_ptr + i, mask=i < n), mask=i < n)


@triton.heuristics({"EVEN": lambda given: given["n"] % 256 == 0})
@triton_ops.autotune({"BLOCK": [32, 64, 256], "num_warps": [4]}, key=["n", "factor"], on_miss="queue")
@triton.jit
def scale(x_ptr, out_ptr, n, factor, name: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i) if EVEN else tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x * factor, mask=i < n)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def theirs(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
