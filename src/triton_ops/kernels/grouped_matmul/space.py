"""The config space of the grouped product: tunables, constraints, untuned configs.

Shared memory is no constraint here: the compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.kernels.choice import OwnConfigs
from triton_ops.kernels.grouped_matmul.problems import LARGEST_STEP
from triton_ops.kernels.tiles import K_STEP_BYTES, describable, fitting, padded
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Flag, IntRange, PowerOfTwo, Tunable
from triton_ops.values import ITEM_BYTES, Problem, TensorSpec

TUNABLES: dict[str, Tunable] = {
    "BLOCK_M": PowerOfTwo(16, 256),
    "BLOCK_N": PowerOfTwo(32, 256),
    "BLOCK_K": PowerOfTwo(32, LARGEST_STEP),
    "GROUP_SIZE_M": Choice([8]),
    "DESCRIPTORS": Flag(),
    "PROGRAMS": Choice([0, 1]),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(2, 5),
}
OWN = OwnConfigs(TUNABLES, optional=("GROUP_SIZE_M", "DESCRIPTORS", "PROGRAMS"))
_LEAST = (16, 32, 32)
_MOST_SUMS = 128  # elements of the accumulator for each thread
_GROUP_SIDE = 64  # rows of an instruction of a group of four warps
_LEAST_SUMS = 64  # with eight warps
_UNEVEN = 2  # a group may well have twice as many rows as the mean


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents and layout.

    Args:
        problem: A problem with the specs x, weight and out, and the extents M, N, K and GROUPS.
    """
    specs, M, N, K = problem.specs, problem["M"], problem["N"], problem["K"]
    mean = mean_rows(M, problem["GROUPS"])
    rows, least_rows, least_columns = (
        _UNEVEN * mean,
        min(padded(mean, 16), _GROUP_SIDE),
        min(padded(N, 32), _GROUP_SIDE),
    )
    rules = (
        *fitting(rows, N, K, least=_LEAST, has_descriptors=takes_descriptors(specs["x"], specs["weight"])),
        Constraint(
            "narrow",
            lambda BLOCK_M, BLOCK_N: least_rows <= BLOCK_M and least_columns <= BLOCK_N,
            f"{{BLOCK_M}} by {{BLOCK_N}} read more than sides of {_GROUP_SIDE}, which groups of four warps need",
        ),
        Constraint(
            "accumulator",
            lambda BLOCK_M, BLOCK_N, num_warps: 32 * _MOST_SUMS * num_warps >= BLOCK_M * BLOCK_N,
            f"{{BLOCK_M}} by {{BLOCK_N}} take over {_MOST_SUMS} registers of each thread of {{num_warps}} warps",
        ),
        Constraint(
            "warps",
            lambda BLOCK_M, BLOCK_N, num_warps: num_warps == 4 or 32 * _LEAST_SUMS * num_warps <= BLOCK_M * BLOCK_N,
            f"{{num_warps}} warps have under {_LEAST_SUMS} sums of {{BLOCK_M}} by {{BLOCK_N}} for each thread",
        ),
    )
    return ConfigSpace(TUNABLES, rules, default_config(M, N, K, problem["GROUPS"], specs["x"].dtype))


def mean_rows(M: int, groups: int) -> int:
    """The rows of a group, at least 1."""
    return max(1, -(-M // max(groups, 1)))


def takes_descriptors(x: TensorSpec, weight: TensorSpec) -> bool:
    """Tell whether descriptors can be made of x, and of the weights with their neighbours along the last axis."""
    if weight.strides[1] == 1:
        (groups, K, N), (apart, along, across) = weight.shape, weight.strides
        weight = TensorSpec((groups, N, K), weight.dtype, (apart, across, along), aligned=weight.aligned)
    return describable(x, weight)


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, groups: int, dtype: str) -> Config:
    """The untuned config: tiles of 128 by 128, with as many rows as a mean group has, and steps of 128 bytes."""
    rows = min(padded(mean_rows(M, groups), 16), 128)
    columns = min(padded(N, 32), 128)
    step = min(padded(K, 32), max(32, K_STEP_BYTES // ITEM_BYTES[dtype]))
    return Config(
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=step, GROUP_SIZE_M=8, DESCRIPTORS=False, PROGRAMS=0,
        num_warps=8 if rows * columns >= 128 * 128 else 4, num_stages=2 if dtype == "float32" else 4,
    )  # fmt: skip
