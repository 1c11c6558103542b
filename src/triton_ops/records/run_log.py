"""The log of one run: a file of JSON lines that is only appended to, and kept when the run has ended.

The first line describes the run. Every finished trial is on disk before the next one starts, so that a
killed run loses at most the trial that was under way; a torn last line is ignored. The last line says how the run
ended. A run without that line is continued in the same file. Resume, transfer, replay and reports all read this file
with `Run.read`.

A report is made from a run log alone, and a replay takes the config space and the problem from its first line.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from triton_ops.backend import Source
from triton_ops.base import (
    AppendedFile,
    Count,
    DamagedError,
    Extent,
    Host,
    Nested,
    NotNegative,
    Sealed,
    StoredFile,
    cached_property,
)
from triton_ops.device import Ceiling, DeviceSpec, Roofline
from triton_ops.exceptions import RunLogError
from triton_ops.records.record import Record, time_now
from triton_ops.records.store import converted, readable
from triton_ops.request import Effort, TuneRequest
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Compiled, Key, Trial

Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e30)]  # of operations or bytes of a launch

_UNSYNCED_S = 0.5  # of a run that a loss of power may cost: to wait for the disk takes as long as a short trial
SCHEMA_VERSION = 2  # 1: one file for all runs of a problem; 2: one file for each run


class ConstraintFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint in words. Its predicate cannot be stored; `source` is a fingerprint of the predicate's source."""

    name: str
    reason: str
    names: tuple[str, ...]
    source: str = ""


class SpaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The config space that was searched."""

    fingerprint: str  # as in records
    tunables: dict[str, list[Any]]  # with their values, in order
    constraints: tuple[ConstraintFacts, ...] = ()
    default: Config | None = None  # as declared; None if the first valid config was the default
    listed: tuple[Config, ...] | None = None  # None if the space is the product of its tunables


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of packages, the host and the device of a run."""

    versions: dict[str, str]
    host: dict[str, Nested]
    device: dict[str, Nested]


class RoofFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The declared work of the problem, beside what the device can do, as `Roofline`."""

    flops: Amount
    bytes: Amount
    memory: Ceiling | None = None
    units: Ceiling | None = None

    def roofline(self) -> Roofline:
        """The roofline."""
        parts = () if self.units is None else ((self.units, self.flops),)
        return Roofline(flops=self.flops, bytes=self.bytes, memory=self.memory, units=self.units, parts=parts)


class Head(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="run"):
    """The first line of a run log."""

    schema_version: int = SCHEMA_VERSION  # of the whole file
    id: str  # the file's name without its ending
    key_id: str
    key: Key
    shape: tuple[Extent, ...] | None = None  # of an operation's problem; None where arguments were given
    dtype: str | None = None  # of an operation's problem, as asked for
    started: str  # UTC, ISO 8601 with microseconds; the times in further lines count from then
    environment: Environment
    space: SpaceFacts
    effort: dict[str, Nested]
    searcher: str
    seed: int
    roof: RoofFacts | None = None  # the problem's work beside the device's limits; None if no work was declared

    @classmethod
    def of(
        cls, run_id: str, key: Key, request: TuneRequest, effort: Effort, *, seed: int, versions: Mapping[str, str],
        started: datetime, spec: DeviceSpec | None = None,
    ) -> Head:  # fmt: skip
        """The first line of the run log of a run that starts now; `spec` is the device with its calibration."""
        generated = request.generated
        return cls(
            id=run_id,
            key_id=key.id,
            key=key,
            shape=None if generated is None else generated.full_shape,
            dtype=None if generated is None else generated.dtype,
            started=started.astimezone(timezone.utc).isoformat(timespec="microseconds"),
            environment=Environment(
                versions=dict(versions),
                host={"system": platform.platform(), "machine": platform.machine(), "cpus": Host.usable_cpus()},
                device={name: value for name, value in asdict(request.device).items() if value not in (None, {})},
            ),
            space=_space(request.space),
            effort=msgspec.to_builtins(effort, enc_hook=str),
            searcher=effort.search_name,
            seed=seed,
            roof=_roof(request, spec or request.device),
        )  # fmt: skip


def _roof(request: TuneRequest, spec: DeviceSpec) -> RoofFacts | None:
    if (work := request.work) is None or not (work.flops or work.bytes):
        return None
    dtype = work.dtype or next((spec.dtype for spec in request.problem.specs.values()), "float32")
    limits = Roofline.of(spec, flops=work.flops, bytes_=work.bytes, dtype=dtype, products=bool(work.flops))
    return RoofFacts(flops=limits.flops, bytes=limits.bytes, memory=limits.memory, units=limits.units)


def _space(space: ConfigSpace) -> SpaceFacts:
    def source(predicate: Any) -> str:  # rules that were read hold the kernel, whose source is in the key
        return "" if isinstance(space, UnlistedSpace) else Source.of(predicate).fingerprint

    return SpaceFacts(
        fingerprint=space.fingerprint,
        tunables={name: list(tunable.values) for name, tunable in space.tunables.items()},
        constraints=tuple(
            ConstraintFacts(name=it.name, reason=it.reason, names=it.names, source=source(it.predicate))
            for it in space.constraints
        ),
        default=space.default,
        listed=space.listed,
    )


class TrialOrigin(str, Enum):
    """The reason why a config was tried."""

    DEFAULT = "default"
    INCUMBENT = "incumbent"  # what calls run now: the stored winner of an earlier run, or a pick of a model
    NEARBY = "nearby"  # the winner of the same kernel for a problem nearby
    SEARCHER = "searcher"
    DEFERRED = "deferred"  # proposed by the searcher, and postponed until nothing else was left
    TAKEN_OVER = "taken over"  # tried by an earlier run that searched another space
    REPEATED = "repeated"  # measured again, since an earlier measurement was of another mode, or on a GPU that is off

    def __str__(self) -> str:
        return self.value


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="resume"):
    """An interrupted run was continued: `at` by UTC, with this effort, searcher and seed."""

    at_s: NotNegative
    at: str
    effort: str
    searcher: str
    seed: int


class Preview(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="preview"):
    """A config was compiled only so that the searcher sees what the compiler makes of the config."""

    at_s: NotNegative
    compiled: Compiled


class FinishedTrial(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="trial"):
    """A trial has finished, after `at_s` seconds of the run."""

    at_s: NotNegative
    origin: TrialOrigin
    trial: Trial


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="begun"):
    """A config is about to run in the process that tunes; without a config, the one before has not ended it."""

    at_s: float
    config: Config | None


class Finalist(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="final"):
    """The trial of a finalist after the last comparison, with its samples in rounds.

    Its status can be `wrong`, since the last comparison checks results again.
    """

    at_s: NotNegative
    trial: Trial
    dropped_at: Count | None = None  # rounds after which the race dropped it; None for one that stayed to the end
    process: Count = 0  # 0 is the run's own comparison; else which fresh process compared the ties again


class Twins(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="twins"):
    """The values per round of two further arms of one finalist: the difference between these two arms is noise."""

    at_s: NotNegative
    config: Config
    medians_ms: tuple[tuple[NotNegative, ...], ...]
    process: Count = 0  # as of the finalist


class RunEnd(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="end"):
    """The run has ended at `at` by UTC. `stopped` says why; `record` is what it left, None if no config ran."""

    at_s: NotNegative
    at: str
    stopped: str
    record: Record | None = None


Event: TypeAlias = Resumed | Preview | Begun | FinishedTrial | Finalist | Twins | RunEnd


@dataclass(frozen=True)
class Run:
    """The content of a run log; `events` are all further lines that could be read, in order."""

    path: Path
    head: Head
    events: tuple[Event, ...]

    @classmethod
    def read(cls, path: Path) -> Run:
        """The run in a file. A further line that cannot be read is ignored with a warning.

        RunLogError: the file cannot be read, or its first line is not that of a run log of this version.
        """
        return cls.of(path, _lines(path))

    @classmethod
    def of(cls, path: Path, lines: Iterable[bytes]) -> Run:
        """The run in the lines of a file; RunLogError as of `read`."""
        lines = iter(lines)
        head = _head(path, next(lines, b""))
        return cls(path, head, tuple(readable(path, lines, Event, first=2, loss="its trials are run again")))

    @cached_property
    def finished(self) -> tuple[FinishedTrial, ...]:
        """The lines of trials, in order; a config may have several."""
        return tuple(event for event in self.events if isinstance(event, FinishedTrial))

    @cached_property
    def end(self) -> RunEnd | None:
        """The last line; None if the run did not end, so that it can be continued."""
        return next((event for event in reversed(self.events) if isinstance(event, RunEnd)), None)

    @cached_property
    def at_s(self) -> float:
        """Seconds of tuning until the last line; the time between an interruption and its resumption does not count."""
        return max((event.at_s for event in self.events), default=0.0)

    @cached_property
    def under_way(self) -> Config | None:
        """The config that ran in the tuning process when that ended without a word; None if none did."""
        last = next((event for event in reversed(self.events) if not isinstance(event, Preview)), None)
        return last.config if isinstance(last, Begun) else None

    @cached_property
    def trials(self) -> dict[Config, Trial]:
        """The trial of each config; if a config has several lines, the last one of the run's own comparison counts."""
        lines = [e for e in self.events if isinstance(e, FinishedTrial) or (isinstance(e, Finalist) and e.process == 0)]
        return {event.trial.config: event.trial for event in lines}

    @cached_property
    def finalists(self) -> list[Config]:
        """The configs that tied with the winner, then the other finalists, fastest first; the winner is among them."""
        finals = sorted((one for one in self.trials.values() if one.ok and one.final), key=lambda one: one.median_ms)
        ties = () if self.end is None or self.end.record is None else self.end.record.ties
        return list(dict.fromkeys([*ties, *(trial.config for trial in finals)]))


class RunLog:
    """Writes the log of one run, safe among threads. There is one writer, since the caller holds the key's lock.

    The file is made with its first line; None keeps no log. The run started or was resumed at `start`, by a monotonic
    clock in seconds; None means now. The file already holds `before_s` seconds of tuning. The root is the cache folder
    that holds it; None where the file's folder was chosen by somebody.
    """

    def __init__(
        self, path: Path | None = None, start: float | None = None, before_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic, root: Path | None = None,
    ) -> None:  # fmt: skip
        self._file = AppendedFile(path, "this run cannot be resumed", root)
        self._clock = clock
        self._zero = (clock() if start is None else start) - before_s
        self._synced_s = 0.0
        self._last_begun: Config | None = None  # the config of the last line, if that is such a line
        self._writing = threading.Lock()

    @property
    def id(self) -> str:
        """The run's id; empty if no log is kept."""
        return "" if self._file.path is None else self._file.path.stem

    @property
    def path(self) -> Path | None:
        """The file; None if no log is kept, or a line of it could not be written."""
        return self._file.written

    @property
    def at_s(self) -> float:
        """Seconds of tuning since the run's start."""
        return round(self._clock() - self._zero, 6)

    def resume(self, *, effort: str, searcher: str, seed: int) -> None:
        """Write that an interrupted run is continued."""
        self.write(Resumed(at_s=self.at_s, at=time_now(), effort=effort, searcher=searcher, seed=seed), durable=True)

    def preview(self, preview: Compiled) -> None:
        """Write what the compiler made of a preview; the line may reach the disk after this returns."""
        self.write(Preview(at_s=self.at_s, compiled=preview))

    def begun(self, config: Config | None) -> None:
        """Write that a config is about to run in this process; None takes it back. The end of the process keeps it.

        Nothing is written if the last line says so already.
        """
        if config != self._last_begun:
            self.write(Begun(at_s=self.at_s, config=config))
            # `write` has reset it.
            self._last_begun = config

    def trial(self, trial: Trial, origin: TrialOrigin, durable: bool = True) -> None:
        """Write a finished trial; with `durable` it outlives this process, and a loss of power half a second later."""
        at_s = self.at_s
        durable = durable and at_s - self._synced_s >= _UNSYNCED_S
        self._synced_s = at_s if durable else self._synced_s
        self.write(FinishedTrial(at_s=at_s, origin=origin, trial=trial), durable)

    def write(self, line: Head | Event, durable: bool = False) -> None:
        """Write a line, such as a finalist; unless `durable` it is on disk with a later trial, or the run's end."""
        with self._writing:
            self._last_begun = None
            self._file.append(msgspec.to_builtins(line, enc_hook=Config.encode), durable)

    def twins(self, config: Config, medians_ms: tuple[tuple[float, ...], ...], process: int) -> None:
        """Write the values of the two further arms of a finalist, as `write` does."""
        self.write(Twins(at_s=self.at_s, config=config, medians_ms=medians_ms, process=process))

    def ended(self, stopped: str, record: Record | None = None) -> None:
        """Write how the run ended, and its record if it left one."""
        self.write(RunEnd(at_s=self.at_s, at=time_now(), stopped=stopped, record=record), durable=True)


def read_head(path: Path) -> Head:
    """The first line of a run log; further lines are not read. RunLogError as of `Run.read`."""
    return _head(path, next(_lines(path), b""))


def has_begun(path: Path) -> bool:
    """True if a file holds a whole line, which a process killed early may not have left, or raise RunLogError."""
    return bool(next(_lines(path), b""))


def has_ended(path: Path) -> bool:
    """True if the last line of a file says that its run has ended; RunLogError if it cannot be read."""
    with _reading(path):
        line = StoredFile(path).last_line()
    try:
        return Sealed.parsed(line).get("type") == "end"
    except DamagedError:
        return False


def _lines(path: Path) -> Iterator[bytes]:
    with _reading(path):
        yield from StoredFile(path).lines()


def _reading(path: Path) -> AbstractContextManager[None]:
    return RunLogError.when(f"{path} cannot be read", hint="make it readable, or move it away")


def _head(path: Path, line: bytes) -> Head:
    """The head in the first line of a file; RunLogError if the line is none, is damaged, or is of another version."""
    try:
        entry = Sealed.parsed(line)
    except DamagedError:
        entry = {}
    if entry.get("type") != "run":
        raise RunLogError(f"{path} is no run log: its first line is not that of a run", hint="name another file")
    if entry.get("schema_version") != SCHEMA_VERSION:
        message = f"{path} has schema version {entry.get('schema_version')}; this version reads {SCHEMA_VERSION}"
        raise RunLogError(message, hint="read it with the version that wrote it, or tune again")
    with RunLogError.when(f"{path} cannot be read as a run log: its first line", "tune again", DamagedError):
        head: Head = converted(line, Head)
    return head
