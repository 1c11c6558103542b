"""Kernels of known kind for a profiler: `ncu ... python -m benchmarks.profiles.profiled_kinds`.

Each is launched twice, and a profile of it should say: `profiled_product` is limited by the matrix units,
`profiled_copy` by the memory, `profiled_chase` by latency, since every load waits for the one before, and
`profiled_tiny` by its launch. `profiled_spill` is the product with an accumulator that does not fit into registers. The
work of each is printed as JSON, so that the roofline can be compared with the profiler's.
"""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl

SIDE = 8192  # of the product; 1.1 TFLOP, about 2 ms on an H100
BYTES = 1 << 30  # of the copy
CHASE = 4096  # loads of one program, one after another


@triton.jit
def profiled_product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A @ B for sizes that the tiles divide."""
    columns = N // BN
    group = 8 * columns
    first = tl.program_id(0) // group * 8
    m = (first + tl.program_id(0) % 8) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % group // 8) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + m[:, None] * K + k[None, :]
    right = b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


@triton.jit
def profiled_spill(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same with another name, so that a profile tells it from the one that does not spill."""
    columns = N // BN
    m = (tl.program_id(0) // columns) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % columns) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + m[:, None] * K + k[None, :]
    right = b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


@triton.jit
def profiled_copy(x, y, BLOCK: tl.constexpr):
    """Copies one block of each program."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def profiled_chase(following, out, STEPS: tl.constexpr):
    """Follows a chain through memory: each load needs the result of the one before."""
    at = tl.program_id(0)
    for _ in range(STEPS):
        at = tl.load(following + at)
    tl.store(out + tl.program_id(0), at)


@triton.jit
def profiled_tiny(x):
    """One block that does next to nothing."""
    i = tl.arange(0, 128)
    tl.store(x + i, tl.load(x + i) + 1.0)


def work() -> dict[str, dict[str, float]]:
    """Operations and bytes of each kernel that has a place below the roof."""
    product = {"flops": 2.0 * SIDE**3, "bytes": 3.0 * 2 * SIDE**2}
    return {
        "profiled_product": product,
        "profiled_spill": product,
        "profiled_copy": {"flops": 0.0, "bytes": 2.0 * BYTES},
    }


def main() -> None:
    """Launch every kernel twice."""
    a, b, c = (torch.randn(SIDE, SIDE, device="cuda").to(torch.bfloat16) for _ in range(3))
    x = torch.zeros(BYTES // 4, device="cuda")
    y = torch.empty_like(x)
    following = torch.randperm(1 << 22, device="cuda").to(torch.int32)
    for _ in range(2):
        profiled_product[(SIDE // 128 * (SIDE // 256),)](a, b, c, SIDE, SIDE, 128, 256, 64, num_warps=8, num_stages=4)
        profiled_spill[(SIDE // 128 * (SIDE // 256),)](a, b, c, SIDE, SIDE, 128, 256, 64, num_warps=4, num_stages=3)
        profiled_copy[(x.numel() // 4096,)](x, y, 4096, num_warps=8)
        profiled_chase[(132,)](following, following.clone(), CHASE, num_warps=1)
        profiled_tiny[(1,)](y, num_warps=4)
    torch.cuda.synchronize()
    json.dump(work(), sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
