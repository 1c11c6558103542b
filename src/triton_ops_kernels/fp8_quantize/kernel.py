"""The Triton kernels of 8-bit floats: the largest magnitude, groups quantised in one pass, and scales applied.

A quantised value is x * scale, rounded to the nearest E4M3, ties to even. What is finite and out of range becomes ±448;
NaN and infinity become NaN, which is all that E4M3 has for them, and count for no scale.
"""

from __future__ import annotations

from triton_ops.base import require
from triton_ops_kernels.jit import INTERPRETED, from_e4m3, to_e4m3

triton = require("triton", "the fp8_quantize kernel")
tl = require("triton.language", "the fp8_quantize kernel")

_DIVIDES = tl.constexpr(INTERPRETED)  # the interpreter has no sum that is rounded once


def grid(meta):
    """One program per ROWS groups."""
    return (triton.cdiv(meta["scale"].numel(), meta["ROWS"]),)


def rescale_grid(meta):
    """One program per ROWS by BLOCK_SIZE tile, in one axis: the others of a grid end at 65,535."""
    return (triton.cdiv(meta["rows"], meta["ROWS"]) * triton.cdiv(meta["columns"], meta["BLOCK_SIZE"]),)


@triton.jit
def magnitude(values):
    """The magnitude of what is finite, and 0 for the rest."""
    sizes = tl.abs(values)
    return tl.where(sizes < float("inf"), sizes, 0.0)


@triton.jit
def quantised(values, scale):
    """Values * scale within ±448, before it is rounded to 8 bits; NaN where a value is not finite.

    A sum of the scale and 0 times the value is the scale, or NaN; a comparison kept for each value took three
    instructions more.
    """
    return tl.clamp(values * tl.fma(values, 0.0, scale), -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def largest_kernel(x, partial, elements, BLOCK_SIZE: tl.constexpr):
    """partial[program] = the largest finite magnitude among the elements that the program walks over."""
    lane = tl.arange(0, BLOCK_SIZE)
    largest = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK_SIZE
    place = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + lane
    for _ in range(tl.cdiv(elements, step)):
        values = tl.load(x + place, mask=place < elements, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, magnitude(values))
        place += step
    tl.store(partial + tl.program_id(0), tl.max(largest, 0))


@triton.jit
def inside_groups(lane, first, there, COLUMNS: tl.constexpr, GROUP: tl.constexpr):
    """The lanes that lie in their group; compilers see that neighbours agree where every group is whole."""
    length = GROUP if COLUMNS % GROUP == 0 else tl.minimum(COLUMNS - first, GROUP)[:, None]
    return there[:, None] & (lane < length)


@triton.jit
def fp8_quantize_kernel(
    x, out, scale, groups, COLUMNS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """Quantise each group of GROUP neighbours in a row of COLUMNS with its own scale, 448 by its largest magnitude."""
    GROUPS_PER_ROW: tl.constexpr = (COLUMNS + GROUP - 1) // GROUP
    group = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    first = group % GROUPS_PER_ROW * GROUP
    start = group // GROUPS_PER_ROW * COLUMNS + first
    there = group < groups
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    place = start[:, None] + lane

    if BLOCK_SIZE >= GROUP:
        values = tl.load(x + place, mask=inside_groups(lane, first, there, COLUMNS, GROUP), other=0.0).to(tl.float32)
        largest = tl.max(magnitude(values), 1)
    else:
        largest = tl.zeros((ROWS,), dtype=tl.float32)
        for chunk in tl.range(0, GROUP, BLOCK_SIZE):
            values = tl.load(
                x + place + chunk, mask=inside_groups(chunk + lane, first, there, COLUMNS, GROUP), other=0.0
            ).to(tl.float32)
            largest = tl.maximum(largest, tl.max(magnitude(values), 1))
    found = tl.minimum(tl.div_rn(448.0, tl.where(largest > 0.0, largest, 448.0)), 3.4028234663852886e38)
    tl.store(scale + group, found, mask=there)

    if BLOCK_SIZE >= GROUP:
        tl.store(
            out + place,
            to_e4m3(quantised(values, found[:, None])),
            mask=inside_groups(lane, first, there, COLUMNS, GROUP),
        )
    else:
        for chunk in tl.range(0, GROUP, BLOCK_SIZE):
            values = tl.load(
                x + place + chunk, mask=inside_groups(chunk + lane, first, there, COLUMNS, GROUP), other=0.0
            ).to(tl.float32)
            tl.store(
                out + place + chunk,
                to_e4m3(quantised(values, found[:, None])),
                mask=inside_groups(chunk + lane, first, there, COLUMNS, GROUP),
            )


@triton.jit
def quotients(values, scales):
    """Values of 8 bits[rows, parts, lanes] / scales[rows, parts] in float32, rounded to nearest.

    There is one division for each scale: a product with the inverse is off by an ulp at most, and a step by the exact
    rest makes it right (Markstein, 1990), but for a divisor whose fraction is all ones, and where the inverse or the
    quotient leaves the normal numbers. A rest of 0 keeps the sign of a zero.
    """
    size, each = tl.abs(scales), tl.broadcast_to(scales[:, :, None], values.shape)
    usual = (size > 2.0**-100) & (size < 2.0**100) & ((scales.to(tl.int32, bitcast=True) & 0x7FFFFF) != 0x7FFFFF)
    if _DIVIDES or tl.max(tl.where(usual, 0, 1)) > 0:
        found = tl.div_rn(values, each)
    else:
        inverse = tl.div_rn(tl.full(scales.shape, 1.0, tl.float32), scales)
        inverse = tl.broadcast_to(inverse[:, :, None], values.shape)
        near = values * inverse
        rest = tl.fma(-near, each, values)
        found = tl.where(rest == 0.0, near, tl.fma(rest, inverse, near))
    return found


@triton.jit
def fp8_rescale_kernel(
    x, scale, out, rows, columns, scale_columns, GROUP_ROWS,
    GROUP_COLUMNS: tl.constexpr, DIVIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Out = x / scale for 8-bit x, or x * scale in 8 bits; a scale serves GROUP_ROWS by GROUP_COLUMNS elements.

    GROUP_COLUMNS is 0 where a scale serves whole rows. A tile is ROWS by PARTS by LANES: of each part of a row one
    scale is read.
    """
    if GROUP_COLUMNS % BLOCK_SIZE == 0:
        LANES: tl.constexpr = BLOCK_SIZE
    elif BLOCK_SIZE % GROUP_COLUMNS == 0:
        LANES: tl.constexpr = GROUP_COLUMNS
    else:
        LANES: tl.constexpr = 1
    PARTS: tl.constexpr = BLOCK_SIZE // LANES
    blocks = tl.cdiv(columns, BLOCK_SIZE)
    row = (tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS))[:, None]
    first = (tl.program_id(0) % blocks * BLOCK_SIZE + tl.arange(0, PARTS) * LANES)[None, :]
    group = row // GROUP_ROWS * scale_columns + (first // GROUP_COLUMNS if GROUP_COLUMNS else first * 0)
    scales = tl.load(scale + group, mask=(row < rows) & (first < columns), other=1.0)

    column = first[:, :, None] + tl.arange(0, LANES)[None, None, :]
    inside = (row < rows)[:, :, None] & (column < columns)
    place = (row.to(tl.int64) * columns)[:, :, None] + column
    values = tl.load(x + place, mask=inside, other=0.0)
    if DIVIDE:
        tl.store(out + place, quotients(from_e4m3(values), scales).to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(out + place, to_e4m3(quantised(values.to(tl.float32), scales[:, :, None])), mask=inside)


@triton.jit
def scale_kernel(partial, scale, programs, BLOCK_SIZE: tl.constexpr):
    """The scale of a whole tensor, 448 by the largest of the magnitudes that so many programs have found."""
    lane = tl.arange(0, BLOCK_SIZE)
    largest = tl.max(tl.load(partial + lane, mask=lane < programs, other=0.0), 0)
    tl.store(scale, tl.minimum(tl.div_rn(448.0, tl.where(largest > 0.0, largest, 448.0)), 3.4028234663852886e38))
