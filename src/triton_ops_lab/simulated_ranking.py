"""Configs in the order of their expected times, each with its place; those of a recording beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_ops.backend import FunctionKernel, Operation
from triton_ops.base import cached_property
from triton_ops.cost_model import ElementTiles, Model, Readings, RowTiles
from triton_ops.device import DeviceSpec, Machine, device_spec
from triton_ops.exceptions import RecordingError, SpaceError, TargetError
from triton_ops.space import Config
from triton_ops.values import Work
from triton_ops_lab.command_expectation import explained_rows
from triton_ops_lab.expectation import Portrait, portrait
from triton_ops_lab.ranking import Expectation, Expecter, ModelQuestion
from triton_ops_lab.recording import Recording, read_recording


def known_devices() -> dict[str, DeviceSpec]:
    """The devices of a page, by their names in the table: recorded ones, and the first of each other architecture."""
    devices: dict[str, DeviceSpec] = {}
    for name, spec in _table().items():
        machine, arches = Machine.of(spec), {each.arch for each in devices.values()}
        if machine is not None and not (machine.unseen and spec.arch in arches):
            devices[name] = spec
    return devices


def _table() -> dict[str, DeviceSpec]:
    specs = {name: DeviceSpec.called(name) for name in DeviceSpec.names()}
    return {name: spec for name, spec in specs.items() if spec is not None}


def table_name(spec: DeviceSpec) -> str:
    """The name of a device in the table; its own if that has no such row."""
    return next((name for name, entry in _table().items() if entry == spec), spec.name)


@dataclass(frozen=True, kw_only=True)
class PlacedConfig:
    """One config in a ranking on a device, with what is expected of it: the same as of others of its program."""

    config: Config
    expectation: Expectation
    spec: DeviceSpec
    place: int = 0  # 1 for the config that is expected to win; 0 for one that cannot run
    score: float = 0.0  # 100 for the winner, and the share of its speed for others; 0 without a place

    @cached_property
    def image(self) -> Portrait:
        """The config on the device in figures."""
        return portrait(self.expectation, self.spec)

    @property
    def reasons(self) -> dict[str, str]:
        """The explanation of its rank: names and sentences."""
        if self.why_not:
            return {"cannot run": self.why_not}
        rows = explained_rows(self.spec, self.expectation, self.image)
        return {name: text for name, text in rows.items() if name not in ("pipeline", "read: work")}  # drawn, not read

    @property
    def why_not(self) -> str:
        """The reason why it cannot run, or why nothing is known of it; empty if it can."""
        if (forecast := self.expectation.forecast) is None or self.expectation.refused:
            return self.expectation.limited_by or "the model makes no forecast for it"
        if math.isfinite(forecast.expected_ms):
            return ""
        limit = self.image.shared_limit or 0
        return f"needs {forecast.shared_bytes:,} bytes of shared memory per block; the limit is {limit:,}"

    @property
    def expected_ms(self) -> float:
        """The expected time; 0 for a config that cannot run."""
        return 0.0 if self.why_not else self.expectation.finite_ms or 0.0

    @property
    def limited_by(self) -> str:
        """The resource that would take longest alone; what forbids the config if it cannot run."""
        return self.why_not or self.expectation.limited_by

    @property
    def of_shared(self) -> float:
        """Shared memory of a block over what the device gives it at most; 0 where that is not known."""
        forecast = self.expectation.forecast
        limit = None if forecast is None else self.image.shared_limit
        return 0.0 if forecast is None or not limit else forecast.shared_bytes / limit

    @property
    def occupancy(self) -> float:
        """Share of the warps that a multiprocessor can hold which the blocks on it fill; 0 for one that cannot run."""
        residents = None if self.why_not else self.image.residents
        return 0.0 if residents is None else residents.occupancy

    @property
    def cells(self) -> list[str]:
        """A line of a ranking: place, expected time, score, waves, occupancy, shared memory, limit, config."""
        forecast, shared = self.expectation.forecast, f"{100 * self.of_shared:.0f} %" if self.of_shared else "-"
        if forecast is None or self.why_not:
            return [*["-"] * 5, shared, self.why_not, str(self.config)]
        return [
            f"{self.place} *" if self.place == 1 else f"{self.place}  ", f"{forecast.expected_ms:.4g} ms",
            f"{self.score:.1f}", f"{forecast.waves:.2f}", f"{100 * self.occupancy:.0f} %", shared,
            self.limited_by, str(self.config),
        ]  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """The config in its ranking as plain values."""
        forecast = self.expectation.forecast
        figures = forecast and {**vars(forecast), "terms": {term.name: term.alone_ms for term in forecast.terms}}
        idle = 0.0 if forecast is None else 1 - forecast.waves / max(math.ceil(forecast.waves), 1)
        return {
            **(figures or {}), "place": self.place or None, "config": dict(self.config),
            "expected_ms": self.expectation.finite_ms, "score": self.score, "why_not": self.why_not or None,
            "limited_by": self.limited_by, "occupancy": self.occupancy,
            "idle": idle, "of_shared": self.of_shared, "reasons": self.reasons,
        }  # fmt: skip


def ranking_of(outcomes: Sequence[PlacedConfig], factors: Sequence[float] = ()) -> list[PlacedConfig]:
    """The configs by expected time, the shortest first, equal ones as they were given; those that cannot run are last.

    `factors` on the times disturb a ranking on purpose; empty is none.
    """
    times = [one.expected_ms * factor for one, factor in zip(outcomes, factors or [1.0] * len(outcomes), strict=True)]
    able = sorted([at for at, one in enumerate(outcomes) if not one.why_not], key=lambda at: times[at])
    standings = [
        replace(outcomes[at], place=place, score=100.0 * times[able[0]] / times[at]) for place, at in enumerate(able, 1)
    ]
    return [*standings, *(one for one in outcomes if one.why_not)]


_HELP = {
    "matrix units": "the matrix units are busy, as they should be",
    "shared memory": "larger tiles would read each operand from shared memory less often",
    "load unit": "wider steps would touch fewer lines at a time",
    "L2": "larger tiles would bring less through L2",
    "DRAM": "memory is busy, as it should be for such work",
    "load latency": "another stage would hide more of the wait for loads",
    "arithmetic": "the arithmetic between the products sets the pace",
    "spills": "a smaller tile or more warps would end the spilling",
    "chain": "products wait for each other, so that another block on the multiprocessor would fill the gaps",
    "loop": "a longer step means fewer iterations of the loop",
    "turnover": "more work per block would make starts and ends of blocks rarer",
    "launch": "the launch itself takes longest, so that no config can gain much",
    "issue": "the instructions themselves set the pace",
    "waits": "fewer rows per program, or longer chunks, would wait less often",
    "one block's loads": "more blocks at a time would share the wait for loads",
    "dependent arithmetic": "more warps would hide the latency of arithmetic",
    "reductions": "fewer warps per row would have shorter reductions",
    "spill waits": "a smaller chunk or more warps would end the spilling",
    "block launch": "fewer and larger blocks would be begun sooner",
    "exchange": "fewer warps would have less to exchange at a reduction",
    "stragglers": "more and smaller blocks would even out the end",
    "second launch": "parts that are added up by a second launch cost more than they gain",
}


def advice(standings: Sequence[PlacedConfig], rule: str) -> str:
    """One sentence: what wins such work by a rule, if any, which config is expected to win here, and what limits it."""
    able = [one for one in standings if one.place > 0]
    if not able:
        which = "The config cannot" if len(standings) == 1 else f"None of the {len(standings)} configs can"
        return f"{which} run here: {standings[0].why_not}." if standings else ""
    first = able[0]
    lead = f"{rule[:1].upper()}{rule[1:]}; here " if rule else "Here "
    remedy = _HELP.get(first.limited_by, "")
    return f"{lead}{first.config} is expected to win, limited by {first.limited_by}{f': {remedy}' if remedy else ''}."


def _not_launched(**_config: Any) -> None:
    raise TargetError("the work of this kernel is known, and not the kernel", hint="name a TARGET to launch one")


NO_KERNEL = FunctionKernel(_not_launched)
"""Stands for the kernel where the work alone is known."""

FLOORS = {"products": 0.8, "rows": 0.6}
"""Spearman's correlation from which on the order is good enough to choose by, for products and for rows."""


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A recording beside what the model expects of its configs."""

    file: str
    title: str  # kernel, shape and dtype
    spec: DeviceSpec = field(hash=False)
    inferred: bool  # the work was read from the kernel, and not declared
    kind: str  # `products` or `rows`
    expectations: Sequence[Expectation] = field(hash=False)  # of each config
    measured: Mapping[Config, float] = field(hash=False)  # milliseconds of each config
    failed: int  # recorded configs that did not run

    @classmethod
    def of(cls, path: Path, *, undeclared: bool = False) -> Overlay:
        """A recording of `triton-ops record`, or the run log of a shipped kernel, with the model's expectations.

        `undeclared` takes the work that was read of the kernel even where some is declared.

        Raises:
            RecordingError: The file cannot be read, or does not tell what its kernel does.
            DeviceError: The model does not know the device.
        """
        recording = read_recording(path)
        spec = device_spec(recording.device)
        Machine.known(spec)
        work = _work(path, recording, undeclared)
        readings = work if isinstance(work, Readings) else None
        question = ModelQuestion(
            name=recording.title, space=recording.space,
            work=None if isinstance(work, Readings) else work,
        )  # fmt: skip
        expecter = Expecter(question, spec, readings)
        assert expecter.model is not None
        own = expecter.model.work
        is_rows = own.flops == 0 if readings is not None else isinstance(own.tiles, (RowTiles, ElementTiles))
        times = {config: trial.median_ms for config, trial in recording.trials.items() if trial.ok}
        overlay = cls(
            file=path.name, title=recording.title, spec=spec, inferred=readings is not None,
            kind="rows" if is_rows else "products", expectations=[expecter.of(config) for config in times],
            measured=times, failed=len(recording.trials) - len(times),
        )  # fmt: skip
        if len(overlay.pairs) < 2:
            message = f"{path}: the model has a forecast for {len(overlay.pairs)} of its configs, and needs two or more"
            raise RecordingError(message, hint="record a kernel that declares its work, or that can be read")
        return overlay

    @cached_property
    def standings(self) -> list[PlacedConfig]:
        """The configs in the order in which they are expected to be fast."""
        return ranking_of([PlacedConfig(config=it.config, expectation=it, spec=self.spec) for it in self.expectations])

    @cached_property
    def pairs(self) -> list[tuple[float, float]]:
        """Expected and measured milliseconds, configs without a forecast left out."""
        expected = [(one.expected_ms, self.measured[one.config]) for one in self.expectations]
        return [(ms, measured_ms) for ms, measured_ms in expected if ms is not None]

    @cached_property
    def spearman(self) -> float:
        """Spearman's correlation of the pairs."""
        return Model.spearman(*map(list, zip(*self.pairs, strict=True)))

    @property
    def first_share(self) -> float:
        """The best measured time over that of the config that is expected to win."""
        return min(self.measured.values()) / min(self.pairs, key=lambda pair: pair[0])[1]

    @property
    def verdict(self) -> str:
        """`reached` or `missed`: the correlation beside what is asked."""
        return "reached" if self.spearman >= FLOORS[self.kind] else "missed"

    @property
    def agreement(self) -> str:
        """The agreement of the expected with the measured order, in sentences."""
        source = "read from the kernel" if self.inferred else "declared"
        return (
            f"Spearman's correlation of expected and measured times is {self.spearman:.3f} over {len(self.measured)} "
            f"configs; {FLOORS[self.kind]} is asked of {self.kind}, and is {self.verdict}. The config that is expected "
            f"to win has {100 * self.first_share:.1f} % of the best measured speed. The work was {source}."
        )

    def as_json(self) -> dict[str, Any]:
        """The correlation, and both times of each config, as plain values."""
        return {
            "file": self.file, "title": self.title, "device": table_name(self.spec),
            "source": "inferred" if self.inferred else "declared", "spearman": self.spearman,
            "asked": FLOORS[self.kind], "first_share": self.first_share, "failed": self.failed,
            "configs": [
                {"config": dict(one.config), "expected_ms": one.finite_ms, "measured_ms": self.measured[one.config]}
                for one in self.expectations
            ],
        }  # fmt: skip


def _work(path: Path, recording: Recording, undeclared: bool) -> Work | Readings:
    with RecordingError.when(f"{path} is no recording", "", SpaceError):
        work = recording.work(undeclared=undeclared) or (None if undeclared else _shipped_work(recording))
    if isinstance(work, Readings) or (work is not None and work.tiles is not None):
        return work
    message = f"{path} does not tell what its kernel does, so nothing can be expected of its configs"
    hint = "give a file of `triton-ops record`, of a kernel whose work is known, or a run log of a shipped kernel"
    raise RecordingError(message, hint=hint)


def _shipped_work(recording: Recording) -> Work | None:
    """The work of a shipped kernel: a run log tells its name and its problem, and no work."""
    if recording.head or recording.kernel not in Operation.shipped_names():
        return None
    operation = Operation.shipped(recording.kernel)
    problem = operation.problem(recording.problem or None, recording.dtype or None)
    return None if operation.work is None else operation.work(problem)
