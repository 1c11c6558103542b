"""The devices of the table that the ranking model knows, with their figures by datasheet."""

from __future__ import annotations

from triton_ops.exceptions import DeviceError
from triton_ops.hardware import Machine, machine_of, named_devices, spec_called


def known_devices() -> dict[str, Machine]:
    """The machines of all devices for which the model makes forecasts, by the names of the table."""
    found = {name: _machine(name) for name in named_devices()}
    return {name: machine for name, machine in found.items() if machine is not None}


def device_named(name: str) -> tuple[str, Machine]:
    """The name in the table and the machine of a device.

    Args:
        name: The vendor's name, such as `NVIDIA H200`, or a short one, such as `h200`.

    Raises:
        DeviceError: The table has no such device, or the model does not know its architecture.
    """
    known = known_devices()
    machine = _machine(name)
    if machine is None:
        what = "is in the table, but the model does not know its architecture" if spec_called(name) else "is not known"
        raise DeviceError(
            f"device {name!r} {what}; the model knows {', '.join(known)}", name, hint="for example --gpu 'NVIDIA H200'"
        )
    return next((own for own, other in known.items() if other == machine), name), machine


def _machine(name: str) -> Machine | None:
    spec = spec_called(name)
    return None if spec is None else machine_of(spec)
