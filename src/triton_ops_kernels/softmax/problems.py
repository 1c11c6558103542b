"""The problems of the softmax, each with the space of configs that are worth trying.

The documents have no space for a softmax; its space is that of all kernels over rows (`kernels/rows.py`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.cost_model import RowTiles
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import Problem, TensorSpec, Work
from triton_ops_kernels import rows
from triton_ops_kernels.call import Own, OwnConfigs, whole_from

if TYPE_CHECKING:
    from torch import Tensor

OWN = rows.OWN
GRADIENT_OWN = OwnConfigs({
    **rows.TUNABLES,
    "num_warps": [1, 2, 4, 8, 16, 32],  # of rows in chunks, 32 warps have the most bytes on their way
    "SPLIT": Own([1, 4, 8, 16, 32], whole_from(1)),  # programs that share a row: for few rows
    "EVICT": ["none", "loads", "all"],  # which part of rows in chunks leaves L2 first
})  # fmt: skip
_TENSORS = 2  # blocks of a row that a program of the gradient holds
_FEW_ROWS = 128  # below, programs for whole rows leave multiprocessors of large GPUs without work
_SPLIT, _PART = 8, 4096  # the default's programs for each of few rows, and their blocks
_CHUNK = 8192  # its blocks of many rows
_MOST_SPLIT = 2048  # programs from which on no GPU waits for more


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's row length."""
    return rows.config_space(problem["COLUMNS"])


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient, which holds two blocks of a row at once."""
    count, columns = problem["rows"], problem["COLUMNS"]
    widest = rows.padded(columns)
    rules = (
        *rows.config_space(columns, _TENSORS).constraints,
        rows.long_chunks(columns),
        Constraint(
            "split", lambda SPLIT, BLOCK_SIZE: SPLIT == 1 or (widest > BLOCK_SIZE and widest >= SPLIT * BLOCK_SIZE),
            f"{{SPLIT}} parts of a row of {widest} are less than a block of {{BLOCK_SIZE}} each",
        ),
        Constraint(
            "few_rows", lambda SPLIT: SPLIT == 1 or count * SPLIT <= _MOST_SPLIT,
            f"{count} rows in {{SPLIT}} parts each are over {_MOST_SPLIT} programs, which have work without",
        ),
        Constraint(
            "kept", lambda SPLIT, EVICT: SPLIT == 1 or EVICT != "none",
            "a second launch of {SPLIT} parts reads for the last time"
        ),
        Constraint(
            "once", lambda BLOCK_SIZE, EVICT: widest > BLOCK_SIZE or EVICT == "none",
            "whole rows are read once: what they evict gains beside a kernel that does so too, and costs beside others"
        ),
    )  # fmt: skip
    return ConfigSpace(GRADIENT_OWN.tunables, rules, gradient_default(count, columns))


@lru_cache(maxsize=1024)
def gradient_default(count: int, columns: int) -> Config:
    """The untuned config of the gradient of so many rows.

    Whole rows evict nothing. Doing so took 0.985 of the time beside kernels that evict nothing, but 1.025 where the
    kernel alternates with that of torch's compiler, at 16,384 rows of 256 and 65,536 of 128 elements.

    Source: the fastest of some forms on an H200 (Triton 3.6.0). Eight programs for each of 64 rows of 128,256 elements
    take 0.81 of the time of one. For 2,048 rows of 151,936 elements 32 warps take 0.95 of the time of 16, but 32 warps
    of 64 threads are more than an AMD GPU runs in a program, and a default runs everywhere.
    """
    plain, widest = rows.default_config(columns, _TENSORS), rows.padded(columns)
    if plain["BLOCK_SIZE"] == widest:
        return Config(plain, SPLIT=1, EVICT="none")
    if count < _FEW_ROWS and widest >= _SPLIT * _PART:
        return Config(BLOCK_SIZE=_PART, ROWS=1, num_warps=8, SPLIT=_SPLIT, EVICT="all")
    return Config(BLOCK_SIZE=_CHUNK, ROWS=1, num_warps=16, SPLIT=1, EVICT="all")


DTYPES = ("bfloat16", "float16", "float32")
LEAST_GAIN = 0.1

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
    return launch_values(TensorSpec(shape, dtype), TensorSpec(shape, dtype, fill="empty"))


def launch_values(x: Any, out: Any) -> dict[str, Any]:
    """The kernel's arguments for two matrices, or what describes them."""
    return {"x": x, "out": out, "rows": x.shape[0], "COLUMNS": x.shape[1]}


def gradient_arguments(rows: int = 32768, columns: int = 4096, dtype: str = "bfloat16") -> dict[str, TensorSpec | int]:
    """The arguments of the gradient's kernel; `out` stands for probabilities, and holds any numbers."""
    shape = (rows, columns)
    return {
        "out": TensorSpec(shape, dtype), "grad": TensorSpec(shape, dtype), "dx": TensorSpec(shape, dtype, fill="empty"),
        "rows": rows, "COLUMNS": columns,
    }  # fmt: skip


def work(problem: Problem, parts: str | int = 1) -> Work:
    """The work: bytes of the inputs and of the output; bandwidth is the limit."""
    specs = list(problem.specs.values())
    first, *others, last = specs
    tiles = RowTiles(
        math.prod(first.shape[:-1]), first.shape[-1], dtype=first.dtype, out_dtype=last.dtype,
        tile_rows="ROWS", tile_columns="BLOCK_SIZE", parts=parts, kept=True, inputs=1 + len(others),
    )  # fmt: skip
    return Work(bytes=float(sum(spec.nbytes for spec in specs)), tiles=tiles)


def gradient_work(problem: Problem) -> Work:
    """The work of the gradient: each part of a row that several programs share counts as a row."""
    return work(problem, parts="SPLIT")


def softmax_reference(x: Tensor, out: Tensor, **_extents: int) -> Tensor:
    """The softmax over the last axis, in float32 or wider, rounded once to the dtype of `out`."""
    torch = require("torch", "the reference of softmax")
    return x.to(torch.promote_types(x.dtype, torch.float32)).softmax(-1).to(out.dtype)


def softmax_backward_reference(out: Tensor, grad: Tensor, dx: Tensor, **_extents: int) -> Tensor:
    """The gradient of the softmax from its result, in float32 or wider, rounded once to the dtype of `dx`."""
    torch = require("torch", "the reference of softmax")
    wide = torch.promote_types(out.dtype, torch.float32)
    y, g = out.to(wide), grad.to(wide)
    return (y * (g - (y * g).sum(-1, keepdim=True))).to(dx.dtype)
