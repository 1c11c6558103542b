"""The config space of kernels that reduce rows: blocks, rows for each program, warps.

A block that is as wide as the row keeps it in registers, and reads it once. Narrow rows go several to a program, which
else would have less work than threads.
"""

from __future__ import annotations

from functools import lru_cache, partial

from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops_kernels import tiles
from triton_ops_kernels.call import OwnConfigs

TUNABLES = {
    "BLOCK_SIZE": [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768],
    "ROWS": [1, 2, 4, 8, 16],
    "num_warps": [1, 2, 4, 8, 16],
}
OWN = OwnConfigs(TUNABLES)
_MOST_PER_THREAD = 128  # elements of a block in float32: half of a thread's registers
_LEAST_PER_THREAD = 2
_WHOLE = 16384  # elements of the widest row that the default keeps in registers
_CHUNK = 4096
_LEAST_CHUNK = 1024


padded = partial(tiles.padded, smallest=64)
"""The smallest block that holds a whole row of so many columns."""


def config_space(columns: int, tensors: int = 1) -> ConfigSpace:
    """The space for rows of so many columns; a program holds `tensors` blocks of the row's size at once."""
    widest, most = padded(columns), _MOST_PER_THREAD // tensors
    return ConfigSpace(
        TUNABLES,
        (
            Constraint("row", lambda BLOCK_SIZE: widest >= BLOCK_SIZE, f"{{BLOCK_SIZE}} is over a row of {widest}"),
            Constraint(
                "chunked",
                lambda BLOCK_SIZE, ROWS: ROWS == 1 or widest == BLOCK_SIZE,
                "{ROWS} rows at once are for blocks that hold whole rows",
            ),
            Constraint(
                "registers",
                lambda BLOCK_SIZE, ROWS, num_warps: 32 * most * num_warps >= BLOCK_SIZE * ROWS,
                f"over {most} elements for each thread spill",
            ),
            Constraint(
                "threads",
                lambda BLOCK_SIZE, ROWS, num_warps: 32 * _LEAST_PER_THREAD * num_warps <= BLOCK_SIZE * ROWS,
                "{num_warps} warps have fewer than two elements for each thread",
            ),
        ),
        default_config(columns, tensors),
    )  # fmt: skip


def long_chunks(columns: int) -> Constraint:
    """The constraint that parts of a row have 1,024 elements or more: shorter ones wait for memory more often."""
    least = min(padded(columns), _LEAST_CHUNK)
    return Constraint(
        "chunks",
        lambda BLOCK_SIZE: least <= BLOCK_SIZE,
        f"parts of {{BLOCK_SIZE}} of a row of {columns} wait too often",
    )


@lru_cache(maxsize=1024)
def default_config(columns: int, tensors: int = 1) -> Config:
    """The untuned config: whole rows in registers as far as they go, and about 16 elements for each thread."""
    widest = padded(columns)
    block = widest if widest * tensors <= _WHOLE else _CHUNK
    rows = min(16, max(1, 1024 // block))
    warps = min(16, max(1, block * rows * tensors // (32 * 16)))
    return Config(BLOCK_SIZE=block, ROWS=rows, num_warps=1 << (warps.bit_length() - 1))
