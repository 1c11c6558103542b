"""The config spaces of the fused RMSNorm and RoPE and of its gradient, and the configs that run untuned.

The operation's own space is the documented one. It has no constraints: a block wider than the row is masked, and every
config runs on every row length. A wider one stands beside it, with blocks for whole rows and more warps.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.kernels.column_sums import SUM_COLUMNS
from triton_ops.problem import Problem
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, IntRange, PowerOfTwo, Tunable
from triton_ops.tensors import ITEM_BYTES

TUNABLES: dict[str, Tunable] = {
    "BLOCK_SIZE": PowerOfTwo(64, 1024),
    "num_warps": PowerOfTwo(2, 8),
    "num_stages": IntRange(1, 3),
}
WIDE_TUNABLES: dict[str, Tunable] = {
    "BLOCK_SIZE": PowerOfTwo(64, 8192),
    "num_warps": PowerOfTwo(1, 16),
    "num_stages": IntRange(1, 4),
}
GRADIENT_TUNABLES: dict[str, Tunable] = {
    "BLOCK_SIZE": PowerOfTwo(64, 8192),
    "PROGRAMS": Choice([1, 2, 4]),
    "SUM_COLUMNS": SUM_COLUMNS,
    "num_warps": PowerOfTwo(1, 16),
}
_MOST_PER_THREAD = 32  # pairs of a block: 64 registers hold them, as many the gradient's other blocks
_GRADIENT_MOST = 16
_WARP_BYTES = 32 * 16  # bytes that a warp loads at once: 16 bytes per lane, the widest load


def config_space(problem: Problem) -> ConfigSpace:
    """The space of 45 configs, with the default for the problem's row length and dtype.

    Args:
        problem: A problem with the spec `x` and the extent HIDDEN.
    """
    return ConfigSpace(TUNABLES, default=default_config(problem["HIDDEN"], problem["x"].dtype))


@lru_cache(maxsize=1024)
def default_config(hidden: int, dtype: str) -> Config:
    """The untuned config for rows of `hidden` elements of `dtype`.

    The config has as few chunks as possible, and as many warps as load each half of a chunk with one 16-byte load per
    thread.
    """
    block = min(_padded_pairs(hidden), 1024)
    warps = min(max(block * ITEM_BYTES[dtype] // _WARP_BYTES, 2), 8)
    return Config(BLOCK_SIZE=block, num_warps=warps, num_stages=1)


def wide_space(problem: Problem) -> ConfigSpace:
    """A space around the documented one: `tune(operation, space=wide_space(problem))`.

    Args:
        problem: A problem with the spec `x` and the extent HIDDEN.
    """
    hidden = problem["HIDDEN"]
    rules = _fitting(hidden, _MOST_PER_THREAD)
    return ConfigSpace(WIDE_TUNABLES, rules, default_config(hidden, problem["x"].dtype))


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient; PROGRAMS counts the programs for each multiprocessor."""
    hidden = problem["HIDDEN"]
    return ConfigSpace(GRADIENT_TUNABLES, _fitting(hidden, _GRADIENT_MOST), gradient_default(hidden))


@lru_cache(maxsize=1024)
def gradient_default(hidden: int) -> Config:
    """The untuned config of the gradient: whole rows in registers as far as they go, 8 pairs for each thread."""
    block = _padded_pairs(hidden)
    block = block if block <= _GRADIENT_MOST * 32 * 16 else 1024
    return Config(BLOCK_SIZE=block, PROGRAMS=2, SUM_COLUMNS=0, num_warps=min(16, max(1, block // 256)))


def _fitting(hidden: int, most: int) -> tuple[Constraint, ...]:
    widest = _padded_pairs(hidden)
    return (
        Constraint("row", lambda BLOCK_SIZE: widest >= BLOCK_SIZE, f"{{BLOCK_SIZE}} is over a row of {widest} pairs"),
        Constraint(
            "registers",
            lambda BLOCK_SIZE, num_warps: 32 * most * num_warps >= BLOCK_SIZE,
            f"over {most} pairs for each thread spill",
        ),
        Constraint(
            "threads",
            lambda BLOCK_SIZE, num_warps: 32 * num_warps <= BLOCK_SIZE,
            "{num_warps} warps have less than one pair for each thread",
        ),
    )


def _padded_pairs(hidden: int) -> int:
    """The smallest block that holds a whole row."""
    return max(64, 1 << max(hidden // 2 - 1, 0).bit_length())
