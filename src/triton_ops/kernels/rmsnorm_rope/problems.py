"""The problems of the fused RMSNorm and RoPE: arguments from extents, least work, named shapes."""

from __future__ import annotations

import math

from triton_ops.cost_model import RowTiles
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.values import Problem, TensorSpec, Work

DTYPES = ("bfloat16", "float16", "float32")
DEFAULT_EPS = 1e-6

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-prefill": ((4, 4096, 4096, 32), "bfloat16"),
    "llama-8b-8x4096": ((8, 4096, 4096, 32), "bfloat16"),
    "llama-8b-decode": ((64, 1, 4096, 32), "bfloat16"),
    "llama-70b-prefill": ((1, 8192, 8192, 64), "bfloat16"),
    "qwen-7b-prefill": ((2, 4096, 3584, 28), "bfloat16"),
    "deepseek-v3-decode": ((128, 1, 7168, 56), "bfloat16"),
    "small-heads": ((8, 2048, 2048, 32), "float16"),  # heads of 64
    "head-80": ((2, 2048, 2560, 32), "float16"),  # half a head is 40, which is no power of two
    "float32": ((2, 2048, 4096, 32), "float32"),
}


def arguments(
    batch: int = 4, seq: int = 4096, hidden: int = 4096, heads: int = 32, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | float]:
    """The kernel's arguments for x[batch, seq, hidden] with `heads` heads, by name, in the order of its parameters.

    Raises:
        ShapeMismatchError: `heads` does not divide `hidden`, or a head is of odd size.
    """
    head_dim = checked_head_dim(hidden, heads)
    rows, table = (batch, seq, hidden), (seq, head_dim)
    return {
        "x": TensorSpec(rows, dtype),
        "weight": TensorSpec((hidden,), dtype),
        "cos": TensorSpec(table, dtype),
        "sin": TensorSpec(table, dtype),
        "out": TensorSpec(rows, dtype, fill="empty"),
        "seq_len": seq,
        "eps": DEFAULT_EPS,
        "HIDDEN": hidden,
        "HEAD_DIM": head_dim,
    }


def gradient_arguments(
    batch: int = 4, seq: int = 4096, hidden: int = 4096, heads: int = 32, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | float]:
    """The arguments of the gradient's launch, by name, in the order of its parameters.

    Raises:
        ShapeMismatchError: As `arguments`.
    """
    inputs = arguments(batch, seq, hidden, heads, dtype)
    x = TensorSpec((batch, seq, hidden), dtype)
    return {
        **{name: inputs[name] for name in ("x", "weight", "cos", "sin")},
        "grad": x, "dx": inputs["out"], "dweight": TensorSpec((hidden,), dtype, fill="empty"),
        **{name: inputs[name] for name in ("seq_len", "eps", "HIDDEN", "HEAD_DIM")},
    }  # fmt: skip


def checked_head_dim(hidden: int, heads: int) -> int:
    """The number of elements per head.

    Raises:
        ShapeMismatchError: `heads` does not divide `hidden`, or a head is of odd size.
    """
    if hidden % heads:
        raise ShapeMismatchError(
            f"hidden size {hidden} is no multiple of {heads} heads",
            f"a multiple of {heads}",
            hidden,
            hint="the last two extents are the hidden size and the number of heads",
        )
    head_dim = hidden // heads
    if head_dim % 2:
        raise ShapeMismatchError(
            f"hidden size {hidden} with {heads} heads makes heads of {head_dim}; RoPE turns pairs: it must be even",
            "an even head size",
            head_dim,
            hint="take twice or half as many heads",
        )
    return head_dim


def work(problem: Problem) -> Work:
    """The work: bytes of all tensors, but only of the half of cos and sin that is read; bandwidth is the limit."""
    x, out = problem.specs["x"], problem.specs["out"]
    rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
    tiles = RowTiles(
        rows, columns, dtype=x.dtype, out_dtype=out.dtype, tile_rows=1, tile_columns="BLOCK_SIZE",
        lanes=2,  # BLOCK_SIZE counts pairs
        kept=True,
    )  # fmt: skip
    return Work(bytes=_moved(problem), tiles=tiles)


def gradient_work(problem: Problem) -> Work:
    """The bytes of the gradient.

    It declares no tiles: programs that walk over many rows, and add up their part of another gradient, are no walk that
    `RowTiles` describes. The model reads the kernel instead.
    """
    return Work(bytes=_moved(problem))


def _moved(problem: Problem) -> float:
    specs = problem.specs
    unread = (specs["cos"].nbytes + specs["sin"].nbytes) / 2
    return float(sum(spec.nbytes for spec in specs.values()) - unread)
