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


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """What the driver of one model reports, which a machine without the device cannot ask."""

    kind: str = "cuda"
    arch: str
    units: int
    l2_bytes: int
    shared_bytes: int
    registers: int = 65_536


_A100 = _Sizes(arch="sm_80", units=108, l2_bytes=40 << 20, shared_bytes=166_912)
_SIZES = {
    "H200": _Sizes(arch="sm_90", units=132, l2_bytes=60 << 20, shared_bytes=232_448),
    "H100": _Sizes(arch="sm_90", units=132, l2_bytes=50 << 20, shared_bytes=232_448),
    "H100 PCIe": _Sizes(arch="sm_90", units=114, l2_bytes=50 << 20, shared_bytes=232_448),
    "A100-SXM4-80GB": _A100,
    "A100-SXM4-40GB": _A100,
    "A100 80GB PCIe": _A100,
    # `rocminfo`: 304 compute units, L2 of 4,096 KB. ROCm's table of GPUs: 64 KiB of LDS, 512 KiB of vector registers.
    "MI300X": _Sizes(kind="hip", arch="gfx942", units=304, l2_bytes=4 << 20, shared_bytes=65_536, registers=131_072),
}


def named_devices() -> list[str]:
    """The models that `spec_named` knows."""
    return list(_SIZES)


def spec_named(name: str) -> DeviceSpec | None:
    """The spec of a device that this machine need not have, for replays and forecasts; None without a row for it.

    Args:
        name: The vendor's name, such as `NVIDIA H200`, as it stands in recordings and records.
    """
    peaks = peaks_of(name)
    model = next((model for model in PEAKS if PEAKS[model] is peaks), None)
    if peaks is None or model not in _SIZES:
        return None
    sizes = _SIZES[model]
    return DeviceSpec(
        kind=sizes.kind,
        name=name,
        arch=sizes.arch,
        units=sizes.units,
        l2_bytes=sizes.l2_bytes,
        shared_bytes_per_block=sizes.shared_bytes,
        registers_per_unit=sizes.registers,
        bandwidth_gbps=peaks.bandwidth_gbps,
        tflops=dict(peaks.tflops),
    )
