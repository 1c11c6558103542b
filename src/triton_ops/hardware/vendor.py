"""What is asked of a GPU vendor's own software: one role, and what its answers are made of.

Whatever calls a vendor's libraries (NVIDIA's libcuda and NVML, AMD's HIP and amdsmi) stands in the one file of that
vendor, and `vendors.py` lists the vendors. Everything else asks through this role.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from triton_ops.hardware.spec import DeviceSpec

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
"""Why clocks are held back, in the order in which reasons are listed. A vendor may add words of its own."""

SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
"""The reasons that make times measured meanwhile worthless. The power cap is none: matrix products live at it."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a GPU said of itself at one moment; None where it does not tell.

    Attributes:
        reasons: Why the clocks are held back: words of `CLOCK_REASONS`, or the vendor's own. Right after a round the
            GPU has nothing to do, so `idle` says nothing.
        clock_mhz: Clock of the multiprocessors or compute units.
        power_w: Power in watts; most NVIDIA GPUs since Ampere give the average of the last second.
        temperature_c: Temperature of the chip in degrees Celsius.
    """

    reasons: tuple[str, ...]
    clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None


class Sensors(Protocol):
    """The sensors of one GPU, which are only read. They are closed once, by whoever opened them."""

    def read(self) -> Reading:
        """One reading.

        A vendor whose counters tell how long each reason has held may report the reasons since the reading before.

        Raises:
            DeviceError: The GPU does not answer any more.
        """

    def close(self) -> None:
        """Give the vendor's library back; never raises."""


@dataclass(frozen=True)
class TritonDriver:
    """Where Triton keeps what launches kernels on a vendor's GPUs.

    Attributes:
        module: To be imported.
        utilities: The name in it of what readies the driver in a process when it is made.
        launcher: The name in it of what builds a kernel's launcher when it is made.
    """

    module: str
    utilities: str
    launcher: str


class Vendor(Protocol):
    """The GPUs of one vendor.

    Attributes:
        triton_driver: What Triton calls this vendor's driver.
    """

    triton_driver: TritonDriver

    def describe(self, torch: Any = None) -> tuple[DeviceSpec, ...]:
        """This vendor's GPUs under the numbers that torch gives them, each with the driver's version.

        Args:
            torch: The module, where torch must be asked. None asks the vendor's driver alone, without the seconds
                that torch takes to import; nothing is returned where it is not sure that torch would find the same.
        """

    def make_ready(self, device_name: str) -> None:
        """Initialise the driver for `cuda` or `cuda:N`, so that torch finds it done; does nothing without a driver."""

    def sensors(self, device_name: str) -> Sensors:
        """The open sensors of the GPU that torch calls `cuda` or `cuda:N`.

        Raises:
            MissingDependencyError: A package for it is not installed.
            DeviceError: The GPU is not known to the vendor's library, or does not tell why its clocks are held back.
        """


@runtime_checkable
class CountsGraphNodes(Protocol):
    """A vendor that can count what was captured in a graph."""

    def graph_nodes(self, graph_address: int) -> int | None:
        """How many nodes the driver's graph at `graph_address` has; None if the driver does not say."""


def described_by_torch(torch: Any, kind: str, driver: str | None) -> tuple[DeviceSpec, ...]:
    """The GPUs that torch finds, by number; of the vendor that this build of torch is for.

    Args:
        torch: The module.
        kind: `cuda` or `hip`.
        driver: Version of the driver, where it is known.
    """
    return tuple(
        _described(torch.cuda.get_device_properties(index), kind, driver) for index in range(torch.cuda.device_count())
    )


def _described(found: Any, kind: str, driver: str | None) -> DeviceSpec:
    arch = f"sm_{found.major}{found.minor}" if kind == "cuda" else found.gcnArchName.partition(":")[0]
    return DeviceSpec(
        kind=kind,
        name=found.name,
        arch=arch,
        units=found.multi_processor_count,
        memory_bytes=found.total_memory,
        l2_bytes=getattr(found, "L2_cache_size", None),
        shared_bytes_per_block=getattr(found, "shared_memory_per_block_optin", None),
        registers_per_unit=getattr(found, "regs_per_multiprocessor", None),
        driver=driver,
    )
