"""Linear layers of block-wise fp8 as operations: the engines' own functions, whose look-up answers with the candidate.

Facts used, of vLLM 0.33 and SGLang 0.5.23: a tile along the depth is no wider than a block of scales, and divides it.
On sm_90 a row of SGLang's with SWAP_AB, or with SPLIT_K above 1, is for a kernel that knows both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton_ops import ConfigSpace, Operation, TensorSpec, Work
from triton_ops.base import require
from triton_ops.values import Problem
from triton_ops_serving import kernels
from triton_ops_serving.model import EngineProblem

_LOOK_UP = "get_w8a8_block_fp8_configs"
_HOPPER: kernels.Values = {"SWAP_AB": (False, True), "SPLIT_K": (1, 4, 8, 16)}
_SPLIT_UP_TO = 128  # tokens; with more there are tiles enough
_LEAST = 64  # so high a tile is the instruction of sm_90, and among those that are tried for any number of tokens


class _LaunchRecorder:
    """In the place of a kernel: what it would be launched with."""

    def __init__(self) -> None:
        self.row: dict[str, Any] = {}

    def __getitem__(self, _grid: Any) -> _LaunchRecorder:
        return self

    def __call__(self, *_args: Any, **named: Any) -> None:
        self.row = {name: value for name, value in named.items() if name in kernels.TILES}


# The function of each engine, and by what name that finds its kernel.
_FUNCTIONS: dict[str, tuple[str, str, Callable[[_LaunchRecorder], dict[str, Any]]]] = {
    "vllm-linear": (
        "vllm.model_executor.layers.quantization.utils.fp8_utils", "w8a8_triton_block_scaled_mm",
        lambda kernel: {"_w8a8_triton_block_scaled_mm": kernel},
    ),
    "sglang-linear": (
        "sglang.kernels.ops.gemm.fp8_kernel", "w8a8_block_fp8_matmul_triton",
        lambda kernel: {"select_w8a8_block_fp8_matmul_kernel": lambda *_of: kernel},
    ),
}  # fmt: skip


def _launcher(multiply: Callable[..., Any], block: list[int]) -> Callable[..., Any]:
    def linear(x: Any, w: Any, x_scale: Any, w_scale: Any, like: Any, **config: Any) -> Any:
        launch = kernels.answered(multiply, **{_LOOK_UP: lambda *_of: {0: kernels.row_of(config)}})
        return launch(x, w, x_scale, w_scale, block, like.dtype)

    return linear


def reference(x: Any, w: Any, x_scale: Any, w_scale: Any, like: Any) -> Any:
    """The product of what the scaled numbers mean, in the dtype of `like`."""
    return (kernels.scaled(x, x_scale) @ kernels.scaled(w, w_scale).T).to(like.dtype)


def _default_row(multiply: Any, recorded_by: Callable[..., Any], problem: Problem, block: list[int]) -> kernels.Row:
    """The config with which the engine launches where it has no table, asked of its own function without memory."""
    torch, kernel = require("torch", "asking an engine for its default"), _LaunchRecorder()
    ask = kernels.answered(multiply, **{_LOOK_UP: lambda *_of: None}, **recorded_by(kernel))
    *tensors, like = [
        torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta") for spec in problem.specs.values()
    ]
    ask(*tensors, block, like.dtype)
    if not kernel.row:
        raise kernels.EngineError(f"{multiply.__name__} launches another kernel here", hint="give it a table")
    return kernel.row


def work_of(problem: Problem) -> Work:
    """The work of the product, without that of its scales."""
    x, w, like = (problem.specs[name] for name in ("x", "w", "like"))
    (tokens, depth), columns = x.shape, w.shape[0]
    tiles = kernels.product_tiles(tokens, columns, depth, x.dtype, like.dtype)
    return Work(2.0 * tokens * columns * depth, x.nbytes + w.nbytes + 2.0 * tokens * columns, tiles)


def operation_of(problem: EngineProblem, served: kernels.Served) -> Operation:
    """The operation whose one extent is the number of tokens; its default is the row that the engine takes for them."""
    columns, depth, block = problem.facts["N"], problem.facts["K"], problem.facts.get("block_shape")
    if not block:
        raise kernels.NotTunedError("linear layers without blocks cannot be tuned here", hint="leave them out")
    name, function, recorded_by = _FUNCTIONS[problem.form]
    module = kernels.imported(name, function)
    multiply = getattr(module, function)
    more = _HOPPER if hasattr(module, "get_platform") and module.get_platform().is_sm90 else {}

    def arguments(M: int = 16) -> dict[str, Any]:  # noqa: N803
        groups = -(-depth // block[1])
        return {
            "x": TensorSpec((M, depth), "float8_e4m3fn"), "w": TensorSpec((columns, depth), "float8_e4m3fn"),
            "x_scale": TensorSpec((M, groups), "float32", fill="positive"),
            "w_scale": TensorSpec((-(-columns // block[0]), groups), "float32", fill="positive"),
            "like": TensorSpec((1,), served.dtype),
        }  # fmt: skip

    def space(instance: Problem) -> ConfigSpace:
        tokens = instance["x"].shape[0]
        values = {**kernels.tiles_for(tokens, width=block[1], least=_LEAST), **more}
        if more and tokens > _SPLIT_UP_TO:
            values["SPLIT_K"] = (1,)
        row = served.row(tokens)
        return kernels.space_of(values, row or _default_row(multiply, recorded_by, instance, block))

    kernel = kernels.EngineKernel(_launcher(multiply, block), label=problem.form)
    return Operation(problem.form, kernel, space, arguments, reference=reference, work=work_of)
