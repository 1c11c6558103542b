"""Thirty kernels with the problems that they are tuned for, for `benchmarks.correctness.same_bits_winners`.

Some are shipped, some are tuned by other scripts here, and some are those that honest candidates are made of.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

import triton_ops_kernels as kernels
from benchmarks.correctness import verdict_kernels
from benchmarks.correctness.same_bits_cases import (
    CASES,
    cross_entropy_kernel,
    fp8_product_kernel,
    running_sum_kernel,
)
from benchmarks.referee.honest_on_gpu.attention import _attention_kernel
from benchmarks.referee.honest_on_gpu.cross_entropy import _losses_kernel
from benchmarks.referee.honest_on_gpu.rms_norm import _rows_kernel
from benchmarks.tuning import written_kernels
from benchmarks.tuning.bodies import persistent_kernel
from benchmarks.tuning.spaces import rmsnorm
from triton_ops import ConfigSpace, Operation, TensorSpec, TritonKernel
from triton_ops.backend import Arguments, Compiler
from triton_ops.base import cached_property
from triton_ops.device import Target
from triton_ops.space import Config

MOST_CONFIGS = 40


@dataclass(frozen=True)
class Tuned:
    """An operation with the problem that it is tuned for; `kind` is `products`, `attention` or `reductions`."""

    kind: str
    operation: Operation
    shape: tuple[int, ...]
    dtype: str | None = "bfloat16"

    @cached_property
    def problem(self) -> Any:
        """The arguments by name, tensors as their specs."""
        return self.operation.problem(self.operation.full_shape(self.shape), self.dtype)

    @cached_property
    def every(self) -> list[Config]:
        """The configs of the space, but for those of Gluon, whose class nothing tells; the default or another first."""
        space = self.operation.space_for(self.problem)
        return [one for one in dict.fromkeys([space.default_config, *space]) if one.get("FORM") != "gluon"]

    @cached_property
    def configs(self) -> list[Config]:
        """The configs that are tried: all of a small space, else the default and a random sample, always the same."""
        default, *others = self.every
        chosen = set(random.Random(0).sample(range(len(others)), min(MOST_CONFIGS - 1, len(others))))
        return [default, *(one for nth, one in enumerate(others) if nth in chosen)]

    @cached_property
    def space(self) -> ConfigSpace:
        """What is tuned."""
        return ConfigSpace.from_configs(self.configs)

    def compiler(self, target: str) -> Compiler:
        """The compiler of its configs for a GPU of an architecture."""
        given = Arguments(keyword=dict(self.problem.arguments)).described()
        found = Compiler.of(self.operation.kernel, given, Target.named(target), self.space.members)
        assert found is not None, self.operation.name
        return found

    def arguments(self) -> dict[str, Any]:
        """Tensors on the GPU, and the other arguments."""
        return dict(self.operation.materialise(self.problem, "cuda").keyword)


def made(
    kernel: Any, grid: Any, outputs: Sequence[str], configs: Any, arguments: Callable[..., dict[str, Any]]
) -> Operation:  # fmt: skip
    """The operation of a kernel, whose first config is the default."""
    space = configs if isinstance(configs, Mapping) else ConfigSpace.from_configs(configs)
    return Operation(arguments.__name__, TritonKernel(kernel, grid, outputs=tuple(outputs)), space, arguments)


def _listed(first: Mapping[str, Any], values: Mapping[str, Any], fits: Callable[..., bool]) -> list[Config]:
    every = (dict(zip(values, each, strict=True)) for each in itertools.product(*values.values()))
    return [Config(first), *(Config(one) for one in every if fits(one) and one != first)]


def _matrix(*shape: int, dtype: str = "bfloat16", **more: Any) -> TensorSpec:
    return TensorSpec(shape, dtype, **more)


def int4_product(M: int) -> dict[str, Any]:
    """Halves times weights of 4 bits, with a scale for 128 of them; K is a multiple of every tile."""
    N, K = 4096, 4096
    return {
        "a": _matrix(M, K, dtype="float16"), "packed": _matrix(K // 8, N, dtype="int32", fill="bits"),
        "scales": _matrix(K // 128, N, dtype="float16"), "c": _matrix(M, N, dtype="float16", fill="empty"),
        "M": M, "N": N, "K": K, "GROUP_K": 128,
    }  # fmt: skip


def fp8_product(M: int, N: int, K: int) -> dict[str, Any]:
    """8-bit floats, whose sums are promoted, or not."""
    a, b = _matrix(M, K, dtype="float8_e4m3fn"), _matrix(N, K, dtype="float8_e4m3fn")
    return {"a": a, "b": b, "c": _matrix(M, N, fill="empty"), "M": M, "N": N, "K": K, "PROMOTE": 0, "FAST": True}


def persistent_product(M: int, N: int, K: int) -> dict[str, Any]:
    """Programs that walk over all tiles."""
    return {"a": _matrix(M, K), "b": _matrix(K, N), "c": _matrix(M, N, fill="empty"), "M": M, "N": N, "K": K}


def convolution(style: str) -> Operation:
    """A convolution in one of the styles, with its author's list."""
    wrapped = style == "conv_wrapped"
    names = ("N", "H", "W", "C", "F") if wrapped else ("images", "height", "width", "channels", "filters")

    def arguments(images: int, side: int, channels: int, filters: int) -> dict[str, Any]:
        sizes = dict(zip(names, (images, side, side, channels, filters), strict=True))
        given = sizes if style in ("conv_pixels", "conv_wrapped") else {n: sizes[n] for n in names[1:]}
        return {
            "x": _matrix(images, side, side, channels, dtype="float16"),
            "w": _matrix(9 * channels, filters, dtype="float16"),
            "y": _matrix(images, side, side, filters, dtype="float16", fill="empty"), **given,
        }  # fmt: skip

    def grid(at: Mapping[str, Any]) -> tuple[int, ...]:
        return written_kernels.GRIDS[style](at, *at["y"].shape)

    arguments.__name__ = style
    kernel = getattr(written_kernels, style)
    return made(kernel, grid, ("y",), kernel.configs, arguments)


def one_pass_attention(heads: int, tokens: int, extent: int) -> dict[str, Any]:
    """Attention without a mask."""
    each = _matrix(heads, tokens, extent, dtype="float16")
    return {
        "q": each, "k": each, "v": each, "out": _matrix(heads, tokens, extent, dtype="float16", fill="empty"),
        "tokens": tokens, "extent": extent, "scale": extent**-0.5, "BD": extent,
    }  # fmt: skip


def _classes(rows: int, columns: int) -> dict[str, Any]:
    labels = _matrix(rows, dtype="int64", fill=lambda shape: torch.randint(0, columns, shape))
    return {"logits": _matrix(rows, columns), "labels": labels, "COLUMNS": columns}


def cross_entropy(rows: int, columns: int) -> dict[str, Any]:
    """The losses and their gradient."""
    given, losses = _classes(rows, columns), _matrix(rows, dtype="float32", fill="empty")
    return {**given, "losses": losses, "gradient": _matrix(rows, columns, fill="empty")}


def losses(rows: int, columns: int) -> dict[str, Any]:
    """The losses alone."""
    given = _classes(rows, columns)
    out = _matrix(rows, dtype="float32", fill="empty")
    return {"logits": given["logits"], "targets": given["labels"], "out": out, "columns": columns}


def running_sum(rows: int, columns: int) -> dict[str, Any]:
    """The sum of each row up to each column."""
    return {
        "x": _matrix(rows, columns, dtype="float32"), "out": _matrix(rows, columns, dtype="float32", fill="empty"),
        "totals": _matrix(rows, dtype="float32", fill="empty"), "rows": rows, "COLUMNS": columns,
    }  # fmt: skip


def rms_norm(rows: int, columns: int) -> dict[str, Any]:
    """Rows over their root mean square, by blocks of one row."""
    out = _matrix(rows, columns, fill="empty")
    return {"x": _matrix(rows, columns), "weight": _matrix(columns), "out": out, "columns": columns, "eps": 1e-6}


def embedding_bag(bags: int, width: int) -> dict[str, Any]:
    """Bags of 32 rows of a table on average."""
    return {
        "table": _matrix(50_000, width, dtype="float16"),
        "indices": _matrix(32 * bags, dtype="int64", fill=lambda shape: torch.randint(0, 50_000, shape)),
        "offsets": _matrix(bags + 1, dtype="int64", fill="offsets", total=32 * bags),
        "out": _matrix(bags, width, dtype="float16", fill="empty"), "width": width,
    }  # fmt: skip


def _flat(at: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(at["M"], at["BM"]) * triton.cdiv(at["N"], at["BN"]),)


_FIRST = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 4}
_ROWS = {"BLOCK": [1024, 512, 2048, 4096, 8192], "num_warps": [4, 1, 2, 8, 16], "num_stages": [1, 3]}
_FP8_FIRST = {**_FIRST, "BK": 128, "num_stages": 3}
_FP8_VALUES = {name: values for name, values in CASES["fp8_product"].values.items() if name not in ("PROMOTE", "FAST")}


def _shipped(kind: str, name: str, *shape: int, dtype: str = "bfloat16") -> Tuned:
    return Tuned(kind, kernels.load(name), shape, dtype)


def _own(kind: str, operation: Operation, *shape: int) -> Tuned:
    return Tuned(kind, operation, shape, None)


TUNED: dict[str, Tuned] = {
    "matmul": _shipped("products", "matmul", 2048, 2048, 2048),
    "fp8_gemm": _shipped("products", "fp8_gemm", 2048, 2048, 2048, 1),
    "gated_mlp": _shipped("products", "gated_mlp", 2048, 4096, 2048),
    "grouped_matmul": _shipped("products", "grouped_matmul", 2048, 8, 2048, 1024, 2),
    "product": Tuned("products", verdict_kernels.product, (2048, 2048, 2000)),
    "persistent_product": _own("products", made(
        persistent_kernel, lambda at: (at["PROGRAMS"],), ("c",),
        {"BM": [128, 64], "BN": [128, 256, 64], "BK": [64, 32], "GM": [8, 1], "PROGRAMS": [132, 264],
         "num_warps": [8, 4], "num_stages": [3, 4]}, persistent_product), 2048, 2048, 2048),
    "fp8_product": _own("products", made(
        fp8_product_kernel, verdict_kernels.matmul_grid, ("c",),
        _listed(_FP8_FIRST, _FP8_VALUES, CASES["fp8_product"].fits), fp8_product), 2048, 2048, 2048),
    "int4_product": _own("products", made(
        written_kernels.int4_matmul, lambda at: (
            triton.cdiv(at["M"], at["BLOCK_M"]), triton.cdiv(at["N"], at["BLOCK_N"])), ("c",),
        written_kernels.int4_matmul.configs, int4_product), 60),
    **{style: _own("products", convolution(style), 16, 28, 128, 256) for style in written_kernels.GRIDS},
    "attention": _shipped("attention", "attention", 1, 16, 4, 2048, 2048, 128, 128, 2),
    "attention_backward": _shipped("attention", "attention_backward", 1, 16, 4, 1024, 1024, 128, 128, 2),
    "causal_attention": Tuned("attention", verdict_kernels.attention, (1, 16, 2048, 64)),
    "one_pass_attention": _own("attention", made(
        _attention_kernel, lambda at: (triton.cdiv(at["tokens"], at["BM"]), at["q"].shape[0]), ("out",),
        {"BM": [64, 32, 128], "BN": [32, 64, 128], "num_warps": [4, 8], "num_stages": [3, 2]}, one_pass_attention),
        16, 1024, 64),
    "softmax": _shipped("reductions", "softmax", 8192, 4096),
    "softmax_backward": _shipped("reductions", "softmax_backward", 8192, 4096),
    "layer_norm": _shipped("reductions", "layer_norm", 8192, 4096),
    "layer_norm_backward": _shipped("reductions", "layer_norm_backward", 8192, 2048),
    "rmsnorm": Tuned("reductions", rmsnorm, (1024, 8192)),
    "rmsnorm_rope": _shipped("reductions", "rmsnorm_rope", 1, 4096, 4096, 32),
    "rmsnorm_rope_backward": _shipped("reductions", "rmsnorm_rope_backward", 1, 4096, 4096, 32),
    "fp8_quantize": _shipped("reductions", "fp8_quantize", 4096, 4096, 128),
    "long_softmax": _shipped("reductions", "softmax", 512, 100_000),
    "cross_entropy": _own("reductions", made(
        cross_entropy_kernel, lambda at: at["losses"].shape, ("losses", "gradient"), _ROWS, cross_entropy),
        1024, 32000),
    "losses": _own("reductions", made(
        _losses_kernel, lambda at: at["out"].shape, ("out",), _ROWS, losses), 1024, 32000),
    "rms_norm": _own("reductions", made(
        _rows_kernel, lambda at: at["x"].shape[:1], ("out",), _ROWS, rms_norm), 4096, 8192),
    "running_sum": _own("reductions", made(
        running_sum_kernel, lambda at: (triton.cdiv(at["rows"], at["ROWS"]),), ("out", "totals"),
        {"BLOCK": [256, 64, 128, 512, 1024], "ROWS": [1, 2, 4], "num_warps": [4, 1, 2, 8]}, running_sum), 4096, 3000),
    "embedding_bag": _own("reductions", made(
        written_kernels.embedding_bag, lambda at: (at["out"].shape[0], triton.cdiv(at["width"], at["BLOCK_D"])),
        ("out",), written_kernels.embedding_bag.configs, embedding_bag), 4096, 512),
}  # fmt: skip
"""The kernels by name: products of matrices and convolutions, attention and its gradient, and sums of rows."""
