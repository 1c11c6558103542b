"""Targets of a compilation: architectures with their limits, whether or not this machine has such a device.

Shared memory per block: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (opt-in
maximum, from sm_80 on 1 KiB below what a multiprocessor has); LDS: AMD CDNA 2, 3 and 4 ISA guides. Registers: the
same guides.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

from triton_ops.device.limits import LIMITS, UnitLimits
from triton_ops.device.spec import DeviceSpec
from triton_ops.exceptions import DeviceError

_KIB = 1024


@dataclass(frozen=True)
class Target:
    """An architecture with the limits that a compilation must keep.

    Attributes:
        warp_size: Threads that run in lockstep: 32 or 64.
        shared_bytes_per_block: Most shared memory that one block may have.
        registers_per_block: Most 32-bit registers that one block may have; None where the architecture sets no such
            limit.
        units: Multiprocessors of the device; None if no device is meant.
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


def _amd(arch: str, shared_kib: int) -> Target:
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
        _amd("gfx90a", 64),
        _amd("gfx942", 64),
        _amd("gfx950", 160),
    )
}


def named_target(name: str) -> Target:
    """The target called `name`, such as `sm_90` or `gfx942`.

    Raises:
        DeviceError: There is no such target; the error lists the known ones.
    """
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
        row = _nvidia(device.arch, 0) if device.kind == "cuda" else _amd(device.arch, 0)
    return replace(row, shared_bytes_per_block=shared or row.shared_bytes_per_block, units=device.units)
