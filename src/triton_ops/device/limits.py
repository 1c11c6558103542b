"""What one multiprocessor or compute unit has for the blocks of a kernel, by architecture.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and NVIDIA's occupancy
calculator for what is handed out at once; LLVM, "User Guide for AMDGPU Backend", and AMD's CDNA 2, 3 and 4 ISA guides:
four vector units with 512 registers for each of 64 lanes, eight wavefronts each, and sixteen barriers.

Shared memory per block: CUDA C++ Programming Guide, the same table (opt-in maximum, from sm_80 on 1 KiB below what a
multiprocessor has); LDS: AMD CDNA 2, 3 and 4 ISA guides. Registers: the same guides.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

_KIB = 1024
_FEWEST, _MOST = 32, 256  # registers of a thread: with fewer most kernels spill, and there are no more


@dataclass(frozen=True)
class Residents:
    """The blocks of one kernel that one multiprocessor holds at a time; `by` has what each limit alone allows."""

    by: dict[str, int]
    warps_per_block: int
    most_warps: int

    @property
    def blocks(self) -> int:
        """Blocks at a time; 0 if not even one fits."""
        return min(self.by.values())

    @property
    def warps(self) -> int:
        """Warps at a time."""
        return self.blocks * self.warps_per_block

    @property
    def occupancy(self) -> float:
        """Warps at a time over the most that a multiprocessor holds."""
        return self.warps / self.most_warps

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The limits of the number of blocks: one name, or several that give the same number."""
        return tuple(name for name, blocks in self.by.items() if blocks == self.blocks)


@dataclass(frozen=True, kw_only=True)
class UnitLimits:
    """The resources of one multiprocessor or compute unit for its blocks."""

    warps: int = 64  # most warps (AMD: wavefronts) at a time
    blocks: int = 32
    lone_blocks: int | None = None  # most blocks of one warp; None is `blocks`
    shared_bytes: int = 228 * _KIB  # shared memory (AMD: LDS)
    block_shared_bytes: int = 1024  # shared memory that the system reserves for every block
    shared_granule: int = 128  # bytes in whose multiples shared memory is handed out
    registers: int = 65_536
    register_granule: int = 256  # registers in whose multiples a warp gets them
    parts: int = 4  # parts, each with its own share of registers and warps
    warp_size: int = 32

    def residents(self, registers: int, shared_bytes: int, warps: int) -> Residents:
        """The blocks that fit at a time, with what each limit alone allows."""
        per_warp = max(ceil(registers * self.warp_size / self.register_granule), 1) * self.register_granule
        granules = max(ceil((shared_bytes + self.block_shared_bytes) / self.shared_granule), 1)
        by = {
            "registers": self.registers // self.parts // per_warp * self.parts // warps,
            "shared memory": self.shared_bytes // (granules * self.shared_granule),
            "warps": self.warps // warps,
            "blocks": self.blocks if warps > 1 or self.lone_blocks is None else self.lone_blocks,
        }
        return Residents(by, warps, self.warps)

    def register_limits(self, registers: int, shared_bytes: int, warps: int) -> tuple[int, ...]:
        """Limits of a thread's registers beside `registers`: the next more, and the most with which more blocks fit.

        Each is the most with which so many blocks fit: between two of them a limit has no use.
        """
        step = self.register_granule // self.warp_size

        def fitting(count: int) -> int:
            return self.residents(count, shared_bytes, warps).blocks

        limits = [count for count in range(_FEWEST, _MOST, step) if fitting(count) > fitting(count + step)]
        more = [count for count in limits if count >= registers + step]
        fewer = [count for count in limits if count < registers and fitting(count) > fitting(registers)]
        return (*more[:1], *fewer[-1:])


def _amd(shared_kib: int, shared_granule: int) -> UnitLimits:
    return UnitLimits(
        warps=32, blocks=16, lone_blocks=32, shared_bytes=shared_kib * _KIB, block_shared_bytes=0,
        shared_granule=shared_granule, registers=131_072, register_granule=512, warp_size=64,
    )  # fmt: skip


LIMITS = {
    "sm_70": UnitLimits(shared_bytes=96 * _KIB, block_shared_bytes=0, shared_granule=256),
    "sm_75": UnitLimits(warps=32, blocks=16, shared_bytes=64 * _KIB, block_shared_bytes=0, shared_granule=256),
    "sm_80": UnitLimits(shared_bytes=164 * _KIB),
    "sm_86": UnitLimits(warps=48, blocks=16, shared_bytes=100 * _KIB),
    "sm_89": UnitLimits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    "sm_90": UnitLimits(),
    "sm_100": UnitLimits(),
    "sm_103": UnitLimits(),
    "sm_120": UnitLimits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    "sm_121": UnitLimits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    "gfx90a": _amd(64, 512),
    "gfx942": _amd(64, 512),
    "gfx950": _amd(160, 1280),
}
