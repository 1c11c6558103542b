"""The problems of quantising to 8-bit floats, each with the space of configs that are worth trying.

The documents have no space for these; theirs are those of all kernels over rows (`kernels/rows.py`), where a group of
neighbours with one scale is a row.
"""

from __future__ import annotations

from triton_ops.cost_model import RowTiles
from triton_ops.kernels import rows
from triton_ops.kernels.fp8_format import FP8Format
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Problem, TensorSpec, Work

OWN = rows.OWN
_CHUNK = 1024


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's group length."""
    return rows.config_space(problem["GROUP"])


def rescale_space(problem: Problem) -> ConfigSpace:
    """The space of applying scales, in which several rows at once may be of parts of a row."""
    columns = problem["columns"]
    rules = tuple(rule for rule in rows.config_space(columns).constraints if rule.name != "chunked")
    return ConfigSpace(rows.TUNABLES, rules, rescale_default(columns))


def rescale_default(columns: int) -> Config:
    """The untuned config of applying scales: about 1,024 elements for four warps."""
    block = min(rows.padded(columns), _CHUNK)
    return Config(BLOCK_SIZE=block, ROWS=min(16, _CHUNK // block), num_warps=4)


DTYPES = ("bfloat16", "float16", "float32")

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "deepseek-v3-prefill": ((4096, 7168, 128), "bfloat16"),  # a scale for every 128 channels of a token
    "deepseek-v3-decode": ((128, 7168, 128), "bfloat16"),
    "llama-8b-by-token": ((4096, 4096, 4096), "bfloat16"),
    "llama-8b-down-by-token": ((4096, 14336, 14336), "bfloat16"),
    "qwen-7b-by-token": ((2048, 18944, 18944), "float16"),
    "odd": ((1001, 1000, 128), "float16"),  # the last group of a row is short
}

DEQUANTIZE_PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "deepseek-v3-weight": ((7168, 18432, 128, 128), "bfloat16"),
    "llama-8b-by-token": ((4096, 4096, 1, 4096), "bfloat16"),
    "odd": ((1001, 1000, 1, 128), "float16"),
}


def arguments(
    rows: int = 4096, columns: int = 7168, group: int = FP8Format.block, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int]:
    """The kernel's arguments for x[rows, columns] with a scale for every `group` neighbours, in the kernel's order."""
    per_row = -(-columns // group)
    return {
        "x": TensorSpec((rows, columns), dtype),
        "out": TensorSpec((rows, columns), FP8Format.name, fill="empty"),
        "scale": TensorSpec((rows, per_row), "float32", fill="empty"),
        "groups": rows * per_row, "COLUMNS": columns, "GROUP": group,
    }  # fmt: skip


def dequantize_arguments(
    rows: int = 4096, columns: int = 7168, group_rows: int = 1, group: int = FP8Format.block, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | bool]:
    """The arguments for values[rows, columns] of 8 bits whose scales serve `group_rows` by `group` elements."""
    scales = (-(-rows // group_rows), -(-columns // group))
    return {
        "x": TensorSpec((rows, columns), FP8Format.name), "scale": TensorSpec(scales, "float32", fill="positive"),
        "out": TensorSpec((rows, columns), dtype, fill="empty"), "rows": rows, "columns": columns,
        "scale_columns": scales[1], "GROUP_ROWS": group_rows, "GROUP_COLUMNS": group_columns(scales[1], group),
        "DIVIDE": True,
    }  # fmt: skip


def group_columns(scale_columns: int, group: int) -> int:
    """GROUP_COLUMNS of the kernel that applies scales, which is compiled for it: 0 where a scale serves whole rows."""
    return 0 if scale_columns == 1 else group


def work(problem: Problem) -> Work:
    """The work: bytes of the input and of the outputs; bandwidth is the limit."""
    specs = problem.specs
    x, out = specs["x"], specs["out"]
    group = problem["GROUP"] if "GROUP" in dict(problem.arguments) else x.shape[1]
    tiles = RowTiles(
        -(-x.numel // group), group, dtype=x.dtype, out_dtype=out.dtype, tile_rows="ROWS", tile_columns="BLOCK_SIZE"
    )
    return Work(bytes=float(sum(spec.nbytes for spec in specs.values())), tiles=tiles)
