"""Ranges of warps and stages to begin with, by architecture and by what a kernel does.

It is advice only: what is fastest is measured. Sources: the configs of Triton's tutorials for NVIDIA's architectures,
those of ROCm's guide to Triton kernels for AMD's, and winners of recorded spaces on an H200 (docs/concepts/model.md);
the asynchronous copies that a pipeline needs are in NVIDIA's GPUs from sm_80 on (CUDA C++ Programming Guide).
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.device import Target

PRODUCTS, ROWS = "products", "rows and elements"
ACCUMULATED_BYTES = 4  # of an element of a product's result: sums are in float32 or int32
_LARGE = 32_768  # elements of a tile from which sixteen warps are worth a try
_MEDIUM = 8_192
_MOST_EACH = 128  # accumulator registers per thread up to which nothing spilled in recorded spaces
_POWERS = (1, 2, 4, 8, 16, 32)
_ROW_EACH = (8, 64)  # elements per thread: below, loads are narrow; above, registers spill


@dataclass(frozen=True)
class Habit:
    """The range to begin with of one launch option.

    Attributes:
        option: `num_warps` or `num_stages`.
        low: Least value of the range.
        high: Greatest value of the range.
        why: The reason.
    """

    option: str
    low: int
    high: int
    why: str

    def holds(self, value: int) -> bool:
        """Tell whether a value lies in the range."""
        return self.low <= value <= self.high


_STAGES = {
    "sm_70": (1, 2, "without asynchronous copies loads pass through registers, and further stages take registers"),
    "sm_75": (1, 2, "without asynchronous copies loads pass through registers, and further stages take registers"),
    "sm_80": (3, 4, "asynchronous copies hide the memory's latency with two to three tiles ahead"),
    "sm_86": (2, 3, "99 KiB of shared memory per block hold few tiles"),
    "sm_89": (2, 3, "99 KiB of shared memory per block hold few tiles"),
    "sm_90": (3, 5, "warp-group products are fast, so that more tiles must be under way; 227 KiB hold them"),
    "sm_100": (3, 5, "products run in tensor memory, so that shared memory is left for tiles under way"),
    "sm_120": (2, 3, "99 KiB of shared memory per block hold few tiles"),
    "gfx90a": (1, 2, "tiles pass through registers, and 64 KiB of LDS hold few of them"),
    "gfx942": (1, 2, "tiles pass through registers, and 64 KiB of LDS hold few of them"),
    "gfx950": (2, 3, "160 KiB of LDS hold more tiles, and loads may go to LDS directly"),
}


def stages_habit(arch: str, kind: str) -> Habit | None:
    """The range to begin with of `num_stages`; None for an architecture that has no row.

    Args:
        arch: Such as `sm_90`.
        kind: `PRODUCTS` or `ROWS`.
    """
    if arch not in _STAGES:
        return None
    if kind == ROWS:
        return Habit("num_stages", 1, 2, "memory limits it, and blocks beside each other hide the latency already")
    return Habit("num_stages", *_STAGES[arch])


def warps_habit(target: Target, kind: str, elements: int) -> Habit | None:
    """The range to begin with of `num_warps`; None where the size of the tile is not known.

    Args:
        target: The architecture.
        kind: `PRODUCTS` or `ROWS`.
        elements: Elements of a block's tile.
    """
    if elements < 1:
        return None
    most = target.threads_per_block // target.warp_size
    if kind == ROWS:
        fewest, greatest = _ROW_EACH
        fit = [w for w in _POWERS if w <= most and fewest <= elements / (w * target.warp_size) <= greatest] or [1]
        return Habit(
            "num_warps", fit[0], fit[-1], f"{fewest} to {greatest} elements per thread load widely and do not spill"
        )
    low = 4 if elements >= _MEDIUM else 2
    high = 16 if elements >= _LARGE else 8 if elements >= _MEDIUM else 4
    high = min(high, most)
    if target.arch == "sm_90" and low == 4:
        return Habit(
            "num_warps", low, high, "warp-group products take groups of four warps, which share the accumulator"
        )
    return Habit("num_warps", low, high, "more warps share the accumulator among more registers")


@dataclass(frozen=True)
class WarpChoice:
    """The effect of a number of warps on a block.

    Attributes:
        warps: Number of warps.
        threads: Threads of the block.
        accumulator_registers: Registers of each thread that the largest accumulator takes.
        fits: Whether accumulators of this size left room for the rest, and did not spill, in recorded spaces.
    """

    warps: int
    threads: int
    accumulator_registers: float
    fits: bool


def warp_choices(target: Target, accumulator_bytes: int) -> tuple[WarpChoice, ...]:
    """The effects of each possible number of warps on an accumulator in a thread's registers.

    Args:
        target: The architecture.
        accumulator_bytes: Size of the block's largest accumulator.
    """
    room = _MOST_EACH if target.kind == "cuda" else 2 * _MOST_EACH  # AMD's lanes have 512 registers, others 255
    each = [(w, w * target.warp_size, accumulator_bytes / (4 * w * target.warp_size)) for w in _POWERS]
    return tuple(WarpChoice(*one, fits=one[2] <= room) for one in each if one[1] <= target.threads_per_block)
