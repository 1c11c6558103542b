"""The matmul's problems: its arguments from the three extents, least work, named shapes."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops.cost_model import GemmTiles, ProductTiles
from triton_ops.kernels.tiles import check_reach
from triton_ops.values import Problem, TensorSpec, Work

OUTPUT_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float8_e4m3fn": "bfloat16"}
"""The dtype of the product by the dtype of the inputs."""
BIAS_DTYPES = ("bfloat16", "float16", "float32")
ACTIVATIONS = ("none", "relu", "gelu", "silu")

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "1024": ((1024, 1024, 1024), "bfloat16"),
    "4096": ((4096, 4096, 4096), "bfloat16"),
    "8192": ((8192, 8192, 8192), "bfloat16"),
    "fp8-8192": ((8192, 8192, 8192), "float8_e4m3fn"),
    "fp8-wide": ((1024, 8192, 8192), "float8_e4m3fn"),
    "llama-8b-decode": ((16, 14336, 4096), "bfloat16"),  # up projection, 16 sequences of one token
    "llama-8b-prefill": ((512, 4096, 14336), "bfloat16"),  # down projection, 512 tokens
    "llama-70b-decode": ((64, 8192, 28672), "bfloat16"),  # down projection, 64 sequences of one token
    "qwen-7b-prefill": ((1024, 3584, 18944), "bfloat16"),  # down projection: 1.7 waves of 128 by 128 on 132 units
    "odd": ((1000, 777, 515), "float16"),  # no multiple of any tile; its rows do not allow 16-byte loads
}


def arguments(M: int, N: int, K: int, dtype: str = "bfloat16") -> dict[str, TensorSpec | int | str | None]:
    """The kernel's arguments for C[M, N] = A[M, K] @ B[K, N], by name, in the order of the kernel's parameters.

    A and C are row-major. B is row-major for 16-bit floats, and column-major for float8, as a transposed weight is:
    Hopper's tensor cores read float8 along K only, and another layout costs a transposition in the kernel.
    """
    a = TensorSpec((M, K), dtype)
    b = TensorSpec((K, N), dtype, (1, K) if dtype == "float8_e4m3fn" else None)
    c = TensorSpec((M, N), OUTPUT_DTYPES[dtype], fill="empty")
    return {
        "a": a, "b": b, "c": c, "bias": None, **extents((M, N, K), a.strides, b.strides, c.strides),
        "ACTIVATION": "none",
    }  # fmt: skip


def extents(shape: tuple[int, int, int], a: Sequence[int], b: Sequence[int], c: Sequence[int]) -> dict[str, int]:
    """The kernel's arguments that say how its tensors lie: extents from `shape`, strides in elements, and orders.

    Raises:
        ShapeMismatchError: Elements of one tile would lie 2^31 or more elements apart.
    """
    M, N, K = shape
    for name, axes, stride in (("a", (M, K), a), ("b", (K, N), b), ("c", (M, N), c)):
        check_reach(name, axes, tuple(stride))
    return {
        "M": M, "N": N, "K": K,
        "stride_am": a[0], "stride_ak": a[1],
        "stride_bk": b[0], "stride_bn": b[1],
        "stride_cm": c[0], "stride_cn": c[1],
        "A_ALONG_K": int(a[1] == 1), "B_ALONG_K": int(b[0] == 1),  # numbers: they repeat strides
    }  # fmt: skip


def work(problem: Problem) -> Work:
    """The work of a product: 2MNK operations; A and B read once, C written once; tiles of BM by BN in steps of BK."""
    specs = problem.specs
    a, b = specs["a"], specs["b"]
    tiles = GemmTiles(
        problem["M"], problem["N"], problem["K"], dtype=a.dtype, out_dtype=specs["c"].dtype,
        tile_rows="BM", tile_columns="BN", tile_inner="BK", group="GROUP_M",
        a_along_inner=a.strides[1] == 1, b_along_inner=b.strides[0] == 1,
    )  # fmt: skip
    flops = 2.0 * problem["M"] * problem["N"] * problem["K"]
    return Work(flops, float(sum(spec.nbytes for spec in specs.values())), ProductTiles(tiles))
