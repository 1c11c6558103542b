"""Pieces of Triton code that several of the shipped kernels share."""

from triton_ops._optional import require

triton = require("triton", "the shipped kernels")
tl = require("triton.language", "the shipped kernels")


@triton.jit
def widened(values):
    """The values in the precision in which kernels compute: float64 for float64, else float32."""
    if values.dtype == tl.float64:
        return values
    else:
        return values.to(tl.float32)


@triton.jit
def tile_of(program, tile_rows, tile_columns, GROUP_SIZE_M: tl.constexpr):
    """The row and column, in tiles, of a program's tile.

    Consecutive programs walk down GROUP_SIZE_M tile rows before they step to the next tile column: programs that run at
    the same time then share rows of A and columns of B in L2.
    """
    tiles_per_group = GROUP_SIZE_M * tile_columns
    first_row = program // tiles_per_group * GROUP_SIZE_M
    group_rows = min(tile_rows - first_row, GROUP_SIZE_M)
    place = program % tiles_per_group
    return first_row + place % group_rows, place // group_rows


@triton.jit
def described(base, rows, columns, stride, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """A tensor descriptor of a matrix with `columns` neighbours in memory; rows are multiples of 16 bytes apart."""
    return tl.make_tensor_descriptor(
        base, shape=[rows, columns], strides=[stride, 1], block_shape=[BLOCK_ROWS, BLOCK_COLUMNS]
    )


INTERPRETED = type(widened).__name__ == "InterpretedFunction"
"""Whether kernels run as Python, as under `TRITON_INTERPRET=1`: then they take tensors on a CPU."""
