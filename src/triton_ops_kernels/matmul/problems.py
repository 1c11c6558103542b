"""The problems of the matmul, each with the space of configs that are worth trying.

Shared memory is no constraint here: the need of a config depends on the target and the compiler's version, so the
compiler and the device tell which configs fit. `plain_space` is the part with one algorithm that runs everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.cost_model import ProductTiles
from triton_ops.device import probe
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import ITEM_BYTES, Problem, TensorSpec, Work
from triton_ops_kernels.call import Own, OwnConfigs, whole_from
from triton_ops_kernels.matmul.kernel import DESCRIBED
from triton_ops_kernels.tiles import (
    HALVED_SIDE,
    K_STEP_BYTES,
    LOADS,
    describable,
    descriptor_rules,
    item_bytes_of,
    padded,
    reached_strides,
    suits,
    unit,
    widest,
)

if TYPE_CHECKING:
    from torch import Tensor

ALGORITHMS = ("tiles", "persistent", "split_k", "stream_k")
PLAIN = {
    "BM": [16, 32, 64, 128, 256],
    "BN": [32, 64, 128, 256],
    "BK": [32, 64, 128],
    "GROUP_M": [8],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5],
}
"""The tunables of `plain_space`."""
OWN = OwnConfigs({
    "ALGORITHM": Own(ALGORITHMS, optional=True),
    "LOADS": Own(list(dict.fromkeys((*LOADS, *DESCRIBED))), optional=True),
    "SWAPPED": Own([False, True], optional=True),
    "PROGRAMS": Own([1, 2], whole_from(0), optional=True),
    "SPLIT": Own([1, 2, 4, 8], whole_from(1), optional=True),
    "BM": [16, 32, 64, 128, 256],
    "BN": [16, 32, 64, 128, 256],
    "BK": [32, 64, 128],
    "HALVES": Own([False, True], optional=True),
    "GROUP_M": Own([8], whole_from(1), optional=True),
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5, 7],
})  # fmt: skip
_FULL_TILE = 128 * 128  # elements of C: 128 accumulator registers per thread with four warps
_MOST_SUMS = 256 * 128  # elements of the accumulator with eight warps: 128 registers of a thread
_SWAPPED_UP_TO = 64  # rows of C from which on tiles of C itself fill wgmma's rows
_WHOLE = ("device", "host")  # descriptors of all three matrices
_GROUP_ROWS = 64  # of Hopper's matrix instructions; with fewer, a descriptor of one operand gains nothing
_SHARED_UP_TO = 1024  # tiles and parts from which on a device is full without sharing
_FEWEST_STEPS = 4  # of a part: with fewer, filling the pipeline takes longer than the sum
_FEW_PROGRAMS = 132  # up to which the default splits K, with smaller tiles if these leave room for all parts
_LONG_STEPS = 32  # of K, from which on it does so
_MOST_PARTS = 8
_ASYNC_BYTES = 4  # of the least copy that runs ahead of the products; of narrower ones two programs hide the loads
_SHARED_TILE = {
    "ALGORITHM": "stream_k", "PROGRAMS": 2, "SPLIT": 1, "BM": 64, "BN": 64, "num_warps": 4, "num_stages": 2,
}  # fmt: skip
"""What the untuned config then has in place of `split_k`, for 0.51, 0.67 and 0.92 of its time at 60x5000x3001,
38x2432x13818 and 300x1000x2500 on an H200."""


def config_space(problem: Problem) -> ConfigSpace:
    """The space of every algorithm that the problem's extents, layout and dtype allow; about 2,000 configs."""
    M, N, K, dtype = problem["M"], problem["N"], problem["K"], problem["a"].dtype
    loads = loads_of(problem.specs, K)
    default, item_bytes = default_config(M, N, K, dtype), ITEM_BYTES[dtype]
    rules = (*_tile_rules(M, N, K), *_descriptor_rules(loads, item_bytes), *_algorithm_rules(M, N, K))
    if "host" not in loads and padded(min(M, N), 16) >= _GROUP_ROWS:
        narrow = min(problem["A_UNIT"], problem["B_UNIT"]) * item_bytes < _ASYNC_BYTES
        if len(loads) > 1 and padded(K, 32) * item_bytes >= K_STEP_BYTES and probe().arch == "sm_90":
            default = Config({**default, "LOADS": loads[-1]})
        elif narrow and default["ALGORITHM"] == "split_k":
            default = Config({**default, **_SHARED_TILE})
    return ConfigSpace(OWN.tunables, rules, default)


def plain_space(problem: Problem) -> ConfigSpace:
    """The 480 configs of one program for each tile and pointer loads, less those too wide for a small problem."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    default = default_config(M, N, K, problem["a"].dtype)
    rows, columns, step = widest(M, 16), widest(N, 32), widest(K, 32)
    fits = (
        Constraint("rows", lambda BM: rows >= BM, f"{{BM}} rows are over twice the padded M of {M}"),
        Constraint("columns", lambda BN: columns >= BN, f"{{BN}} columns are over twice the padded N of {N}"),
        Constraint("step", lambda BK: step >= BK, f"a step of {{BK}} is over twice the padded K of {K}"),
    )
    return ConfigSpace(PLAIN, fits, Config({name: default[name] for name in PLAIN}))


def loads_of(tensors: Mapping[str, Any], K: int) -> tuple[str, ...]:
    """The LOADS of matrices as they lie in memory, by descriptors of all that the hardware can describe.

    8-bit floats are multiplied along K only; another order costs a transposition in registers.
    """
    wide = ITEM_BYTES[tensors["a"].dtype] > 1
    shown = [
        name for name, axis in (("a", 1), ("b", 0))
        if K > 0 and describable(_by_memory(tensors[name], axis)) and (wide or along_k(tensors[name].strides, axis))
    ]  # fmt: skip
    if len(shown) == 2 and describable(tensors["c"]):
        return LOADS
    return ("pointers", f"host_{''.join(shown)}") if shown else ("pointers",)


def along_k(strides: tuple[int, ...], axis: int) -> bool:
    """Tell whether the neighbours in memory of an operand are those along K, its axis `axis`."""
    return strides[axis] == 1


def _by_memory(spec: TensorSpec, axis: int) -> TensorSpec:
    """The matrix with its neighbours along the last axis: itself, or turned."""
    order = (1 - axis, axis) if along_k(spec.strides, axis) else (axis, 1 - axis)
    shape, strides = (tuple(each[place] for place in order) for each in (spec.shape, spec.strides))
    return TensorSpec(shape, spec.dtype, strides, aligned=spec.aligned)


def _tile_rules(M: int, N: int, K: int) -> tuple[Constraint, ...]:
    """Tiles that suit the extents; those of the transposed product are N rows by M columns."""
    step, few = widest(K, 32), M <= _SWAPPED_UP_TO and 2 * _tiles(M, N, 64, 64) <= _FEW_PROGRAMS
    return (
        Constraint(
            "rows", lambda BM, SWAPPED: suits(N if SWAPPED else M, BM),
            f"{{BM}} rows are too few or too many for {M} rows, or for {N} with swapped operands",
        ),
        Constraint(
            "columns", lambda BN, SWAPPED: suits(M if SWAPPED else N, BN)
            or (not SWAPPED and few and N >= BN),  # narrow tiles leave no half of the multiprocessors idle
            f"{{BN}} columns are too few or too many for {N} columns, or for {M} with swapped operands",
        ),
        Constraint("step", lambda BK: step >= BK, f"a step of {{BK}} is over twice the padded K of {K}"),
        Constraint(
            "accumulator", lambda BM, BN, num_warps: _MOST_SUMS * num_warps >= 8 * BM * BN,
            "an accumulator of {BM} by {BN} takes over 128 registers of each thread of {num_warps} warps",
        ),
        Constraint(
            "swapped", lambda SWAPPED: not SWAPPED or min(M, N) == M <= _SWAPPED_UP_TO,
            f"swapped operands are for up to {_SWAPPED_UP_TO} rows; {M} rows fill those of the matrix instructions",
        ),
    )  # fmt: skip


def _descriptor_rules(loads: tuple[str, ...], item_bytes: int) -> tuple[Constraint, ...]:
    whole = "host" in loads
    return (
        *descriptor_rules(loads, "BK", K_STEP_BYTES // item_bytes, NEED),
        Constraint(
            "described", lambda LOADS, ALGORITHM: LOADS != "device" or ALGORITHM in ("persistent", "stream_k"),
            "a program of one tile would make its descriptors for that alone; the host makes them for all",
        ),
        Constraint(
            "walk",
            lambda ALGORITHM, LOADS: ALGORITHM in ("tiles", "split_k") or whole == (LOADS in _WHOLE),
            "programs that walk over tiles copy them by descriptors, where there can be any: pointers take registers",
        ),
        Constraint(
            "halves",
            lambda HALVES, ALGORITHM, LOADS, SWAPPED, BM, BN: not HALVES
            or (ALGORITHM != "split_k" and LOADS in _WHOLE and not SWAPPED and min(BM, BN // 2) >= HALVED_SIDE),
            "halves of a tile of C are stored by descriptors, one after the other, if each has 64 rows and columns",
        ),
    )  # fmt: skip


def _algorithm_rules(M: int, N: int, K: int) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "programs",
            lambda PROGRAMS, ALGORITHM: PROGRAMS == 1 or ALGORITHM in ("persistent", "stream_k"),
            "{ALGORITHM} has its number of programs from the tiles",
        ),
        Constraint(
            "two_programs", lambda PROGRAMS, BM, BN: PROGRAMS == 1 or BM * BN <= _FULL_TILE,
            "two programs with accumulators of {BM} by {BN} do not fit on a multiprocessor",
        ),
        Constraint(
            "parts", lambda ALGORITHM, SPLIT: (ALGORITHM == "split_k") == (SPLIT > 1),
            "SPLIT is the number of parts of split_k, and 1 for {ALGORITHM}",
        ),
        Constraint(
            "long_parts",
            lambda ALGORITHM, SPLIT, BK: ALGORITHM not in ("split_k", "stream_k")
            or max(SPLIT, 2) * _FEWEST_STEPS * BK <= K,
            f"parts of K = {K} would have under {_FEWEST_STEPS} steps of {{BK}}",
        ),
        Constraint(
            "few_tiles",
            lambda ALGORITHM, SPLIT, BM, BN, SWAPPED: ALGORITHM not in ("split_k", "stream_k")
            or _tiles(*((N, M) if SWAPPED else (M, N)), BM, BN) * SPLIT <= _SHARED_UP_TO,
            f"over {_SHARED_UP_TO} programs have work without sharing tiles of {{BM}} by {{BN}}",
        ),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, dtype: str) -> Config:
    """The untuned config for a product of these extents, with inputs of `dtype`: it runs on every GPU.

    The config has tiles of 128 by 128, smaller for a smaller product, and steps of 128 bytes along K. Where tiles are
    few and steps many, they have 64 by 64, and up to eight programs share one. It needs at most 96 KiB of shared memory
    on sm_80 to sm_89 and 128 KiB on sm_90, which every such GPU has. Eight warps share a full tile: four warps are as
    fast with loads of 16 bytes, and spill far more where strides allow only narrow loads.

    Source: share of the optimum of a recorded space with these tunables (H200, Triton 3.6.0): 0.97 at
    16x14336x4096, 0.92 at 512x4096x14336, 0.90 at 4096x4096x4096 (bfloat16), 0.91 at 1024x8192x8192 (float8). Of few
    tiles: what tunes found on an H200 at 256x1024x4096, 128x256x7168 and 186x656x3968.
    """
    rows = min(padded(M, 16), 128)
    columns = min(padded(N, 32), 64 if rows <= 32 else 128)
    step = min(padded(K, 32), K_STEP_BYTES // ITEM_BYTES[dtype])
    shared = _LONG_STEPS * step <= K
    few = shared and _MOST_PARTS * _tiles(M, N, rows, columns) <= _FEW_PROGRAMS
    if few:
        rows, columns = min(rows, 64), min(columns, 64)
    parts = 1
    while shared and parts < _MOST_PARTS and 2 * parts * _tiles(M, N, rows, columns) <= _FEW_PROGRAMS:
        parts *= 2
    return Config(
        ALGORITHM="split_k" if parts > 1 else "tiles", LOADS="pointers", SWAPPED=False, PROGRAMS=1, SPLIT=parts,
        BM=rows, BN=columns, BK=step, HALVES=False, GROUP_M=8, num_warps=8 if rows * columns >= _FULL_TILE else 4,
        num_stages=5 if few else 4,
    )  # fmt: skip


def _tiles(M: int, N: int, rows: int, columns: int) -> int:
    return -(-M // rows) * -(-N // columns)


NEED = "neighbours along an axis, all else at multiples of 16 bytes, and 8-bit floats those along K"
"""What tensor descriptors need."""
OUTPUT_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float8_e4m3fn": "bfloat16"}
"""The dtype of the product by the dtype of the inputs."""
DTYPES = tuple(OUTPUT_DTYPES)
LEAST_GAIN = 0.05
BIAS_DTYPES = ("bfloat16", "float16", "float32")
ACTIVATIONS = {"none": 0.0, "relu": 2.0, "gelu": 10.0, "silu": 13.0}
"""Activations, with the instructions for an element that Triton 3.7.1 makes for sm_90."""

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "1024": ((1024, 1024, 1024), "bfloat16"),
    "4096": ((4096, 4096, 4096), "bfloat16"),
    "8192": ((8192, 8192, 8192), "bfloat16"),
    "fp8-8192": ((8192, 8192, 8192), "float8_e4m3fn"),
    "fp8-wide": ((1024, 8192, 8192), "float8_e4m3fn"),
    "llama-8b-decode": ((16, 14336, 4096), "bfloat16"),  # up projection, 16 sequences of one token
    "llama-8b-prefill": ((512, 4096, 14336), "bfloat16"),  # down projection, 512 tokens
    "llama-70b-decode": ((64, 8192, 28672), "bfloat16"),  # down projection, 64 sequences of one token
    "llama-8b-keys": ((256, 1024, 4096), "bfloat16"),  # projection of keys, 256 tokens: few tiles
    "deepseek-v3-router": ((128, 256, 7168), "bfloat16"),  # scores of experts, 128 tokens: fewer, with a long K
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
    return launch_values(a, b, c)


def launch_values(a: Any, b: Any, c: Any) -> dict[str, Any]:
    """The kernel's arguments for three tensors, or what describes them, without bias and activation.

    These do not decide the config. Strides are in elements.
    """
    (M, K), N = a.shape, b.shape[1]
    (am, ak), (bk, bn), (cm, cn) = reached_strides(a=a, b=b, c=c)
    return {
        "a": a, "b": b, "c": c, "bias": None, "M": M, "N": N, "K": K,
        "stride_am": am, "stride_ak": ak, "stride_bk": bk, "stride_bn": bn, "stride_cm": cm, "stride_cn": cn,
        "A_ALONG_K": int(ak == 1), "B_ALONG_K": int(bk == 1),  # numbers: they repeat strides
        "A_UNIT": unit(*((K, [(am, ak)]) if ak == 1 else (M, [(ak, am)])), item_bytes_of(a)),
        "B_UNIT": unit(*((K, [(bn, bk)]) if bk == 1 else (N, [(bk, bn)])), item_bytes_of(b)),
        "ACTIVATION": "none",
    }  # fmt: skip


def work(problem: Problem) -> Work:
    """The work of a product: 2MNK operations; A and B read once, C written once; tiles of BM by BN in steps of BK."""
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    tiles = ProductTiles.of(
        (M, N, K), specs["a"], specs["b"], specs["c"], sides=("BM", "BN", "BK", "GROUP_M"),
        finish=ACTIVATIONS[problem["ACTIVATION"]], units=(problem["A_UNIT"], problem["B_UNIT"]),
    )  # fmt: skip
    return Work(2.0 * M * N * K, float(sum(spec.nbytes for spec in specs.values())), tiles)


def matmul_reference(
    a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None = None, ACTIVATION: str = "none", **_extents: object
) -> Tensor:
    """Compute `act(a @ b + bias)` in float32 or wider, rounded once to the dtype of `c`; arguments are taken by name.

    Cost: wide copies of both inputs, and a wide product.
    """
    torch = require("torch", "the reference of matmul")
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    found = a.to(wide) @ b.to(wide)
    found = found if bias is None else found + bias.to(wide)
    if ACTIVATION != "none":
        found = getattr(torch.nn.functional, ACTIVATION)(found)
    return found.to(c.dtype)
