"""The model's figures of a device: rates and sizes by datasheet or calibration, and the costs of an architecture.

Every figure names its source; docs/concepts/model.md has the rates in a table. A device of an architecture without a
row here has no machine, and the model makes no forecast for such a device. A device without recordings is unseen: its
figures are public ones, the costs that no datasheet has are those fitted on an H200, and forecasts say so.

The roofline of a kernel on a device says which of two limits it meets, and how near to it a time is. A kernel does
operations and moves bytes. With fewer operations per byte than the ridge has, the memory limits it; with more, the
units for its dtype do. Every rate is given beside its share of the limit. Source: Williams, Waterman and Patterson,
"Roofline: An Insightful Visual Performance Model", CACM 52 (4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeAlias

import msgspec

from triton_ops.base import Frozen
from triton_ops.device.calibration import Calibration
from triton_ops.device.limits import LIMITS, UnitLimits
from triton_ops.device.specs import DeviceSpec
from triton_ops.exceptions import DeviceError

_PLAUSIBLE = (0.5, 1.25)  # a calibrated rate outside these shares of the expected rate was disturbed, and is not used


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs that no datasheet has: fitted once per architecture on recorded spaces, leaving each space out in turn.

    Attributes:
        link_cycles: Cycles of a block for each product of a step that others wait for: its way in and out of the
            matrix units, and the reductions between.
        exchange_cycles: Cycles in which warps that share rows exchange what they reduce, through shared memory.
        reduce_ns: Wait for each step of a reduction of a tile by all threads of a block: halvings, and barriers.
        turn_ns: Time from the end of a block until its successor's first loads have arrived; the blocks that run
            beside them on the multiprocessor share this time.
        row_ns: Wait for the first loads of a row that a block begins after another one: none of them is on the way
            before the other one's last stores.
        l1_bytes: Bytes that pass through a multiprocessor's first cache until 63 % of what was there is gone.
        straggle: Share of a block's time for which the slowest runs longer than the others; later waves even it
            out.
        idle_stage: Relative cost per pipeline stage without a load to pipeline: of equal configs the simpler is
            first.
    """

    shared_share: float = 0.88  # share of shared memory's peak bandwidth that a mix of tile reads and writes reaches
    line_cycles: float = 1.75  # cycles of the load unit per 128-byte line that an asynchronous copy touches
    load_ns: float = 550.0  # time from the issue of a tile's loads to its first bytes
    stream_gbps: float = 73.0  # rate at which the tile of one block then arrives, by asynchronous copies
    step_cycles: float = 45.0  # cycles per step of a pipelined loop, for the barrier, the addresses and the loop itself
    drain_ns: float = 400.0  # time of a block after its last step, in which the accumulator moves through shared memory
    store_bytes_per_cycle: float = 32.0  # rate at which one multiprocessor writes results
    spill_bytes_per_cycle: float = 23.0  # rate at which one multiprocessor reads and writes spilled registers
    link_cycles: float = 540.0
    tall_link: float = 0.4  # share of these cycles for each further tile of 16 rows that a warp has
    exchange_cycles: float = 1000.0
    lone_warp: float = 1.2  # factor on arithmetic where each scheduler has one warp, which waits for its own results
    unhidden: float = 0.65  # share of a load's wait that a step without a pipeline cannot hide
    overlap: float = 5.5  # exponent p of (Σ tᵖ)^(1/p) for resources that work at the same time; infinity is the maximum
    plain_gbps: float = 50.0  # rate at which one block's plain loads and stores stream
    chunk_ns: float = 235.0  # wait per chunk of a row for plain loads from memory
    near_ns: float = 3.0  # the same for loads of what the block has read before
    row_ns: float = 600.0
    reduce_ns: float = 10.0
    turn_ns: float = 1600.0
    block_ns: float = 0.61  # time in which the device begins one block, whatever its multiprocessors are busy with
    wait_overlap: float = 2.0  # exponent as `overlap`, between a block's own waits and the rate of all blocks
    l1_bytes: float = 270e3
    straggle: float = 0.1
    idle_stage: float = 0.02


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The figures of one device that the model calculates with; bandwidths of an architecture without a device are 0.

    Attributes:
        mma_flops_per_cycle: Dense matrix operations of one multiprocessor per cycle, by dtype of the inputs.
        sustained_tflops: Rate of the vendor's matrix product, by dtype; empty without a calibration.
        wgmma: Whether tiles of 64 rows and more run on warp-group instructions, which read shared memory
            themselves.
        unseen: In words, that no recording of the device stands behind its figures; empty if one does.
    """

    units: int
    clock_ghz: float  # highest clock; in a row of 0 that of the device's float32 rate
    mma_flops_per_cycle: dict[str, float] = field(hash=False)
    peak_dram_gbps: float = 0.0  # memory bandwidth by datasheet, which no kernel exceeds
    dram_gbps: float = 0.0  # memory bandwidth that a copy reaches
    l2_gbps: float = 0.0  # rate of plain loads from L2 by all multiprocessors
    l2_bytes: int
    launch_us: float = 3.5  # time of an empty kernel between two events
    sustained_tflops: dict[str, float] = field(default_factory=dict, hash=False)
    l2_copies: int = 2  # of each line in L2, one in each half of the chip
    wgmma: bool = False
    group_rows: int = 64  # rows of A that an instruction of a warp group reads with its columns of B
    mma_sync_share: float = 1.0  # share of the matrix rate that warp instructions reach
    shared_bytes_per_cycle: float = 128.0  # rate of the shared memory of one multiprocessor
    port_bytes_per_cycle: float = 64.0  # rate from L2 to one multiprocessor
    shared_bytes_per_block: int = 232_448
    threads_per_block: int = 1024
    limits: UnitLimits = LIMITS["sm_90"]
    costs: Costs = Costs()
    unseen: str = ""

    def __post_init__(self) -> None:
        Frozen.fields(self, "mma_flops_per_cycle", "sustained_tflops")

    @property
    def l2_kept_bytes(self) -> float:
        """The bytes of different lines that L2 holds."""
        return self.l2_bytes / self.l2_copies

    def mma_tflops(self, dtype: str) -> float:
        """The device's peak matrix rate at its highest clock, 10^12 per second; 0 for a dtype without a matrix unit."""
        return self.mma_flops_per_cycle.get(dtype, 0.0) * self.units * self.clock_ghz / 1e3

    def mma_excess(self, dtype: str) -> float:
        """The peak over the sustained matrix rate, which is lower because power limits the clock; at least 1."""
        sustained = self.sustained_tflops.get(dtype, 0.0)
        return max(1.0, self.mma_tflops(dtype) / sustained) if sustained > 0 else 1.0

    def blocks_at_once(self, registers: int, shared_bytes: int, warps: int) -> int:
        """The number of blocks that fit on one multiprocessor at a time, at least 1."""
        return max(1, self.limits.residents(registers, shared_bytes, warps).blocks)

    @classmethod
    def known(cls, spec: DeviceSpec) -> Machine:
        """The machine of a device; `DeviceError` if there is none, as of `of`."""
        if (machine := cls.of(spec)) is not None:
            return machine
        hint = "name a GPU of an architecture that it knows: --gpu 'NVIDIA H200'"
        raise DeviceError(cls.why_unknown(spec), hint=hint)

    @staticmethod
    def why_unknown(spec: DeviceSpec) -> str:
        """The reason why a device has no machine."""
        if spec.arch in _BY_ARCH:
            return f"the model does not know the rates of {spec.name}, which has no datasheet here that tells them"
        terms = (why for start, why in _NO_TERMS.items() if spec.arch.startswith(start))
        why = next(terms, "it has no row in the table of architectures")
        return f"the model does not know the architecture {spec.arch} of {spec.name}: {why}"

    @staticmethod
    def of(spec: DeviceSpec | None) -> Machine | None:
        """The machine of a device; None without one, for an architecture that has no row here, or without its rates.

        A calibrated rate that is far from the expected one is not used.
        """
        base = None if spec is None else _BY_ARCH.get(spec.arch)
        if spec is None or base is None or spec.bandwidth_gbps is None:
            return None
        clock_ghz = base.clock_ghz or spec.tflops.get("float32", 0.0) * 1e3 / (_FLOPS_PER_CYCLE * spec.units)
        rates = _mma_flops_per_cycle(spec, clock_ghz, base.mma_flops_per_cycle) if clock_ghz else {}
        if "float16" not in rates:
            return None
        expected = replace(
            base, units=spec.units, clock_ghz=clock_ghz, peak_dram_gbps=spec.bandwidth_gbps,
            mma_flops_per_cycle=rates,
            dram_gbps=spec.bandwidth_gbps * _COPY_SHARE, l2_bytes=spec.l2_bytes or base.l2_bytes,
            l2_gbps=max(_L2_BYTES_PER_CYCLE * spec.units * clock_ghz, spec.bandwidth_gbps),
            shared_bytes_per_block=spec.shared_bytes_per_block or base.shared_bytes_per_block,
            limits=spec.limits or base.limits,
            unseen="" if spec.name in _RECORDED else _UNSEEN,
        )  # fmt: skip
        return expected if spec.calibration is None else _with_calibration(expected, spec.calibration)


_COPY_SHARE = 0.9  # share of the datasheet's bandwidth that a copy reaches: 4.3 of 4.8 TB/s, measured on an H200
# Per multiprocessor, plain loads: 4.8 TB/s at 132 and 1.98 GHz, fitted; literature 5.5. GB202 has 17.8: 8.7 TB/s of 188
# at 2.6 GHz (Chips and Cheese, "Blackwell: Nvidia's Massive GPU"). All that memory delivers passes through L2.
_L2_BYTES_PER_CYCLE = 18.4
_FLOPS_PER_CYCLE = 256  # float32 of one multiprocessor: 128 lanes, CUDA C++ Programming Guide, 8.6, 8.9 and 12.0
_UNSEEN = "unseen: no recording of this device stands behind its figures"
_RECORDED = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")  # benchmarks/recordings and its folder `fresh`

_HOPPER = Machine(
    units=132,
    clock_ghz=1.98,  # driver's maximum, H100 and H200 SXM
    # 989.4 TFLOP/s dense at 1.83 GHz and 132 multiprocessors are 4,096 per cycle (H100 datasheet).
    mma_flops_per_cycle={
        "bfloat16": 4096, "float16": 4096, "float8_e4m3fn": 8192, "float8_e5m2": 8192, "int8": 8192, "float32": 2048,
    },
    l2_bytes=50 << 20,
    wgmma=True,
    mma_sync_share=0.62,  # share of wgmma's rate: microbenchmarks of the H100, arXiv:2402.13499
)  # fmt: skip

_AMPERE = Machine(
    units=108,
    clock_ghz=1.41,  # A100 datasheet
    # 312 TFLOP/s dense at 1.41 GHz and 108 multiprocessors are 2,048 per cycle.
    # Triton widens float8_e5m2 to float16 there, and has no products of float8_e4m3fn.
    mma_flops_per_cycle={"bfloat16": 2048, "float16": 2048, "float8_e5m2": 2048, "int8": 4096, "float32": 1024},
    l2_bytes=40 << 20,
    shared_bytes_per_block=166_912,
    limits=LIMITS["sm_80"],
)

# GA10x, AD10x and GB20x: a device's rates and boost clock are those of its datasheet. L1 is half of sm_90's 256 KB
# (GA102, Ada and RTX Blackwell whitepapers), and L2 keeps one copy of a line (monolithic, unlike Hopper's: RTX 5080 in
# arXiv:2507.10789; the whitepapers name no halves). Products are warp instructions as on sm_80 (Triton 3.6.0).
_RTX = Machine(
    units=84, clock_ghz=0.0, mma_flops_per_cycle={}, l2_bytes=6 << 20, l2_copies=1, shared_bytes_per_block=101_376,
    limits=LIMITS["sm_86"], costs=Costs(l1_bytes=135e3),
)  # fmt: skip

_BLACKWELL = Machine(
    units=148,
    clock_ghz=1.86,  # at which 2,250 TFLOP/s by 148 multiprocessors are 8,192 per cycle (technical brief, HGX B200)
    mma_flops_per_cycle={},
    l2_bytes=126 << 20,
    wgmma=True,  # tcgen05 as instructions of warp groups; that sums are in tensor memory has no term
    group_rows=128,  # PTX ISA, tcgen05.mma without a second multiprocessor
    mma_sync_share=0.31,  # assumed: as many per cycle as on sm_90, of twice the rate
    limits=LIMITS["sm_100"],
)

_BY_ARCH = {"sm_80": _AMPERE, "sm_86": _RTX, "sm_89": _RTX, "sm_90": _HOPPER, "sm_100": _BLACKWELL, "sm_120": _RTX}

_NO_TERMS = {
    "sm_7": "its terms begin with the asynchronous copies and the products of sm_80",
    "sm_103": "its terms are not checked on it",
    "sm_121": "its terms begin with rates of matrix units, which no sheet of it has",
    "gfx": "its terms are of NVIDIA's warps, copies and products, not of wavefronts, LDS, MFMA and an L2 for each die",
}
"""By the beginning of an architecture's name, why the terms of the model don't hold for it."""


_CUT = 0.5  # share of an architecture's matrix rates: a model has rates of its own below it, as an H20 does


def _mma_flops_per_cycle(spec: DeviceSpec, clock_ghz: float, usual: dict[str, float]) -> dict[str, float]:
    """Matrix rates of one multiprocessor: the architecture's usual ones, or else those of its datasheet.

    Triton widens float8_e5m2 where it has no rate.
    """
    units = {dtype: "tfloat32" if dtype == "float32" else dtype for dtype in _HOPPER.mma_flops_per_cycle}
    if "float8_e5m2" not in spec.tflops:
        units["float8_e5m2"] = "float16"
    scale = 1e3 / (spec.units * clock_ghz)
    own = {dtype: spec.tflops[name] * scale for dtype, name in units.items() if name in spec.tflops}
    cut = any(rate < _CUT * usual.get(dtype, 0.0) for dtype, rate in own.items())
    return own if cut or not usual else usual


def _with_calibration(expected: Machine, calibration: Calibration) -> Machine:
    return replace(
        expected,
        dram_gbps=min(_plausible_rate(calibration.dram_gbps, expected.dram_gbps), expected.peak_dram_gbps),
        l2_gbps=_plausible_rate(calibration.l2_gbps, expected.l2_gbps),
        launch_us=_plausible_rate(calibration.launch_us, expected.launch_us),
        sustained_tflops={
            dtype: rate
            for dtype, rate in calibration.mma_tflops.items()
            if rate == _plausible_rate(rate, expected.mma_tflops(dtype))
        },
    )


def _plausible_rate(rate: float | None, expected: float) -> float:
    low, high = _PLAUSIBLE
    return rate if rate is not None and low * expected <= rate <= high * expected else expected


MEMORY = "memory"
_CALIBRATED = {"tfloat32": "float32"}  # the dtype of the operands, by which a calibration names its products


Rate: TypeAlias = Annotated[float, msgspec.Meta(ge=1e-9, le=1e12)]  # TFLOP/s or GB/s of a device, never 0


@dataclass(frozen=True)
class Ceiling:
    """One limit of a device: `memory` in GB/s, or a dtype's operations in TFLOP/s.

    `peak` is by datasheet, and `measured` what the device reached when it was calibrated; None if it was not.
    """

    name: str
    peak: Rate
    measured: Rate | None = None

    @property
    def unit(self) -> str:
        """The unit of both rates."""
        return "GB/s" if self.name == MEMORY else "TFLOP/s"


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A time of a kernel below its roof.

    Attributes:
        of_measured: Share of what the device reached of that limit when it was calibrated; None if it was not.
    """

    ms: float
    tflops: float
    gbps: float
    of_units: float | None  # share of the peak of the units for the dtype; None if that is not known
    of_memory: float | None  # share of the memory's peak; None if that is not known
    limit: str  # the name of the limit that the kernel meets first: `memory`, or the dtype
    of_limit: float
    of_measured: float | None = None

    @property
    def reached(self) -> str:
        """Rates beside their share of the peak, the share of the limit, and which limit that is."""
        rates = [_rate(self.tflops, "TFLOP/s", self.of_units)] if self.tflops else []
        rates += [_rate(self.gbps, "GB/s", self.of_memory)] if self.gbps else []
        text = f": {', '.join(rates)}; {self.of_limit:.0%} of its limit, {_limit(self.limit)}"
        if self.of_measured is not None:
            text += f", and {self.of_measured:.0%} of what was measured there"
        return text


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The roofline of one kernel on one device; operations and bytes of a launch are 0 if they are not known.

    Attributes:
        units: The limit of the units for all operations: of several dtypes, the rate of their mixture.
        parts: The limits of the units for each dtype, with its operations.
        unknown: Dtypes of operations for which no rate of the device is known, so that they are in no limit.
    """

    flops: float
    bytes: float
    memory: Ceiling | None
    units: Ceiling | None
    parts: tuple[tuple[Ceiling, float], ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, spec: DeviceSpec, *, flops: float | Mapping[str, float], bytes_: float, dtype: str = "",
        products: bool = True,
    ) -> Roofline:  # fmt: skip
        """The roofline of a kernel on a device.

        `flops` are of operands of `dtype`, or by dtype. `bytes_` go through memory, each input and output once;
        `products` of tiles run on matrix units, others do not.
        """
        memory, calibration = None, spec.calibration
        if spec.bandwidth_gbps is not None:
            memory = Ceiling(MEMORY, spec.bandwidth_gbps, calibration.dram_gbps if calibration else None)
        by_dtype = flops if isinstance(flops, Mapping) else {dtype: flops}
        counts: dict[str, float] = {}
        ceilings: dict[str, Ceiling] = {}
        unknown: list[str] = []
        for name, count in by_dtype.items():
            kind, peak = "float32", spec.tflops.get("float32")
            if products:
                kind, peak = spec.rate_of("tfloat32" if name == "float32" else name)
            if peak is None:
                unknown += [name] if count and name else []
                continue
            rate = calibration.mma_tflops.get(_CALIBRATED.get(kind, kind)) if calibration and products else None
            counts[kind] = counts.get(kind, 0.0) + count
            ceilings[kind] = Ceiling(kind, peak, rate)
        parts = tuple((ceilings[name], count) for name, count in counts.items())
        return cls(
            flops=sum(by_dtype.values()), bytes=bytes_, memory=memory, units=_mixture(parts), parts=parts,
            unknown=tuple(unknown),
        )  # fmt: skip

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None if one of both is not known."""
        return self.flops / self.bytes if self.flops and self.bytes else None

    @property
    def ridge(self) -> float | None:
        """Operations per byte at which both limits meet; None if a limit is not known."""
        if self.memory is None or self.units is None:
            return None
        return self.units.peak * 1e3 / self.memory.peak

    @property
    def limit(self) -> Ceiling | None:
        """The limit that takes longer; None if no limit is known that the kernel could meet."""
        took = [(ms, ceiling) for ms, ceiling in self._times() if ms > 0]
        return max(took, key=lambda pair: pair[0])[1] if took else None

    @property
    def least_ms(self) -> float | None:
        """The time at the limit, in milliseconds: no kernel that does this work is faster; None if it is not known."""
        return max((ms for ms, _ in self._times()), default=0.0) or None

    def placed(self, ms: float) -> Placed | None:
        """The place of a time over 0 below this roof; None if no limit is known."""
        limit, least = self.limit, self.least_ms
        if limit is None or least is None:
            return None
        tflops, gbps = self.flops / (ms * 1e9), self.bytes / (ms * 1e6)
        known_tflops = sum(count for _, count in self.parts) / (ms * 1e9)
        rate = gbps if limit.name == MEMORY else known_tflops
        return Placed(
            ms=ms, tflops=tflops, gbps=gbps, of_units=known_tflops / self.units.peak if self.units else None,
            of_memory=gbps / self.memory.peak if self.memory else None, limit=limit.name, of_limit=least / ms,
            of_measured=rate / limit.measured if limit.measured else None,
        )  # fmt: skip

    @property
    def rows(self) -> dict[str, str]:
        """The ceilings, and the operations per byte beside the ridge, where they are known."""
        ceilings = [one for one, _ in self.parts] + ([self.memory] if self.memory else [])
        if not ceilings:
            return {"roof": "no peak of this device is known"}
        text = ", ".join(
            f"{one.peak:,.5g} {one.unit} {'of memory' if one.name == MEMORY else one.name}"
            + (f" ({one.measured:,.5g} measured)" if one.measured else "")
            for one in ceilings
        )
        rows = {"roof": text}
        if self.unknown:
            rows["no rate"] = f"none of this device is known for {' and '.join(self.unknown)}: the limit may be another"
        if self.ridge is not None and self.intensity is not None and self.limit is not None:
            rows["intensity"] = (
                f"{self.intensity:.4g} FLOP/B, the ridge is at {self.ridge:.4g}: limited by {_limit(self.limit.name)}"
            )
        return rows

    def _times(self) -> list[tuple[float, Ceiling]]:
        times = [(self.bytes / (self.memory.peak * 1e6), self.memory)] if self.memory else []
        total = sum(count for _, count in self.parts)
        return times + ([(total / (self.units.peak * 1e9), self.units)] if self.units else [])


def _mixture(parts: Sequence[tuple[Ceiling, float]]) -> Ceiling | None:
    """The limit of operations of several dtypes, one after another; None without a known rate."""
    if len(parts) < 2:
        return parts[0][0] if parts else None

    def rate(rates: Sequence[float | None]) -> float | None:
        took = sum(count / each for (_, count), each in zip(parts, rates, strict=True) if each)
        return sum(count for _, count in parts) / took if took and all(rates) else None

    peak = rate([one.peak for one, _ in parts])
    name = " and ".join(one.name for one, _ in parts)
    return None if peak is None else Ceiling(name, peak, rate([one.measured for one, _ in parts]))


def _rate(value: float, unit: str, share: float | None) -> str:
    return f"{value:.4g} {unit}" + ("" if share is None else f" ({share:.0%} of the peak)")


def _limit(name: str) -> str:
    return "the memory" if name == MEMORY else f"the units for {name}"
