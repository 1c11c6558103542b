"""The config spaces of the gated MLP and of its gradient, and the configs that run untuned.

The documented space, `GATED_MLP_CONFIGS`, is part of this wider one; `tune(operation, space=GATED_MLP_CONFIGS)` takes
it alone. Shared memory is no constraint here: the compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.kernels.tiles import describable, fitting, padded
from triton_ops.problem import Problem
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Flag, IntRange, PowerOfTwo, Tunable
from triton_ops.tensors import ITEM_BYTES

NEEDED = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
OPTIONAL = ("GROUP_SIZE_M", "DESCRIPTORS", "PROGRAMS")

TUNABLES: dict[str, Tunable] = {
    "BLOCK_M": PowerOfTwo(16, 256),
    "BLOCK_N": PowerOfTwo(16, 128),
    "BLOCK_K": PowerOfTwo(32, 128),
    "GROUP_SIZE_M": Choice([8]),
    "DESCRIPTORS": Flag(),
    "PROGRAMS": Choice([0, 1]),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(2, 5),
}
GRADIENT_TUNABLES: dict[str, Tunable] = {"BLOCK_SIZE": PowerOfTwo(256, 8192), "num_warps": PowerOfTwo(1, 8)}
_LEAST = (16, 16, 32)
_MOST_SUMS = 2 * 128 * 128  # elements of both accumulators with eight warps: 128 registers of a thread
_K_STEP_BYTES = 128  # one row of a shared-memory tile in wgmma's widest swizzle


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents and layout.

    Args:
        problem: A problem with the specs of the tensors and the extents M, N and K.
    """
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    described = describable(*(specs[name] for name in ("x", "gate_weight", "up_weight", "out")))
    sums = Constraint(
        "accumulators",
        lambda BLOCK_M, BLOCK_N, num_warps: _MOST_SUMS * num_warps // 8 >= 2 * BLOCK_M * BLOCK_N,
        "two accumulators of {BLOCK_M} by {BLOCK_N} take over 128 registers of each thread of {num_warps} warps",
    )
    rules = (*fitting(M, N, K, least=_LEAST, described=described), sums)
    return ConfigSpace(TUNABLES, rules, default_config(M, N, K, specs["x"].dtype))


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, dtype: str) -> Config:
    """The untuned config: two tiles of 128 by 64, smaller for a smaller problem, and steps of 128 bytes along K."""
    rows, columns = min(padded(M, 16), 128), min(padded(N, 16), 64)
    step = min(padded(K, 32), max(32, _K_STEP_BYTES // ITEM_BYTES[dtype]))
    stages = 2 if dtype == "float32" else 3
    return Config(
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=step, GROUP_SIZE_M=8, DESCRIPTORS=False, PROGRAMS=0,
        num_warps=8 if rows * columns >= 128 * 64 else 4, num_stages=stages,
    )  # fmt: skip


def gradient_space(_problem: Problem) -> ConfigSpace:
    """The space of the gradient's kernel, which maps elements."""
    lanes = Constraint(
        "threads",
        lambda BLOCK_SIZE, num_warps: 64 <= BLOCK_SIZE // num_warps <= 32 * 32,
        "{BLOCK_SIZE} elements are under 2 or over 32 for each thread of {num_warps} warps",
    )
    return ConfigSpace(GRADIENT_TUNABLES, (lanes,), gradient_default())


def gradient_default() -> Config:
    """The untuned config of the gradient's kernel: 8 elements for each thread, one 16-byte load of 16-bit floats."""
    return Config(BLOCK_SIZE=1024, num_warps=4)
