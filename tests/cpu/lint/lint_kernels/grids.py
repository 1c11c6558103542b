"""Grids of tuned kernels: functions that follow the block, that do not, and that need not."""

import torch
import triton
import triton.language as tl

BLOCKS = [triton.Config({"B": 128}), triton.Config({"B": 1024})]


@triton.autotune(configs=BLOCKS, key=["n"])
@triton.jit
def tuned_copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=BLOCKS, key=["n"])
@triton.jit
def tuned_stride(x, y, n, P: tl.constexpr, B: tl.constexpr):
    for start in range(tl.program_id(0) * B, n, P * B):
        at = start + tl.arange(0, B)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=["n"])
@triton.jit
def tuned_warps(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def launch_by_lambda_bad(x, y):
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, 128),)  # noqa: E731
    tuned_copy[grid](x, y, n)  # finds: static-grid


def launch_by_def_bad(x, y):
    n = x.numel()

    def grid(meta):
        blocks = triton.cdiv(n, 128)
        return (blocks,)

    tuned_copy[grid](x, y, n)  # finds: static-grid


def launch_good(x, y):
    n = x.numel()

    def grid(meta):
        block = meta["B"]
        return (triton.cdiv(n, block),)

    tuned_copy[grid](x, y, n)
    tuned_copy[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, n)
    tuned_copy[lambda *given: (triton.cdiv(n, given[0]["B"]),)](x, y, n)


def launch_any_number_good(x, y):
    n, programs = x.numel(), torch.cuda.get_device_properties(0).multi_processor_count
    tuned_stride[lambda meta: (programs,)](x, y, n, programs)
    tuned_warps[lambda meta: (triton.cdiv(n, 128),)](x, y, n, B=128)
