"""Recorded spaces laid over the prediction: every config's measured time beside its expected one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_ops import kernels
from triton_ops.cost_model import ElementTiles, Model, Readings, RowTiles, recorded_work, spearman
from triton_ops.device import Machine
from triton_ops.exceptions import RecordingError, SpaceError
from triton_ops.lab.recording import Recording, read_recording
from triton_ops.lab.simulated_ranking import PlacedConfig, device_named, ranking_of
from triton_ops.space import Config
from triton_ops.values import Work

FLOORS = {"products": 0.8, "rows": 0.6}
"""Spearman's correlation from which on the order is good enough to choose by, for products and for rows."""


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A recording beside what the model expects of its configs.

    Attributes:
        title: Kernel, shape and dtype.
        device: Name of the device in the table.
        inferred: Whether the work was read from the kernel; otherwise it was declared.
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
    inferred: bool
    kind: str
    configs: Sequence[Mapping[str, Any]] = field(hash=False)
    measured_ms: Sequence[float] = field(hash=False)
    failed: int

    @cached_property
    def expected_ms(self) -> list[float]:
        """Expected milliseconds of each config; infinite where its block would not fit, NaN without a forecast."""
        return Model(self.work, self.machine).score(self.configs)

    @cached_property
    def standings(self) -> list[PlacedConfig]:
        """The configs in the order in which they are expected to be fast."""
        return ranking_of(self.work, self.machine, self.configs, {})

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

    @property
    def agreement(self) -> str:
        """The agreement of the expected with the measured order, in sentences."""
        source = "read from the kernel" if self.inferred else "declared"
        return (
            f"Spearman's correlation of expected and measured times is {self.spearman:.3f} over {len(self.configs)} "
            f"configs; {self.floor} is asked of {self.kind}, and is {self.verdict}. The config that is expected "
            f"to win has {100 * self.first_share:.1f} % of the best measured speed. The work was {source}."
        )

    def as_json(self) -> dict[str, Any]:
        """The correlation, and both times of each config, as plain values."""
        pairs = zip(self.configs, self.expected_ms, self.measured_ms, strict=True)
        return {
            "file": self.file,
            "title": self.title,
            "device": self.device,
            "source": "inferred" if self.inferred else "declared",
            "spearman": self.spearman,
            "asked": self.floor,
            "first_share": self.first_share,
            "failed": self.failed,
            "configs": [
                {"config": config, "expected_ms": ms if math.isfinite(ms) else None, "measured_ms": measured_ms}
                for config, ms, measured_ms in pairs
            ],
        }


def overlay_of(path: Path, *, undeclared: bool = False) -> Overlay:
    """A recording of `triton-ops record`, or the run log of a shipped kernel, with the model's expectations.

    Args:
        path: The file.
        undeclared: Whether the work that was read of the kernel is used even where some is declared.

    Raises:
        RecordingError: The file cannot be read, or does not tell what its kernel does.
        DeviceError: The model does not know the device.
    """
    recording = read_recording(path)
    device, machine = device_named(recording.device)
    work, inferred = _work(path, recording, machine, undeclared)
    times = [(config, trial.median_ms) for config, trial in recording.trials.items() if trial.ok]
    overlay = Overlay(
        file=path.name,
        title=recording.title,
        device=device,
        machine=machine,
        work=work,
        inferred=inferred,
        kind="rows" if _is_rows(work, inferred) else "products",
        configs=[dict(config) for config, _ in times],
        measured_ms=[ms for _, ms in times],
        failed=len(recording.trials) - len(times),
    )
    if sum(not math.isnan(ms) for ms in overlay.expected_ms) < 2:
        raise RecordingError(f"{path}: the model makes a forecast for fewer than two of its configs")
    return overlay


def _work(path: Path, recording: Recording, machine: Machine, undeclared: bool) -> tuple[Work, bool]:
    """The work of a recording, and whether it was read from the kernel."""
    try:
        declared_work = None if undeclared else recorded_work(recording.head)
        if declared_work is not None and declared_work.tiles is not None:
            return declared_work, False
        if "inferred" in recording.head:
            return Readings.from_json(recording.head["inferred"]).model(machine).work, True
        shipped = None if undeclared else _shipped_work(recording)
        if shipped is not None and shipped.tiles is not None:
            return shipped, False
    except SpaceError as error:
        raise RecordingError(f"{path} is no recording: {error.message}", hint=error.hint) from error
    raise RecordingError(
        f"{path} does not tell what its kernel does, so nothing can be expected of its configs",
        hint="give a file of `triton-ops record`, of a kernel whose work is known, or a run log of a shipped kernel",
    )


def _shipped_work(recording: Recording) -> Work | None:
    """The work of a shipped kernel: a run log tells its name and its problem, and no work."""
    if recording.head or recording.kernel not in kernels.names():
        return None
    operation = kernels.load(recording.kernel)
    problem = operation.problem(recording.problem or None, recording.dtype or None)
    return None if operation.work is None else operation.work(problem)


def _is_rows(work: Work, inferred: bool) -> bool:
    return work.flops == 0 if inferred else isinstance(work.tiles, (RowTiles, ElementTiles))
