"""The problems of the softmax: arguments from extents, least work, named shapes."""

from __future__ import annotations

import math

from triton_ops.cost_model import RowTiles
from triton_ops.values import Problem, TensorSpec, Tile, Work

DTYPES = ("bfloat16", "float16", "float32")

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "attention-4096": ((32768, 4096), "bfloat16"),  # scores of 8 heads of one sequence of 4,096 tokens
    "llama-3-logits-decode": ((64, 128256), "float32"),
    "qwen-logits-prefill": ((2048, 151936), "bfloat16"),
    "deepseek-router": ((16384, 256), "float32"),  # 256 experts
    "short-rows": ((65536, 128), "float16"),
    "odd": ((4099, 1025), "float16"),  # a row of one element more than a power of two
}


def arguments(rows: int = 32768, columns: int = 4096, dtype: str = "bfloat16") -> dict[str, TensorSpec | int]:
    """The kernel's arguments for x[rows, columns], by name, in the order of its parameters."""
    shape = (rows, columns)
    return {
        "x": TensorSpec(shape, dtype),
        "out": TensorSpec(shape, dtype, fill="empty"),
        "rows": rows,
        "COLUMNS": columns,
    }


def gradient_arguments(rows: int = 32768, columns: int = 4096, dtype: str = "bfloat16") -> dict[str, TensorSpec | int]:
    """The arguments of the gradient's kernel; `out` stands for probabilities, and holds any numbers."""
    shape = (rows, columns)
    return {
        "out": TensorSpec(shape, dtype), "grad": TensorSpec(shape, dtype), "dx": TensorSpec(shape, dtype, fill="empty"),
        "rows": rows, "COLUMNS": columns,
    }  # fmt: skip


def work(problem: Problem) -> Work:
    """The work: bytes of the inputs and of the output; bandwidth is the limit."""
    return _work(problem)


def gradient_work(problem: Problem) -> Work:
    """The work of the gradient: each part of a row that several programs share counts as a row."""
    return _work(problem, parts="SPLIT")


def _work(problem: Problem, parts: Tile = 1) -> Work:
    specs = list(problem.specs.values())
    first, *others, last = specs
    tiles = RowTiles(
        math.prod(first.shape[:-1]), first.shape[-1], dtype=first.dtype, out_dtype=last.dtype,
        tile_rows="ROWS", tile_columns="BLOCK_SIZE", parts=parts, kept=True, inputs=1 + len(others),
    )  # fmt: skip
    return Work(bytes=float(sum(spec.nbytes for spec in specs)), tiles=tiles)
