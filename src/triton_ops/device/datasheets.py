"""Datasheets of devices, for what no driver reports and for devices that this machine does not have.

A row matches a device whose name contains the row's model; the longest match wins, so `H100 PCIe` is not taken for
`H100`. A device without a row has no peaks. A figure that its vendor does not publish is None or left out, and no
figure is assumed for it. Matrix rates are dense, with sums in float32; `tfloat32` is what Triton's products of
float32 take, and `float32` is the rate without matrix units.

Multiprocessors and L2 are what drivers report of a device; compute units, wavefronts, LDS and caches of AMD's are in
ROCm's table "AMD GPU specifications". What a whole architecture shares is in `architectures.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from triton_ops.device.architectures import LIMITS, TARGETS, DeviceSpec


@dataclass(frozen=True)
class Datasheet:
    """The figures of one model, by the name that its driver reports, with the document that has them.

    `l2_bytes` does not count AMD's Infinity Cache; `tflops` is the dense matrix rate by dtype, 10^12 operations per
    second; `aliases` are further names that people use for it.
    """

    name: str
    arch: str
    units: int
    bandwidth_gbps: float
    l2_bytes: int
    tflops: Mapping[str, float]
    source: str
    aliases: tuple[str, ...] = ()


def _sheet(
    name: str, arch: str, units: int, gbps: float, l2_mib: int, tflops: Mapping[str, float], source: str, *aliases: str
) -> Datasheet:
    return Datasheet(name, arch, units, gbps, l2_mib << 20, tflops, source, aliases)


def _rates(
    half: float, *, tfloat32: float | None = None, float32: float | None = None, float8: float | None = None,
    bfloat16: bool = True,
) -> dict[str, float]:  # fmt: skip
    rates = {
        "bfloat16": half if bfloat16 else None, "float16": half, "float8_e4m3fn": float8, "float8_e5m2": float8,
        "tfloat32": tfloat32, "float32": float32,
    }  # fmt: skip
    return {dtype: rate for dtype, rate in rates.items() if rate is not None}


_VOLTA = _rates(125.0, float32=15.7, bfloat16=False)
_A100 = _rates(312.0, tfloat32=156.0, float32=19.5)
_HOPPER = _rates(989.4, tfloat32=494.7, float32=66.9, float8=1978.9)
_MI300 = _rates(1307.4, tfloat32=653.7, float32=163.4, float8=2614.9)
_A100_SHEET = "NVIDIA A100 datasheet"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, datasheet of the GPU in its appendix"
_GA102 = "NVIDIA Ampere GA102 whitepaper, datasheet of the GPU in its appendix"
_RTX50 = "NVIDIA RTX Blackwell GPU Architecture whitepaper, datasheet of the GPU in its appendix"

DATASHEETS = {
    "V100-SXM2-32GB": _sheet("Tesla V100-SXM2-32GB", "sm_70", 80, 900.0, 6, _VOLTA, "NVIDIA V100 datasheet, SXM2",
        "V100", "Tesla V100", "NVIDIA V100"),
    "V100-SXM2-16GB": _sheet("Tesla V100-SXM2-16GB", "sm_70", 80, 900.0, 6, _VOLTA, "NVIDIA V100 datasheet, SXM2"),
    "V100-PCIE-32GB": _sheet("Tesla V100-PCIE-32GB", "sm_70", 80, 900.0, 6, _rates(112.0, float32=14.0, bfloat16=False),
        "NVIDIA V100 datasheet, PCIe"),
    "V100-PCIE-16GB": _sheet("Tesla V100-PCIE-16GB", "sm_70", 80, 900.0, 6, _rates(112.0, float32=14.0, bfloat16=False),
        "NVIDIA V100 datasheet, PCIe"),
    "T4": _sheet("Tesla T4", "sm_75", 40, 320.0, 4, _rates(65.0, float32=8.1, bfloat16=False), "NVIDIA T4 datasheet",
        "NVIDIA T4"),
    "A100-SXM4-80GB": _sheet("NVIDIA A100-SXM4-80GB", "sm_80", 108, 2039.0, 40, _A100, _A100_SHEET, "A100",
        "NVIDIA A100", "A100 80GB", "A100 SXM"),
    "A100-SXM4-40GB": _sheet("NVIDIA A100-SXM4-40GB", "sm_80", 108, 1555.0, 40, _A100, _A100_SHEET, "A100 40GB"),
    "A100 80GB PCIe": _sheet("NVIDIA A100 80GB PCIe", "sm_80", 108, 1935.0, 40, _A100, _A100_SHEET, "A100 PCIe"),
    "A100-PCIE-40GB": _sheet("NVIDIA A100-PCIE-40GB", "sm_80", 108, 1555.0, 40, _A100, _A100_SHEET),
    "A10": _sheet("NVIDIA A10", "sm_86", 72, 600.0, 6, _rates(125.0, tfloat32=62.5, float32=31.2),
        "NVIDIA A10 datasheet"),
    "A40": _sheet("NVIDIA A40", "sm_86", 84, 696.0, 6, _rates(149.7, tfloat32=74.8, float32=37.4),
        "NVIDIA A40 datasheet"),
    "RTX A6000": _sheet("NVIDIA RTX A6000", "sm_86", 84, 768.0, 6, _rates(154.8, tfloat32=77.4, float32=38.7), _GA102),
    "RTX 3080": _sheet("NVIDIA GeForce RTX 3080", "sm_86", 68, 760.3, 5, _rates(59.5, tfloat32=29.8, float32=29.8),
        _GA102),
    "RTX 3090": _sheet("NVIDIA GeForce RTX 3090", "sm_86", 82, 936.2, 6, _rates(71.0, tfloat32=35.6, float32=35.6),
        _GA102),
    "RTX 3090 Ti": _sheet("NVIDIA GeForce RTX 3090 Ti", "sm_86", 84, 1008.0, 6,
        _rates(80.0, tfloat32=40.0, float32=40.0), _ADA),
    "L4": _sheet("NVIDIA L4", "sm_89", 58, 300.0, 48, _rates(121.0, tfloat32=60.0, float32=30.3, float8=242.5),
        "NVIDIA L4 datasheet"),
    "L40": _sheet("NVIDIA L40", "sm_89", 142, 864.0, 96, _rates(181.05, tfloat32=90.5, float32=90.5, float8=362.0),
        "NVIDIA L40 datasheet"),
    "L40S": _sheet("NVIDIA L40S", "sm_89", 142, 864.0, 96, _rates(362.05, tfloat32=183.0, float32=91.6, float8=733.0),
        "NVIDIA L40S datasheet"),
    "RTX 6000 Ada": _sheet("NVIDIA RTX 6000 Ada Generation", "sm_89", 142, 960.0, 96,
        _rates(364.2, tfloat32=182.1, float32=91.1, float8=728.5), _ADA),
    "RTX 4080": _sheet("NVIDIA GeForce RTX 4080", "sm_89", 76, 716.8, 64,
        _rates(97.5, tfloat32=48.7, float32=48.7, float8=194.9), _ADA),
    "RTX 4090": _sheet("NVIDIA GeForce RTX 4090", "sm_89", 128, 1008.0, 72,
        _rates(165.2, tfloat32=82.6, float32=82.6, float8=330.3), _ADA),
    "H100": _sheet("NVIDIA H100 80GB HBM3", "sm_90", 132, 3350.0, 50, _HOPPER, "NVIDIA H100 datasheet, SXM", "H100 SXM",
        "H100 SXM5", "NVIDIA H100"),
    "H100 PCIe": _sheet("NVIDIA H100 PCIe", "sm_90", 114, 2039.0, 50,
        _rates(756.0, tfloat32=378.0, float32=51.0, float8=1513.0), "NVIDIA H100 datasheet, PCIe"),
    "H200": _sheet("NVIDIA H200", "sm_90", 132, 4800.0, 60, _HOPPER, "NVIDIA H200 datasheet, SXM"),
    "B200": _sheet("NVIDIA B200", "sm_100", 148, 8000.0, 126,
        _rates(2250.0, tfloat32=1100.0, float32=80.0, float8=4500.0),
        "NVIDIA Blackwell Architecture Technical Brief, datasheet of HGX B200 at 1000 W"),
    "RTX 5080": _sheet("NVIDIA GeForce RTX 5080", "sm_120", 84, 960.0, 64,
        _rates(112.6, tfloat32=56.3, float32=56.3, float8=225.1), _RTX50),
    "RTX 5090": _sheet("NVIDIA GeForce RTX 5090", "sm_120", 170, 1792.0, 96,
        _rates(209.5, tfloat32=104.8, float32=104.8, float8=419.0), _RTX50),
    "MI210": _sheet("AMD Instinct MI210", "gfx90a", 104, 1638.4, 8, _rates(181.0, float32=22.6),
        "AMD Instinct MI210 datasheet"),
    # A driver shows each of the two dies of an MI250X as a device: the figures are halves of the datasheet's.
    "MI250X": _sheet("AMD Instinct MI250X", "gfx90a", 110, 1638.4, 8, _rates(191.5, float32=23.95),
        "AMD Instinct MI250X datasheet, half of it: one die"),
    # L2: `rocminfo` shows the 4 MiB of one of eight dies, which is what one compute unit can use.
    "MI300X": _sheet("AMD Instinct MI300X", "gfx942", 304, 5300.0, 4, _MI300, "AMD Instinct MI300X datasheet"),
    "MI325X": _sheet("AMD Instinct MI325X", "gfx942", 304, 6000.0, 4, _MI300, "AMD Instinct MI325X datasheet"),
    "MI355X": _sheet("AMD Instinct MI355X", "gfx950", 256, 8000.0, 4, _rates(2516.6, float32=157.3, float8=5033.2),
        "AMD Instinct MI355X datasheet"),
}  # fmt: skip


_OTHER = ("MIG", "NVL", "Ti", "SUPER", "Laptop", "Mobile", "Max-Q", "D", "Ada")
"""Words that name another device than the same name without them: slices of a model, and its variants."""


def datasheet_of(name: str) -> Datasheet | None:
    """The datasheet's figures of a device by the name that its driver reports; None if the table has no row for it.

    A row matches whole words only: `H200` is found in `NVIDIA H200`, not in `NVIDIA GH200`. A slice of a device (MIG)
    and an NVL variant have other peaks, so only a row that names them matches.
    """
    models = [
        model
        for model in DATASHEETS
        if _has_word(name, model) and all(_has_word(model, other) for other in _OTHER if _has_word(name, other))
    ]
    return DATASHEETS[max(models, key=len)] if models else None


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def named_devices() -> list[str]:
    """The models that `spec_named` knows."""
    return list(DATASHEETS)


def spec_named(name: str) -> DeviceSpec | None:
    """The spec of a device by its vendor's name, as recordings and records have it; None without a row for it."""
    row = datasheet_of(name)
    return None if row is None else _spec_from(row, name)


def spec_called(text: str) -> DeviceSpec | None:
    """As `spec_named`, for what a person types: a model in any case, such as `a100` or `rtx 4090`, is enough.

    The spec has the driver's name of the device, under which records and calibrations are kept. A model with several
    variants stands for the largest one of the fastest kind.
    """
    words = " ".join(text.lower().split())
    for model, row in DATASHEETS.items():
        if words in (model.lower(), row.name.lower(), *(alias.lower() for alias in row.aliases)):
            return _spec_from(row, row.name)
    return spec_named(text)


def _spec_from(row: Datasheet, name: str) -> DeviceSpec:
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
