"""The problems of the gated MLP: arguments from extents, least work, named shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.cost_model import ElementTiles, GemmTiles, ProductTiles
from triton_ops.device import Machine
from triton_ops.kernels.tiles import check_reach
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, Problem, TensorSpec, TilePlan, Work, tile_side

DTYPES = ("bfloat16", "float16", "float32")
ACTIVATIONS = ("silu", "gelu")

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-prefill": ((4096, 14336, 4096), "bfloat16"),
    "llama-8b-decode": ((16, 14336, 4096), "bfloat16"),
    "llama-8b-chunk": ((512, 14336, 4096), "bfloat16"),
    "llama-70b-prefill": ((2048, 28672, 8192), "bfloat16"),
    "qwen-7b-prefill": ((4096, 18944, 3584), "bfloat16"),
    "deepseek-v3-expert": ((1024, 2048, 7168), "bfloat16"),
    "odd": ((1000, 777, 516), "float16"),  # no multiple of any tile; rows of 516 are no multiple of 16 bytes
}


def arguments(
    tokens: int = 4096, intermediate: int = 14336, hidden: int = 4096, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | str | None]:
    """The kernel's arguments for x[tokens, hidden] and weights [intermediate, hidden], in the order of its parameters.

    The activation is silu, and the products are not kept for a gradient.
    """
    x, weight = TensorSpec((tokens, hidden), dtype), TensorSpec((intermediate, hidden), dtype)
    return {
        "x": x, "gate_weight": weight, "up_weight": weight,
        "out": TensorSpec((tokens, intermediate), dtype, fill="empty"), "gate": None, "up": None,
        **extents((tokens, intermediate, hidden), x.strides, weight.strides, weight.strides),
        "ACTIVATION": "silu", "PRECISION": "ieee" if dtype == "float32" else "tf32",
        "UNIT": unit(hidden, (x.strides, weight.strides, weight.strides), ITEM_BYTES[dtype]),
    }  # fmt: skip


def extents(shape: tuple[int, int, int], x: Sequence[int], gate: Sequence[int], up: Sequence[int]) -> dict[str, int]:
    """The kernel's scalar arguments: M, N and K from `shape`, and the strides of x and the weights in elements.

    Raises:
        ShapeMismatchError: Elements of one tile would lie 2^31 or more elements apart.
    """
    M, N, K = shape
    for name, axes, stride in (("x", (M, K), x), ("gate_weight", (N, K), gate), ("up_weight", (N, K), up)):
        check_reach(name, axes, tuple(stride))
    return {
        "M": M, "N": N, "K": K,
        "stride_xm": x[0], "stride_xk": x[1],
        "stride_gn": gate[0], "stride_gk": gate[1],
        "stride_un": up[0], "stride_uk": up[1],
    }  # fmt: skip


def unit(hidden: int, strides: Sequence[Sequence[int]], item_bytes: int) -> int:
    """Neighbours along K that may be copied at once: in 16 bytes at most, and 1 where K has no neighbours.

    Triton itself sees it only of extents and strides that are multiples of 16. Rows of 516 elements of 16 bits, for
    example, begin at multiples of 8 bytes, which the hardware copies past the registers; 2 bytes it does not.

    Args:
        hidden: K.
        strides: Those of x and of both weights, in elements.
        item_bytes: Bytes of an element.
    """
    if any(stride[1] != 1 for stride in strides):
        return 1
    return math.gcd(ALIGNMENT_BYTES // item_bytes, hidden, *(stride[0] for stride in strides))


GRADIENT_PROBLEMS = {name: (shape[:2], dtype) for name, (shape, dtype) in PROBLEMS.items()}


def gradient_arguments(
    tokens: int = 4096, intermediate: int = 14336, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | str]:
    """The arguments of the gradient's kernel, which maps the elements of the two products."""
    shape = (tokens, intermediate)
    input_spec, output_spec = TensorSpec(shape, dtype), TensorSpec(shape, dtype, fill="empty")
    return {
        "gate": input_spec, "up": input_spec, "grad": input_spec, "dgate": output_spec, "dup": output_spec,
        "elements": input_spec.numel, "ACTIVATION": "silu", "UNIT": gradient_unit(input_spec.numel, ITEM_BYTES[dtype]),
    }  # fmt: skip


def gradient_unit(elements: int, item_bytes: int) -> int:
    """Neighbours that the gradient's kernel may read at once: in 16 bytes at most.

    Triton itself sees it only of multiples of 16: 777,000 elements of 16 bits, a multiple of 8, would be read two bytes
    at a time, since the last block's mask could end anywhere.
    """
    return math.gcd(ALIGNMENT_BYTES // item_bytes, elements)


@dataclass(frozen=True)
class GatedTiles:
    """The tiles of both products, of which a program computes one of each: as one product of twice the columns.

    Where weights are not joined, matrix instructions are of the columns of one product, as of two sums. Half of such a
    tile is stored.
    """

    both: ProductTiles

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """The plan of a product whose tiles are twice as wide."""
        form = {"BOTH": 2 * tile_side("BLOCK_N", config), "SUMS": 1 if config.get("JOINED", False) else 2}
        return self.both.plan({**config, **form, "HALVES": True}, machine)


def work(problem: Problem) -> Work:
    """The work: 4MNK operations; x and the weights read once, the result written once."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    specs = problem.specs
    x, out, weight = specs["x"], specs["out"], specs["gate_weight"]
    tiles = GemmTiles(
        M, 2 * N, K, dtype=x.dtype, out_dtype=out.dtype,
        tile_rows="BLOCK_M", tile_columns="BOTH", tile_inner="BLOCK_K", group="GROUP_SIZE_M",
        a_along_inner=x.strides[1] == 1, b_along_inner=weight.strides[1] == 1,
    )  # fmt: skip
    return Work(4.0 * M * N * K, float(sum(spec.nbytes for spec in specs.values())), GatedTiles(ProductTiles(tiles)))


def gradient_work(problem: Problem) -> Work:
    """The work: bytes of three inputs and two outputs; bandwidth is the limit."""
    specs = list(problem.specs.values())
    item = ITEM_BYTES[specs[0].dtype]
    tiles = ElementTiles(specs[0].numel, "BLOCK_SIZE", read_bytes=3 * item, written_bytes=2 * item, weight=4.0)
    return Work(bytes=float(sum(spec.nbytes for spec in specs)), tiles=tiles)
