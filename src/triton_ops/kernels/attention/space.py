"""The config spaces of attention with its gradient: tunables, constraints, untuned configs.

Shared memory is no constraint here: the compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache

from triton_ops.kernels.attention.float32_tiles import (
    GRADIENT_SIDES,
    are_summed,
    gradient_rules,
    gradient_tile,
    rule,
    tile,
)
from triton_ops.kernels.choice import OwnConfigs, whole_from
from triton_ops.kernels.tiles import DESCRIBABLE, describable, padded, widest
from triton_ops.space import Choice, Config, ConfigSpace, Constraint, Flag, IntRange, PowerOfTwo, Tunable
from triton_ops.values import ITEM_BYTES, Problem

TUNABLES: dict[str, Tunable] = {
    "BLOCK_M": PowerOfTwo(16, 256),
    "BLOCK_N": PowerOfTwo(32, 128),
    "GROUP_HEADS": Choice([1, 8]),
    "SPLITS": PowerOfTwo(1, 64),
    "DESCRIPTORS": Flag(),
    "WARP_SPECIALIZE": Choice([False]),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(2, 4),
}
OWN = OwnConfigs(
    TUNABLES,
    optional=("GROUP_HEADS", "SPLITS", "DESCRIPTORS", "WARP_SPECIALIZE"),
    rules={"SPLITS": whole_from(1)},
)
GRADIENT_TUNABLES: dict[str, Tunable] = {
    "Q_ROWS": PowerOfTwo(32, 128),
    "Q_KEYS": PowerOfTwo(32, 128),
    "K_KEYS": PowerOfTwo(32, 128),
    "K_ROWS": PowerOfTwo(32, 128),
    "num_warps": PowerOfTwo(4, 8),
    "num_stages": IntRange(1, 3),
}
GRADIENT_OWN = OwnConfigs(GRADIENT_TUNABLES)
WITH_ROLES = (128, 1, True, 4, 2)
"""BLOCK_M, SPLITS, DESCRIPTORS, num_warps and num_stages of configs that may give warps roles."""
ROLES_NEED = (
    "roles of warps are for whole walks with descriptors, also of q, 4 warps for each 64 of 128 rows, and 2 stages: "
    "more of them left NaN on an H200 with Triton 3.6.0"
)
_MOST_HELD = 160  # elements of the sums and of the scores in float32, of 255 registers of a thread
_MOST_GRADIENT = 192  # of the sums and of two tiles of scores
_GROUP_ROWS = 64  # rows of an instruction of a group of four warps
_ENOUGH = 1024  # programs with which every device is busy


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents and layout.

    Args:
        problem: A problem with the specs q, k and v, and PRECISION.
    """
    return _space(problem, TUNABLES)


def wide_space(problem: Problem) -> ConfigSpace:
    """The same with roles of warps, which Triton 3.6 compiles rightly in few kernels, and which no GPU has proven here.

    Args:
        problem: As of `config_space`.
    """
    return _space(problem, {**TUNABLES, "WARP_SPECIALIZE": Flag()})


def _space(problem: Problem, tunables: dict[str, Tunable]) -> ConfigSpace:
    q, k, v = (problem.specs[name] for name in ("q", "k", "v"))
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    rows, many, values = queries * (heads // kv_heads), batch * kv_heads, padded(v.shape[3], 16)
    most_rows, most_keys, summed = widest(rows, 16), widest(keys, 32), are_summed(problem)
    rules = (
        Constraint("rows", lambda BLOCK_M: most_rows >= BLOCK_M, f"{{BLOCK_M}} rows are over twice the padded {rows}"),
        rule(max(padded(head_dim, 16), values)) if summed else _groups(min(padded(rows, 16), _GROUP_ROWS)),
        Constraint("keys", lambda BLOCK_N: most_keys >= BLOCK_N, f"{{BLOCK_N}} keys are over twice the padded {keys}"),
        Constraint(
            "registers",
            lambda BLOCK_M, BLOCK_N, WARP_SPECIALIZE, num_warps: (
                32 * _MOST_HELD * num_warps * (2 if WARP_SPECIALIZE else 1) >= BLOCK_M * (BLOCK_N + values)
            ),
            f"{{BLOCK_M}} rows take over {_MOST_HELD} registers of each thread of {{num_warps}} warps",
        ),
        Constraint(
            "walk",
            lambda BLOCK_M, GROUP_HEADS: GROUP_HEADS == 1 or (many > 1 and rows > BLOCK_M),
            "there is one head, or one tile of each: programs have one order",
        ),
        *_splitting(rows, keys, many),
        Constraint(
            "descriptors",
            lambda DESCRIPTORS: not DESCRIPTORS or describable(k, v),
            f"a tensor descriptor needs {DESCRIBABLE}",
        ),
        Constraint(
            "specialised",
            lambda BLOCK_M, SPLITS, DESCRIPTORS, WARP_SPECIALIZE, num_warps, num_stages: (
                not WARP_SPECIALIZE or (
                    describable(q) and (BLOCK_M, SPLITS, DESCRIPTORS, num_warps, num_stages) == WITH_ROLES
                )
            ),
            ROLES_NEED,
        ),
    )  # fmt: skip
    default = default_config(rows, keys, many, max(head_dim, v.shape[3]), q.dtype, summed)
    return ConfigSpace(tunables, rules, default)


def _groups(least_rows: int) -> Constraint:
    return Constraint(
        "groups",
        lambda BLOCK_M, num_warps: least_rows <= BLOCK_M and (num_warps == 4 or BLOCK_M != _GROUP_ROWS),
        f"a group of four warps multiplies {_GROUP_ROWS} rows at once; {{num_warps}} warps have {{BLOCK_M}}",
    )


def _splitting(rows: int, keys: int, many: int) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "parts",
            lambda BLOCK_N, SPLITS: SPLITS == 1 or keys >= SPLITS * BLOCK_N,
            f"{{SPLITS}} parts of {keys} keys have less than a step of {{BLOCK_N}} each",
        ),
        Constraint(
            "split",
            lambda BLOCK_M, SPLITS: SPLITS == 1 or -(-rows // BLOCK_M) * many * SPLITS <= _ENOUGH,
            f"{{SPLITS}} parts make over {_ENOUGH} programs, and fewer keep every device busy",
        ),
    )


@lru_cache(maxsize=1024)
def default_config(rows: int, keys: int, many: int, dim: int, dtype: str, summed: bool) -> Config:
    """The untuned config: tiles of 128 rows and 64 keys, others for narrow and wide heads, smaller for small problems.

    Source: the fastest of those tried on an H200 with Triton 3.6.0 whose shared memory most devices have.

    Args:
        rows: Rows of a head of keys: queries times heads that share it.
        keys: Keys of a head.
        many: Heads of keys in all sequences.
        dim: Elements of a key or a value.
        dtype: Of all tensors.
        summed: Whether products are summed up term by term.
    """
    most_rows, most_keys, warps, stages = tile(dim) if summed else _tile(rows, padded(dim, 16) * ITEM_BYTES[dtype])
    block_rows, block_keys = min(padded(rows, 16), most_rows), min(padded(keys, 32), most_keys)
    programs = -(-rows // block_rows) * many
    splits = 1
    while splits < 64 and 2 * splits * programs <= 264 and 8 * splits * block_keys <= keys:
        splits *= 2
    return Config(
        BLOCK_M=block_rows, BLOCK_N=block_keys, GROUP_HEADS=1, SPLITS=splits, DESCRIPTORS=False, WARP_SPECIALIZE=False,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip


def _tile(rows: int, wide: int) -> tuple[int, int, int, int]:
    """BLOCK_M, BLOCK_N, num_warps and num_stages in matrix instructions; a padded head has `wide` bytes."""
    most_rows, most_keys = (64, 128) if wide <= 128 else (128, 64) if wide <= 256 else (64, 32)
    return most_rows, most_keys, 8 if min(padded(rows, 16), most_rows) == 128 else 4, 3 if wide <= 512 else 2


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient, whose programs hold two tiles of scores beside their sums.

    Args:
        problem: A problem with the specs q and v, and PRECISION.
    """
    q, v = problem.specs["q"], problem.specs["v"]
    size, value_size = padded(q.shape[3], 16), padded(v.shape[3], 16)
    rules: tuple[Constraint, ...] = (
        Constraint(
            "dq",
            lambda Q_ROWS, Q_KEYS, num_warps: 32 * _MOST_GRADIENT * num_warps >= Q_ROWS * (size + 2 * Q_KEYS),
            f"{{Q_ROWS}} rows take over {_MOST_GRADIENT} registers of each thread of {{num_warps}} warps",
        ),
        Constraint(
            "dk and dv",
            lambda K_KEYS, K_ROWS, num_warps: (
                32 * _MOST_GRADIENT * num_warps >= K_KEYS * (size + value_size + 2 * K_ROWS)
            ),
            f"{{K_KEYS}} keys take over {_MOST_GRADIENT} registers of each thread of {{num_warps}} warps",
        ),
    )
    summed, most = are_summed(problem), max(q.shape[3], v.shape[3])
    default = gradient_default(most, q.dtype, summed)
    if summed:
        rules = (*rules, *gradient_rules(padded(most, 16)))
    return ConfigSpace({**GRADIENT_TUNABLES, **(GRADIENT_SIDES if summed else {})}, rules, default)


def gradient_default(size: int, dtype: str, summed: bool) -> Config:
    """The untuned config of the gradient: tiles of 64 by 64, or by 32 where elements of a head are many or wide.

    Where products are summed up term by term, it is that of `float32_tiles.py`.
    """
    if summed:
        return gradient_tile(size)
    wide = padded(size, 16) * ITEM_BYTES[dtype]
    step = 64 if wide <= 128 else 32
    return Config(
        Q_ROWS=64, Q_KEYS=step, K_KEYS=64 if wide <= 512 else 32, K_ROWS=step,
        num_warps=4 if wide <= 256 else 8, num_stages=2 if wide <= 256 else 1,
    )  # fmt: skip
