"""What may be tuned in the fused RMSNorm and RoPE, and the config that runs when nothing is.

No constraints: a block wider than the row is masked, and every config runs on every row length.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.space import Config, ConfigSpace, IntRange, PowerOfTwo, Tunable
from triton_ops.tensors import ITEM_BYTES
from triton_ops.trial import Problem

TUNABLES: dict[str, Tunable] = {
    "BLOCK_SIZE": PowerOfTwo(64, 1024),
    "num_warps": PowerOfTwo(2, 8),
    "num_stages": IntRange(1, 3),
}
_WARP_BYTES = 32 * 16  # what a warp loads at once: 16 bytes per lane, the widest there is


def config_space(problem: Problem) -> ConfigSpace:
    """The 45 configs, with the default for the problem's row length and dtype.

    Args:
        problem: Holds the spec `x` and the extent HIDDEN.
    """
    return ConfigSpace(TUNABLES, default=default_config(problem["HIDDEN"], problem["x"].dtype))


@lru_cache(maxsize=1024)
def default_config(hidden: int, dtype: str) -> Config:
    """The config for rows of `hidden` elements of `dtype`, when nothing is tuned.

    As few chunks as there can be, and as many warps as load each half of a chunk with one 16-byte load per thread.
    """
    pairs = max(64, 1 << max(hidden // 2 - 1, 0).bit_length())
    block = min(pairs, 1024)
    warps = min(max(block * ITEM_BYTES[dtype] // _WARP_BYTES, 2), 8)
    return Config(BLOCK_SIZE=block, num_warps=warps, num_stages=1)
