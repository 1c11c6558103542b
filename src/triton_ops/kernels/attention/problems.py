"""The problems of attention: arguments from extents, least work, named shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from triton_ops.cost_model import AttentionTiles
from triton_ops.device import Machine
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.values import Problem, TensorSpec, TilePlan, Work

DTYPES = ("bfloat16", "float16", "float32")
MASKS = {1: "full", 2: "causal"}
"""Which keys a query sees, by the number that stands in a shape."""

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-prefill": ((4, 32, 8, 4096, 4096, 128, 128, 2), "bfloat16"),
    "llama-8b-long": ((1, 32, 8, 16384, 16384, 128, 128, 2), "bfloat16"),
    "llama-70b-chunk": ((1, 64, 8, 512, 8192, 128, 128, 2), "bfloat16"),  # 512 tokens after 7,680 others
    "llama-8b-decode": ((16, 32, 8, 1, 8192, 128, 128, 2), "bfloat16"),
    "qwen-32b-decode-long": ((1, 40, 8, 1, 32768, 128, 128, 2), "bfloat16"),
    "qwen-0.5b-prefill": ((8, 14, 2, 2048, 2048, 64, 64, 2), "bfloat16"),
    "deepseek-v3-prefill": ((1, 128, 128, 4096, 4096, 192, 128, 2), "bfloat16"),
    "gemma-2b-prefill": ((2, 8, 1, 4096, 4096, 256, 256, 2), "bfloat16"),
    "flux-dev-image": ((1, 24, 24, 4608, 4608, 128, 128, 1), "bfloat16"),
    "whisper-large": ((16, 20, 20, 1500, 1500, 64, 64, 1), "float16"),
    "odd": ((2, 6, 3, 515, 777, 80, 80, 2), "float16"),  # no multiple of any tile; heads are padded to 128
}


def arguments(
    batch: int = 4,
    heads: int = 32,
    kv_heads: int = 8,
    queries: int = 4096,
    keys: int = 4096,
    head_dim: int = 128,
    value_dim: int = 128,
    mask: int = 2,
    dtype: str = "bfloat16",
) -> dict[str, TensorSpec | float | bool | str | None]:
    """The arguments of the launch, by name, in the order of its parameters; the logarithms of sums are not asked for.

    Args:
        batch: Sequences.
        heads: Heads of queries, a multiple of `kv_heads`.
        kv_heads: Heads of keys and values.
        queries: Queries of a sequence.
        keys: Keys of a sequence.
        head_dim: Elements of a query and of a key.
        value_dim: Elements of a value.
        mask: 1 where every query sees all keys, 2 where the last one does, and each one before it one key less.
        dtype: Of all tensors.

    Raises:
        ShapeMismatchError: `heads` is no multiple of `kv_heads`, or `mask` is none of these.
    """
    if heads % kv_heads:
        raise ShapeMismatchError(f"{heads} heads are no multiple of {kv_heads}", f"a multiple of {kv_heads}", heads)
    if mask not in MASKS:
        raise ShapeMismatchError(f"mask is {mask}; it must be 1 or 2", "1 or 2", mask)
    return {
        "q": TensorSpec((batch, heads, queries, head_dim), dtype),
        "k": TensorSpec((batch, kv_heads, keys, head_dim), dtype),
        "v": TensorSpec((batch, kv_heads, keys, value_dim), dtype),
        "out": TensorSpec((batch, heads, queries, value_dim), dtype, fill="empty"), "lse": None,
        "scale": 1 / math.sqrt(head_dim), "CAUSAL": MASKS[mask] == "causal",
        "PRECISION": "ieee" if dtype == "float32" else "tf32",
    }  # fmt: skip


def seen_pairs(queries: int, keys: int, causal: bool) -> int:
    """The pairs of a query and a key that it sees."""
    if not causal:
        return queries * keys
    seeing = min(queries, keys)  # with fewer keys than queries the first queries see none
    return seeing * keys - seeing * (seeing - 1) // 2


@dataclass(frozen=True)
class SplitTiles:
    """The tiles of attention, of which each has a part of the keys where a config splits them."""

    whole: AttentionTiles

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """The plan of as many heads more as there are parts, each with fewer keys."""
        parts = config.get("SPLITS", 1)
        return replace(self.whole, heads=self.whole.heads * parts, keys=-(-self.whole.keys // parts)).plan(
            config, machine
        )


def work(problem: Problem) -> Work:
    """The work: two products for each pair of a query and a key that it sees; all read once, the result written once.

    Heads that share keys are rows of one tile, as queries are.
    """
    q, k, v = (problem.specs[name] for name in ("q", "k", "v"))
    (batch, heads, queries, head_dim), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    causal = problem["CAUSAL"]
    pairs = seen_pairs(queries, keys, causal)
    square = causal and queries == keys
    tiles = AttentionTiles(
        batch * kv_heads, queries * (heads // kv_heads), keys if square else max(1, pairs // max(queries, 1)),
        (head_dim + value_dim) // 2,
        dtype=q.dtype, tile_queries="BLOCK_M", tile_keys="BLOCK_N", causal=square,
    )  # fmt: skip
    flops = 2.0 * batch * heads * pairs * (head_dim + value_dim)
    return Work(flops, float(sum(spec.nbytes for spec in problem.specs.values())), SplitTiles(tiles))


GRADIENT_PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-training": ((2, 32, 8, 4096, 4096, 128, 128, 2), "bfloat16"),
    "llama-8b-long": ((1, 32, 8, 16384, 16384, 128, 128, 2), "bfloat16"),
    "qwen-0.5b-training": ((8, 14, 2, 2048, 2048, 64, 64, 2), "bfloat16"),
    "flux-dev-image": ((1, 24, 24, 4608, 4608, 128, 128, 1), "bfloat16"),
    "whisper-large": ((16, 20, 20, 1500, 1500, 64, 64, 1), "float16"),
    "odd": ((2, 6, 3, 515, 777, 80, 80, 2), "float16"),
}


def gradient_arguments(
    batch: int = 2,
    heads: int = 32,
    kv_heads: int = 8,
    queries: int = 4096,
    keys: int = 4096,
    head_dim: int = 128,
    value_dim: int = 128,
    mask: int = 2,
    dtype: str = "bfloat16",
) -> dict[str, TensorSpec | float | bool | str | None]:
    """The arguments of the gradient's launch; `out` and `lse` stand for a result and logarithms, and hold any numbers.

    Raises:
        ShapeMismatchError: As `arguments`.
    """
    inputs = arguments(batch, heads, kv_heads, queries, keys, head_dim, value_dim, mask, dtype)
    result = TensorSpec((batch, heads, queries, value_dim), dtype)
    outputs = {name: replace(inputs[name[1]], fill="empty") for name in ("dq", "dk", "dv")}  # type: ignore[type-var]
    return {
        "q": inputs["q"], "k": inputs["k"], "v": inputs["v"], "out": result,
        "lse": TensorSpec((batch, heads, queries), "float32", fill="positive"), "grad": result, **outputs,
        "scale": inputs["scale"], "CAUSAL": inputs["CAUSAL"], "PRECISION": inputs["PRECISION"],
    }  # fmt: skip


def gradient_work(problem: Problem) -> Work:
    """The work: five products for each pair of a query and a key that it sees; all read once, the gradients written.

    The tiles are those of the kernel that makes dk and dv: keys, which walk along the rows.
    """
    q, k, v = (problem.specs[name] for name in ("q", "k", "v"))
    (batch, heads, queries, head_dim), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    pairs = seen_pairs(queries, keys, problem["CAUSAL"])
    tiles = AttentionTiles(
        batch * kv_heads, keys, max(1, pairs // max(keys, 1)) * (heads // kv_heads), head_dim + value_dim,
        dtype=q.dtype, tile_queries="K_KEYS", tile_keys="K_ROWS",
    )  # fmt: skip
    flops = 2.0 * batch * heads * pairs * (3 * head_dim + 2 * value_dim)
    return Work(flops, float(sum(spec.nbytes for spec in problem.specs.values())), tiles)
