"""The problems of quantising to 8-bit floats, each with the space of configs that are worth trying.

The documents have no space for these; theirs are those of all kernels over rows (`kernels/rows.py`), where a group of
neighbours with one scale is a row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from triton_ops.base import require
from triton_ops.cost_model import RowTiles
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Problem, TensorSpec, Work
from triton_ops_kernels import rows
from triton_ops_kernels.fp8_format import FP8Format

if TYPE_CHECKING:
    from torch import Tensor

OWN = rows.OWN
_CHUNK = 1024


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's group length."""
    return rows.config_space(problem["GROUP"])


def dequantize_space(problem: Problem) -> ConfigSpace:
    """The space of applying scales, in which several rows at once may be of parts of a row.

    The untuned config has about 1,024 elements for four warps.
    """
    columns = problem["columns"]
    block = min(rows.padded(columns), _CHUNK)
    rules = tuple(rule for rule in rows.config_space(columns).constraints if rule.name != "chunked")
    return ConfigSpace(rows.TUNABLES, rules, Config(BLOCK_SIZE=block, ROWS=min(16, _CHUNK // block), num_warps=4))


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


def fp8_quantize_reference(
    x: Tensor, out: Tensor, scale: Tensor, *, GROUP: int, **_extents: int
) -> tuple[Tensor, Tensor]:
    """Quantise each group of GROUP neighbours in a row with its own scale: the codes, and the scales.

    Cost: several float32 tensors of the size of `x`.
    """
    torch = require("torch", "the reference of fp8_quantize")
    wide = x.float()
    short = -wide.shape[-1] % GROUP
    grouped = torch.nn.functional.pad(wide, (0, short)).unflatten(-1, (-1, GROUP))
    scales = FP8Format.scale_of(grouped.abs().nan_to_num(nan=0.0, posinf=0.0).amax(-1))
    codes = saturated(grouped, scales[..., None]).flatten(-2)[..., : wide.shape[-1]]
    return codes.to(out.dtype), scales.reshape(scale.shape).to(scale.dtype)


def fp8_dequantize_reference(
    x: Tensor, scale: Tensor, out: Tensor, *, GROUP_ROWS: int, GROUP_COLUMNS: int, DIVIDE: bool, **_extents: int
) -> Tensor:
    """Divide 8-bit values by their scales, or multiply and saturate, in float32 or wider, rounded once.

    GROUP_COLUMNS is 0 where a scale serves whole rows.
    """
    torch = require("torch", "the reference of fp8_quantize")
    wide = x.to(torch.float64) if x.dtype == torch.float64 else x.float()
    rows, columns = x.shape
    each = scale.to(wide.dtype).repeat_interleave(min(GROUP_ROWS, rows), 0)[:rows]
    each = each.repeat_interleave(min(GROUP_COLUMNS or columns, columns), 1)[:, :columns]
    return (wide / each if DIVIDE else saturated(wide, each)).to(out.dtype)


def saturated(values: Tensor, scale: Tensor) -> Tensor:
    """Values * scale, with ±448 for what is finite and beyond, and NaN for infinity."""
    scaled = (values * scale).clamp(FP8Format.min_value, FP8Format.max_value)
    return scaled.masked_fill(values.isinf(), math.nan)
