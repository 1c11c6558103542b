"""Operations with faults planted among good configs; every fault would be the fastest config, if it were let through.

`sums` runs anywhere: its faults are a process' faults. `product` is a Triton kernel: its faults are a GPU's.
"""

from __future__ import annotations

import os
import random
import signal
import time

import torch

from benchmarks.robustness.process_faults import GOOD, PROCESS_FAULTS, process_fault, sums_space
from triton_ops import ConfigSpace, FunctionKernel, Operation, Status, TensorSpec, TritonKernel, Work
from triton_ops.base import available

ON_CPU = {
    **PROCESS_FAULTS,
    "wrong": Status.WRONG,
    "partly unwritten": Status.WRONG,
    "wrong in some runs": Status.WRONG,
    "changes its input": Status.WRONG,
    "writes beside its output": Status.WRONG,
}


def sums_function(x, out, *, ms, fault):
    """Out = x + 1, in `ms` milliseconds, or the fault."""
    process_fault(fault)
    time.sleep(ms * 1e-3)
    torch.add(x, 1, out=out)
    if fault == "wrong" or (fault == "wrong in some runs" and random.SystemRandom().random() < 0.25):
        out[-1] += 1
    elif fault == "partly unwritten":
        out[len(out) // 2 :] = float("nan")
    elif fault == "changes its input":
        x[0] += 1
    elif fault == "writes beside its output":
        out.as_strided((1,), (1,), out.storage_offset() + len(out)).fill_(1)


sums = Operation(
    "sums",
    FunctionKernel(sums_function, outputs=("out",)),
    sums_space([]),
    lambda n=1000: {"x": TensorSpec((n,), "float32"), "out": TensorSpec((n,), "float32", fill="empty")},
    reference=lambda x, **_: x + 1,
    device="cpu",
)

ON_CUDA = {
    "illegal access": Status.RUNTIME,
    "endless loop": Status.TIMEOUT,
    "wrong": Status.WRONG,
    "partly unwritten": Status.WRONG,
    "wrong in some runs": Status.WRONG,
    "writes beside its output": Status.WRONG,
    "ten times the memory": Status.RESOURCES,
    "ptxas fails": Status.COMPILE,
    "LLVM ends the process": Status.CRASH,
    "killed": Status.CRASH,
}
_NUMBER = {GOOD: 0, **{fault: number for number, fault in enumerate(ON_CUDA, 1)}}
# None is near the best: the winner must not be a matter of noise.
TILES = ((32, 32, 1), (64, 32, 2), (64, 64, 4), (128, 128, 8))

if available("triton"):
    import triton
    import triton.language as tl

    @triton.jit
    def product_kernel(  # noqa: C901 - one branch for each fault
        a,
        b,
        c,
        flag,
        M,
        N,
        K,
        BM: tl.constexpr,
        BN: tl.constexpr,
        FAULT: tl.constexpr,
    ):
        """C = A @ B, row-major, or the fault."""
        m = tl.program_id(0) * BM + tl.arange(0, BM)
        n = tl.program_id(1) * BN + tl.arange(0, BN)
        k = tl.arange(0, 32)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        steps = tl.cdiv(K, 32)
        if FAULT == 3:
            steps = tl.cdiv(K, 256)  # less work: it would be the fastest
        for step in range(steps):
            column = step * 32 + k
            left = tl.load(a + m[:, None] * K + column[None, :], mask=(m[:, None] < M) & (column[None, :] < K), other=0)
            right = tl.load(
                b + column[:, None] * N + n[None, :], mask=(column[:, None] < K) & (n[None, :] < N), other=0
            )
            total = tl.dot(left, right, total)
        rows = M
        if FAULT == 1:
            tl.store(c + (tl.program_id(0).to(tl.int64) + 1) * (1 << 44), 1.0)
        if FAULT == 2:
            while tl.atomic_add(flag, 0) == 0:
                total += 1
        if FAULT == 4:
            rows = M // 2
        if FAULT == 5:
            # Wrong during one millisecond of four, by the GPU's clock: what a missing barrier does.
            now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], tl.int64, is_pure=False, pack=1)
            if (now >> 20) % 4 == 0:
                total += 1
        if FAULT == 6:
            tl.store(c + M * N + tl.arange(0, 32), tl.zeros((32,), tl.float32))
        if FAULT == 8:
            total += tl.inline_asm_elementwise("no such instruction $0;", "=f", [], tl.float32, is_pure=False, pack=1)
        if FAULT == 9:
            total = tl.inline_asm_elementwise("mov.f32 $0, $9;", "=f,f", [total], tl.float32, is_pure=False, pack=1)
        tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < rows) & (n[None, :] < N))

    def product_grid(meta):
        """One program per tile; the faults of a host are planted here, where only a launch comes by."""
        if meta["FAULT"] == _NUMBER["ten times the memory"]:
            torch.empty(10 * torch.cuda.get_device_properties(0).total_memory, dtype=torch.uint8, device="cuda")
        if meta["FAULT"] == _NUMBER["killed"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return (triton.cdiv(meta["M"], meta["BM"]), triton.cdiv(meta["N"], meta["BN"]))

    def product_space(faults) -> ConfigSpace:
        """Good configs, and the faults in the tile of one of them."""
        good = [{"BM": bm, "BN": bn, "num_warps": warps, "FAULT": 0} for bm, bn, warps in TILES]
        planted = [{"BM": 64, "BN": 64, "num_warps": 4, "FAULT": _NUMBER[fault]} for fault in faults]
        return ConfigSpace.from_configs([*good, *planted])

    product = Operation(
        "product",
        TritonKernel(product_kernel, product_grid, outputs=("c",)),
        product_space([]),
        lambda M=1024, N=1024, K=1024: {
            "a": TensorSpec((M, K), "bfloat16"),
            "b": TensorSpec((K, N), "bfloat16"),
            "c": TensorSpec((M, N), "float32", fill="empty"),
            "flag": TensorSpec((1,), "int32", fill="zeros"),
            "M": M,
            "N": N,
            "K": K,
        },
        reference=lambda a, b, **_: a.float() @ b.float(),
        work=lambda problem: Work(flops=2.0 * problem["M"] * problem["N"] * problem["K"]),
        device="cuda",
    )


def fault_of(config) -> str:
    """The fault that is planted in a config."""
    if "fault" in config:
        return str(config["fault"])
    return next(fault for fault, number in _NUMBER.items() if number == config["FAULT"])
