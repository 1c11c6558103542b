"""The journal of one problem's tuning: every finished trial on disk before the next one starts.

Append-only JSON lines. A killed run loses at most the trial in flight; a torn last line is ignored. A run that ended
writes an end line, and the next run of the same problem starts afresh; a run without an end line is gone on with.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from triton_ops._files import append_line, whole_lines
from triton_ops.exceptions import JournalError, SpaceError
from triton_ops.space import Config
from triton_ops.trial import Trial

_log = logging.getLogger("triton_ops")

SCHEMA_VERSION = 1  # 1: first form


class Journal:
    """The journal in one file. One writer at a time: the caller holds the problem's lock.

    Args:
        path: The file; made when the first line is written. None keeps no journal.
        key_id: Which key the trials belong to.
    """

    def __init__(self, path: Path | None, key_id: str) -> None:
        self._path = path
        self._key_id = key_id
        self._broken = False

    def unfinished(self) -> list[Trial]:
        """The trials of the last run if it did not end; else none.

        A line that cannot be read is left out with a warning.

        Raises:
            JournalError: The file is the journal of another key, or of a newer version, or cannot be read.
        """
        trials: dict[Config, Trial] = {}
        for number, line in enumerate(self._lines(), 1):
            entry = _decoded(line)
            kind = entry.get("type")
            if kind == "run":
                self._check(entry)
            elif kind == "trial" and (trial := trial_of(entry)) is not None:
                trials[trial.config] = trial
            elif kind == "end":
                trials.clear()
            else:
                _log.warning("%s: line %d is no journal line and is left out", self._path, number)
        return list(trials.values())

    def _lines(self) -> list[str]:
        try:
            return [] if self._path is None else list(whole_lines(self._path))
        except OSError as error:
            raise JournalError(
                f"{self._path} cannot be read: {error.strerror or error}", hint="move the file away, and tune again"
            ) from error

    def begin(self, **facts: Any) -> None:
        """Write that a run starts or goes on; what an earlier run that ended has left goes."""
        if self._path is not None and not self.unfinished():
            with contextlib.suppress(OSError):  # then the file only stays longer than it need be
                self._path.unlink(missing_ok=True)
        self._write({"type": "run", "schema_version": SCHEMA_VERSION, "key": self._key_id, **facts})

    def add(self, trial: Trial) -> None:
        """Write a finished trial; on disk when this returns."""
        self._write({"type": "trial", **msgspec.to_builtins(trial, enc_hook=_encode)})

    def end(self, stopped: str) -> None:
        """Write that the run ended, so that the next one starts afresh."""
        self._write({"type": "end", "stopped": stopped})

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._broken or self._path is None:
            return
        try:
            append_line(self._path, json.dumps(entry))
        except OSError as error:
            self._broken = True  # said once; the run itself needs no journal
            _log.warning(
                "%s cannot be written (%s): this run cannot be resumed",
                self._path,
                error.strerror or error,
            )

    def _check(self, entry: Mapping[str, Any]) -> None:
        if entry.get("key") != self._key_id or entry.get("schema_version") != SCHEMA_VERSION:
            raise JournalError(
                f"{self._path} belongs to key {entry.get('key')} in schema {entry.get('schema_version')}, not to "
                f"{self._key_id} in schema {SCHEMA_VERSION}",
                hint="move the file away, and tune again",
            )


def _decoded(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def trials_in(path: Path) -> list[Trial]:
    """Every trial of the journal at `path`, of runs that ended too; none where there is no such file or it is torn."""
    try:
        entries = [_decoded(line) for line in whole_lines(path)]
    except OSError:
        return []
    found = [trial_of(entry) for entry in entries if entry.get("type") == "trial"]
    return list({trial.config: trial for trial in found if trial is not None}.values())


def trial_of(entry: Mapping[str, Any]) -> Trial | None:
    """The trial in a journal's decoded line; None, with a warning, if it cannot be read."""
    try:
        return msgspec.convert(dict(entry), Trial, strict=False, dec_hook=_decode)
    except (msgspec.ValidationError, SpaceError) as error:
        _log.warning("a journal line is left out: %s", error)
        return None


def _encode(value: Any) -> Any:
    if isinstance(value, Config):
        return dict(value)
    raise NotImplementedError(type(value))


def _decode(kind: type, value: Any) -> Any:
    if kind is Config:
        return Config.from_json(value)
    raise NotImplementedError(kind)


def summaries(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Trials as plain JSON values, for `--json` output: config, status, error, median, spread, resources."""
    return [
        {
            "config": dict(trial.config),
            "status": trial.status.value,
            "error": trial.error,
            "median_ms": trial.median_ms if trial.ok else None,
            "spread": trial.best_measurement.spread if trial.ok else None,
            "final": trial.final is not None,
            "compile_s": trial.compile_s,
            "resources": None if trial.resources is None else msgspec.to_builtins(trial.resources),
            "same_code_as": None if trial.same_code_as is None else dict(trial.same_code_as),
        }
        for trial in trials
    ]
