"""The problems of the grouped product, each with the space of configs that are worth trying.

Shared memory is no constraint here: the compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.cost_model import ProductTiles
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import ITEM_BYTES, Problem, TensorSpec, Work
from triton_ops_kernels.call import Own, OwnConfigs, precision_of, whole_from
from triton_ops_kernels.tiles import DESCRIBABLE, K_STEP_BYTES, check_reach, describable, padded, strides_of, widest

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("bfloat16", "float16", "float32")
LEAST_GAIN = 0.05
LAYOUTS = {1: "[group, K, N]", 2: "[group, N, K]"}
"""How weights lie in memory, by the number that stands in a shape."""
LARGEST_STEP = 128  # of the tunable BLOCK_K

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "mixtral-8x7b-up-prefill": ((8192, 8, 28672, 4096, 2), "bfloat16"),  # 4,096 tokens, 2 of 8 experts each
    "mixtral-8x7b-up-decode": ((64, 8, 28672, 4096, 2), "bfloat16"),
    "qwen3-30b-up-prefill": ((32768, 128, 1536, 2048, 2), "bfloat16"),  # 4,096 tokens, 8 of 128 experts each
    "qwen3-30b-down-prefill": ((32768, 128, 2048, 768, 2), "bfloat16"),
    "qwen3-30b-up-decode": ((256, 128, 1536, 2048, 2), "bfloat16"),
    "deepseek-v3-up-prefill": ((8192, 32, 4096, 7168, 2), "bfloat16"),  # 32 of 256 experts, on one of 8 devices
    "deepseek-v3-down-prefill": ((8192, 32, 7168, 2048, 2), "bfloat16"),
    "deepseek-v3-up-decode": ((256, 32, 4096, 7168, 2), "bfloat16"),
    "k-first": ((4096, 16, 4096, 2048, 1), "bfloat16"),
    "odd": ((1000, 7, 777, 515, 1), "float16"),  # no multiple of any tile; its rows do not allow 16-byte loads
}


def arguments(
    M: int = 8192, groups: int = 8, N: int = 28672, K: int = 4096, layout: int = 2, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | bool | str | None]:
    """The kernel's arguments, by name, in the order of its parameters; groups have random sizes, and rows no index.

    `M` are the rows of all groups. `layout` is 1 for weights [groups, K, N] in memory, 2 for [groups, N, K], as linear
    layers have them.

    Raises:
        ShapeMismatchError: Elements of one tile would lie 2^31 or more elements apart, or `layout` is none of these.
    """
    if layout not in LAYOUTS:
        raise ShapeMismatchError(f"layout is {layout}; it must be 1 or 2", "1 or 2", layout)
    x = TensorSpec((M, K), dtype)
    weight = TensorSpec((groups, K, N), dtype, (N * K, 1, K) if layout == 2 else None)
    out, ends = TensorSpec((M, N), dtype, fill="empty"), TensorSpec((groups,), "int32", fill="ends", total=M)
    return launch_values(x, weight, out, ends, None)


def launch_values(x: Any, weight: Any, out: Any, ends: Any, gather: Any) -> dict[str, Any]:
    """The kernel's arguments for tensors, or what describes them; strides are in elements."""
    (groups, K, N), (xm, xk), (wg, wk, wn) = weight.shape, strides_of(x), strides_of(weight)
    check_reach("x", (1, K), (0, xk))
    check_reach("weight", (K, N), (wk, wn))
    return {
        "x": x, "weight": weight, "out": out, "ends": ends, "gather": gather, "M": out.shape[0], "N": N, "K": K,
        "stride_xm": xm, "stride_xk": xk, "stride_wg": wg, "stride_wk": wk, "stride_wn": wn,
        "GROUPS": groups, "BLOCK_G": padded(groups, 1), "EVEN": K % LARGEST_STEP == 0, "ALONG_K": wk == 1,
        "PRECISION": precision_of(x),
    }  # fmt: skip


def work(problem: Problem) -> Work:
    """The work: 2MNK operations; x and the weights of at most M groups read once, the product written once.

    Tiles are those of groups of equal sizes.
    """
    specs = problem.specs
    x, weight, out = specs["x"], specs["weight"], specs["out"]
    M, N, K, groups = out.shape[0], problem["N"], problem["K"], problem["GROUPS"]
    weight_bytes = weight.nbytes * min(groups, M) // max(groups, 1)
    tiles = ProductTiles.of((-(-M // max(groups, 1)), N, K), x, weight, out, batch=groups, described=False)
    return Work(2.0 * M * N * K, float(x.nbytes + weight_bytes + out.nbytes), tiles)


OWN = OwnConfigs({
    "BLOCK_M": [16, 32, 64, 128, 256],
    "BLOCK_N": [32, 64, 128, 256],
    "BLOCK_K": [32, 64, LARGEST_STEP],
    "GROUP_SIZE_M": Own([8], whole_from(1), optional=True),
    "DESCRIPTORS": Own([False, True], optional=True),
    "PROGRAMS": Own([0, 1], optional=True),
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5],
})  # fmt: skip
_MOST_SUMS = 128  # elements of the accumulator for each thread
_GROUP_SIDE = 64  # rows of an instruction of a group of four warps
_LEAST_SUMS = 64  # with eight warps
_UNEVEN = 2  # a group may well have twice as many rows as the mean


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents and layout."""
    specs, M, N, K = problem.specs, problem["M"], problem["N"], problem["K"]
    mean = mean_rows(M, problem["GROUPS"])
    least_rows, least_columns = min(padded(mean, 16), _GROUP_SIDE), min(padded(N, 32), _GROUP_SIDE)
    has_descriptors = takes_descriptors(specs["x"], specs["weight"])
    rules = (
        *_most_sides(_UNEVEN * mean, N, K),
        Constraint(
            "descriptors",
            lambda DESCRIPTORS: has_descriptors or not DESCRIPTORS,
            f"a tensor descriptor needs {DESCRIBABLE}",
        ),
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
    return ConfigSpace(OWN.tunables, rules, default_config(M, N, K, problem["GROUPS"], specs["x"].dtype))


def _most_sides(M: int, N: int, K: int) -> tuple[Constraint, ...]:
    rows, columns, step = widest(M, 16), widest(N, 32), widest(K, 32)
    return (
        Constraint("rows", lambda BLOCK_M: rows >= BLOCK_M, f"{{BLOCK_M}} rows are over twice the padded M of {M}"),
        Constraint(
            "columns", lambda BLOCK_N: columns >= BLOCK_N, f"{{BLOCK_N}} columns are over twice the padded N of {N}"
        ),
        Constraint("step", lambda BLOCK_K: step >= BLOCK_K, f"a step of {{BLOCK_K}} is over twice the padded K of {K}"),
    )


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
    """The untuned config: tiles of 128 by 128, with as many rows as a mean group has, and steps of 128 bytes.

    Where rows are few, weights have to arrive, and steps have 256 bytes.
    """
    rows = min(padded(mean_rows(M, groups), 16), 128)
    columns, few = min(padded(N, 32), 128), rows == 16
    step = min(padded(K, 32), max(32, K_STEP_BYTES * (1 + few) // ITEM_BYTES[dtype]))
    return Config(
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=step, GROUP_SIZE_M=8, DESCRIPTORS=False, PROGRAMS=0,
        num_warps=8 if rows * columns >= 128 * 128 else 4, num_stages=2 if dtype == "float32" else 3 if few else 4,
    )  # fmt: skip


def grouped_matmul_reference(
    x: Tensor, weight: Tensor, out: Tensor, ends: Tensor, gather: Tensor | None, **_extents: object
) -> Tensor:
    """Multiply each group's rows with its weight in float32 or wider, rounded once; rows of no group are zeros.

    Cost: a product for each group, copies of its rows and of its weight, and a host sync.
    """
    torch = require("torch", "the reference of grouped_matmul")
    wide = torch.promote_types(x.dtype, torch.float32)
    found, start = out.new_zeros(out.shape), 0
    for group, end in enumerate(ends.clamp(max=len(out)).tolist()):
        if end > start:
            rows = x[start:end] if gather is None else x[gather[start:end].long()]
            found[start:end] = (rows.to(wide) @ weight[group].to(wide)).to(out.dtype)
        start = max(start, end)
    return found
