"""Matrix units at work on a tile: which instructions it takes, the share of each warp, and what of it they read.

The layouts are Triton's for sm_80 and sm_90, which choose a tile's instruction and the share of each warp (Triton's
`lib/Dialect`, AccelerateMatmul; docs/concepts/model.md derives each figure).
"""

from __future__ import annotations

from typing import NamedTuple

from triton_ops.device import Machine
from triton_ops.values import UnknownTileError

GROUP_ROWS = 64  # rows of a warp-group instruction
_WIDEST = 256  # most columns of a warp-group instruction
_INSTRUCTION_CYCLES, _INSTRUCTION_TERMS = 33, 16  # of one warp's matrix instruction of 16 bits: until its sum is there
ONE_STEP = 32  # elements of 8 bits along K that one instruction takes: in such a step there is one, and none waits
_SERIALISED = 0.5  # chance that 8-bit tiles of 256 columns are serialised: in one of two kernels' texts


def check(machine: Machine, dtype: str) -> None:
    """Raise `UnknownTileError` if the device has no known matrix rate for `dtype`."""
    if dtype not in machine.mma_flops_per_cycle:
        raise UnknownTileError(f"the device has no known matrix rate for {dtype}")


class TileBlock(NamedTuple):
    """The tile of one program, and how the program runs."""

    rows: int
    columns: int
    step: int  # along the inner axis
    warps: int
    stages: int
    group: int  # tile rows that programs walk down before they move on to the next tile column
    item_bytes: int  # of an element of A and B
    parts: int = 1  # of a step, each with a sum of its own
    sums: int = 1  # of the columns, each with instructions of its own

    @property
    def load_bytes(self) -> int:
        """Bytes of A and B that one step loads."""
        return (self.rows + self.columns) * self.step * self.item_bytes


def warp_groups(machine: Machine, rows: int, warps: int) -> bool:
    """Return True for a tile that runs on warp-group instructions."""
    return machine.wgmma and rows >= GROUP_ROWS and warps % 4 == 0


def operand_bytes(machine: Machine, rows: int, columns: int, step_bytes: int, warps: int) -> float:
    """Bytes that the matrix units read from shared memory for a tile of `rows` by `columns` and a `step_bytes` step."""
    if warp_groups(machine, rows, warps):
        # The four warps together read the rows of A and the columns of B of each instruction once.
        width = min(max(columns // warps_across(machine, rows, columns, warps), 8), _WIDEST)
        group = min(rows, machine.group_rows)
        return rows / group * (columns / width) * (group + width) * step_bytes
    along_rows, along_columns = warp_grid(rows, columns, warps)
    # no instruction has fewer than 8 columns, so that a warp reads as many at least
    return (rows * along_columns + max(columns, 8 * along_columns) * along_rows) * step_bytes


def warps_across(machine: Machine, rows: int, columns: int, warps: int) -> int:
    """Warps along the columns of a tile; those that have rows in common."""
    if warp_groups(machine, rows, warps):
        return max(warps // max(rows // 16, 1), 1)  # each warp of a group has 16 of its 64 rows
    return warp_grid(rows, columns, warps)[1]


def tiles_of_warp(machine: Machine, rows: int, columns: int, warps: int) -> float:
    """Tiles of 16 rows that each warp has of a tile's rows, one below the other; at least 1."""
    return max(1.0, rows / 16 / (warps // warps_across(machine, rows, columns, warps)))


def warp_grid(rows: int, columns: int, warps: int) -> tuple[int, int]:
    """Warps along the rows and along the columns of a tile, for instructions of one warp (16 by 8)."""
    # as Triton's `warpsPerTileV2`: warps are added along the side on which each has more tiles
    down, across = 1, 1
    while down * across < warps:
        if rows / 16 / down >= columns / 16 / across and down < rows / 16:
            down *= 2
        else:
            across *= 2
    return down, across


def cycles(machine: Machine, block: TileBlock, dtype: str) -> float:
    """Cycles of one multiprocessor's matrix units per step."""
    flops = 2.0 * block.rows * block.columns * block.step
    rate = machine.mma_flops_per_cycle[dtype]
    if warp_groups(machine, block.rows, block.warps):
        return flops / rate
    columns = block.columns // block.sums
    across = warp_grid(block.rows, columns, block.warps)[1] if block.parts == 1 else 1
    repeated = max(1.0, 8 * across / columns)  # with more warps than columns, some repeat the work of others
    return flops * repeated / (rate * machine.mma_sync_share)


def chain_cycles(machine: Machine, block: TileBlock, dtype: str) -> float:
    """Cycles of a step's instructions of one warp, each of which adds to the sum of the one before.

    Hopper's warps multiply 8-bit floats as 16-bit ones, which takes twice the instructions; no other chain was recorded
    that takes longer than its step's loads.
    """
    if "float8" not in dtype or not machine.wgmma or warp_groups(machine, block.rows, block.warps):
        return 0.0
    return _INSTRUCTION_CYCLES * block.step / block.parts / _INSTRUCTION_TERMS


def lockstep(machine: Machine, block: TileBlock, serialised: bool | None) -> float:
    """The share, 0 to 1, in which the matrix units of a block wait for their operands.

    They wait wholly where ptxas has serialised the warp-group instructions. Before a config is compiled nobody knows:
    the same 8-bit tiles of 256 columns and 8 warps had it in one kernel's text (ptxas 12.8: 4 of 96 tiles, and no
    16-bit one) and not in another's, so that the chance is taken for them.
    """
    if not warp_groups(machine, block.rows, block.warps):
        return 0.0
    if serialised is not None:
        return float(serialised)
    widest = block.columns // block.sums == _WIDEST
    doubtful = block.item_bytes == 1 and widest and block.warps == 8 and block.step > ONE_STEP
    return _SERIALISED if doubtful else 0.0
