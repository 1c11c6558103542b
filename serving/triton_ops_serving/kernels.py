"""What operations around the kernels of an engine share: their modules, the rows that serve, and what is tried beside.

A function of an engine that looks its row up by itself is called with another look-up, which answers with a candidate:
the code is the engine's, and nothing in its modules changes.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from triton_ops import Config, ConfigSpace, GemmTiles, LauncherKernel
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.ship import OPTIONS

Row = Mapping[str, Any]
Values = Mapping[str, tuple[Any, ...]]
TILES: Values = {
    "BLOCK_SIZE_M": (16, 32, 64, 128, 256), "BLOCK_SIZE_N": (32, 64, 128, 256), "BLOCK_SIZE_K": (64, 128, 256),
    "GROUP_SIZE_M": (1, 16, 64), "num_warps": (4, 8), "num_stages": (2, 3, 4, 5),
}  # fmt: skip
"""What is tried: the engines' own lists, without what next to none of the rows has that they ship for H100 and H200."""
_LEFT_OUT = {"USE_TMA": False, "SWAP_AB": False, "SPLIT_K": 1, "maxnreg": None}  # what a row without them means


class NotTunedError(SettingsError):
    """The kernels of a problem are not tuned here, for what the problem is."""


class EngineError(TritonKernelError):
    """A module of an engine that cannot be imported, or is of another version."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a problem's rows are tuned for, and those that the engine takes now, by size; empty where it has none."""

    rows: Mapping[int, Row] = field(default_factory=dict)
    other: Mapping[int, Row] = field(default_factory=dict)  # of the other product of SGLang's experts
    routing: str = "uniform"
    dtype: str = "bfloat16"  # of the model's activations

    def row(self, size: int, *, other: bool = False) -> Row | None:
        """The row that the engine takes for a size; None without a table."""
        rows = self.other if other else self.rows
        return rows[min(rows, key=lambda each: abs(each - size))] if rows else None


_SLOW_IMPORT = "torch._dynamo"


@dataclass(frozen=True)
class EngineKernel(LauncherKernel):
    """A function of an engine that launches kernels.

    Some modules of vLLM import torch's compiler, for a second and a half in each process that compiles for each row:
    such processes are forked from one that has it.
    """

    @property
    def compile_imports(self) -> str:
        """See `LauncherKernel`."""
        return _SLOW_IMPORT if _SLOW_IMPORT in sys.modules else super().compile_imports


@dataclass(frozen=True)
class OnHost:
    """Numbers that an engine has in a tensor on the host, and reads of it where it launches: also in a compile."""

    numbers: tuple[int, ...]

    def numel(self) -> int:
        """How many there are."""
        return len(self.numbers)

    def item(self) -> int:
        """The one number."""
        (number,) = self.numbers
        return number

    def tolist(self) -> list[int]:
        """All of them."""
        return list(self.numbers)


def imported(name: str, *names: str) -> Any:
    """A module of an engine that has some names; EngineError where it cannot be imported, or lacks one."""
    hint = "install vllm 0.33 or sglang 0.5.23: their kernels are imported, and no copy of them is here"
    try:
        module = importlib.import_module(name)
    except Exception as error:  # the engine's own code, which may fail in any way where its parts are missing
        raise EngineError(f"{name} cannot be imported: {type(error).__name__}: {error}", hint=hint) from error
    if missing := [each for each in names if not hasattr(module, each)]:
        raise EngineError(f"{name} is of another version: it has no {', '.join(missing)}", hint=hint)
    return module


def answered(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """A function of an engine for which some names of its module are other ones."""
    own: Any = inspect.unwrap(function)
    other = FunctionType(own.__code__, {**own.__globals__, **names}, own.__name__, own.__defaults__, own.__closure__)
    other.__kwdefaults__ = own.__kwdefaults__
    return other


def row_of(config: Row) -> dict[str, Any]:
    """A config as a row of a table: what is said by leaving it out is left out."""
    return {name: value for name, value in config.items() if _LEFT_OUT.get(name, ...) != value}


def space_of(values: Values, row: Row) -> ConfigSpace:
    """What is tried beside the row that the engine would take, which is the default."""
    default = {name: row.get(name, {**OPTIONS, **_LEFT_OUT}.get(name)) for name in values}
    by_size: Any = lambda value: (value is not None, value)  # noqa: E731
    space: dict[str, Any] = {name: sorted({*some, default[name]}, key=by_size) for name, some in values.items()}
    return ConfigSpace(space, default=Config(default))


def tiles_for(rows: int, *, width: int = 0, least: int = 16) -> Values:
    """The tiles for a product with so many rows, and blocks of scales of a `width` along the depth, 0 for none.

    A tile that is twice as high as there are rows has only more places that are empty. One along the depth is no wider
    than a block, and divides it. A search reckons with each config before it tries one: fewer are sooner begun.
    """
    heights = tuple(each for each in TILES["BLOCK_SIZE_M"] if each < 2 * max(rows, least))
    widths = tuple(each for each in (32, 64, 128, 256) if width % each == 0)[-2:] if width else TILES["BLOCK_SIZE_K"]
    return {**TILES, "BLOCK_SIZE_M": heights, "BLOCK_SIZE_K": widths}


def product_tiles(rows: int, columns: int, depth: int, dtype: str, out_dtype: str, batch: int = 1) -> GemmTiles:
    """How the engines' kernels cut a product: with it the model of a search need not read the kernel of each config."""
    return GemmTiles(
        rows, columns, depth, dtype=dtype, out_dtype=out_dtype, batch=batch, tile_rows="BLOCK_SIZE_M",
        tile_columns="BLOCK_SIZE_N", tile_inner="BLOCK_SIZE_K", group="GROUP_SIZE_M", b_along_inner=True,
    )  # fmt: skip


def scaled(values: Any, scale: Any) -> Any:
    """Values times the scales of their blocks, in the scales' dtype; as they are where there are none."""
    if scale is None:
        return values
    for axis in (-2, -1):
        times = -(-values.shape[axis] // scale.shape[axis])
        scale = scale.repeat_interleave(times, dim=axis).narrow(axis, 0, values.shape[axis])
    return values.to(scale.dtype) * scale
