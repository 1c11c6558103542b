"""The roofline of a device: which of two limits a kernel meets, and how near to it a time is.

A kernel does operations and moves bytes. With fewer operations per byte than the ridge has, the memory limits it; with
more, the units for its dtype do. Every rate is given beside its share of the limit. Source: Williams, Waterman and
Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52 (4), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.device.datasheets import DeviceSpec
from triton_ops.device.machine import Calibration

MEMORY = "memory"
_OF_PRODUCTS = {"float32": "tfloat32"}  # what Triton's products of a dtype take, where it has another name
_CALIBRATED = {"tfloat32": "float32"}  # the dtype of the operands, by which a calibration names its products


@dataclass(frozen=True)
class Ceiling:
    """One limit of a device: `memory` in GB/s, or a dtype's operations in TFLOP/s.

    `peak` is by datasheet, and `measured` what the device reached when it was calibrated; None if it was not.
    """

    name: str
    peak: float
    measured: float | None = None

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
    """The roofline of one kernel on one device; operations and bytes of a launch are 0 if they are not known."""

    flops: float
    bytes: float
    memory: Ceiling | None
    units: Ceiling | None

    @classmethod
    def of(
        cls,
        spec: DeviceSpec,
        *,
        flops: float,
        bytes_: float,
        dtype: str,
        products: bool,
        calibration: Calibration | None = None,
    ) -> Roofline:
        """The roofline of a kernel on a device.

        `bytes_` go through memory, each input and output once; `products` of tiles run on matrix units, others do not.
        """
        name = _OF_PRODUCTS.get(dtype, dtype) if products else "float32"
        peak = spec.tflops.get(name)
        memory = None
        if spec.bandwidth_gbps is not None:
            memory = Ceiling(MEMORY, spec.bandwidth_gbps, calibration.dram_gbps if calibration else None)
        rate = calibration.mma_tflops.get(_CALIBRATED.get(name, name)) if calibration and products else None
        return cls(flops=flops, bytes=bytes_, memory=memory, units=Ceiling(name, peak, rate) if peak else None)

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
        rate = gbps if limit.name == MEMORY else tflops
        return Placed(
            ms=ms, tflops=tflops, gbps=gbps, of_units=tflops / self.units.peak if self.units else None,
            of_memory=gbps / self.memory.peak if self.memory else None, limit=limit.name, of_limit=least / ms,
            of_measured=rate / limit.measured if limit.measured else None,
        )  # fmt: skip

    @property
    def rows(self) -> dict[str, str]:
        """The ceilings, and the operations per byte beside the ridge, where they are known."""
        ceilings = [one for one in (self.units, self.memory) if one is not None]
        if not ceilings:
            return {"roof": "no peak of this device is known"}
        text = ", ".join(
            f"{one.peak:,.5g} {one.unit} {'of memory' if one.name == MEMORY else one.name}"
            + (f" ({one.measured:,.5g} measured)" if one.measured else "")
            for one in ceilings
        )
        rows = {"roof": text}
        if self.ridge is not None and self.intensity is not None and self.limit is not None:
            rows["intensity"] = (
                f"{self.intensity:.4g} FLOP/B, the ridge is at {self.ridge:.4g}: limited by {_limit(self.limit.name)}"
            )
        return rows

    def _times(self) -> list[tuple[float, Ceiling]]:
        times = [(self.bytes / (self.memory.peak * 1e6), self.memory)] if self.memory else []
        return times + ([(self.flops / (self.units.peak * 1e9), self.units)] if self.units else [])


roofline = Roofline.of
"""The documented name."""


def _rate(value: float, unit: str, share: float | None) -> str:
    return f"{value:.4g} {unit}" + ("" if share is None else f" ({share:.0%} of the peak)")


def _limit(name: str) -> str:
    return "the memory" if name == MEMORY else f"the units for {name}"
