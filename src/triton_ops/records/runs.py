"""The traces of earlier tunes of one key in a cache folder: its run logs, the configs that crashed or hung.

Each run has its own file, so that no run overwrites what an older one has learned. A run's id begins with the time of
its start by UTC and ends in random digits: ids sort by time, and machines that share a folder never choose the same.

Three kinds of runs are kept for each key: the newest eight that ended, the one that the key's record names, and those
without an end that are less than 30 days old. The others are removed when a further run of that key has ended. A file
that is not recognised as a run log of this version and this key is never removed.

Configs that crashed or hung stand in one file for each problem and environment. The kernel's source, the compiler, the
device and the driver determine its name, so that configs are tried again after a new driver or a mended kernel. Whoever
wants them tried again sooner deletes the file.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import ClassVar

import msgspec

from triton_ops.base import AppendedFile, Folder, Host, StoredFile, fingerprint, warn
from triton_ops.exceptions import RunLogError
from triton_ops.records.record import time_now
from triton_ops.records.run_log import Head, Run, RunLog, has_begun, has_ended, read_head
from triton_ops.records.store import readable
from triton_ops.request import Effort, TuneRequest
from triton_ops.space import Config
from triton_ops.values import Key, Status, Trial


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: a config that crashed or hung, why, and when by UTC."""

    config: Config
    status: Status
    error: str
    at: str

    def __post_init__(self) -> None:
        if not (self.status.facts.dangerous or self.status is Status.WRONG):
            raise ValueError(f"a config that ended as {self.status} is not put in quarantine")

    @property
    def trial(self) -> Trial:
        return Trial(self.config, self.status, error=f"quarantined since {self.at}: {self.error}")


class Quarantine:
    """The configs of one problem in one environment that crashed or hung; it stays empty without a path.

    One of a key that asks for a class of bits also has those that gave others than their class says.

    The root is the cache folder that holds the file; None where the file's folder was chosen by somebody.
    """

    FOLDER: ClassVar[str] = "quarantine"

    def __init__(self, path: Path | None, root: Path | None = None) -> None:
        self._path = path
        self._root = root
        loss = "configs that crash or hang will be run again by the next tune"
        self._file = AppendedFile(path, loss, root, gaps=True)
        self._trials = {trial.config: trial for trial in self._read()}

    @classmethod
    def of(cls, folder: Path | None, key: Key) -> Quarantine:
        """The quarantine for a key in a cache folder; without a folder nothing is remembered."""
        if folder is None:
            return cls(None)
        parts = [key.kernel, dict(key.problem), dict(key.identity), dict(key.device), *filter(None, [key.bits])]
        return cls(folder / cls.FOLDER / f"{fingerprint(parts)}.jsonl", folder)

    def held(self, config: Config) -> Trial | None:
        """A trial that says how the config ended before; None if the config is not in quarantine."""
        return self._trials.get(config)

    def __len__(self) -> int:
        return len(self._trials)

    def add(self, trial: Trial, *, fault: bool = False) -> None:
        """Put the config of a trial in quarantine if the trial crashed or hung; it is on disk when this returns.

        So it is put there for a `fault` of the classes of bits, whose configs have a quarantine of their own.
        """
        if self._path is None or not (fault or trial.status.facts.dangerous) or trial.config in self._trials:
            return
        self._trials[trial.config] = trial
        entry = {
            "config": dict(trial.config), "status": trial.status.value, "error": trial.error, "at": time_now(),
        }  # fmt: skip
        self._file.append(entry)

    def _read(self) -> list[Trial]:
        if self._path is None:
            return []
        try:
            if self._root is not None:
                Folder(self._path.parent).within(self._root)
            entries = readable(self._path, StoredFile(self._path).lines(), _Entry, loss="their configs are run again")
            return [entry.trial for entry in entries]
        except OSError as error:
            warn("%s cannot be read (%s): configs that crashed will be run again", self._path, error.strerror or error)
            return []


KEPT_ENDED = 8
KEPT_UNFINISHED_DAYS = 30
_DAY_S = 86_400
_RUN_ID = re.compile(r"\d{8}T\d{12}-[0-9a-f]{8}")


class Runs:
    """The run logs of one key in a cache folder; without a folder none are kept.

    A run without an end may be gone on with if `resumed`; not so where another process may be writing its log.
    """

    FOLDER: ClassVar[str] = "runs"

    def __init__(self, folder: Path | None, key_id: str, *, resumed: bool = True) -> None:
        self.root = folder
        self._resumed = resumed
        self._folder = None if folder is None else folder / Runs.FOLDER / key_id
        self._key_id = key_id

    @staticmethod
    def new_id(now: datetime) -> str:
        """An id that sorts by time and that no other run has."""
        return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%S%f}-{os.urandom(4).hex()}"

    def path(self, run_id: str) -> Path | None:
        """The path of a run's log, whether the file exists or not; None if no runs are kept."""
        return None if self._folder is None else self._folder / f"{run_id}.jsonl"

    def log(
        self, unfinished: Run | None, start: float, key: Key, request: TuneRequest, effort: Effort, seed: int
    ) -> RunLog:
        """The log of an interrupted run, which is continued, or else that of a new run; `start` is monotonic."""
        if unfinished is not None:
            log = RunLog(unfinished.path, start, unfinished.at_s, root=self.root)
            log.resume(effort=effort.name, searcher=effort.search_name, seed=seed)
            return log
        started = datetime.now(timezone.utc) - timedelta(seconds=time.monotonic() - start)
        run_id = self.new_id(started)
        spec = request.device if self.root is None or request.work is None else request.device.calibrated(self.root)
        log = RunLog(self.path(run_id), start, root=self.root)
        log.write(Head.of(
            run_id, key, request, effort, seed=seed, versions=Host.versions(), started=started, spec=spec,
        ), durable=True)  # fmt: skip
        return log

    def unfinished(self, space: str) -> Run | None:
        """The newest run without an end in the space with that fingerprint; None if all that can be read have ended."""
        if not self._resumed:
            return None
        runs = (run for path in self._paths() for run in _readable(path, unfinished=True))
        return next((run for run in runs if run.head.key_id == self._key_id and run.head.space.fingerprint == space),
                    None)  # fmt: skip

    def run(self, run_id: str) -> Run | None:
        """The run with that id; None if its log is gone, or is none of this key."""
        runs = (run for path in self._paths() if path.stem == run_id for run in _readable(path))
        return next((run for run in runs if run.head.key_id == self._key_id), None)

    def of_another_space(self, space: str, effort: str) -> Run | None:
        """The newest run, if it ended, with that effort, in another space than the one with that fingerprint."""
        run = next((run for path in self._paths() for run in _readable(path) if run.trials), None)
        if run is None or run.end is None or run.head.key_id != self._key_id:
            return None
        return run if run.head.space.fingerprint != space and run.head.effort.get("name") == effort else None

    def trials(self, first: str = "") -> list[Trial]:
        """One trial for each config: that of the run `first`, else that of the newest other run in the same space."""
        runs = self.with_trials(first)
        trials: dict[Config, Trial] = {}
        for run in runs:
            if run.head.space.fingerprint == runs[0].head.space.fingerprint:  # times are relative to one default config
                trials = {**run.trials, **trials}
        return list(trials.values())

    def with_trials(self, first: str = "") -> list[Run]:
        """The runs that have trials: the run `first`, then the others, the newest first."""
        paths = sorted(self._paths(), key=lambda path: path.stem != first)  # stable: the others stay newest first
        return [run for path in paths for run in _readable(path) if run.trials]

    def prune(self, own_run: str, now_s: float | None = None) -> None:
        """Remove the runs that this module's rule does not keep; `own_run` is that which the key's record names."""
        oldest_s = (time.time() if now_s is None else now_s) - KEPT_UNFINISHED_DAYS * _DAY_S
        ended = 0
        for path in self._paths():
            with contextlib.suppress(RunLogError, OSError):  # a file that is foreign or cannot be removed stays
                if has_ended(path):
                    ended += 1
                    goes = ended > KEPT_ENDED
                else:
                    goes = path.stat().st_mtime < oldest_s
                if goes and path.stem != own_run:
                    head = read_head(path)
                    if (head.id, head.key_id) == (path.stem, self._key_id):
                        path.unlink()

    def _paths(self) -> Iterator[Path]:
        """The files whose names are those of run logs, the newest first."""
        if self._folder is None or self.root is None:
            return
        try:
            Folder(self._folder).within(self.root)
            paths = [path for path in self._folder.iterdir() if path.suffix == ".jsonl"]
        except FileNotFoundError:
            return
        except OSError as error:
            warn("%s cannot be read (%s): earlier runs are not known", self._folder, error.strerror or error)
            return
        yield from sorted((path for path in paths if _RUN_ID.fullmatch(path.stem)), reverse=True)


def _readable(path: Path, unfinished: bool = False) -> Iterator[Run]:
    """The run in a file, unless only one without an end is wanted; none, with a warning, if the file is no run log."""
    try:
        if has_begun(path) and not (unfinished and has_ended(path)):
            yield Run.read(path)
    except RunLogError as error:
        warn("a run log is ignored: %s", error)
