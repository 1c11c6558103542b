"""The config space of the fused RMSNorm and RoPE, and the config that runs untuned.

The space has no constraints: a block wider than the row is masked, and every config runs on every row length.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.problem import Problem
from triton_ops.space import Config, ConfigSpace, IntRange, PowerOfTwo, Tunable
from triton_ops.tensors import ITEM_BYTES

TUNABLES: dict[str, Tunable] = {
    "BLOCK_SIZE": PowerOfTwo(64, 1024),
    "num_warps": PowerOfTwo(2, 8),
    "num_stages": IntRange(1, 3),
}
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
    pairs = max(64, 1 << max(hidden // 2 - 1, 0).bit_length())
    block = min(pairs, 1024)
    warps = min(max(block * ITEM_BYTES[dtype] // _WARP_BYTES, 2), 8)
    return Config(BLOCK_SIZE=block, num_warps=warps, num_stages=1)
