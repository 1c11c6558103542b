"""The config spaces of the gated MLP with its gradient: tunables, constraints, untuned configs.

The documented space, `GATED_MLP_CONFIGS`, is part of this wider one; `tune(operation, space=GATED_MLP_CONFIGS)` takes
it alone. Shared memory is no constraint here: the compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.kernels.choice import OwnConfigs
from triton_ops.kernels.tiles import DESCRIBABLE, HALVED_SIDE, K_STEP_BYTES, describable, padded, suits, widest
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Flag, IntRange, PowerOfTwo, Tunable
from triton_ops.values import ITEM_BYTES, Problem

TUNABLES: dict[str, Tunable] = {
    "BLOCK_M": PowerOfTwo(16, 256),
    "BLOCK_N": PowerOfTwo(16, 128),
    "BLOCK_K": PowerOfTwo(32, 128),
    "GROUP_SIZE_M": Choice([8]),
    "LOADS": Choice(["pointers", "host"]),
    "JOINED": Flag(),
    "PROGRAMS": Choice([0, 1]),
    "HALVES": Flag(),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(2, 5),
}
OWN = OwnConfigs(TUNABLES, optional=("GROUP_SIZE_M", "LOADS", "JOINED", "PROGRAMS", "HALVES"))
GRADIENT_TUNABLES: dict[str, Tunable] = {
    "BLOCK_SIZE": PowerOfTwo(256, 8192),
    "num_warps": PowerOfTwo(1, 8),
    "EVICT": Choice(["none", "stores"]),
}
GRADIENT_OWN = OwnConfigs(GRADIENT_TUNABLES, optional=("EVICT",))
"""What is written has no precedence in leaving L2 where a config leaves EVICT out."""
_MOST_SUMS = 2 * 128 * 128  # elements of both accumulators with eight warps: 128 registers of a thread
_FULL_ROWS = 64  # of Hopper's matrix instructions, whose operands come from shared memory without passing registers
_RESULTS, _CACHE_BYTES = 2, 128 * 2**20  # of the gradient; as many bytes as the largest L2 of a GPU holds, or more


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents and layout.

    Args:
        problem: A problem with the specs of the tensors and the extents M, N and K.
    """
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    gate_weight, up_weight, dtype = specs["gate_weight"], specs["up_weight"], specs["x"].dtype
    has_descriptors = K > 0 and describable(specs["x"], gate_weight, up_weight, specs["out"])
    alike = gate_weight.strides == up_weight.strides
    rules = (*_tile_rules(M, N, K), *_descriptor_rules(has_descriptors, alike, ITEM_BYTES[dtype]))
    return ConfigSpace(TUNABLES, rules, default_config(M, N, K, dtype))


def _tile_rules(M: int, N: int, K: int) -> tuple[Constraint, ...]:
    """Tiles that suit the extents. Rows of a copied tile behind M are zeros, and no memory is read for them."""
    rows, columns, step = widest(M, 16), widest(N, 16), widest(K, 32)
    return (
        Constraint(
            "rows", lambda BLOCK_M, LOADS: rows >= BLOCK_M if LOADS == "pointers"
            else suits(M, BLOCK_M) or BLOCK_M == _FULL_ROWS,
            f"{{BLOCK_M}} rows are over twice the padded M of {M}, or too few for descriptors",
        ),
        Constraint(
            "columns", lambda BLOCK_N, LOADS: columns >= BLOCK_N if LOADS == "pointers" else suits(N, BLOCK_N),
            f"{{BLOCK_N}} columns are over twice the padded N of {N}, or too few for descriptors",
        ),
        Constraint("step", lambda BLOCK_K: step >= BLOCK_K, f"a step of {{BLOCK_K}} is over twice the padded K of {K}"),
        Constraint(
            "accumulators",
            lambda BLOCK_M, BLOCK_N, num_warps: _MOST_SUMS * num_warps // 8 >= 2 * BLOCK_M * BLOCK_N,
            "two accumulators of {BLOCK_M} by {BLOCK_N} take over 128 registers of each thread of {num_warps} warps",
        ),
    )  # fmt: skip


def _descriptor_rules(has_descriptors: bool, alike: bool, item_bytes: int) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "descriptors", lambda LOADS: has_descriptors or LOADS == "pointers",
            f"a tensor descriptor needs {DESCRIBABLE}",
        ),
        Constraint(
            "box", lambda LOADS, BLOCK_K: LOADS == "pointers" or BLOCK_K * item_bytes >= K_STEP_BYTES,
            "a step of {BLOCK_K} fills no row of 128 bytes of shared memory",
        ),
        Constraint(
            "joined", lambda JOINED, LOADS: not JOINED or (alike and LOADS == "host"),
            "one descriptor of both weights is made by the host, of weights with the same strides",
        ),
        Constraint(
            "walk", lambda PROGRAMS, JOINED: PROGRAMS == 0 or JOINED,
            "programs that walk over tiles load ahead only where one product is in their loop, of joined weights",
        ),
        Constraint(
            "halves",
            lambda HALVES, LOADS, BLOCK_M, BLOCK_N: not HALVES
            or (LOADS == "host" and min(BLOCK_M, BLOCK_N // 2) >= HALVED_SIDE),
            "halves of a tile are stored by descriptors, one after the other, if each has 64 rows and columns",
        ),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, dtype: str) -> Config:
    """The untuned config: two tiles of 128 by 64, smaller for a smaller problem, and steps of 128 bytes along K.

    Its loads are of pointers, and its shared memory is that of every device: it runs anywhere.
    """
    rows, columns = min(padded(M, 16), 128), min(padded(N, 16), 64)
    step = min(padded(K, 32), max(32, K_STEP_BYTES // ITEM_BYTES[dtype]))
    stages = 2 if dtype == "float32" else 3
    return Config(
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=step, GROUP_SIZE_M=8, LOADS="pointers", JOINED=False, PROGRAMS=0,
        HALVES=False, num_warps=8 if rows * columns >= 128 * 64 else 4, num_stages=stages,
    )  # fmt: skip


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient's kernel, which maps elements.

    Args:
        problem: A problem with the spec `gate` and the extent `elements`.
    """
    written_bytes = _RESULTS * problem["elements"] * ITEM_BYTES[problem.specs["gate"].dtype]
    lanes = Constraint(
        "threads",
        lambda BLOCK_SIZE, num_warps: 64 <= BLOCK_SIZE // num_warps <= 32 * 32,
        "{BLOCK_SIZE} elements are under 2 or over 32 for each thread of {num_warps} warps",
    )
    precedence = Constraint(
        "kept",
        lambda EVICT: EVICT == "none" or written_bytes > _CACHE_BYTES,
        f"results of {written_bytes} bytes may wait in L2 for the products that read them next",
    )
    return ConfigSpace(GRADIENT_TUNABLES, (lanes, precedence), gradient_default())


def gradient_default() -> Config:
    """The untuned config of the gradient's kernel: 8 elements for each thread, one 16-byte load of 16-bit floats."""
    return Config(BLOCK_SIZE=1024, EVICT="none", num_warps=4)
