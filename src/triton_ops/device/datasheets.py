"""Datasheets of devices, for what no driver reports and for devices that this machine does not have.

A row matches a device whose name contains the row's model; the longest match wins, so `H100 PCIe` is not taken for
`H100`. A device without a row has no peaks. A figure that its vendor does not publish is None or left out, and no
figure is assumed for it. Matrix rates are dense, with sums in float32; `tfloat32` is what Triton's products of
float32 take, and `float32` is the rate without matrix units. The rows are in `datasheets.py`.

Multiprocessors and L2 are what drivers report of a device; compute units, wavefronts, LDS and caches of AMD's are in
ROCm's table "AMD GPU specifications". What a whole architecture shares is in `target.py` and `limits.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from triton_ops.device.architectures import LIMITS, TARGETS, DeviceSpec

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """The figures of one model, by the name that its driver reports, with the document that has them.

    `l2_bytes` does not count AMD's Infinity Cache; `tflops` is the dense matrix rate by dtype, 10^12 operations per
    second; `aliases` are further names that people use for it.
    """

    name: str
    arch: str
    units: int
    bandwidth_gbps: float
    l2_bytes: int | None = None
    tflops: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    aliases: tuple[str, ...] = ()


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
_A100_SHEET, _ADA, _GA102 = (
    "NVIDIA A100 datasheet",
    "NVIDIA Ada GPU Architecture whitepaper, datasheet of the GPU in its appendix",
    "NVIDIA Ampere GA102 whitepaper, datasheet of the GPU in its appendix",
)
_RTX50 = "NVIDIA RTX Blackwell GPU Architecture whitepaper, datasheet of the GPU in its appendix"

DATASHEETS = {
    "V100-SXM2-32GB": Datasheet(
        name="Tesla V100-SXM2-32GB", arch="sm_70", units=80, bandwidth_gbps=900.0, l2_bytes=6 * _MIB, tflops=_VOLTA,
        source="NVIDIA V100 datasheet, SXM2", aliases=("V100", "Tesla V100", "NVIDIA V100"),
    ),
    "V100-SXM2-16GB": Datasheet(
        name="Tesla V100-SXM2-16GB", arch="sm_70", units=80, bandwidth_gbps=900.0, l2_bytes=6 * _MIB, tflops=_VOLTA,
        source="NVIDIA V100 datasheet, SXM2",
    ),
    "V100-PCIE-32GB": Datasheet(
        name="Tesla V100-PCIE-32GB", arch="sm_70", units=80, bandwidth_gbps=900.0, l2_bytes=6 * _MIB,
        tflops=_rates(112.0, float32=14.0, bfloat16=False), source="NVIDIA V100 datasheet, PCIe",
    ),
    "V100-PCIE-16GB": Datasheet(
        name="Tesla V100-PCIE-16GB", arch="sm_70", units=80, bandwidth_gbps=900.0, l2_bytes=6 * _MIB,
        tflops=_rates(112.0, float32=14.0, bfloat16=False), source="NVIDIA V100 datasheet, PCIe",
    ),
    "T4": Datasheet(
        name="Tesla T4", arch="sm_75", units=40, bandwidth_gbps=320.0, l2_bytes=4 * _MIB,
        tflops=_rates(65.0, float32=8.1, bfloat16=False), source="NVIDIA T4 datasheet", aliases=("NVIDIA T4",),
    ),
    "A100-SXM4-80GB": Datasheet(
        name="NVIDIA A100-SXM4-80GB", arch="sm_80", units=108, bandwidth_gbps=2039.0, l2_bytes=40 * _MIB, tflops=_A100,
        source=_A100_SHEET, aliases=("A100", "NVIDIA A100", "A100 80GB", "A100 SXM"),
    ),
    "A100-SXM4-40GB": Datasheet(
        name="NVIDIA A100-SXM4-40GB", arch="sm_80", units=108, bandwidth_gbps=1555.0, l2_bytes=40 * _MIB, tflops=_A100,
        source=_A100_SHEET, aliases=("A100 40GB",),
    ),
    "A100 80GB PCIe": Datasheet(
        name="NVIDIA A100 80GB PCIe", arch="sm_80", units=108, bandwidth_gbps=1935.0, l2_bytes=40 * _MIB, tflops=_A100,
        source=_A100_SHEET, aliases=("A100 PCIe",),
    ),
    "A100-PCIE-40GB": Datasheet(
        name="NVIDIA A100-PCIE-40GB", arch="sm_80", units=108, bandwidth_gbps=1555.0, l2_bytes=40 * _MIB, tflops=_A100,
        source=_A100_SHEET,
    ),
    "A10": Datasheet(
        name="NVIDIA A10", arch="sm_86", units=72, bandwidth_gbps=600.0, l2_bytes=6 * _MIB,
        tflops=_rates(125.0, tfloat32=62.5, float32=31.2), source="NVIDIA A10 datasheet",
    ),
    "A40": Datasheet(
        name="NVIDIA A40", arch="sm_86", units=84, bandwidth_gbps=696.0, l2_bytes=6 * _MIB,
        tflops=_rates(149.7, tfloat32=74.8, float32=37.4), source="NVIDIA A40 datasheet",
    ),
    "RTX A6000": Datasheet(
        name="NVIDIA RTX A6000", arch="sm_86", units=84, bandwidth_gbps=768.0, l2_bytes=6 * _MIB,
        tflops=_rates(154.8, tfloat32=77.4, float32=38.7), source=_GA102,
    ),
    "RTX 3080": Datasheet(
        name="NVIDIA GeForce RTX 3080", arch="sm_86", units=68, bandwidth_gbps=760.3, l2_bytes=5 * _MIB,
        tflops=_rates(59.5, tfloat32=29.8, float32=29.8), source=_GA102,
    ),
    "RTX 3090": Datasheet(
        name="NVIDIA GeForce RTX 3090", arch="sm_86", units=82, bandwidth_gbps=936.2, l2_bytes=6 * _MIB,
        tflops=_rates(71.0, tfloat32=35.6, float32=35.6), source=_GA102,
    ),
    "RTX 3090 Ti": Datasheet(
        name="NVIDIA GeForce RTX 3090 Ti", arch="sm_86", units=84, bandwidth_gbps=1008.0, l2_bytes=6 * _MIB,
        tflops=_rates(80.0, tfloat32=40.0, float32=40.0), source=_ADA,
    ),
    "L4": Datasheet(
        name="NVIDIA L4", arch="sm_89", units=58, bandwidth_gbps=300.0, l2_bytes=48 * _MIB,
        tflops=_rates(121.0, tfloat32=60.0, float32=30.3, float8=242.5), source="NVIDIA L4 datasheet",
    ),
    "L40": Datasheet(
        name="NVIDIA L40", arch="sm_89", units=142, bandwidth_gbps=864.0, l2_bytes=96 * _MIB,
        tflops=_rates(181.05, tfloat32=90.5, float32=90.5, float8=362.0), source="NVIDIA L40 datasheet",
    ),
    "L40S": Datasheet(
        name="NVIDIA L40S", arch="sm_89", units=142, bandwidth_gbps=864.0, l2_bytes=96 * _MIB,
        tflops=_rates(362.05, tfloat32=183.0, float32=91.6, float8=733.0), source="NVIDIA L40S datasheet",
    ),
    "RTX 6000 Ada": Datasheet(
        name="NVIDIA RTX 6000 Ada Generation", arch="sm_89", units=142, bandwidth_gbps=960.0, l2_bytes=96 * _MIB,
        tflops=_rates(364.2, tfloat32=182.1, float32=91.1, float8=728.5), source=_ADA,
    ),
    "RTX 4080": Datasheet(
        name="NVIDIA GeForce RTX 4080", arch="sm_89", units=76, bandwidth_gbps=716.8, l2_bytes=64 * _MIB,
        tflops=_rates(97.5, tfloat32=48.7, float32=48.7, float8=194.9), source=_ADA,
    ),
    "RTX 4090": Datasheet(
        name="NVIDIA GeForce RTX 4090", arch="sm_89", units=128, bandwidth_gbps=1008.0, l2_bytes=72 * _MIB,
        tflops=_rates(165.2, tfloat32=82.6, float32=82.6, float8=330.3), source=_ADA,
    ),
    "H100": Datasheet(
        name="NVIDIA H100 80GB HBM3", arch="sm_90", units=132, bandwidth_gbps=3350.0, l2_bytes=50 * _MIB,
        tflops=_HOPPER, source="NVIDIA H100 datasheet, SXM", aliases=("H100 SXM", "H100 SXM5", "NVIDIA H100"),
    ),
    "H100 PCIe": Datasheet(
        name="NVIDIA H100 PCIe", arch="sm_90", units=114, bandwidth_gbps=2039.0, l2_bytes=50 * _MIB,
        tflops=_rates(756.0, tfloat32=378.0, float32=51.0, float8=1513.0), source="NVIDIA H100 datasheet, PCIe",
    ),
    "H200": Datasheet(
        name="NVIDIA H200", arch="sm_90", units=132, bandwidth_gbps=4800.0, l2_bytes=60 * _MIB, tflops=_HOPPER,
        source="NVIDIA H200 datasheet, SXM",
    ),
    "B200": Datasheet(
        name="NVIDIA B200", arch="sm_100", units=148, bandwidth_gbps=8000.0, l2_bytes=126 * _MIB,
        tflops=_rates(2250.0, tfloat32=1100.0, float32=80.0, float8=4500.0),
        source="NVIDIA Blackwell Architecture Technical Brief, datasheet of HGX B200 at 1000 W",
    ),
    "RTX 5080": Datasheet(
        name="NVIDIA GeForce RTX 5080", arch="sm_120", units=84, bandwidth_gbps=960.0, l2_bytes=64 * _MIB,
        tflops=_rates(112.6, tfloat32=56.3, float32=56.3, float8=225.1), source=_RTX50,
    ),
    "RTX 5090": Datasheet(
        name="NVIDIA GeForce RTX 5090", arch="sm_120", units=170, bandwidth_gbps=1792.0, l2_bytes=96 * _MIB,
        tflops=_rates(209.5, tfloat32=104.8, float32=104.8, float8=419.0), source=_RTX50,
    ),
    "MI210": Datasheet(
        name="AMD Instinct MI210", arch="gfx90a", units=104, bandwidth_gbps=1638.4, l2_bytes=8 * _MIB,
        tflops=_rates(181.0, float32=22.6), source="AMD Instinct MI210 datasheet",
    ),
    # A driver shows each of the two dies of an MI250X as a device: the figures are halves of the datasheet's.
    "MI250X": Datasheet(
        name="AMD Instinct MI250X", arch="gfx90a", units=110, bandwidth_gbps=1638.4, l2_bytes=8 * _MIB,
        tflops=_rates(191.5, float32=23.95), source="AMD Instinct MI250X datasheet, half of it: one die",
    ),
    # L2: `rocminfo` shows the 4 MiB of one of eight dies, which is what one compute unit can use.
    "MI300X": Datasheet(
        name="AMD Instinct MI300X", arch="gfx942", units=304, bandwidth_gbps=5300.0, l2_bytes=4 * _MIB, tflops=_MI300,
        source="AMD Instinct MI300X datasheet",
    ),
    "MI325X": Datasheet(
        name="AMD Instinct MI325X", arch="gfx942", units=304, bandwidth_gbps=6000.0, l2_bytes=4 * _MIB, tflops=_MI300,
        source="AMD Instinct MI325X datasheet",
    ),
    "MI355X": Datasheet(
        name="AMD Instinct MI355X", arch="gfx950", units=256, bandwidth_gbps=8000.0, l2_bytes=4 * _MIB,
        tflops=_rates(2516.6, float32=157.3, float8=5033.2), source="AMD Instinct MI355X datasheet",
    ),
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
