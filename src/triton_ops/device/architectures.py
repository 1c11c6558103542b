"""Limits of each architecture: of a compilation, and of the blocks that one multiprocessor holds.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and NVIDIA's occupancy
calculator for what is handed out at once; LLVM, "User Guide for AMDGPU Backend", and AMD's CDNA 2, 3 and 4 ISA guides:
four vector units with 512 registers for each of 64 lanes, eight wavefronts each, and sixteen barriers.

Shared memory per block: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (opt-in
maximum, from sm_80 on 1 KiB below what a multiprocessor has); LDS: AMD CDNA 2, 3 and 4 ISA guides. Registers: the
same guides.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from math import ceil

from triton_ops.exceptions import DeviceError

_KIB = 1024


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

    def blocks_at_once(self, registers: int, shared_bytes: int, warps: int) -> int:
        """The number of blocks that fit at a time; 0 if not even one fits."""
        return min(self._each(registers, shared_bytes, warps))

    def residents(self, registers: int, shared_bytes: int, warps: int) -> Residents:
        """The blocks that fit at a time, with what each limit alone allows."""
        each = self._each(registers, shared_bytes, warps)
        names = ("registers", "shared memory", "warps", "blocks")
        return Residents(dict(zip(names, each, strict=True)), warps, self.warps)

    def _each(self, registers: int, shared_bytes: int, warps: int) -> tuple[int, int, int, int]:
        per_warp = max(ceil(registers * self.warp_size / self.register_granule), 1) * self.register_granule
        by_registers = self.registers // self.parts // per_warp * self.parts // warps
        granules = max(ceil((shared_bytes + self.block_shared_bytes) / self.shared_granule), 1)
        by_shared = self.shared_bytes // (granules * self.shared_granule)
        most = self.blocks if warps > 1 or self.lone_blocks is None else self.lone_blocks
        return by_registers, by_shared, self.warps // warps, most


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
    "sm_120": UnitLimits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    "gfx90a": _amd(64, 512),
    "gfx942": _amd(64, 512),
    "gfx950": _amd(160, 1280),
}


@dataclass(frozen=True)
class DeviceSpec:
    """The description of one device. An unknown figure is None, and never guessed.

    Attributes:
        tflops: Peak dense matrix rate by dtype name, by datasheet, 10^12 operations per second.
    """

    kind: str  # `cuda`, `hip` or `cpu`
    name: str
    arch: str  # `sm_90`, `gfx942`, or the machine type of a CPU
    units: int  # number of streaming multiprocessors, compute units, or CPU cores that this process may use
    _: KW_ONLY
    memory_bytes: int | None = None
    l2_bytes: int | None = None  # size of the last cache before memory
    shared_bytes_per_block: int | None = None
    registers_per_unit: int | None = None
    bandwidth_gbps: float | None = None  # peak memory bandwidth by datasheet, 10^9 bytes per second
    tflops: dict[str, float] = field(default_factory=dict, hash=False)
    driver: str | None = None

    @property
    def limits(self) -> UnitLimits | None:
        """The limits of one of its multiprocessors; None if its architecture has no row here, and none are assumed.

        A number of registers that the device reports replaces the architecture's.
        """
        limits = LIMITS.get(self.arch)
        if limits is None or self.registers_per_unit in (None, limits.registers):
            return limits
        return replace(limits, registers=self.registers_per_unit)


@dataclass(frozen=True)
class Target:
    """An architecture with the limits that a compilation must keep.

    None as registers is an architecture without such a limit, None as `units` that no device is meant.
    """

    kind: str
    arch: str
    warp_size: int
    shared_bytes_per_block: int
    _: KW_ONLY
    threads_per_block: int = 1024
    registers_per_block: int | None = 65536
    units: int | None = None

    @property
    def capability(self) -> int:
        """The number in an NVIDIA architecture's name: 90 for `sm_90`; 0 elsewhere."""
        return int(self.arch.removeprefix("sm_")) if self.kind == "cuda" else 0

    @property
    def limits(self) -> UnitLimits | None:
        """The limits of one of its multiprocessors; None if they are not known."""
        return LIMITS.get(self.arch)


def _nvidia(arch: str, shared_kib: int) -> Target:
    return Target("cuda", arch, 32, shared_kib * _KIB)


def _target_amd(arch: str, shared_kib: int) -> Target:
    return Target("hip", arch, 64, shared_kib * _KIB, registers_per_block=None)


TARGETS = {
    target.arch: target
    for target in (
        _nvidia("sm_70", 96),
        _nvidia("sm_75", 64),
        _nvidia("sm_80", 163),
        _nvidia("sm_86", 99),
        _nvidia("sm_89", 99),
        _nvidia("sm_90", 227),
        _nvidia("sm_100", 227),
        _nvidia("sm_120", 99),
        _target_amd("gfx90a", 64),
        _target_amd("gfx942", 64),
        _target_amd("gfx950", 160),
    )
}


def named_target(name: str) -> Target:
    """The target called `name`, such as `sm_90` or `gfx942`; the `DeviceError` lists the known ones."""
    target = TARGETS.get(name.strip().lower())
    if target is None:
        raise DeviceError(
            f"target {name!r} is not known; known are {', '.join(TARGETS)}",
            ", ".join(TARGETS),
            name,
            hint="use one of these",
        )
    return target


def target_of(device: DeviceSpec) -> Target:
    """The target for a device; a limit that the device reports replaces the architecture's.

    Raises:
        DeviceError: The device is no GPU, or its architecture has no row and it does not report its limits.
    """
    if device.kind not in ("cuda", "hip"):
        raise DeviceError(
            f"{device.name} is no target for Triton kernels",
            ", ".join(TARGETS),
            device.arch,
            hint="name a target: --target sm_90",
        )
    row, shared = TARGETS.get(device.arch), device.shared_bytes_per_block
    if row is None and shared is None:
        return named_target(device.arch)
    if row is None:
        row = _nvidia(device.arch, 0) if device.kind == "cuda" else _target_amd(device.arch, 0)
    return replace(row, shared_bytes_per_block=shared or row.shared_bytes_per_block, units=device.units)
