"""Figures of devices, for what no driver reports or where the device is not here.

A datasheet matches a device whose name contains its model; the longest match wins, so `H100 PCIe` is not taken for
`H100`. A device without one has no peaks. A figure that its vendor does not publish is left out, and no
figure is assumed for it. Matrix rates are dense, with sums in float32 or int32; `tfloat32` is what Triton's products of
float32 take, on CDNA 2 the matrix rate of float32 itself, and `float32` is the rate without matrix units.

Multiprocessors and L2 are what drivers report of a device; compute units, wavefronts, LDS and caches of AMD's are in
ROCm's table "AMD GPU specifications".

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and NVIDIA's occupancy
calculator for what is handed out at once; LLVM, "User Guide for AMDGPU Backend", and AMD's CDNA 2, 3 and 4 ISA guides:
four vector units with 512 registers for each of 64 lanes, eight wavefronts each, and sixteen barriers.

Shared memory per block: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (opt-in
maximum, from sm_80 on 1 KiB below what a multiprocessor has); LDS: AMD CDNA 2, 3 and 4 ISA guides. Registers: the
same guides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.base import Frozen, NotNegative, Sealed, SealedFile, warn
from triton_ops.exceptions import DeviceError, alternatives

_KIB = 1024
_FEWEST, _MOST = 32, 256  # registers of a thread: with fewer most kernels spill, and there are no more


@dataclass(frozen=True)
class Residents:
    """The blocks of one kernel that one multiprocessor holds at a time; `by` has what each limit alone allows."""

    by: dict[str, int]
    warps_per_block: int
    most_warps: int

    @property
    def blocks(self) -> int:
        """Blocks at a time; 0 if not even one fits."""
        return min(self.by.values())

    @property
    def warps(self) -> int:
        """Warps at a time."""
        return self.blocks * self.warps_per_block

    @property
    def occupancy(self) -> float:
        """Warps at a time over the most that a multiprocessor holds."""
        return self.warps / self.most_warps

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The limits of the number of blocks: one name, or several that give the same number."""
        return tuple(name for name, blocks in self.by.items() if blocks == self.blocks)


@dataclass(frozen=True, kw_only=True)
class UnitLimits:
    """The resources of one multiprocessor or compute unit for its blocks."""

    warps: int = 64  # most warps (AMD: wavefronts) at a time
    blocks: int = 32
    lone_blocks: int | None = None  # most blocks of one warp; None is `blocks`
    shared_bytes: int = 228 * _KIB  # shared memory (AMD: LDS)
    block_shared_bytes: int = 1024  # shared memory that the system reserves for every block
    shared_granule: int = 128  # bytes in whose multiples shared memory is handed out
    registers: int = 65_536
    register_granule: int = 256  # registers in whose multiples a warp gets them
    parts: int = 4  # parts, each with its own share of registers and warps
    warp_size: int = 32

    def residents(self, registers: int, shared_bytes: int, warps: int) -> Residents:
        """The blocks that fit at a time, with what each limit alone allows."""
        per_warp = max(ceil(registers * self.warp_size / self.register_granule), 1) * self.register_granule
        granules = max(ceil((shared_bytes + self.block_shared_bytes) / self.shared_granule), 1)
        by = {
            "registers": self.registers // self.parts // per_warp * self.parts // warps,
            "shared memory": self.shared_bytes // (granules * self.shared_granule),
            "warps": self.warps // warps,
            "blocks": self.blocks if warps > 1 or self.lone_blocks is None else self.lone_blocks,
        }
        return Residents(by, warps, self.warps)

    def register_limits(self, registers: int, shared_bytes: int, warps: int) -> tuple[int, ...]:
        """Limits of a thread's registers beside `registers`: the next more, and the most with which more blocks fit.

        Each is the most with which so many blocks fit: between two of them a limit has no use.
        """
        step = self.register_granule // self.warp_size

        def fitting(count: int) -> int:
            return self.residents(count, shared_bytes, warps).blocks

        limits = [count for count in range(_FEWEST, _MOST, step) if fitting(count) > fitting(count + step)]
        more = [count for count in limits if count >= registers + step]
        fewer = [count for count in limits if count < registers and fitting(count) > fitting(registers)]
        return (*more[:1], *fewer[-1:])


@dataclass(frozen=True)
class TritonBackend:
    """The names of Triton's backend for the GPUs of one vendor."""

    module: str
    compiler: str  # its class
    options: str  # the class of its launch options
    passes: str  # the part of Triton's library with its own passes
    driver: str  # the module that launches kernels
    utilities: str  # its class; a new object prepares the driver in a process
    launcher: str  # its class; a new object builds a kernel's launcher


@dataclass(frozen=True, kw_only=True)
class VendorFacts:
    """What all GPUs of one vendor have in common, to compile for them, read their code and speak of them."""

    kind: str  # by which torch and Triton call the vendor
    name: str
    brands: frozenset[str]  # words in the names of its devices, in lower case
    warp_size: int
    registers_per_thread: int  # the most that one thread can have
    registers_per_block: int | None  # None without such a limit
    most_blocks: tuple[int, ...]  # of a grid, by axis; empty where nothing is published
    binary: str  # the stage of Triton's compiler that gives machine code
    assembly: str  # the stage before it, and the language of that
    allots_registers: bool  # the assembly names the registers that are used, and what is spilled
    multiplies_float32: bool  # its matrix units multiply float32 in full precision
    lowers_with_torch: bool  # Triton's backend for it imports torch
    units: str  # the word for its multiprocessors
    warps: str
    backend: TritonBackend

    def generation(self, arch: str) -> int | None:
        """The number of an architecture's generation, such as 9 of `sm_90` and of `gfx942`; None if it has none."""
        match = _GENERATION.match(arch)
        return int(match[1] or match[2]) if match else None

    def triton_arch(self, arch: str) -> int | str:
        """The architecture as Triton's backend names it: the number of `sm_90`, and else the name."""
        return int(arch.removeprefix(_SM)) if arch.startswith(_SM) else arch


_SM = "sm_"
_GENERATION = re.compile(r"sm_(\d+)\d|gfx(\d+)[\da-f]{2}\b")
VENDOR_FACTS = {
    facts.kind: facts
    for facts in (
        VendorFacts(
            kind="cuda", name="NVIDIA", brands=frozenset({"nvidia", "geforce"}), warp_size=32,
            registers_per_thread=255, registers_per_block=65536, most_blocks=(2**31 - 1, 65_535, 65_535),
            binary="cubin", assembly="ptx",
            allots_registers=False, multiplies_float32=False, lowers_with_torch=False,
            units="multiprocessors", warps="warps",
            backend=TritonBackend(
                "triton.backends.nvidia.compiler", "CUDABackend", "CUDAOptions", "nvidia",
                "triton.backends.nvidia.driver", "CudaUtils", "CudaLauncher",
            ),
        ),
        VendorFacts(
            kind="hip", name="AMD", brands=frozenset({"amd", "radeon", "instinct"}), warp_size=64,
            registers_per_thread=512, registers_per_block=None, most_blocks=(), binary="hsaco", assembly="amdgcn",
            allots_registers=True, multiplies_float32=True, lowers_with_torch=True,
            units="compute units", warps="wavefronts",
            backend=TritonBackend(
                "triton.backends.amd.compiler", "HIPBackend", "HIPOptions", "amd",
                "triton.backends.amd.driver", "HIPUtils", "HIPLauncher",
            ),
        ),
    )
}  # fmt: skip
"""Registers of one thread: CUDA C++ Programming Guide, whose table of technical specifications also has the blocks of a
grid; CDNA 3 ISA guide, VGPRs and AGPRs."""


def _amd(shared_kib: int, shared_granule: int) -> UnitLimits:
    return UnitLimits(
        warps=32, blocks=16, lone_blocks=32, shared_bytes=shared_kib * _KIB, block_shared_bytes=0,
        shared_granule=shared_granule, registers=131_072, register_granule=512, warp_size=64,
    )  # fmt: skip


LIMITS = {
    "sm_70": UnitLimits(shared_bytes=96 * _KIB, block_shared_bytes=0, shared_granule=256),
    "sm_75": UnitLimits(warps=32, blocks=16, shared_bytes=64 * _KIB, block_shared_bytes=0, shared_granule=256),
    "sm_80": UnitLimits(shared_bytes=164 * _KIB),
    "sm_86": UnitLimits(warps=48, blocks=16, shared_bytes=100 * _KIB),
    "sm_89": UnitLimits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    "sm_90": UnitLimits(),
    "sm_100": UnitLimits(),
    "sm_120": UnitLimits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    "gfx90a": _amd(64, 512),
    "gfx942": _amd(64, 512),
    "gfx950": _amd(160, 1280),
}


_LARGEST_BYTES = 64 << 10
_KIND = "triton-ops calibration"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Rates and latencies of one device; None where a figure could not be taken.

    Attributes:
        launch_us: Device time from event to event around one tiny kernel, queued behind a delay.
        mma_tflops: Rate of the vendor's matrix product, by dtype of the inputs, 10^12 operations per second.
    """

    device: str = field(kw_only=False)
    driver: str | None = field(default=None, kw_only=False)
    dram_gbps: NotNegative | None = None  # bytes read and written by a copy much larger than L2, 10^9 per second
    l2_gbps: NotNegative | None = None  # bytes read and written by a copy that stays in L2, 10^9 per second
    launch_us: NotNegative | None = None
    sync_us: NotNegative | None = None  # host time from the launch of a tiny kernel until a synchronize returns
    mma_tflops: dict[str, NotNegative] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        Frozen.fields(self, "mma_tflops")

    def save(self, folder: Path) -> Path:
        """Write it beside the records; returns the file."""
        path = calibration_path(folder, self.device)
        SealedFile(path, folder).write({"kind": _KIND, "schema_version": _VERSION, **asdict(self)})
        return path

    @classmethod
    def load(cls, folder: Path, device: str) -> Calibration | None:
        """The calibration of `device` in `folder`; None if there is none, None and a warning if it cannot be read."""
        path = calibration_path(folder, device)
        try:
            content = SealedFile(path, folder).read(limit_bytes=_LARGEST_BYTES)
            if content.get("kind") != _KIND or content.get("schema_version") != _VERSION:
                raise ValueError("it is of another kind or version")
            calibration = Sealed.typed(content, Calibration)
            if calibration.device != device:
                raise ValueError(f"it is of another device, {calibration.device}")
            return calibration
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            warn("%s is ignored: %s; `triton-ops calibrate` makes it anew", path, reason)
            return None


def calibration_path(folder: Path, device: str) -> Path:
    """The file of the calibration of `device`, beside the records in the cache folder `folder`."""
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return folder / "calibration" / f"{name}.json"


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
        return list(DATASHEETS)

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
        for model, row in DATASHEETS.items():
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
    arch: _target("cuda" if arch.startswith(_SM) else "hip", arch, each.shared_bytes - each.block_shared_bytes)
    for arch, each in LIMITS.items()
}
"""By architecture, with the shared memory that one block can have: all but what the system reserves for it."""


@dataclass(frozen=True)
class Datasheet:
    """The figures of one model, whose L2 is without AMD's Infinity Cache, and the document that has them.

    The spec has the name that its driver reports; `aliases` are further names that people use for it.
    """

    spec: DeviceSpec
    source: str
    aliases: tuple[str, ...]


def _sheet(
    name: str, arch: str, units: int, gbps: float, l2_mib: int, tflops: dict[str, float], source: str, *aliases: str
) -> Datasheet:
    target = TARGETS[arch]
    spec = DeviceSpec(
        target.kind, name, arch, units, l2_bytes=l2_mib << 20, shared_bytes_per_block=target.shared_bytes_per_block,
        registers_per_unit=LIMITS[arch].registers, bandwidth_gbps=gbps, tflops=tflops,
    )  # fmt: skip
    return Datasheet(spec, source, aliases)


_WIDENED = {
    "int4": "int8", "uint8": "int8", "int8": "float16", "float4": "float8_e4m3fn", "float8": "float8_e4m3fn",
    "float8_e4m3fn": "float16", "bfloat16": "tfloat32", "tfloat32": "float32",
}  # fmt: skip
"""The dtype as which units take operands for which they have no rate of their own; beginnings stand for families."""


def _rates(half: float, *, bfloat16: bool = True, float8: float | None = None, **others: float) -> dict[str, float]:
    rates = {
        "bfloat16": half if bfloat16 else None, "float16": half, "float8_e4m3fn": float8, "float8_e5m2": float8,
        **others,
    }  # fmt: skip
    return {dtype: rate for dtype, rate in rates.items() if rate is not None}


_VOLTA = _rates(125.0, float32=15.7, bfloat16=False)
_A100 = _rates(312.0, tfloat32=156.0, float32=19.5, int8=624.0, int4=1248.0)
_HOPPER = _rates(989.4, tfloat32=494.7, float32=66.9, float8=1978.9, int8=1978.9)
_MI300 = _rates(1307.4, tfloat32=653.7, float32=163.4, float8=2614.9, int8=2614.9)
_A100_SHEET = "NVIDIA A100 datasheet"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, datasheet of the GPU in its appendix"
_GA102 = "NVIDIA Ampere GA102 whitepaper, datasheet of the GPU in its appendix"
_RTX50 = "NVIDIA RTX Blackwell GPU Architecture whitepaper, datasheet of the GPU in its appendix"

# The rates of RTX 3090, RTX 4080, A10 and MI300X are also units times boost clock (1,695, 2,505, 1,695 and 2,100 MHz)
# times what a unit does in a cycle, for float16 512, 512, 1,024 and 2,048 operations, as a test calculates.
DATASHEETS = {
    "V100-SXM2-32GB": _sheet("Tesla V100-SXM2-32GB", "sm_70", 80, 900.0, 6, _VOLTA, "NVIDIA V100 datasheet, SXM2",
        "V100", "Tesla V100", "NVIDIA V100"),
    "V100-SXM2-16GB": _sheet("Tesla V100-SXM2-16GB", "sm_70", 80, 900.0, 6, _VOLTA, "NVIDIA V100 datasheet, SXM2"),
    "V100-PCIE-32GB": _sheet("Tesla V100-PCIE-32GB", "sm_70", 80, 900.0, 6, _rates(112.0, float32=14.0, bfloat16=False),
        "NVIDIA V100 datasheet, PCIe"),
    "V100-PCIE-16GB": _sheet("Tesla V100-PCIE-16GB", "sm_70", 80, 900.0, 6, _rates(112.0, float32=14.0, bfloat16=False),
        "NVIDIA V100 datasheet, PCIe"),
    "T4": _sheet("Tesla T4", "sm_75", 40, 320.0, 4,
        _rates(65.0, float32=8.1, int8=130.0, int4=260.0, bfloat16=False), "NVIDIA T4 datasheet", "NVIDIA T4"),
    "A100-SXM4-80GB": _sheet("NVIDIA A100-SXM4-80GB", "sm_80", 108, 2039.0, 40, _A100, _A100_SHEET, "A100",
        "NVIDIA A100", "A100 80GB", "A100 SXM"),
    "A100-SXM4-40GB": _sheet("NVIDIA A100-SXM4-40GB", "sm_80", 108, 1555.0, 40, _A100, _A100_SHEET, "A100 40GB"),
    "A100 80GB PCIe": _sheet("NVIDIA A100 80GB PCIe", "sm_80", 108, 1935.0, 40, _A100, _A100_SHEET, "A100 PCIe"),
    "A100-PCIE-40GB": _sheet("NVIDIA A100-PCIE-40GB", "sm_80", 108, 1555.0, 40, _A100, _A100_SHEET),
    "A10": _sheet("NVIDIA A10", "sm_86", 72, 600.0, 6,
        _rates(125.0, tfloat32=62.5, float32=31.2, int8=250.0, int4=500.0),
        "NVIDIA A10 datasheet, rates without sparsity"),
    "A40": _sheet("NVIDIA A40", "sm_86", 84, 696.0, 6,
        _rates(149.7, tfloat32=74.8, float32=37.4, int8=299.3, int4=598.7), "NVIDIA A40 datasheet"),
    "RTX A4000": _sheet("NVIDIA RTX A4000", "sm_86", 48, 448.0, 4,
        _rates(76.7, tfloat32=38.3, float32=19.2, int8=153.4, int4=306.7),
        "NVIDIA RTX A4000 datasheet, rates without sparsity"),
    "RTX A6000": _sheet("NVIDIA RTX A6000", "sm_86", 84, 768.0, 6,
        _rates(154.8, tfloat32=77.4, float32=38.7, int8=309.7, int4=619.3), _GA102),
    "RTX 3080": _sheet("NVIDIA GeForce RTX 3080", "sm_86", 68, 760.3, 5,
        _rates(59.5, tfloat32=29.8, float32=29.8, int8=238.0, int4=476.0), _GA102),
    "RTX 3090": _sheet("NVIDIA GeForce RTX 3090", "sm_86", 82, 936.2, 6,
        _rates(71.0, tfloat32=35.6, float32=35.6, int8=284.0, int4=568.0), _GA102),
    "RTX 3090 Ti": _sheet("NVIDIA GeForce RTX 3090 Ti", "sm_86", 84, 1008.0, 6,
        _rates(80.0, tfloat32=40.0, float32=40.0, int8=320.0, int4=640.0), _ADA),
    "L4": _sheet("NVIDIA L4", "sm_89", 58, 300.0, 48,
        _rates(121.0, tfloat32=60.0, float32=30.3, float8=242.5, int8=242.5), "NVIDIA L4 datasheet"),
    "L40": _sheet("NVIDIA L40", "sm_89", 142, 864.0, 96,
        _rates(181.05, tfloat32=90.5, float32=90.5, float8=362.0, int8=362.0, int4=724.0), "NVIDIA L40 datasheet"),
    "L40S": _sheet("NVIDIA L40S", "sm_89", 142, 864.0, 96,
        _rates(362.05, tfloat32=183.0, float32=91.6, float8=733.0, int8=733.0), "NVIDIA L40S datasheet"),
    "RTX 6000 Ada": _sheet("NVIDIA RTX 6000 Ada Generation", "sm_89", 142, 960.0, 96,
        _rates(364.2, tfloat32=182.1, float32=91.1, float8=728.5, int8=728.5, int4=1457.0), _ADA),
    "RTX 4080": _sheet("NVIDIA GeForce RTX 4080", "sm_89", 76, 716.8, 64,
        _rates(97.5, tfloat32=48.7, float32=48.7, float8=194.9, int8=389.9, int4=779.8), _ADA),
    "RTX 4090": _sheet("NVIDIA GeForce RTX 4090", "sm_89", 128, 1008.0, 72,
        _rates(165.2, tfloat32=82.6, float32=82.6, float8=330.3, int8=660.6, int4=1321.2), _ADA),
    "H100": _sheet("NVIDIA H100 80GB HBM3", "sm_90", 132, 3350.0, 50, _HOPPER, "NVIDIA H100 datasheet, SXM", "H100 SXM",
        "H100 SXM5", "NVIDIA H100"),
    "H100 PCIe": _sheet("NVIDIA H100 PCIe", "sm_90", 114, 2039.0, 50,
        _rates(756.0, tfloat32=378.0, float32=51.0, float8=1513.0, int8=1513.0), "NVIDIA H100 datasheet, PCIe"),
    "H200": _sheet("NVIDIA H200", "sm_90", 132, 4800.0, 60, _HOPPER, "NVIDIA H200 datasheet, SXM"),
    "B200": _sheet("NVIDIA B200", "sm_100", 148, 8000.0, 126,
        _rates(2250.0, tfloat32=1100.0, float32=80.0, float8=4500.0, float4=9000.0, int8=4500.0),
        "NVIDIA Blackwell Architecture Technical Brief, datasheet of HGX B200 at 1000 W"),
    "RTX 5080": _sheet("NVIDIA GeForce RTX 5080", "sm_120", 84, 960.0, 64,
        _rates(112.6, tfloat32=56.3, float32=56.3, float8=225.1, float4=900.4, int8=450.2), _RTX50),
    "RTX 5090": _sheet("NVIDIA GeForce RTX 5090", "sm_120", 170, 1792.0, 96,
        _rates(209.5, tfloat32=104.8, float32=104.8, float8=419.0, float4=1676.0, int8=838.0), _RTX50),
    "MI210": _sheet("AMD Instinct MI210", "gfx90a", 104, 1638.4, 8,
        _rates(181.0, tfloat32=45.3, float32=22.6, int8=181.0, int4=181.0),
        "AMD Instinct MI210 datasheet: FP32 matrix and FP32 vector"),
    # A driver shows each of the two dies of an MI250X as a device: the figures are halves of the datasheet's.
    "MI250X": _sheet("AMD Instinct MI250X", "gfx90a", 110, 1638.4, 8,
        _rates(191.5, tfloat32=47.85, float32=23.95, int8=191.5, int4=191.5),
        "AMD Instinct MI250X datasheet, half of it: one die; FP32 matrix and FP32 vector"),
    # L2: `rocminfo` shows the 4 MiB of one of eight dies, which is what one compute unit can use.
    "MI300X": _sheet("AMD Instinct MI300X", "gfx942", 304, 5300.0, 4, _MI300, "AMD Instinct MI300X datasheet"),
    "MI325X": _sheet("AMD Instinct MI325X", "gfx942", 304, 6000.0, 4, _MI300, "AMD Instinct MI325X datasheet"),
    "MI355X": _sheet("AMD Instinct MI355X", "gfx950", 256, 8000.0, 4,
        _rates(2516.6, float32=157.3, float8=5033.2, float4=10066.3, int8=5033.2),
        "AMD Instinct MI355X datasheet: FP32 matrix is as FP32 vector, and TF32 has no rate"),
}  # fmt: skip


_OTHER = ("MIG", "NVL", "Ti", "SUPER", "Laptop", "Mobile", "Max-Q", "D", "Ada")
"""Words that name another device than the same name without them: slices of a model, and its variants."""


def datasheet_of(name: str) -> Datasheet | None:
    """The datasheet's figures of a device by the name that its driver reports; None if the table has no row for it.

    A row matches whole words only: `H200` is found in `NVIDIA H200`, not in `NVIDIA GH200`. A slice of a device (MIG)
    and an NVL variant have other peaks, so only a row that names them matches.
    """
    others = [other for other in _OTHER if _has_word(name, other)]
    models = [each for each in DATASHEETS if _has_word(name, each) and all(_has_word(each, other) for other in others)]
    return DATASHEETS[max(models, key=len)] if models else None


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None
