"""The problems of the layer norm: arguments from extents, least work, named shapes."""

from __future__ import annotations

from triton_ops.cost_model import RowTiles
from triton_ops.values import Problem, TensorSpec, Work

DTYPES = ("bfloat16", "float16", "float32")
DEFAULT_EPS = 1e-5

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "falcon-40b-prefill": ((8192, 8192), "bfloat16"),
    "falcon-40b-decode": ((64, 8192), "bfloat16"),
    "gpt-2-training": ((65536, 768), "bfloat16"),
    "whisper-large": ((24000, 1280), "float16"),  # 16 pieces of 30 s
    "deepseek-indexer": ((131072, 128), "bfloat16"),  # heads of 128
    "wide": ((2048, 65536), "bfloat16"),
    "odd": ((4099, 1025), "float32"),
}


def arguments(rows: int = 8192, columns: int = 8192, dtype: str = "bfloat16") -> dict[str, TensorSpec | int | float]:
    """The kernel's arguments for x[rows, columns] with weight and bias, by name, in the order of its parameters."""
    shape, row = TensorSpec((rows, columns), dtype), TensorSpec((columns,), dtype)
    out = TensorSpec((rows, columns), dtype, fill="empty")
    return {"x": shape, "weight": row, "bias": row, "out": out, "rows": rows, "eps": DEFAULT_EPS, "COLUMNS": columns}


def gradient_arguments(
    rows: int = 8192, columns: int = 8192, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | float]:
    """The arguments of the gradient's launch, by name, in the order of its parameters."""
    shape, row = (rows, columns), (columns,)
    return {
        "x": TensorSpec(shape, dtype), "weight": TensorSpec(row, dtype), "grad": TensorSpec(shape, dtype),
        "dx": TensorSpec(shape, dtype, fill="empty"), "dweight": TensorSpec(row, dtype, fill="empty"),
        "dbias": TensorSpec(row, dtype, fill="empty"), "eps": DEFAULT_EPS, "COLUMNS": columns,
    }  # fmt: skip


def work(problem: Problem) -> Work:
    """The work: bytes of the inputs and outputs; bandwidth is the limit."""
    specs = problem.specs
    x, out = specs["x"], specs["out"]
    tiles = RowTiles(
        x.shape[0], x.shape[1], dtype=x.dtype, out_dtype=out.dtype, tile_rows="ROWS", tile_columns="BLOCK_SIZE",
        kept=True,
    )  # fmt: skip
    return Work(bytes=float(sum(spec.nbytes for spec in specs.values())), tiles=tiles)


def gradient_work(problem: Problem) -> Work:
    """The bytes of the gradient's inputs and outputs.

    It declares no tiles: programs that walk over many rows, and add up their part of two more gradients, are no walk
    that `RowTiles` describes. The model reads the kernel instead.
    """
    return Work(bytes=float(sum(spec.nbytes for spec in problem.specs.values())))
