"""The ranking model: from a device, a declared work and a config to an expected time, a lower bound and their reasons.

Before a config is compiled its registers and shared memory are guessed; afterwards the compiler's own figures are used.
Where the work has no tiles, the device has no row, or a tunable is missing, the model is silent.

Source of its form and constants: docs/concepts/model.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.hardware import Machine
from triton_ops.ranking.estimate import settled
from triton_ops.trial import Resources
from triton_ops.work import UnknownTileError, Work


@dataclass(frozen=True)
class Term:
    """One resource's part.

    Attributes:
        name: Such as `shared memory`.
        alone_ms: What the launch would take if only this counted.
    """

    name: str
    alone_ms: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is expected of one config, and why.

    Attributes:
        expected_ms: Per launch, between two events; infinite where the block does not fit on the device.
        lower_bound_ms: What no kernel can pass: declared work over the datasheet's rates.
        terms: What each resource would take alone, longest first.
        blocks_per_unit: At a time on one multiprocessor.
        waves: How often the device is filled.
        registers: Per thread.
        spill_bytes: Per thread.
        shared_bytes: Per block.
        compiled: Whether these three are the compiler's; else they are guessed.
    """

    expected_ms: float
    lower_bound_ms: float
    terms: tuple[Term, ...]
    blocks_per_unit: int
    waves: float
    registers: int
    spill_bytes: float
    shared_bytes: int
    compiled: bool


@dataclass(frozen=True)
class Model:
    """What to expect of the configs of one problem on one device.

    Attributes:
        work: Declared by the kernel's author.
        machine: The device; None keeps the model silent.
    """

    work: Work
    machine: Machine | None

    def score(self, configs: Sequence[Mapping[str, Any]]) -> list[float]:
        """Expected milliseconds of each config, not compiled: NaN where silent, infinite where it will not fit.

        Cost: about 20 µs per config.
        """
        return [self.expected_ms(config) for config in configs]

    def expected_ms(self, config: Mapping[str, Any], resources: Resources | None = None) -> float:
        """As `score`, for one config, with the compiler's figures where they are known."""
        found = self.explain(config, resources)
        return math.nan if found is None else found.expected_ms

    @property
    def lower_bound_ms(self) -> float:
        """Declared work over the datasheet's rates, whatever the config; 0 where nothing is declared or known."""
        if self.machine is None:
            return 0.0
        bytes_ms = self.work.bytes / (self.machine.peak_dram_gbps * 1e6)
        rate = self.machine.mma_tflops(getattr(self.work.tiles, "dtype", ""))
        return max(bytes_ms, self.work.flops / (rate * 1e9) if rate > 0 else 0.0)

    def explain(self, config: Mapping[str, Any], resources: Resources | None = None) -> Estimate | None:
        """The expected time with its reasons; None where the model is silent."""
        if self.machine is None or self.work.tiles is None:
            return None
        try:
            plan = self.work.tiles.plan(config, self.machine)
        except UnknownTileError:
            return None
        footprint = settled(plan.footprint, resources)
        found = plan.schedule(footprint)
        fits = footprint.shared_bytes <= self.machine.shared_bytes_per_block
        time_ms = found.time_ms + self.machine.launch_us / 1e3
        launch = Term("launch", self.machine.launch_us / 1e3)
        terms = [launch, *(Term(name, alone) for name, alone in found.alone_ms.items() if alone > 0)]
        return Estimate(
            expected_ms=max(time_ms, self.lower_bound_ms) if fits else math.inf,
            lower_bound_ms=self.lower_bound_ms,
            terms=tuple(sorted(terms, key=lambda term: -term.alone_ms)),
            blocks_per_unit=self.machine.blocks_at_once(footprint.registers, footprint.shared_bytes, plan.warps),
            waves=found.waves,
            registers=footprint.registers,
            spill_bytes=footprint.spill_bytes,
            shared_bytes=footprint.shared_bytes,
            compiled=footprint.known,
        )
