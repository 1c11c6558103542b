"""The vendors whose software this package can ask. A new vendor needs a file like `nvidia.py` and a line here."""

from __future__ import annotations

from typing import Any

from triton_ops.exceptions import DeviceError
from triton_ops.hardware.nvidia import Nvidia
from triton_ops.hardware.spec import DeviceSpec
from triton_ops.hardware.vendor import CountsGraphNodes, Sensors, Vendor, described_by_torch

VENDORS: dict[str, Vendor] = {
    "cuda": Nvidia(),
}
"""The vendors by `DeviceSpec.kind`."""


def gpus_without_torch() -> tuple[DeviceSpec, ...]:
    """The GPUs that torch would find, by the first vendor whose driver can tell; empty if none can."""
    return next((found for vendor in VENDORS.values() if (found := vendor.describe())), ())


def gpus_of(torch: Any) -> tuple[DeviceSpec, ...]:
    """The GPUs that torch finds, even of a vendor that is not in `VENDORS`."""
    kind = _kind_of(torch)
    vendor = VENDORS.get(kind)
    return described_by_torch(torch, kind, None) if vendor is None else vendor.describe(torch)


def make_ready(device_name: str) -> None:
    """Initialise the vendors' drivers for `cuda` or `cuda:N`, while another thread of the process imports torch.

    Cost: a third of a second on an H200, during which other threads can run.
    """
    for vendor in VENDORS.values():
        vendor.make_ready(device_name)


def sensors_of(device: DeviceSpec, device_name: str) -> Sensors:
    """The open sensors of a device.

    Raises:
        MissingDependencyError: A package that reads the sensors is not installed.
        DeviceError: The device has no sensors that this package can read.
    """
    if device.kind not in VENDORS:
        watched = " and ".join(VENDORS)
        raise DeviceError(
            f"the clocks of {device_name} are not watched: only those of {watched} devices are", watched, device.kind
        )
    return VENDORS[device.kind].sensors(device_name)


def graph_nodes(torch: Any, graph_address: int) -> int | None:
    """How many nodes a captured graph has; None if the vendor of torch's GPUs cannot tell.

    Args:
        torch: The torch module.
        graph_address: Address of the driver's graph.
    """
    vendor: object = VENDORS.get(_kind_of(torch))
    if not isinstance(vendor, CountsGraphNodes):
        return None
    return vendor.graph_nodes(graph_address)


def _kind_of(torch: Any) -> str:
    """The kind of the GPUs that this build of torch is for."""
    return "cuda" if torch.version.hip is None else "hip"
