"""The config space of the matmul, and the config that runs untuned.

Shared memory is no constraint here: the need of a config depends on the target and the compiler's version, so the
compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.kernels.tiles import padded, widest
from triton_ops.problem import Problem
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, IntRange, PowerOfTwo, Tunable
from triton_ops.tensors import ITEM_BYTES

TUNABLES: dict[str, Tunable] = {
    "BM": PowerOfTwo(16, 256),
    "BN": PowerOfTwo(32, 256),
    "BK": PowerOfTwo(32, 128),
    "GROUP_M": Choice([8]),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(2, 5),
}
OPTIONAL = ("GROUP_M",)
NEEDED = tuple(name for name in TUNABLES if name not in OPTIONAL)
_FULL_TILE = 128 * 128  # elements of C: 128 accumulator registers per thread with four warps
_K_STEP_BYTES = 128  # one row of a shared-memory tile in wgmma's widest swizzle


def config_space(problem: Problem) -> ConfigSpace:
    """The space of 480 configs, without those whose tile is over twice as wide as a small problem.

    Args:
        problem: A problem with the spec `a` and the extents M, N and K.
    """
    M, N, K = problem["M"], problem["N"], problem["K"]
    rows, columns, step = widest(M, 16), widest(N, 32), widest(K, 32)
    fits = (
        Constraint("rows", lambda BM: rows >= BM, f"{{BM}} rows are over twice the padded M of {M}"),
        Constraint("columns", lambda BN: columns >= BN, f"{{BN}} columns are over twice the padded N of {N}"),
        Constraint("step", lambda BK: step >= BK, f"a step of {{BK}} is over twice the padded K of {K}"),
    )
    return ConfigSpace(TUNABLES, fits, default_config(M, N, K, problem["a"].dtype))


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, dtype: str) -> Config:
    """The untuned config for a product of these extents, with inputs of `dtype`.

    The config has tiles of 128 by 128, smaller for a smaller product, and steps of 128 bytes along K. It needs at most
    96 KiB of shared memory on sm_80 to sm_89 and 128 KiB on sm_90, which every such GPU has. Eight warps share a full
    tile: four warps are as fast with loads of 16 bytes, and spill far more where strides allow only narrow loads.

    Source: share of the optimum of a recorded space with these tunables (H200, Triton 3.6.0): 0.97 at
    16x14336x4096, 0.92 at 512x4096x14336, 0.90 at 4096x4096x4096 (bfloat16), 0.91 at 1024x8192x8192 (float8).
    """
    rows = min(padded(M, 16), 128)
    columns = min(padded(N, 32), 64 if rows <= 32 else 128)
    step = min(padded(K, 32), _K_STEP_BYTES // ITEM_BYTES[dtype])
    warps = 8 if rows * columns >= _FULL_TILE else 4
    return Config(BM=rows, BN=columns, BK=step, GROUP_M=8, num_warps=warps, num_stages=4)
