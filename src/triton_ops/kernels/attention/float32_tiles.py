"""Tiles of attention for float32 where TF32 is not allowed: each term is multiplied and added by itself.

Such products take no matrix instructions. A tile has rows times keys times elements of a head as terms. A thread that
has many of them spills, and compilers take long for it: up to a minute for one config of the gradient, as
`triton-ops compile attention_backward --dtype fp32` shows. So tiles are small. Three products of numbers of TF32
(`tf32x3`) in matrix instructions are faster on an H200, and lose what is smaller than these numbers can be: with values
around 1e-37 results are 1e-4 off, which the rule for verdicts takes for wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.space import Config, Constraint, PowerOfTwo, Tunable
from triton_ops.values import Problem

GRADIENT_SIDES: dict[str, Tunable] = {name: PowerOfTwo(16, 128) for name in ("Q_ROWS", "Q_KEYS", "K_KEYS", "K_ROWS")}
_MOST_TERMS, _MOST_GRADIENT_TERMS = 1024, 512
_MANY_TERMS = "have over {} terms for each thread of {{num_warps}} warps, which take compilers long and spill"


def are_summed(arguments: Problem | Mapping[str, Any]) -> bool:
    """Tell whether products are summed up term by term, of a problem or of a call's arguments."""
    return bool(arguments["PRECISION"] == "ieee")


def tile(size: int) -> tuple[int, int, int, int]:
    """BLOCK_M, BLOCK_N, num_warps and num_stages of the untuned config for heads of `size` elements.

    Source: the fastest of those tried on an H200 with Triton 3.6.0, for heads of 64 and 128; for wider ones a tile that
    spills nothing, and whose shared memory all devices have.
    """
    return (32, 32, 4, 2) if size <= 64 else (16, 64, 4, 2) if size <= 128 else (16, 32, 8, 2)


def gradient_tile(size: int) -> Config:
    """The untuned config of the gradient for heads of `size` elements; its source is as that of `tile`.

    For heads of over 128 it hardly spills and needs no more shared memory than all devices have; on an H200 it takes
    1.03 of the time of the fastest of nine tiles, for heads of 256.
    """
    if size <= 64:
        return Config(Q_ROWS=16, Q_KEYS=64, K_KEYS=64, K_ROWS=16, num_warps=4, num_stages=2)
    if size > 128:
        return Config(Q_ROWS=16, Q_KEYS=32, K_KEYS=32, K_ROWS=16, num_warps=8, num_stages=1)
    return Config(Q_ROWS=32, Q_KEYS=32, K_KEYS=32, K_ROWS=32, num_warps=8, num_stages=1)


def rule(size: int) -> Constraint:
    """The constraint of attention for heads of `size` elements, padded."""
    return Constraint(
        "terms",
        lambda BLOCK_M, BLOCK_N, num_warps: _few(BLOCK_M * BLOCK_N * size, num_warps, _MOST_TERMS),
        "{BLOCK_M} by {BLOCK_N} " + _MANY_TERMS.format(_MOST_TERMS),
    )


def gradient_rules(size: int) -> tuple[Constraint, Constraint]:
    """The constraints of the gradient for heads of `size` elements, padded."""
    return (
        Constraint(
            "terms of dq",
            lambda Q_ROWS, Q_KEYS, num_warps: _few(Q_ROWS * Q_KEYS * size, num_warps, _MOST_GRADIENT_TERMS),
            "{Q_ROWS} by {Q_KEYS} " + _MANY_TERMS.format(_MOST_GRADIENT_TERMS),
        ),
        Constraint(
            "terms of dk and dv",
            lambda K_KEYS, K_ROWS, num_warps: _few(K_KEYS * K_ROWS * size, num_warps, _MOST_GRADIENT_TERMS),
            "{K_KEYS} by {K_ROWS} " + _MANY_TERMS.format(_MOST_GRADIENT_TERMS),
        ),
    )


def _few(terms: int, warps: int, most: int) -> bool:
    return terms <= 32 * warps * most
