"""Devices and targets by name: what datasheets say of a device, for what no driver reports or if it is not here.

A row of `datasheets.csv` matches a device whose name contains its model; the longest match wins, so `H100 PCIe` is not
taken for `H100`. A device without one has no peaks. A figure that its vendor does not publish is left out, and no
figure is assumed for it. Matrix rates are dense, in 10^12 operations per second, with sums in float32 or int32;
`tfloat32` is what Triton's products of float32 take, on CDNA 2 the matrix rate of float32 itself, and `float32` is the
rate without matrix units. The rates of RTX 3090, RTX 4080, A10 and MI300X are also units times boost clock times what a
unit does in a cycle, as a test calculates.

Multiprocessors and L2 are what drivers report of a device; compute units, wavefronts, LDS and caches of AMD's are in
ROCm's table "AMD GPU specifications". A driver shows each of the two dies of an MI250X as a device: its figures are
halves of the datasheet's. The L2 of MI300X and its successors is that of one of eight dies, which is what one compute
unit can use, and what `rocminfo` shows.
"""

from __future__ import annotations

import csv
import pkgutil
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from triton_ops import settings
from triton_ops.base import Frozen
from triton_ops.device.calibration import Calibration
from triton_ops.device.limits import LIMITS, UnitLimits
from triton_ops.device.vendor_facts import VENDOR_FACTS, VendorFacts
from triton_ops.exceptions import DeviceError, alternatives

_WIDENED = {
    "int4": "int8", "uint8": "int8", "int8": "float16", "float4": "float8_e4m3fn", "float8": "float8_e4m3fn",
    "float8_e4m3fn": "float16", "bfloat16": "tfloat32", "tfloat32": "float32",
}  # fmt: skip
"""The dtype as which units take operands for which they have no rate of their own; beginnings stand for families."""


@dataclass(frozen=True)
class DeviceSpec:
    """The description of one device. An unknown figure is None, and never guessed.

    Attributes:
        tflops: Peak dense matrix rate by dtype name, by datasheet, 10^12 operations per second.
    """

    kind: str  # `cuda`, `hip` or `cpu`
    name: str
    arch: str  # `sm_90`, `gfx942`, or the machine type of a CPU
    units: int  # number of streaming multiprocessors, compute units, or CPU cores that this process may use
    _: KW_ONLY
    memory_bytes: int | None = None
    l2_bytes: int | None = None  # size of the last cache before memory
    shared_bytes_per_block: int | None = None
    registers_per_unit: int | None = None
    bandwidth_gbps: float | None = None  # peak memory bandwidth by datasheet, 10^9 bytes per second
    tflops: dict[str, float] = field(default_factory=dict, hash=False)
    driver: str | None = None
    calibration: Calibration | None = field(default=None, compare=False, repr=False)  # of this machine, where asked for

    def __post_init__(self) -> None:
        Frozen.fields(self, "tflops")  # all callers of a process share one description

    @property
    def is_cpu(self) -> bool:
        """True for a CPU."""
        return self.kind == "cpu"

    @property
    def vendor(self) -> VendorFacts | None:
        """What all GPUs of its vendor have in common; None for a CPU, and a vendor that is not known."""
        return VENDOR_FACTS.get(self.kind)

    @property
    def limits(self) -> UnitLimits | None:
        """The limits of one of its multiprocessors; None if its architecture has no row here, and none are assumed.

        A number of registers that the device reports replaces the architecture's.
        """
        if (limits := LIMITS.get(self.arch)) is None or self.registers_per_unit in (None, limits.registers):
            return limits
        return replace(limits, registers=self.registers_per_unit)

    def rate_of(self, dtype: str) -> tuple[str, float | None]:
        """The dtype as which matrix units take operands of a dtype, and their rate in 10^12 operations per second.

        Operands without units of their own are widened to the next dtype that has some, which no kernel exceeds. The
        rate is None if no rate of the device is known for the dtype.
        """
        name = next((prefix for prefix in _WIDENED if dtype.startswith(prefix)), dtype)
        while name not in self.tflops and name in _WIDENED:
            name = _WIDENED[name]
        return (name, self.tflops[name]) if name in self.tflops else (dtype, None)

    @staticmethod
    def vendor_of_name(name: str) -> VendorFacts | None:
        """The vendor of a device by the name that its driver reports; None if no word there is one of a vendor."""
        words = name.lower().split()
        return next((each for each in VENDOR_FACTS.values() if not each.brands.isdisjoint(words)), None)

    @property
    def target(self) -> Target | None:
        """What is compiled for it; None for a CPU, and for an architecture of which no limits are known."""
        with suppress(DeviceError):
            return Target.of(self)
        return None

    def calibrated(self, cache_dir: str | Path | None) -> DeviceSpec:
        """The same with what was measured of it, if the folder of records has that; None is the default folder."""
        return replace(self, calibration=Calibration.load(Path(settings.cache_folder(cache_dir)), self.name))

    @staticmethod
    def names() -> list[str]:
        """The models that `named` knows."""
        return list(datasheets())

    @staticmethod
    def named(name: str) -> DeviceSpec | None:
        """The spec of a device by its vendor's name, as recordings and records have it; None without a row for it."""
        row = datasheet_of(name)
        return None if row is None else replace(row.spec, name=name)

    @staticmethod
    def called(text: str) -> DeviceSpec | None:
        """As `named`, for what a person types: a model in any case, such as `a100` or `rtx 4090`, is enough.

        The spec has the driver's name of the device, under which records and calibrations are kept. A model with
        several variants stands for the largest one of the fastest kind, an architecture such as `sm_90` for the first
        model that the table has of it.
        """
        words = " ".join(text.lower().split())
        for model, row in datasheets().items():
            if words in map(str.lower, (model, row.spec.name, row.spec.arch, *row.aliases)):
                return row.spec
        return DeviceSpec.named(text)

    @staticmethod
    def typed(text: str) -> DeviceSpec:
        """As `called`; a `DeviceError` names what is close if there is no row for it."""
        if (spec := DeviceSpec.called(text)) is None:
            message = f"no device {text!r} is in the table; {alternatives(text, DeviceSpec.names())}"
            raise DeviceError(message, text, hint="for example --gpu 'NVIDIA H200'")
        return spec

    @staticmethod
    def is_meant(text: str, facts: Mapping[str, Any]) -> bool:
        """True if what a person types means the device of these facts: its name, its model or its architecture."""
        spec = DeviceSpec.called(text)
        name, arch = str(facts.get("name", "")), str(facts.get("arch", ""))
        return text == name or text.lower() == arch or (spec is not None and spec.name == name)


_MOST_STAGES = 64
"""Stages of a loop up to which it is compiled: 64 take 4 s, 128 take 16 s and 256 take 70 s (Triton 3.6.0)."""


@dataclass(frozen=True)
class Target:
    """An architecture with the limits that a compilation must keep.

    None as registers is an architecture without such a limit, None as `units` that no device is meant.
    """

    kind: str
    arch: str
    warp_size: int
    shared_bytes_per_block: int
    _: KW_ONLY
    threads_per_block: int = 1024
    registers_per_block: int | None = 65536
    units: int | None = None

    @property
    def vendor(self) -> VendorFacts:
        """What all GPUs of its vendor have in common."""
        return VENDOR_FACTS[self.kind]

    @property
    def capability(self) -> int:
        """The number in an NVIDIA architecture's name: 90 for `sm_90`; 0 elsewhere."""
        arch = self.vendor.triton_arch(self.arch)
        return arch if isinstance(arch, int) else 0

    @property
    def limits(self) -> UnitLimits | None:
        """The limits of one of its multiprocessors; None if they are not known."""
        return LIMITS.get(self.arch)

    def grid_refusal(self, extents: Sequence[int]) -> str:
        """Words for why no grid has these extents; empty if one has, or if its vendor publishes no limit."""
        for axis, (blocks, most) in enumerate(zip(extents, self.vendor.most_blocks, strict=False)):
            if blocks > most:
                return f"its grid has {blocks:,} blocks on axis {axis}; {self.arch} takes {most:,} there"
        return ""

    def refusal(self, warps: int, stages: int) -> str:
        """Words for why no block has so many warps, or no loop so many stages; empty if they can be had."""
        if warps.bit_count() != 1:
            return f"{warps} warps are no power of two, which Triton wants"
        threads, limit = warps * self.warp_size, self.threads_per_block
        if threads > limit:
            return f"{warps} warps of {self.warp_size} are {threads:,} threads per block; {self.arch} has {limit:,}"
        if stages > _MOST_STAGES:
            return f"num_stages is {stages:,}; Triton writes a loop out for each, and over {_MOST_STAGES} take minutes"
        return ""

    @staticmethod
    def binary_among(stages: Mapping[str, Any]) -> Any:
        """The machine code among the stages of a compiled kernel of any vendor; None if there is none."""
        return next((stages[each.binary] for each in VENDOR_FACTS.values() if stages.get(each.binary)), None)

    @staticmethod
    def named(name: str) -> Target:
        """The target called `name`, such as `sm_90`, or that of a GPU such as `H200`; else a `DeviceError`."""
        target = TARGETS.get(name.strip().lower())
        if target is None and (spec := DeviceSpec.called(name)) is not None:
            return Target.of(spec)
        if target is None:
            message = f"target {name!r} is not known; {alternatives(name, (*TARGETS, *DeviceSpec.names()))}"
            hint = "name a target such as sm_90, or a GPU such as H200"
            raise DeviceError(message, ", ".join(TARGETS), name, hint=hint)
        return target

    @classmethod
    def of(cls, device: DeviceSpec) -> Target:
        """The target for a device; a limit that the device reports replaces the architecture's.

        Raises:
            DeviceError: The device is no GPU, or its architecture has no row and it does not report its limits.
        """
        vendor = device.vendor
        if vendor is None:
            message = f"{device.name} is no target for Triton kernels"
            raise DeviceError(message, ", ".join(TARGETS), device.arch, hint="name a target: --gpu sm_90")
        row, shared = TARGETS.get(device.arch), device.shared_bytes_per_block
        if row is None and shared is None:
            return cls.named(device.arch)
        row = row or _target(vendor.kind, device.arch, 0)
        return replace(row, shared_bytes_per_block=shared or row.shared_bytes_per_block, units=device.units)


def _target(kind: str, arch: str, shared_bytes: int) -> Target:
    vendor = VENDOR_FACTS[kind]
    return Target(kind, arch, vendor.warp_size, shared_bytes, registers_per_block=vendor.registers_per_block)


TARGETS = {
    arch: _target("cuda" if arch.startswith("sm_") else "hip", arch, each.shared_bytes - each.block_shared_bytes)
    for arch, each in LIMITS.items()
}
"""By architecture, with the shared memory that one block can have: all but what the system reserves for it."""


_RATES = ("float16", "bfloat16", "tfloat32", "float32", "float8_e4m3fn", "float8_e5m2", "float4", "int8", "int4")


class Datasheet(NamedTuple):
    """The figures of one model, whose L2 is without AMD's Infinity Cache, and the document that has them.

    The spec has the name that its driver reports; `aliases` are further names that people use for it.
    """

    spec: DeviceSpec
    source: str
    aliases: tuple[str, ...]

    @staticmethod
    def of(row: Mapping[str, str]) -> Datasheet:
        """That of a row of the table."""
        target = TARGETS[row["arch"]]
        spec = DeviceSpec(
            target.kind, row["name"], target.arch, int(row["units"]), l2_bytes=int(row["l2_mib"] or 0) << 20 or None,
            shared_bytes_per_block=target.shared_bytes_per_block, registers_per_unit=LIMITS[target.arch].registers,
            bandwidth_gbps=float(row["bandwidth_gbps"]),
            tflops={dtype: float(row[dtype]) for dtype in _RATES if row[dtype]},
        )  # fmt: skip
        return Datasheet(spec, row["source"], tuple(filter(None, row["aliases"].split("; "))))


@cache
def datasheets() -> Mapping[str, Datasheet]:
    """The table by model, read when it is first asked for."""
    table = pkgutil.get_data(__package__, "datasheets.csv")
    assert table is not None
    return {row["model"]: Datasheet.of(row) for row in csv.DictReader(table.decode().splitlines())}


_OTHER = ("MIG", "NVL", "Ti", "SUPER", "Laptop", "Mobile", "Max-Q", "D", "Ada")
"""Words that name another device than the same name without them: slices of a model, and its variants."""


def datasheet_of(name: str) -> Datasheet | None:
    """The datasheet's figures of a device by the name that its driver reports; None if the table has no row for it.

    A row matches whole words only: `H200` is found in `NVIDIA H200`, not in `NVIDIA GH200`. A slice of a device (MIG)
    and an NVL variant have other peaks, so only a row that names them matches.
    """
    table = datasheets()
    others = [other for other in _OTHER if _has_word(name, other)]
    models = [each for each in table if _has_word(name, each) and all(_has_word(each, other) for other in others)]
    return table[max(models, key=len)] if models else None


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None
