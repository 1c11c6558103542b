"""What a device can do, as far as tuning needs it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceSpec:
    """One device. Figures that are not known are None, never guessed.

    Attributes:
        kind: `cuda`, `hip` or `cpu`.
        name: The vendor's name.
        arch: `sm_90`, `gfx942`, or the machine type of a CPU.
        units: Streaming multiprocessors, compute units, or CPU cores this process may use.
        memory_bytes: Device memory.
        l2_bytes: Last cache before memory.
        shared_bytes_per_block: Most shared memory one block may have.
        registers_per_unit: 32-bit registers per multiprocessor.
        bandwidth_gbps: Peak memory bandwidth by datasheet, 10^9 bytes per second.
        tflops: Peak dense matrix rate by dtype name, by datasheet, 10^12 operations per second.
        driver: Driver version.
    """

    kind: str
    name: str
    arch: str
    units: int
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    shared_bytes_per_block: int | None = None
    registers_per_unit: int | None = None
    bandwidth_gbps: float | None = None
    tflops: dict[str, float] = field(default_factory=dict, hash=False)
    driver: str | None = None
