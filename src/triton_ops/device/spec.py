"""The description of a device, as far as tuning needs it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field


@dataclass(frozen=True)
class DeviceSpec:
    """The description of one device. An unknown figure is None, and never guessed.

    Attributes:
        kind: `cuda`, `hip` or `cpu`.
        name: The vendor's name of the device.
        arch: `sm_90`, `gfx942`, or the machine type of a CPU.
        units: Number of streaming multiprocessors, compute units, or CPU cores that this process may use.
        memory_bytes: Size of the device's memory.
        l2_bytes: Size of the last cache before memory.
        shared_bytes_per_block: Most shared memory one block may have.
        registers_per_unit: 32-bit registers per multiprocessor.
        bandwidth_gbps: Peak memory bandwidth by datasheet, 10^9 bytes per second.
        tflops: Peak dense matrix rate by dtype name, by datasheet, 10^12 operations per second.
        driver: Version of the driver.
    """

    kind: str
    name: str
    arch: str
    units: int
    _: KW_ONLY
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    shared_bytes_per_block: int | None = None
    registers_per_unit: int | None = None
    bandwidth_gbps: float | None = None
    tflops: dict[str, float] = field(default_factory=dict, hash=False)
    driver: str | None = None
