"""The role of a GPU vendor: the questions that only the vendor's own software answers, and the types of the answers.

All calls of a vendor's libraries (NVIDIA's libcuda and NVML, AMD's HIP and amdsmi) stand in one file per vendor, and
`vendors.py` lists the vendors. All other modules ask through this role.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from triton_ops.device.architectures import DeviceSpec

CLOCK_REASONS = (
    "idle",
    "app_clocks",  # held at a clock that someone set
    "power_cap",
    "hw_slowdown",  # clocks at half or less: too hot, too much power, or the power supply asked for it
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "power_brake",
    "display_clocks",
    "board_limit",
    "reliability",
)
"""Reasons why clocks are held back, in the order in which they are listed. A vendor may add words of its own."""

_SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
"""Reasons that make the times measured meanwhile worthless. The power cap is none: matrix products always run at it."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The values of a GPU's sensors at one moment; None for a value that the GPU does not tell.

    Attributes:
        reasons: Why the clocks are held back: words of `CLOCK_REASONS`, or the vendor's own. The GPU is idle right
            after a round, so `idle` carries no information.
    """

    reasons: tuple[str, ...]
    clock_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None  # power in watts; most NVIDIA GPUs since Ampere give the average of the last second
    temperature_c: int | None = None

    @property
    def slowdowns(self) -> frozenset[str]:
        """The reasons that make the times measured meanwhile worthless."""
        return _SLOWED.intersection(self.reasons)

    @staticmethod
    def regimes(readings: Iterable[Reading]) -> tuple[str, ...]:
        """The reasons of some readings, except `idle`; in the order of `CLOCK_REASONS`, a vendor's own words last."""
        words = {word for reading in readings for word in reading.reasons} - {"idle"}
        return (*(word for word in CLOCK_REASONS if word in words), *sorted(words.difference(CLOCK_REASONS)))


@dataclass(frozen=True)
class ProcessUse:
    """The use of a GPU by one process in one sample.

    `share` is that of the sample's time in which the process had work on the multiprocessors; `at_us` is since 1970.
    """

    pid: int
    share: float
    at_us: int


class Sensors(Protocol):
    """The sensors of one GPU, which are only read. The opener of the sensors closes them once."""

    def read(self) -> Reading:
        """Read all sensors once; a `DeviceError` if the GPU no longer answers.

        A vendor with counters of how long each reason held may report all reasons since the previous reading.
        """

    def close(self) -> None:
        """Release the vendor's library; never raises."""


@dataclass(frozen=True)
class TritonDriver:
    """The names of Triton's classes that launch kernels on a vendor's GPUs.

    To construct `utilities` prepares the driver in a process, and to construct `launcher` builds a kernel's launcher.
    """

    module: str
    utilities: str
    launcher: str


class Vendor(Protocol):
    """The GPUs of one vendor."""

    triton_driver: TritonDriver

    def describe(self, torch: Any = None) -> tuple[DeviceSpec, ...]:
        """This vendor's GPUs in the order of torch's numbers, each with the driver's version.

        None as torch asks the vendor's driver alone, without the seconds of torch's import; the result is then empty
        wherever torch might find other GPUs.
        """

    def make_ready(self, device_name: str) -> None:
        """Initialise the driver for `cuda` or `cuda:N` in torch's place; does nothing without a driver."""

    def sensors(self, device_name: str) -> Sensors:
        """The open sensors of the GPU that torch calls `cuda` or `cuda:N`; an error if they cannot be read."""


@runtime_checkable
class CountsGraphNodes(Protocol):
    """A vendor that can count the nodes of a captured graph."""

    def graph_nodes(self, graph_address: int) -> int | None:
        """Number of nodes of the driver's graph at `graph_address`; None if the driver does not say."""


def described_by_torch(torch: Any, kind: str, driver: str | None) -> tuple[DeviceSpec, ...]:
    """The GPUs that torch finds, in torch's order; `kind` is that of the vendor that this build of torch is for."""
    return tuple(
        _spec_of(torch.cuda.get_device_properties(index), kind, driver) for index in range(torch.cuda.device_count())
    )


def _spec_of(properties: Any, kind: str, driver: str | None) -> DeviceSpec:
    arch = f"sm_{properties.major}{properties.minor}" if kind == "cuda" else properties.gcnArchName.partition(":")[0]
    return DeviceSpec(
        kind=kind,
        name=properties.name,
        arch=arch,
        units=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        shared_bytes_per_block=getattr(properties, "shared_memory_per_block_optin", None),
        registers_per_unit=getattr(properties, "regs_per_multiprocessor", None),
        driver=driver,
    )
