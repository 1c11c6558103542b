"""What may be tuned in the matmul, and the config that runs when nothing is.

Shared memory is no constraint here: how much a config needs depends on the target and the compiler's version, so the
device itself says which configs fit.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.space import Choice, Config, ConfigSpace, Constraint, IntRange, PowerOfTwo, Tunable
from triton_ops.tensors import ITEM_BYTES
from triton_ops.trial import Problem

TUNABLES: dict[str, Tunable] = {
    "BM": PowerOfTwo(16, 256),
    "BN": PowerOfTwo(32, 256),
    "BK": PowerOfTwo(32, 128),
    "GROUP_M": Choice([8]),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(2, 5),
}
_FULL_TILE = 128 * 128  # elements of C: 128 accumulator registers per thread with four warps
_K_STEP_BYTES = 128  # one row of a shared-memory tile in wgmma's widest swizzle


def config_space(problem: Problem) -> ConfigSpace:
    """The 480 configs, less those whose tile is more than twice a small problem.

    Args:
        problem: Holds the spec `a` and the extents M, N and K.
    """
    M, N, K = problem["M"], problem["N"], problem["K"]
    rows, columns, step = _widest(M, 16), _widest(N, 32), _widest(K, 32)
    fits = (
        Constraint("rows", lambda BM: rows >= BM, f"{{BM}} rows are over twice the padded M of {M}"),
        Constraint("columns", lambda BN: columns >= BN, f"{{BN}} columns are over twice the padded N of {N}"),
        Constraint("step", lambda BK: step >= BK, f"a step of {{BK}} is over twice the padded K of {K}"),
    )
    return ConfigSpace(TUNABLES, fits, default_config(M, N, K, problem["a"].dtype))


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, dtype: str) -> Config:
    """The config for a product of these extents, with inputs of `dtype`, when nothing is tuned.

    128 by 128 tiles, less for a smaller product, and K in steps of 128 bytes. It asks for at most 96 KiB of shared
    memory on sm_80 to sm_89 and 128 KiB on sm_90, which every such GPU has. Eight warps share a full tile: four are as
    fast where loads are 16 bytes wide, and spill far more where strides allow only narrow ones.

    Source: as share of the optimum of a recorded space with these tunables (H200, Triton 3.6.0): 0.97 at
    16x14336x4096, 0.92 at 512x4096x14336, 0.90 at 4096x4096x4096 (bfloat16), 0.91 at 1024x8192x8192 (float8).
    """
    rows = min(_padded(M, 16), 128)
    columns = min(_padded(N, 32), 64 if rows <= 32 else 128)
    step = min(_padded(K, 32), _K_STEP_BYTES // ITEM_BYTES[dtype])
    warps = 8 if rows * columns >= _FULL_TILE else 4
    return Config(BM=rows, BN=columns, BK=step, GROUP_M=8, num_warps=warps, num_stages=4)


def _padded(extent: int, smallest: int) -> int:
    """`extent` rounded up to a power of two, and to `smallest`."""
    return max(smallest, 1 << max(extent - 1, 0).bit_length())


def _widest(extent: int, smallest: int) -> int:
    """The widest tile worth a try over `extent`."""
    return max(smallest, 2 * _padded(extent, 1))
