"""The spaces that measurement is graded on, and how to have them compiled before anything is timed."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

import torch
import triton
import triton.language as tl

import triton_ops_kernels as kernels
from triton_ops import ConfigSpace, Operation, TensorSpec, TritonKernel, Work
from triton_ops.backend import Arguments, CandidateError, Executable
from triton_ops.cost_model import RowTiles
from triton_ops.space import Config
from triton_ops_kernels.matmul import plain


@triton.jit
def rmsnorm_kernel(x, weight, out, rows, N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Out = x / sqrt(mean(x²) + 1e-6) * weight, ROWS rows per program, in chunks of BLOCK."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    at = row[:, None].to(tl.int64) * N
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        column = start + lane
        part = tl.load(x + at + column[None, :], mask=inside & (column < N)[None, :], other=0.0).to(tl.float32)
        squares += part * part
    scale = tl.rsqrt(tl.sum(squares, axis=1) / N + 1e-6)
    for start in range(0, N, BLOCK):
        column = start + lane
        mask = inside & (column < N)[None, :]
        part = tl.load(x + at + column[None, :], mask=mask, other=0.0).to(tl.float32)
        factor = tl.load(weight + column, mask=column < N, other=0.0).to(tl.float32)
        done = part * scale[:, None] * factor[None, :]
        tl.store(out + at + column[None, :], done.to(out.dtype.element_ty), mask=mask)


rmsnorm = Operation(
    "rmsnorm",
    TritonKernel(rmsnorm_kernel, lambda meta: (triton.cdiv(meta["rows"], meta["ROWS"]),), outputs=("out",)),
    ConfigSpace(
        {
            "BLOCK": [256, 512, 1024, 2048, 4096, 8192, 16384],
            "ROWS": [1, 2, 4, 8],
            "num_warps": [1, 2, 4, 8, 16, 32],
            "num_stages": [1, 2, 3],
        },
        default={"BLOCK": 1024, "ROWS": 1, "num_warps": 4, "num_stages": 1},
    ),
    lambda rows=128, columns=8192, dtype="bfloat16": {
        "x": TensorSpec((rows, columns), dtype),
        "weight": TensorSpec((columns,), dtype),
        "out": TensorSpec((rows, columns), dtype, fill="empty"),
        "rows": rows,
        "N": columns,
    },
    work=lambda problem: Work(
        bytes=2.0 * problem["x"].nbytes + problem["weight"].nbytes,
        tiles=RowTiles(
            problem["rows"],
            problem["N"],
            dtype=problem["x"].dtype,
            out_dtype=problem["x"].dtype,
            tile_rows="ROWS",
            tile_columns="BLOCK",
        ),
    ),
    dtypes=("bfloat16", "float16", "float32"),
    device="cuda",
)

SPACES: dict[str, tuple[str, tuple[int, ...], str]] = {
    "matmul bf16 4096": ("matmul", (4096, 4096, 4096), "bfloat16"),
    "matmul fp8 8192": ("matmul", (8192, 8192, 8192), "float8_e4m3fn"),
    "rmsnorm 128x8192": ("rmsnorm", (128, 8192), "bfloat16"),
}


def operation_of(name: str) -> Operation:
    """A shipped kernel, the matmul with one algorithm, or the one defined here."""
    return {"rmsnorm": rmsnorm, "matmul": plain}.get(name) or kernels.load(name)


def compile_all(space: str, workers: int | None = None) -> float:
    """Compile every config of a space in parallel processes, into Triton's disk cache; seconds it took."""
    name, shape, dtype = SPACES[space]
    operation = operation_of(name)
    configs = list(operation.space_for(operation.problem(shape, dtype)))
    count = workers or len(os.sched_getaffinity(0))
    start = time.monotonic()
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile_part, [(space, configs[part::count]) for part in range(count)]))
    return time.monotonic() - start


def loaded(space: str) -> tuple[Operation, Arguments, dict[Config, Executable], Config]:
    """The configs of a space that load on this GPU, from the disk cache."""
    name, shape, dtype = SPACES[space]
    operation = operation_of(name)
    problem = operation.problem(shape, dtype)
    arguments = operation.materialise(problem, "cuda")
    space_of = operation.space_for(problem)
    compiled = {config: _compiled(operation, config, arguments) for config in space_of}
    executables = {config: executable for config, executable in compiled.items() if executable is not None}
    return operation, arguments, executables, space_of.default_config


def _compiled(operation: Operation, config: Config, arguments: Arguments) -> Executable | None:
    try:
        return operation.kernel.compile(config, arguments)
    except CandidateError:
        return None


def _compile_part(job: tuple[str, list[Config]]) -> None:
    space, configs = job
    name, shape, dtype = SPACES[space]
    operation = operation_of(name)
    arguments = operation.materialise(operation.problem(shape, dtype), "cuda")
    for config in configs:
        _compiled(operation, config, arguments)
    torch.cuda.synchronize()
