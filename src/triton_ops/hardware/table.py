"""Datasheet peaks that no driver reports: memory bandwidth and dense matrix rates.

A row matches a device whose name contains the row's model; the longest match wins, so `H100 PCIe` is not taken for
`H100`. A device without a row has no peaks, and no figure is assumed for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from triton_ops.hardware.spec import DeviceSpec


@dataclass(frozen=True)
class Peaks:
    """Datasheet figures of one model.

    Attributes:
        bandwidth_gbps: Peak memory bandwidth, 10^9 bytes per second.
        tflops: Dense matrix rate by dtype name, 10^12 operations per second.
        source: The document that has the figures.
    """

    bandwidth_gbps: float
    tflops: dict[str, float] = field(default_factory=dict)
    source: str = ""


def _hopper(bandwidth_gbps: float, source: str) -> Peaks:
    return Peaks(
        bandwidth_gbps,
        {
            "bfloat16": 989.4,
            "float16": 989.4,
            "float8_e4m3fn": 1978.9,
            "float8_e5m2": 1978.9,
            "float32": 66.9,
        },
        source,
    )


def _ampere(bandwidth_gbps: float) -> Peaks:
    return Peaks(bandwidth_gbps, {"bfloat16": A100_TFLOPS, "float16": A100_TFLOPS}, "NVIDIA A100 datasheet")


A100_BANDWIDTH_GBPS = 2039.0  # A100 80 GB SXM: the peak that the documented helpers assume when no device is known
A100_TFLOPS = 312.0

PEAKS = {
    "H200": _hopper(4800.0, "NVIDIA H200 datasheet, SXM"),
    "H100 PCIe": Peaks(2039.0, {"bfloat16": 756.0, "float16": 756.0, "float8_e4m3fn": 1513.0}, "NVIDIA H100 datasheet"),
    "H100": _hopper(3350.0, "NVIDIA H100 datasheet, SXM"),
    "A100-SXM4-80GB": _ampere(A100_BANDWIDTH_GBPS),
    "A100-SXM4-40GB": _ampere(1555.0),
    "A100 80GB PCIe": _ampere(1935.0),
    "MI300X": Peaks(
        5300.0, {"bfloat16": 1307.4, "float16": 1307.4, "float8_e4m3fn": 2614.9}, "AMD Instinct MI300X datasheet"
    ),
}  # fmt: skip
_OTHER = ("MIG", "NVL")  # words that name another device: a slice of the model, and its variant for NVLink bridges


def peaks_of(name: str) -> Peaks | None:
    """The datasheet figures of a device by its name; None if the table has no row for it.

    A row matches whole words only: `H200` is found in `NVIDIA H200`, not in `NVIDIA GH200`. A slice of a device (MIG)
    and an NVL variant have other peaks, so only a row that names them matches.
    """
    found = [
        model
        for model in PEAKS
        if _has_word(name, model) and all(_has_word(model, other) for other in _OTHER if _has_word(name, other))
    ]
    return PEAKS[max(found, key=len)] if found else None


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


_SIZES = {  # architecture, multiprocessors, bytes of L2, bytes of shared memory per block, as the driver reports them
    "H200": ("sm_90", 132, 60 << 20, 232_448),
    "H100": ("sm_90", 132, 50 << 20, 232_448),
    "H100 PCIe": ("sm_90", 114, 50 << 20, 232_448),
    "A100-SXM4-80GB": ("sm_80", 108, 40 << 20, 166_912),
    "A100-SXM4-40GB": ("sm_80", 108, 40 << 20, 166_912),
    "A100 80GB PCIe": ("sm_80", 108, 40 << 20, 166_912),
}  # fmt: skip


def spec_named(name: str) -> DeviceSpec | None:
    """The spec of a device that this machine need not have, for replays and forecasts; None without a row for it.

    Args:
        name: The vendor's name, such as `NVIDIA H200`, as it stands in recordings and records.
    """
    peaks = peaks_of(name)
    model = next((model for model in PEAKS if PEAKS[model] is peaks), None)
    if peaks is None or model not in _SIZES:
        return None
    arch, units, l2_bytes, shared_bytes = _SIZES[model]
    return DeviceSpec(
        kind="cuda",
        name=name,
        arch=arch,
        units=units,
        l2_bytes=l2_bytes,
        shared_bytes_per_block=shared_bytes,
        registers_per_unit=65_536,
        bandwidth_gbps=peaks.bandwidth_gbps,
        tflops=dict(peaks.tflops),
    )
