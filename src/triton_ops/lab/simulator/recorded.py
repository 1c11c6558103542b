"""Recorded spaces laid over the prediction: every config's measured time beside its expected one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_ops import kernels
from triton_ops.cost_model import ElementTiles, Model, RowTiles, inferred_model, readings_of, recorded_work, spearman
from triton_ops.device import Machine
from triton_ops.exceptions import RecordingError, SpaceError
from triton_ops.lab.recording import Recording, read_recording
from triton_ops.lab.simulator.places import Standing, ranked
from triton_ops.lab.simulator.workloads import device_named
from triton_ops.space import Config
from triton_ops.values import Work

FLOORS = {"products": 0.8, "rows": 0.6}
"""Spearman's correlation from which on the order is good enough to choose by, for products and for rows."""


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A recording beside what the model expects of its configs.

    Attributes:
        file: Name of the file.
        title: Kernel, shape and dtype.
        device: Name of the device in the table.
        machine: The device's figures.
        work: The work, declared or read.
        read: Whether the work was read from the kernel; otherwise it was declared.
        kind: `products` or `rows`.
        configs: The configs that ran.
        measured_ms: Their times.
        failed: Number of recorded configs that did not run.
    """

    file: str
    title: str
    device: str
    machine: Machine = field(hash=False)
    work: Work = field(hash=False)
    read: bool
    kind: str
    configs: Sequence[Mapping[str, Any]] = field(hash=False)
    measured_ms: Sequence[float] = field(hash=False)
    failed: int

    @cached_property
    def expected_ms(self) -> list[float]:
        """What the model expects of each config; infinite where its block would not fit, NaN without a forecast."""
        return Model(self.work, self.machine).score(self.configs)

    @cached_property
    def standings(self) -> list[Standing]:
        """The configs in the order in which they are expected to be fast."""
        return ranked(self.work, self.machine, self.configs, {})

    @property
    def measured(self) -> dict[Config, float]:
        """Measured milliseconds by config."""
        return {Config(config): ms for config, ms in zip(self.configs, self.measured_ms, strict=True)}

    @cached_property
    def spearman(self) -> float:
        """Spearman's correlation of expected and measured times, configs without a forecast left out."""
        pairs = [pair for pair in zip(self.expected_ms, self.measured_ms, strict=True) if not math.isnan(pair[0])]
        return spearman(*map(list, zip(*pairs, strict=True)))

    @property
    def first_share(self) -> float:
        """The best measured time over that of the config that is expected to win."""
        first = min(
            (at for at, ms in enumerate(self.expected_ms) if not math.isnan(ms)), key=lambda at: self.expected_ms[at]
        )
        return min(self.measured_ms) / self.measured_ms[first]

    @property
    def floor(self) -> float:
        """The correlation that is asked of such a kernel."""
        return FLOORS[self.kind]

    @property
    def verdict(self) -> str:
        """`reached` or `missed`: the correlation beside what is asked."""
        return "reached" if self.spearman >= self.floor else "missed"


def agreement(overlay: Overlay) -> str:
    """How far the expected and the measured order of a recording agree, in sentences."""
    source = "read from the kernel" if overlay.read else "declared"
    return (
        f"Spearman's correlation of expected and measured times is {overlay.spearman:.3f} over {len(overlay.configs)} "
        f"configs; {overlay.floor} is asked of {overlay.kind}, and is {overlay.verdict}. The config that is expected "
        f"to win has {100 * overlay.first_share:.1f} % of the best measured speed. The work was {source}."
    )


def overlay_of(path: Path, *, undeclared: bool = False) -> Overlay:
    """A recording of `triton-ops record`, or the run log of a shipped kernel, with the model's expectations.

    Args:
        path: The file.
        undeclared: Whether the work that was read of the kernel is used even where some is declared.

    Raises:
        RecordingError: The file cannot be read, or does not tell what its kernel does.
        DeviceError: The model does not know the device.
    """
    found = read_recording(path)
    device, machine = device_named(found.device)
    work, read = _work(path, found, machine, undeclared)
    ran = [(config, trial.median_ms) for config, trial in found.trials.items() if trial.ok]
    made = Overlay(
        file=path.name,
        title=" ".join(part for part in (found.kernel, "x".join(map(str, found.problem)), found.dtype) if part),
        device=device,
        machine=machine,
        work=work,
        read=read,
        kind="rows" if _is_rows(work, read) else "products",
        configs=[dict(config) for config, _ in ran],
        measured_ms=[ms for _, ms in ran],
        failed=len(found.trials) - len(ran),
    )
    if sum(not math.isnan(ms) for ms in made.expected_ms) < 2:
        raise RecordingError(f"{path}: the model makes a forecast for fewer than two of its configs")
    return made


def _work(path: Path, found: Recording, machine: Machine, undeclared: bool) -> tuple[Work, bool]:
    """The work of a recording, and whether it was read from the kernel."""
    try:
        declared = None if undeclared else recorded_work(found.head)
        if declared is not None and declared.tiles is not None:
            return declared, False
        if "inferred" in found.head:
            return inferred_model(readings_of(found.head["inferred"]), machine).work, True
        shipped = None if undeclared else _shipped_work(found)
        if shipped is not None and shipped.tiles is not None:
            return shipped, False
    except SpaceError as error:
        raise RecordingError(f"{path} is no recording: {error.message}", hint=error.hint) from error
    raise RecordingError(
        f"{path} does not tell what its kernel does, so nothing can be expected of its configs",
        hint="give a file of `triton-ops record`, of a kernel whose work is known, or a run log of a shipped kernel",
    )


def _shipped_work(found: Recording) -> Work | None:
    """The work of a shipped kernel: a run log tells its name and its problem, and no work."""
    if found.head or found.kernel not in kernels.names():
        return None
    operation = kernels.load(found.kernel)
    problem = operation.problem(found.problem or None, found.dtype or None)
    return None if operation.work is None else operation.work(problem)


def _is_rows(work: Work, read: bool) -> bool:
    return work.flops == 0 if read else isinstance(work.tiles, (RowTiles, ElementTiles))
