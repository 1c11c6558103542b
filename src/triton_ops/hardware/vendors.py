"""The vendors whose software this package can ask. A further vendor is a file like `nvidia.py` and a line here."""

from __future__ import annotations

from typing import Any

from triton_ops.exceptions import DeviceError
from triton_ops.hardware.nvidia import Nvidia
from triton_ops.hardware.spec import DeviceSpec
from triton_ops.hardware.vendor import CountsGraphNodes, Sensors, Vendor, described_by_torch

VENDORS: dict[str, Vendor] = {
    "cuda": Nvidia(),
}
"""By `DeviceSpec.kind`."""


def gpus_without_torch() -> tuple[DeviceSpec, ...]:
    """The GPUs that torch would find, from the first vendor whose driver is sure of them; else nothing."""
    return next((found for vendor in VENDORS.values() if (found := vendor.describe())), ())


def gpus_of(torch: Any) -> tuple[DeviceSpec, ...]:
    """The GPUs that torch finds, whether or not their vendor is one of `VENDORS`."""
    kind = _kind_of(torch)
    vendor = VENDORS.get(kind)
    return described_by_torch(torch, kind, None) if vendor is None else vendor.describe(torch)


def make_ready(device_name: str) -> None:
    """Have the vendors' drivers initialise `cuda` or `cuda:N`, for a process that imports torch meanwhile.

    Cost: a third of a second on an H200, in which other threads run on.
    """
    for vendor in VENDORS.values():
        vendor.make_ready(device_name)


def sensors_of(device: DeviceSpec, device_name: str) -> Sensors:
    """The open sensors of a device.

    Raises:
        MissingDependencyError: A package for it is not installed.
        DeviceError: It has no sensors that can be asked.
    """
    if device.kind not in VENDORS:
        watched = " and ".join(VENDORS)
        raise DeviceError(
            f"the clocks of {device_name} are not watched: only those of {watched} devices are", watched, device.kind
        )
    return VENDORS[device.kind].sensors(device_name)


def graph_nodes(torch: Any, graph_address: int) -> int | None:
    """How many nodes a captured graph has; None where the vendor of torch's GPUs cannot tell.

    Args:
        torch: The module that captured the graph.
        graph_address: Of the driver's graph.
    """
    vendor: object = VENDORS.get(_kind_of(torch))
    if not isinstance(vendor, CountsGraphNodes):
        return None
    return vendor.graph_nodes(graph_address)


def _kind_of(torch: Any) -> str:
    """The kind of the GPUs that this build of torch is for."""
    return "cuda" if torch.version.hip is None else "hip"
