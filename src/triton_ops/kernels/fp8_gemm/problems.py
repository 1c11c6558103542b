"""The problems of the product of 8-bit floats: arguments from extents, least work, named shapes."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops.cost_model import GemmTiles, ProductTiles
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.kernels.fp8_format import FP8Format
from triton_ops.kernels.tiles import check_reach
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, Problem, TensorSpec, Work

OUTPUT_DTYPES = ("bfloat16", "float16", "float32")
SCALINGS = {1: "tensor", 2: "row", 3: "block", 4: "tensor"}
"""How scales lie over the inputs, by the number that stands in a shape."""
_FAST = 4  # as 1, with sums that are not promoted

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "8192": ((8192, 8192, 8192, 1), "bfloat16"),
    "8192-fast": ((8192, 8192, 8192, 4), "bfloat16"),
    "4096-by-row": ((4096, 4096, 4096, 2), "bfloat16"),
    "llama-8b-up-prefill": ((4096, 14336, 4096, 2), "bfloat16"),
    "llama-8b-up-decode": ((16, 14336, 4096, 2), "bfloat16"),
    "llama-70b-down-chunk": ((512, 8192, 28672, 2), "bfloat16"),
    "deepseek-v3-down-prefill": ((4096, 7168, 2048, 3), "bfloat16"),
    "deepseek-v3-up-decode": ((64, 4096, 7168, 3), "bfloat16"),
    "odd": ((1000, 777, 520, 1), "float16"),
}


def arguments(
    M: int = 4096, N: int = 4096, K: int = 4096, scaling: int = 1, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | bool | None]:
    """The kernel's arguments, by name, in the order of its parameters; `dtype` is that of the product.

    A is row-major, and B column-major, as a transposed weight is: Hopper's tensor cores read 8-bit floats along K only.

    Args:
        M: Rows of A and C.
        N: Columns of B and C.
        K: Columns of A, rows of B.
        scaling: 1 for a scale for each tensor, 2 for each row of A and column of B, 3 for blocks of 128; 4 is 1 with
            the faster sums, which are not promoted.
        dtype: Of C.

    Raises:
        ShapeMismatchError: Elements of one tile would lie 2^31 or more elements apart, or `scaling` is none of these.
    """
    if scaling not in SCALINGS:
        raise ShapeMismatchError(f"scaling is {scaling}; it must be 1, 2, 3 or 4", "1 to 4", scaling)
    a = TensorSpec((M, K), FP8Format.name)
    b = TensorSpec((K, N), FP8Format.name, (1, K))
    c = TensorSpec((M, N), dtype, fill="empty")
    shapes = scale_shapes(M, N, K)[SCALINGS[scaling]]
    a_scale, b_scale = (TensorSpec(shape, "float32", fill="positive") for shape in shapes)
    return {
        "a": a, "b": b, "c": c, "a_scale": a_scale, "b_scale": b_scale,
        "bias": None, **extents((M, N, K), a.strides, b.strides),
        **scale_strides(shapes, a_scale.strides, b_scale.strides),
        "BLOCKED": SCALINGS[scaling] == "block", "FAST": scaling == _FAST,
        "C_DESCRIBED": result_described(N, ITEM_BYTES[dtype]),
    }  # fmt: skip


def scale_shapes(M: int, N: int, K: int) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The shapes of both scales by how they lie over the inputs."""
    size = FP8Format.block
    return {
        "tensor": ((1, 1), (1, 1)),
        "row": ((M, 1), (1, N)),
        "block": ((M, -(-K // size)), (-(-K // size), -(-N // size))),
    }


def extents(shape: tuple[int, int, int], a: Sequence[int], b: Sequence[int]) -> dict[str, int]:
    """The kernel's scalar arguments: M, N and K from `shape`, and the strides of A and B in elements.

    Raises:
        ShapeMismatchError: Elements of one tile would lie 2^31 or more elements apart.
    """
    M, N, K = shape
    for name, axes, stride in (("a", (M, K), a), ("b", (K, N), b)):
        check_reach(name, axes, tuple(stride))
    return {
        "M": M, "N": N, "K": K,
        "stride_am": a[0], "stride_ak": a[1],
        "stride_bk": b[0], "stride_bn": b[1],
    }  # fmt: skip


def scale_strides(shapes: Sequence[Sequence[int]], a: Sequence[int], b: Sequence[int]) -> dict[str, int]:
    """The strides of the scales; 0 along an axis that has one of them."""
    axes = zip((*shapes[0], *shapes[1]), (*a, *b), strict=True)
    steps = [0 if extent == 1 else step for extent, step in axes]
    return dict(zip(("stride_asm", "stride_ask", "stride_bsk", "stride_bsn"), steps, strict=True))


def result_described(columns: int, item_bytes: int) -> int:
    """1 if a new row-major result can have a tensor descriptor, whose rows begin at multiples of 16 bytes; else 0."""
    return int(columns * item_bytes % ALIGNMENT_BYTES == 0)  # a number: it repeats an extent


def work(problem: Problem) -> Work:
    """The work: 2MNK operations; A and B read once, C written once."""
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    a, b = specs["a"], specs["b"]
    tiles = GemmTiles(
        M, N, K, dtype=a.dtype, out_dtype=specs["c"].dtype,
        tile_rows="BLOCK_M", tile_columns="BLOCK_N", tile_inner="BLOCK_K", group="GROUP_SIZE_M",
        a_along_inner=a.strides[1] == 1, b_along_inner=b.strides[0] == 1,
    )  # fmt: skip
    promoted = problem["BLOCKED"] or not problem["FAST"]
    moved = float(sum(spec.nbytes for spec in specs.values()))
    return Work(2.0 * M * N * K, moved, ProductTiles(tiles, promoted, scaled=bool(problem["BLOCKED"])))
