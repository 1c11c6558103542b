"""Triton kernels for tests of the decorator, which launch nothing."""

import triton
import triton.language as tl

FILL = tl.constexpr(3)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x + tl.load(y_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def add_traced(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def scale(x_ptr, out_ptr, n, step, TWICE: tl.constexpr = False, BLOCK: tl.constexpr = 64, EVEN: tl.constexpr = False):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * step) if EVEN else tl.load(x_ptr + i * step, mask=i < n)
    tl.store(out_ptr + i, x + x if TWICE else x, mask=i < n)


@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, FILL, mask=i < n)


@triton.jit
def named_as_a_launch(entry, count, config, function, grid, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(count + i, tl.load(entry + i) + config + function + grid)


@triton.jit
def grow(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def named_as_an_autotuner(x, named, configs, key, args, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(named + i, tl.load(x + i) + configs + key + args)


@triton.jit
def named_as_run(self, grid, warmup, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(self + i, grid + warmup)


@triton.jit
def persistent(x_ptr, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    for start in range(first, n, PROGRAMS * BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(x_ptr + i, FILL, mask=i < n)


@triton.jit
def persistent_while(x_ptr, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    while tile * BLOCK < n:
        i = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + i, FILL, mask=i < n)
        tile += PROGRAMS


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)
