"""Rankings by expected time: of a textbook workload's configs at a shape on a device, or of a recording's.

Nothing runs. The ranking is the ranking model's, by datasheet figures alone, so that it is the same on every computer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from triton_ops import kernels
from triton_ops.cost_model import ElementTiles, Model, Readings, RowTiles
from triton_ops.device import Machine
from triton_ops.exceptions import (
    EmptySpaceError,
    RecordingError,
    SettingsError,
    ShapeMismatchError,
    SpaceError,
    TargetError,
    UnknownTunableError,
    UnsupportedDtypeError,
)
from triton_ops.lab.recording import Recording, read_recording, recorded_work, textbook_work
from triton_ops.lab.simulated_ranking import (
    LESSON,
    PRODUCT,
    ROWS,
    STAGES,
    WARPS,
    WORKLOADS,
    PlacedConfig,
    TextbookWorkload,
    advice,
    device_named,
    ill_formed,
    least_sides,
    outcome_of,
    ranking_of,
    standing_json,
)
from triton_ops.request import TypedProblem
from triton_ops.space import Config
from triton_ops.values import Work, dtype_name

FLOORS = {"products": 0.8, "rows": 0.6}
"""Spearman's correlation from which on the order is good enough to choose by, for products and for rows."""


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A recording beside what the model expects of its configs."""

    file: str
    title: str  # kernel, shape and dtype
    device: str  # name in the table
    machine: Machine = field(hash=False)
    work: Work = field(hash=False)
    inferred: bool  # the work was read from the kernel, and not declared
    kind: str  # `products` or `rows`
    configs: Sequence[Mapping[str, Any]] = field(hash=False)
    measured_ms: Sequence[float] = field(hash=False)  # of each config
    failed: int  # recorded configs that did not run

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
    def pairs(self) -> list[tuple[float, float]]:
        """Expected and measured milliseconds, configs without a forecast left out."""
        return [pair for pair in zip(self.expected_ms, self.measured_ms, strict=True) if not math.isnan(pair[0])]

    @cached_property
    def spearman(self) -> float:
        """Spearman's correlation of the pairs."""
        return Model.spearman(*map(list, zip(*self.pairs, strict=True)))

    @property
    def first_share(self) -> float:
        """The best measured time over that of the config that is expected to win."""
        return min(self.measured_ms) / min(self.pairs, key=lambda pair: pair[0])[1]

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
            "file": self.file, "title": self.title, "device": self.device,
            "source": "inferred" if self.inferred else "declared", "spearman": self.spearman, "asked": self.floor,
            "first_share": self.first_share, "failed": self.failed,
            "configs": [
                {"config": config, "expected_ms": ms if math.isfinite(ms) else None, "measured_ms": measured_ms}
                for config, ms, measured_ms in pairs
            ],
        }  # fmt: skip


def overlay_of(path: Path, *, undeclared: bool = False) -> Overlay:
    """A recording of `triton-ops record`, or the run log of a shipped kernel, with the model's expectations.

    `undeclared` takes the work that was read of the kernel even where some is declared.

    Raises:
        RecordingError: The file cannot be read, or does not tell what its kernel does.
        DeviceError: The model does not know the device.
    """
    recording = read_recording(path)
    device, machine = device_named(recording.device)
    work, inferred = _work(path, recording, machine, undeclared)
    is_rows = work.flops == 0 if inferred else isinstance(work.tiles, (RowTiles, ElementTiles))
    times = [(config, trial.median_ms) for config, trial in recording.trials.items() if trial.ok]
    overlay = Overlay(
        file=path.name, title=recording.title, device=device, machine=machine, work=work, inferred=inferred,
        kind="rows" if is_rows else "products", configs=[dict(config) for config, _ in times],
        measured_ms=[ms for _, ms in times], failed=len(recording.trials) - len(times),
    )  # fmt: skip
    if len(overlay.pairs) < 2:
        raise RecordingError(f"{path}: the model makes a forecast for fewer than two of its configs")
    return overlay


def _work(path: Path, recording: Recording, machine: Machine, undeclared: bool) -> tuple[Work, bool]:
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


_WARPS = (1, 2, 4, 8, 16, 32)
_STAGES = (1, 2, 3, 4, 5, 6)
_FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A config with another value of one knob."""

    value: int
    expected_ms: float  # 0 if the config cannot run
    why_not: str  # why it cannot run; empty if it can
    own: bool  # the config has this value


@dataclass(frozen=True)
class Dial:
    """One knob of a config, turned while the others stay."""

    name: str
    turns: Sequence[Turn]
    range: float  # the longest over the shortest expected time of the values that can run


@dataclass(frozen=True)
class SizePoint:
    """A problem of a series, and how the configs do there."""

    extents: Sequence[int]
    best_ms: float  # 0 if no config can run
    winner: int  # its place in the list of configs; -1 if none can run
    slower: Sequence[float]  # each config's expected time over the winner's; 0 for one that cannot run


def series(extents: Sequence[int], axis: int, count: int) -> list[list[int]]:
    """Problems that differ along one axis in round extents, two an octave, from a sixteenth of its extent on."""
    begin = 1 << max(extents[axis] // 16, 1).bit_length() - 1
    values = [begin * 2 ** (at // 2) * (2 + at % 2) // 2 for at in range(count)]
    rising = [value for at, value in enumerate(values) if at == 0 or value > values[at - 1]]
    return [[*extents[:axis], value, *extents[axis + 1 :]] for value in rising]


DEVICE = "NVIDIA H200"
DTYPE = "bfloat16"
MOST_CONFIGS = 20_000  # ranked within two or three seconds
LARGEST = 2**31 - 1  # of an extent: Triton's whole numbers of 32 bits
_COMMON = ("BM", "BN", "BK", "num_warps", "num_stages")
_OF_PRODUCTS = ("GROUP_M", "ALGORITHM", "PROGRAMS", "SPLIT", "SWAPPED", "LOADS", "DESCRIPTORS", "HALVES")
SHAPES = 13  # of a series: a table of them is no wider than a page
COMPARED = 8  # configs that are compared over shapes


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A ranking of configs, with what it is the ranking of."""

    workload: TextbookWorkload
    shape: tuple[int, ...]
    dtype: str  # long name
    device: str  # name in the table
    machine: Machine = field(hash=False)
    configs: Sequence[Mapping[str, Any]] = field(hash=False)
    factors: Sequence[float] = ()  # on the expected times, if the ranking is disturbed on purpose

    @cached_property
    def work(self) -> Work:
        """The operations and bytes of the workload."""
        return textbook_work(self.workload.family, self.shape, self.dtype)

    @cached_property
    def standings(self) -> list[PlacedConfig]:
        """The configs, the winner first."""
        return ranking_of(self.work, self.machine, self.configs, self.sides, self.factors)

    @property
    def sides(self) -> dict[str, int]:
        """The tunables that are sides of tiles, with the least length of each."""
        return least_sides(self.workload.family, self.dtype)

    @property
    def advice(self) -> str:
        """One sentence on what wins."""
        return advice(self.standings, self.workload.rule)

    @property
    def dials(self) -> list[Dial]:
        """The winner with each knob turned alone; empty if no config can run."""
        return self.dials_of(self.standings[0])

    def dials_of(self, one: PlacedConfig) -> list[Dial]:
        """A config of this ranking with each knob turned alone; empty if it cannot run."""
        return [self._dial(one.config, name) for name in (*self.sides, "num_warps", "num_stages")] if one.place else []

    def _dial(self, config: Mapping[str, Any], name: str) -> Dial:
        own = config.get(name, WARPS if name == "num_warps" else STAGES)
        values: Sequence[int] = _WARPS if name == "num_warps" else _STAGES
        if name in self.sides:
            values = [int(own * factor) for factor in _FACTORS if own * factor >= self.sides[name]]
        outcomes = [outcome_of(self.work, self.machine, {**config, name: value}, self.sides) for value in values]
        turns = [
            Turn(value=value, expected_ms=one.expected_ms, why_not=one.why_not, own=value == own)
            for value, one in zip(values, outcomes, strict=True)
        ]
        times = [turn.expected_ms for turn in turns if not turn.why_not]
        return Dial(name, turns, max(times) / min(times) if times else 1.0)

    @property
    def compared(self) -> Sequence[Mapping[str, Any]]:
        """The configs that are compared over shapes: all, or the first places of many."""
        return self.configs if len(self.configs) <= COMPARED else [one.config for one in self.standings[:COMPARED]]

    def over(self, extent: str) -> list[SizePoint]:
        """The `compared` configs at shapes that differ in one extent; `ShapeMismatchError` for an unknown one."""
        if extent not in self.workload.extents:
            raise ShapeMismatchError(
                f"{self.workload.name} has no extent {extent!r}; it has {', '.join(self.workload.extents)}",
                self.workload.extents,
                extent,
                hint="name one of them",
            )
        able = [None if ill_formed(config, self.sides) else config for config in self.compared]
        return [self._at(extents, able) for extents in series(self.shape, self.workload.extents.index(extent), SHAPES)]

    def _at(self, extents: Sequence[int], configs: Sequence[Mapping[str, Any] | None]) -> SizePoint:
        """The configs at another shape, where one that wins here may be slow; None stands for one that cannot run."""
        model = Model(textbook_work(self.workload.family, extents, self.dtype), self.machine)
        times = [0.0 if config is None else model.expected_ms(config) for config in configs]
        finite = [time for time in times if 0 < time < math.inf]
        best = min(finite, default=0.0)
        winner = times.index(best) if finite else -1
        return SizePoint(extents, best, winner, [time / best if time in finite else 0.0 for time in times])

    def as_json(self, over: str | None = None) -> dict[str, Any]:
        """Every config's place and reasons as plain values; with `over` also the configs along that extent."""
        plain: dict[str, Any] = {
            "workload": self.workload.name, "shape": list(self.shape), "dtype": self.dtype, "device": self.device,
            "source": "model", "advice": self.advice,
            "configs": [standing_json(one, self.machine) for one in self.standings],
            "knobs": [asdict(dial) for dial in self.dials],
        }  # fmt: skip
        if over is not None:
            plain["over"] = {"extent": over, "shapes": [asdict(point) for point in self.over(over)]}
        return plain


def simulate(
    workload: str, *, shape: Sequence[int] | None = None, dtype: str | None = None, gpu: str = DEVICE,
    configs: Sequence[Mapping[str, Any]] | None = None, jitter: float = 0.0, seed: int = 0,
) -> Simulation:  # fmt: skip
    """Rank configs of a workload by expected time; nothing runs, and no GPU is needed.

    Each None takes the workload's own extents, bfloat16, or the five configs of the lesson. `jitter` is the standard
    deviation of a random factor on each expected time, by which places are found; the same seed gives the same factors.

    Raises:
        TargetError: There is no such workload.
        ShapeMismatchError: The shape has another number of extents, or one that is out of range.
        UnsupportedDtypeError: The dtype is not known, or the device's matrix units have no rate for it.
        DeviceError: The model does not know the device.
        UnknownTunableError, SpaceError, ConfigValueError: The configs are none of the workload, none or too many.
        SettingsError: `jitter` is out of range.

    Cost: 0.1 ms per config.
    """
    kind = workload_named(workload)
    device, machine = device_named(gpu)
    long_dtype = _dtype(kind, machine, device, dtype)
    configs = LESSON if configs is None else configs
    _check_configs(kind, configs)
    if not 0 <= jitter <= 1:
        raise SettingsError(f"jitter is {jitter}", hint="give a share from 0 to 1")
    rng = random.Random(seed)
    return Simulation(
        workload=kind, shape=_extents(kind, shape), dtype=long_dtype, device=device, machine=machine, configs=configs,
        factors=[math.exp(rng.gauss(0, jitter)) for _ in configs] if jitter else (),
    )  # fmt: skip


def workload_named(name: str) -> TextbookWorkload:
    """The workload of a name; `TargetError` if there is none."""
    if name not in WORKLOADS:
        raise TargetError(
            f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}",
            hint="name one of them, or none for all; `triton-ops explain rank` ranks any kernel, which has no page",
        )
    return WORKLOADS[name]


def whole_space(space: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """All configs of a space, the last tunable changing fastest; `SpaceError` if they are too many."""
    axes = {
        name: list(dict.fromkeys(Config({name: value})[name] for value in values)) for name, values in space.items()
    }
    if (count := math.prod(map(len, axes.values()))) > MOST_CONFIGS:
        raise SpaceError(f"the space has {count:,} configs; the most is {MOST_CONFIGS:,}", hint="leave values out")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def parse_configs(text: str, workload: TextbookWorkload) -> list[dict[str, Any]]:
    """The configs of a text that has one on each line, such as `BM=128 BN=64 BK=32`; `SettingsError` without one."""
    configs = [
        _parse_config(f"Line {number}", line, workload)
        for number, line in enumerate(text.splitlines(), 1)
        if line.replace(",", " ").strip()
    ]
    if not configs:
        raise SettingsError("There is no config to rank")
    return configs


def _parse_config(place: str, line: str, workload: TextbookWorkload) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for part in line.replace(",", " ").split():
        name, *values = part.split("=")
        if name not in tunables_of(workload):
            raise SettingsError(f"{place}: {workload.name} has no tunable {name}")
        if len(values) != 1 or not values[0]:
            raise SettingsError(f"{place}: {part} is not NAME=VALUE")
        if name in config:
            raise SettingsError(f"{place}: {name} is given twice")
        config |= TypedProblem.config([part], place) or {}
    if missing := [name for name in least_sides(workload.family, DTYPE) if name not in config]:
        raise SettingsError(f"{place}: there is no {', '.join(missing)}")
    return config


def _extents(workload: TextbookWorkload, shape: Sequence[int] | None) -> tuple[int, ...]:
    extents = tuple(workload.shape if shape is None else shape)
    names = "x".join(workload.extents)
    if len(extents) != len(workload.extents):
        raise ShapeMismatchError(
            f"{workload.name} takes {len(workload.extents)} extents, {names}, not {len(extents)}",
            workload.extents,
            extents,
            hint=f"for example --shape {'x'.join(map(str, workload.shape))}",
        )
    if faults := [extent for extent in extents if not 1 <= extent <= LARGEST]:
        hint = f"give {names} as whole numbers"
        raise ShapeMismatchError(f"an extent of {faults[0]} is out of range", f"1 to {LARGEST}", extents, hint=hint)
    return extents


def _dtype(workload: TextbookWorkload, machine: Machine, device: str, dtype: str | None) -> str:
    name = dtype_name(dtype or DTYPE)
    if workload.family != ROWS and name not in machine.mma_flops_per_cycle:
        names = list(machine.mma_flops_per_cycle)
        raise UnsupportedDtypeError(
            f"the matrix units of {device} have no known rate for {name}; known are {', '.join(names)}",
            name,
            names,
            hint="use one of these, or another --gpu",
        )
    return name


def tunables_of(workload: TextbookWorkload) -> tuple[str, ...]:
    """The tunables that a config of a workload may have."""
    return (*_COMMON, *(_OF_PRODUCTS if workload.family == PRODUCT else ()))


def _check_configs(workload: TextbookWorkload, configs: Sequence[Mapping[str, Any]]) -> None:
    if not configs:
        raise EmptySpaceError("there are no configs to rank", hint="--config BM=128,BN=128,BK=32")
    if len(configs) > MOST_CONFIGS:
        raise SpaceError(f"{len(configs):,} configs are too many; the most is {MOST_CONFIGS:,}", hint="give fewer")
    for config in configs:
        Config(config)
    names = tunables_of(workload)
    unknown = dict.fromkeys(name for config in configs for name in config if name not in names)
    if unknown:
        raise UnknownTunableError(
            f"{workload.name} has no tunable {', '.join(unknown)}; it has {', '.join(names)}", hint="correct the name"
        )
    sides = least_sides(workload.family, DTYPE)
    if missing := dict.fromkeys(name for config in configs for name in sides if name not in config):
        raise SpaceError(f"a config has no {', '.join(missing)}: {workload.sides}", hint="give every config a value")
