"""Linear layers of block-wise fp8 as operations: the engines' own functions, whose look-up answers with the candidate.

Facts used, of vLLM 0.33 and SGLang 0.5.23: a tile along the depth is no wider than a block of scales, and divides it.
On sm_90 a row of SGLang's with SWAP_AB, or with SPLIT_K above 1, is for a kernel that knows both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_ops import LauncherKernel, Operation, TensorSpec
from triton_ops.base import require
from triton_ops.exceptions import TargetError
from triton_ops_serving.kernels import (
    TILES,
    NotTunedError,
    Row,
    Served,
    Values,
    answered,
    imported,
    nearest,
    scaled,
    space_of,
    up_to,
)
from triton_ops_serving.model import EngineProblem

_LOOK_UP = "get_w8a8_block_fp8_configs"
_HOPPER: Values = {"SWAP_AB": (False, True), "SPLIT_K": (1, 2, 4, 8)}


class _Noted:
    """In the place of a kernel: what it would be launched with."""

    def __init__(self) -> None:
        self.row: dict[str, Any] = {}

    def __getitem__(self, _grid: Any) -> _Noted:
        return self

    def __call__(self, *_args: Any, **named: Any) -> None:
        self.row = {name: value for name, value in named.items() if name in TILES}


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """An engine's function of a linear layer, and how one notes which config it launches its kernel with."""

    module: str
    function: str
    noted: Callable[[_Noted], dict[str, Any]]


_LAYERS = {
    "vllm-linear": _Layer(
        module="vllm.model_executor.layers.quantization.utils.fp8_utils",
        function="w8a8_triton_block_scaled_mm",
        noted=lambda kernel: {"_w8a8_triton_block_scaled_mm": kernel},
    ),
    "sglang-linear": _Layer(
        module="sglang.kernels.ops.gemm.fp8_kernel",
        function="w8a8_block_fp8_matmul_triton",
        noted=lambda kernel: {"select_w8a8_block_fp8_matmul_kernel": lambda *_of: kernel},
    ),
}


def _launcher(multiply: Callable[..., Any], block: list[int]) -> Callable[..., Any]:
    def linear(x: Any, w: Any, x_scale: Any, w_scale: Any, like: Any, **config: Any) -> Any:
        row = row_launched(config)
        return answered(multiply, **{_LOOK_UP: lambda *_of: {0: row}})(x, w, x_scale, w_scale, block, like.dtype)

    return linear


def row_launched(config: Row) -> dict[str, Any]:
    """The row of a config: one that needs no kernel of sm_90 does not name what only that one knows."""
    plain = config.get("SPLIT_K", 1) == 1 and not config.get("SWAP_AB")
    return {name: value for name, value in config.items() if not (plain and name in _HOPPER)}


def reference(x: Any, w: Any, x_scale: Any, w_scale: Any, like: Any) -> Any:
    """The product of what the scaled numbers mean, in the dtype of `like`."""
    return (scaled(x, x_scale) @ scaled(w, w_scale).T).to(like.dtype)


def _default_row(layer: _Layer, multiply: Callable[..., Any], problem: EngineProblem, tokens: int, dtype: Any) -> Row:
    """The config with which the engine launches where it has no table, asked of its own function."""
    torch, kernel = require("torch", "asking an engine for its default"), _Noted()
    columns, depth, block = (problem.facts[name] for name in ("N", "K", "block_shape"))
    ask = answered(multiply, **{_LOOK_UP: lambda *_of: None}, **layer.noted(kernel))
    eight, four = {"dtype": torch.float8_e4m3fn, "device": "meta"}, {"dtype": torch.float32, "device": "meta"}
    groups = -(-depth // block[1])
    x, w = torch.empty((tokens, depth), **eight), torch.empty((columns, depth), **eight)
    x_scale, w_scale = torch.empty((tokens, groups), **four), torch.empty((-(-columns // block[0]), groups), **four)
    ask(x, w, x_scale, w_scale, block, dtype)
    if not kernel.row:
        raise TargetError(f"{layer.function} launches no kernel of {layer.module} here", hint="give it a table")
    return kernel.row


def operation_of(problem: EngineProblem, served: Served) -> Operation:
    """The operation whose one extent is the number of tokens; its default is the row that the engine takes for them."""
    columns, depth, block = problem.facts["N"], problem.facts["K"], problem.facts.get("block_shape")
    if not block:
        raise NotTunedError("linear layers without blocks cannot be tuned here", hint="leave them out")
    layer, torch = _LAYERS[problem.form], require("torch", "launching a linear layer")
    module, dtype = imported(layer.module), getattr(torch, served.dtype)
    multiply = getattr(module, layer.function)
    values = {**TILES, "BLOCK_SIZE_K": tuple(width for width in up_to(block[1]) if block[1] % width == 0)}
    if hasattr(module, "get_platform") and module.get_platform().is_sm90:
        values |= _HOPPER

    def arguments(M: int = 16) -> dict[str, Any]:  # noqa: N803
        groups = -(-depth // block[1])
        return {
            "x": TensorSpec((M, depth), "float8_e4m3fn"), "w": TensorSpec((columns, depth), "float8_e4m3fn"),
            "x_scale": TensorSpec((M, groups), "float32", fill="positive"),
            "w_scale": TensorSpec((-(-columns // block[0]), groups), "float32", fill="positive"),
            "like": TensorSpec((1,), served.dtype),
        }  # fmt: skip

    def row_now(tokens: int) -> Row:
        return nearest(served.rows, tokens) if served.rows else _default_row(layer, multiply, problem, tokens, dtype)

    return Operation(
        problem.form,
        LauncherKernel(_launcher(multiply, block), label=problem.form),
        lambda asked: space_of(values, row_now(asked["x"].shape[0])),
        arguments,
        reference=reference,
    )
