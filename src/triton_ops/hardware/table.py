"""What datasheets say of devices, for what no driver reports and for devices that this machine does not have.

A row matches a device whose name contains the row's model; the longest match wins, so `H100 PCIe` is not taken for
`H100`. A device without a row has no peaks. A figure that its vendor does not publish is None or left out, and no
figure is assumed for it. Matrix rates are dense, with sums in float32; `tfloat32` is what Triton's products of
float32 take, and `float32` is the rate without matrix units. The rows are in `datasheets.py`.
"""

from __future__ import annotations

import re

from triton_ops.hardware.datasheets import DATASHEETS, Datasheet
from triton_ops.hardware.limits import LIMITS
from triton_ops.hardware.spec import DeviceSpec
from triton_ops.hardware.target import TARGETS

A100_BANDWIDTH_GBPS = DATASHEETS["A100-SXM4-80GB"].bandwidth_gbps
"""The peak that the documented helpers assume when no device is known, and the rate of products beside it."""
A100_TFLOPS = DATASHEETS["A100-SXM4-80GB"].tflops["bfloat16"]

_OTHER = ("MIG", "NVL", "Ti", "SUPER", "Laptop", "Mobile", "Max-Q", "D", "Ada")
"""Words that name another device than the same name without them: slices of a model, and its variants."""


def datasheet_of(name: str) -> Datasheet | None:
    """The datasheet's figures of a device by the name that its driver reports; None if the table has no row for it.

    A row matches whole words only: `H200` is found in `NVIDIA H200`, not in `NVIDIA GH200`. A slice of a device (MIG)
    and an NVL variant have other peaks, so only a row that names them matches.
    """
    found = [
        model
        for model in DATASHEETS
        if _has_word(name, model) and all(_has_word(model, other) for other in _OTHER if _has_word(name, other))
    ]
    return DATASHEETS[max(found, key=len)] if found else None


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def named_devices() -> list[str]:
    """The models that `spec_named` knows."""
    return list(DATASHEETS)


def spec_named(name: str) -> DeviceSpec | None:
    """The spec of a device that this machine need not have, for replays and forecasts; None without a row for it.

    Args:
        name: The vendor's name, such as `NVIDIA H200`, as it stands in recordings and records.
    """
    row = datasheet_of(name)
    return None if row is None else _spec(row, name)


def spec_called(text: str) -> DeviceSpec | None:
    """As `spec_named`, for what a person types: a model in any case, such as `a100` or `rtx 4090`, is enough.

    The spec has the driver's name of the device, under which records and calibrations are kept. A model with several
    variants stands for the largest one of the fastest kind.
    """
    wanted = " ".join(text.lower().split())
    for model, row in DATASHEETS.items():
        if wanted in (model.lower(), row.name.lower(), *(alias.lower() for alias in row.aliases)):
            return _spec(row, row.name)
    return spec_named(text)


def _spec(row: Datasheet, name: str) -> DeviceSpec:
    target, limits = TARGETS[row.arch], LIMITS[row.arch]
    return DeviceSpec(
        kind=target.kind,
        name=name,
        arch=row.arch,
        units=row.units,
        l2_bytes=row.l2_bytes,
        shared_bytes_per_block=target.shared_bytes_per_block,
        registers_per_unit=limits.registers,
        bandwidth_gbps=row.bandwidth_gbps,
        tflops=dict(row.tflops),
    )
