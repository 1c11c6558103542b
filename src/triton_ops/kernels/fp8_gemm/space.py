"""The config space of the product of 8-bit floats, and the config that runs untuned.

The documented space, `FP8_GEMM_CONFIGS`, is part of this wider one but for steps of 32, which this leaves out: they
fill a quarter of a row of shared memory. `tune(operation, space=FP8_GEMM_CONFIGS)` takes it alone. Shared memory is no
constraint here: the compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.kernels.fp8_format import FP8Format
from triton_ops.kernels.tiles import describable, fitting, padded
from triton_ops.problem import Problem
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Flag, IntRange, PowerOfTwo, Tunable
from triton_ops.tensors import TensorSpec

NEEDED = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
OPTIONAL = ("GROUP_SIZE_M", "PROMOTE", "DESCRIPTORS", "PROGRAMS")

TUNABLES: dict[str, Tunable] = {
    "BLOCK_M": PowerOfTwo(16, 256),
    "BLOCK_N": PowerOfTwo(32, 256),
    "BLOCK_K": PowerOfTwo(64, 256),
    "GROUP_SIZE_M": Choice([4, 8]),
    "PROMOTE": Choice([0, 64, 128]),
    "DESCRIPTORS": Flag(),
    "PROGRAMS": Choice([0, 1]),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(2, 5),
}
_LEAST = (16, 32, 64)
_MOST_SUMS = 256 * 128  # elements of the accumulator with eight warps: 128 registers of a thread


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents, layout and precision.

    Args:
        problem: A problem with the specs of the tensors, the extents M, N and K, and the flags BLOCKED and FAST.
    """
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    blocked = problem["BLOCKED"]
    rules = (
        *fitting(M, N, K, least=_LEAST, described=describable(specs["a"], _turned(specs["b"]))),
        Constraint(
            "accumulator",
            lambda BLOCK_M, BLOCK_N, num_warps: _MOST_SUMS * num_warps >= 8 * BLOCK_M * BLOCK_N,
            "an accumulator of {BLOCK_M} by {BLOCK_N} takes over 128 registers of each thread of {num_warps} warps",
        ),
        _promotion(blocked),
        Constraint(
            "blocks",
            lambda BLOCK_K: not blocked or FP8Format.block >= BLOCK_K,
            "a step of {BLOCK_K} has terms of several scales; there is one for each 128",
        ),
    )
    return ConfigSpace(TUNABLES, rules, default_config(M, N, K))


def _promotion(blocked: bool) -> Constraint:
    if blocked:
        return Constraint("promotion", lambda PROMOTE: PROMOTE == 0, "scales for blocks promote the sum of every step")
    return Constraint(
        "promotion",
        lambda PROMOTE, BLOCK_K: PROMOTE < BLOCK_K,
        "{PROMOTE} terms are a whole step of {BLOCK_K} or more, which 0 says too",
    )


def _turned(b: TensorSpec) -> TensorSpec:
    """B as the matrix [N, K] that its descriptor shows."""
    return TensorSpec(b.shape[::-1], b.dtype, b.strides[::-1], aligned=b.aligned)


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int) -> Config:
    """The untuned config: tiles of 128 by 128, smaller for a smaller product, and steps of 128 terms."""
    rows, columns = min(padded(M, 16), 128), min(padded(N, 32), 64 if M <= 32 else 128)
    warps = 8 if rows * columns >= 128 * 128 else 4  # a sum that is promoted takes its registers twice
    return Config(
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=min(padded(K, 64), 128), GROUP_SIZE_M=8, PROMOTE=0, DESCRIPTORS=False,
        PROGRAMS=0, num_warps=warps, num_stages=4,
    )  # fmt: skip
