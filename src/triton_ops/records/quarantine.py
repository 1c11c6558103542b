"""The quarantine: configs that crashed or hung are remembered, and no later tune of the same problem runs them again.

The cache folder holds one file for each problem and environment. The kernel's source, the compiler, the device and the
driver determine the file's name, so that configs are tried again after a new driver or a mended kernel. Whoever wants
them tried again sooner deletes the file.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import ClassVar

import msgspec

from triton_ops.base import AppendedFile, Folder, StoredFile, fingerprint
from triton_ops.records.record import time_now
from triton_ops.records.store import readable
from triton_ops.space import Config
from triton_ops.values import Key, Status, Trial

_log = logging.getLogger("triton_ops")


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: a config that crashed or hung, why, and when by UTC."""

    config: Config
    status: Status
    error: str
    at: str

    def __post_init__(self) -> None:
        if not self.status.facts.dangerous:
            raise ValueError(f"a config that ended as {self.status} is not put in quarantine")

    @property
    def trial(self) -> Trial:
        return Trial(self.config, self.status, error=f"quarantined since {self.at}: {self.error}")


class Quarantine:
    """The configs of one problem in one environment that crashed or hung; it stays empty without a path.

    The root is the cache folder that holds the file; None where the file's folder was chosen by somebody.
    """

    FOLDER: ClassVar = "quarantine"

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
        parts = [key.kernel, dict(key.problem), dict(key.identity), dict(key.device)]
        return cls(folder / cls.FOLDER / f"{fingerprint(parts)}.jsonl", folder)

    def held(self, config: Config) -> Trial | None:
        """A trial that says how the config ended before; None if the config is not in quarantine."""
        return self._trials.get(config)

    def __len__(self) -> int:
        return len(self._trials)

    def add(self, trial: Trial) -> None:
        """Put the config of a trial in quarantine if the trial crashed or hung; it is on disk when this returns."""
        if self._path is None or not trial.status.facts.dangerous or trial.config in self._trials:
            return
        self._trials[trial.config] = trial
        entry = {
            "config": dict(trial.config),
            "status": trial.status.value,
            "error": trial.error,
            "at": time_now(),
        }
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
            reason = error.strerror or error
            _log.warning("%s cannot be read (%s): configs that crashed will be run again", self._path, reason)
            return []
