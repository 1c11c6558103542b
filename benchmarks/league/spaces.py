"""The league's spaces: recordings of this repository and of Kernel Tuner's benchmark hub, as a tuner may see them.

A file is a recording of `triton-ops record`, a cache file of Kernel Tuner, or a file of results in the format T4, each
plain or gzipped. Its group is where it lies, except that spaces of up to 64 configs are a group of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.base import NamedFile, cached_property
from triton_ops.search import Search
from triton_ops.ship import format_named
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Status, Trial
from triton_ops_lab.recording import MODE, Recording, read_recording

FOLDER = Path(__file__).parents[1] / "recordings"
KERNELS, SMALL, SHARED, HUB, CALLABLES = "kernels", "small", "H200", "hub", "callables"
GROUPS = {
    KERNELS: "Triton kernels with more than 64 configs",
    SMALL: "spaces of at most 64 configs",
    SHARED: "products, norms and a softmax on one H200",
    HUB: "CUDA kernels of Kernel Tuner's benchmark hub",
    CALLABLES: "functions of one CPU",
}
COMPILE_S = 0.3  # where the recording has no time, about that of a small Triton kernel


@dataclass(frozen=True)
class Space:
    """One space. A tuner reads everything but `recording.trials`, `times` and `best_ms`.

    Attributes:
        name: The folder below the recordings, and the file's name up to its first dot.
        group: A key of `GROUPS`.
        recording: What the file holds.
    """

    name: str
    group: str
    recording: Recording

    @cached_property
    def configs(self) -> tuple[Config, ...]:
        """All valid configs, by their text; a trace names a config by its place here."""
        return tuple(sorted(self.recording.trials, key=lambda config: config.text))

    @cached_property
    def places(self) -> Mapping[Config, int]:
        """Config to place; what is not in it breaks a constraint."""
        return {config: at for at, config in enumerate(self.configs)}

    @cached_property
    def tunables(self) -> Mapping[str, tuple[Any, ...]]:
        """Name to values of each tunable with several values; numbers are in ascending order."""
        all_values = {name: tunable.values for name, tunable in self.recording.space.tunables.items()}
        several = {name: values for name, values in all_values.items() if len(values) > 1}
        return {name: tuple(sorted(values)) if self.is_ordered(name) else values for name, values in several.items()}

    def is_ordered(self, name: str) -> bool:
        """Whether the values of a tunable are numbers, in whatever order the file lists them."""
        return self.recording.space.tunables[name].of_numbers

    def config(self, values: Mapping[str, Any]) -> Config:
        """The config with these values of `tunables`, and the only values of all others; it may break a constraint."""
        tunables = self.recording.space.tunables
        return Config({name: values.get(name, tunable.values[0]) for name, tunable in tunables.items()})

    def positions(self, config: Config) -> dict[str, int]:
        """The place of each value of `config` among those of its tunable."""
        return {name: values.index(config[name]) for name, values in self.tunables.items()}

    def at(self, positions: Mapping[str, int]) -> Config:
        """The config with the values at these places; it may break a constraint."""
        return self.config({name: values[positions[name]] for name, values in self.tunables.items()})

    @cached_property
    def default(self) -> Config:
        """The config of each tunable's first value in the file; if that is no config that ran, the first that ran."""
        first = self.config({})
        ran = [config for config, trial in self.recording.trials.items() if trial.ok]
        return first if first in ran else ran[0]

    @cached_property
    def times(self) -> tuple[float | None, ...]:
        """Milliseconds of each config; None for one that failed."""
        trials = (self.recording.trials[config] for config in self.configs)
        return tuple(trial.median_ms if trial.ok else None for trial in trials)

    @cached_property
    def best_ms(self) -> float:
        """Milliseconds of the fastest config."""
        return self.recording.best_ms

    def compile_s(self, config: Config) -> float:
        """Seconds to compile a config: as recorded, 0 for a callable, and else 0.3."""
        recorded = self.recording.trials[config].compile_s
        return recorded or (0.0 if self.group == CALLABLES else COMPILE_S)

    @cached_property
    def digest(self) -> str:
        """A short sum of configs and times, by which a trace knows its space again."""
        rows = zip(self.configs, self.times, strict=True)
        return f"{zlib.crc32(repr([(config.text, ms) for config, ms in rows]).encode()):08x}"


def read_space(path: Path, group: str, name: str) -> Space:
    """The space in a file; `RecordingError` or `CacheError` if it is none."""
    head = NamedFile(path).read(unpack=True)
    recording = _of_t4(path) if b'"results"' in head and b'"tune_params"' not in head else read_recording(path)
    small = group == KERNELS and len(recording.trials) <= Search.SMALL
    return Space(name, SMALL if small else group, recording)


def _of_t4(path: Path) -> Recording:
    """A recording of results in the format T4; tunables and values are those of the results."""
    trials = []
    for row in format_named("t4").read(path).rows:
        if row.median_ms is None:
            trials.append(Trial(row.config, Status.RUNTIME, error=str(row.failure)))
        else:
            trials.append(Trial.of_time(row.config, row.median_ms, MODE))
    axes = {name: list(dict.fromkeys(trial.config[name] for trial in trials)) for name in trials[0].config}
    space = ConfigSpace(axes, listed=tuple(trial.config for trial in trials))
    return Recording(
        file=path.name, kernel="", problem=(), dtype="", device="", space=space,
        trials={trial.config: trial for trial in trials},
    )  # fmt: skip


def files(hub: Path | None = None, folder: Path = FOLDER) -> Iterator[tuple[Path, str, str]]:
    """Path, group and name of every space, those of a folder of the hub last."""
    groups = {"h200": SHARED, "callables": CALLABLES}
    for path in sorted(folder.rglob("*.json.gz")):
        inside = path.relative_to(folder).parent.as_posix()
        name = path.name.partition(".")[0]
        yield path, groups.get(inside, KERNELS), name if inside == "." else f"{inside}/{name}"
    for path in sorted(hub.glob("*.json*")) if hub else ():
        yield path, HUB, f"hub/{path.name.partition('.')[0]}"
