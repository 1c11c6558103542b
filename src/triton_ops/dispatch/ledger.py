"""Launches of this process: every decision with its number of launches, and a report at the end on request."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from triton_ops import settings
from triton_ops._paths import expanded
from triton_ops.base import ForkSafeLock, NamedFile, Sealed, canonical_json
from triton_ops.base import counted as number_of
from triton_ops.dispatch.decision import RUNGS, Decision
from triton_ops.dispatch.fast_launch import LaunchCount
from triton_ops.exceptions import CacheError, SettingsError, SpaceError
from triton_ops.space import Config, config_from_json

KIND = "triton-ops report"
SCHEMA_VERSION = 1

_log = logging.getLogger("triton_ops")


class Decides(Protocol):
    """An object that has taken decisions, such as a decorated kernel."""

    def begin_anew(self) -> None:
        """Forget everything: this is a forked child, whose parent tells what was launched before."""

    def forget(self) -> None:
        """Have every call decided again."""


@dataclass(frozen=True, kw_only=True)
class LaunchedConfig:
    """One config that was launched for one problem.

    Attributes:
        kernel: The kernel's name.
        problem: The problem in short.
        device: The device's name; empty where none was asked for.
        rung: The rung of the ladder that the config came from.
        config: The config.
        why: Why this config.
        passed: What the rungs above answered.
        record: Id of the record that it comes from; empty if none.
        launches: How often it was launched.
    """

    kernel: str
    problem: str
    device: str
    rung: str
    config: Config
    why: str
    passed: tuple[str, ...]
    record: str
    launches: int

    @property
    def text(self) -> str:
        """One line."""
        where = f"{self.kernel} {self.problem}".rstrip()
        return f"{where}: {number_of(self.launches, 'launch')} of ({self.config}) by {self.rung}: {self.why}"


_deciders: weakref.WeakSet[Any] = weakref.WeakSet()


class _Counts:
    """The counts of all decisions.

    A decision may be forgotten while other threads are about to count a launch of it. Its count therefore tells its
    number into a queue when the last of them has let go of it.
    """

    def __init__(self) -> None:
        self._living: weakref.WeakKeyDictionary[LaunchCount, LaunchedConfig] = weakref.WeakKeyDictionary()
        self._ended: deque[tuple[LaunchedConfig, int]] = deque()
        self._rows: dict[tuple[Any, ...], LaunchedConfig] = {}
        self._guard = ForkSafeLock()

    def add(self, decision: Decision) -> None:
        count = decision.count
        if count.at_end is None:
            row, ended = _row(decision), self._ended
            with self._guard:
                self._living[count] = row
                self._add_up()
            count.at_end = lambda number: ended.append((row, number))

    def rows(self) -> list[LaunchedConfig]:
        with self._guard:
            living = list(self._living.items())  # which cannot end now
            self._add_up()
            rows = dict(self._rows)
        for count, row in living:
            _add(rows, row, count.value)
        return list(rows.values())

    def _add_up(self) -> None:
        for _ in range(len(self._ended)):
            _add(self._rows, *self._ended.popleft())


_counts = _Counts()


def register(decides: Decides) -> None:
    """Forget the decisions of `decides` with all others from now on, and report at the end if that is asked for."""
    _deciders.add(decides)
    _report_at_exit()


def forget_decisions() -> None:
    """Have every call of this process decided again; the counts of launches stay."""
    for decides in list(_deciders):
        decides.forget()


def counted(decision: Decision) -> Decision:
    """The decision, whose launches stay counted for as long as this process lives."""
    _counts.add(decision)
    return decision


def _add(rows: dict[tuple[Any, ...], LaunchedConfig], row: LaunchedConfig, launches: int) -> None:
    place = (row.kernel, row.problem, row.device, row.rung, row.config, row.why)
    if launches:
        rows[place] = replace(row, launches=launches + (rows[place].launches if place in rows else 0))


def launches() -> list[LaunchedConfig]:
    """Every config that this process has launched through a decorated kernel or an operation, the most launched first.

    Cost: no device work; counters are read.
    """
    return sorted(_counts.rows(), key=lambda row: (-row.launches, row.kernel, row.problem, RUNGS.index(row.rung)))


def report_text() -> str:
    """The launches of this process as text, one line each."""
    rows = launches()
    if not rows:
        return "triton-ops: nothing was launched through it"
    by_rung = {rung: sum(row.launches for row in rows if row.rung == rung) for rung in RUNGS}
    counts = ", ".join(f"{count:,} by {rung}" for rung, count in by_rung.items() if count)
    return "\n".join(
        [f"triton-ops: {number_of(sum(row.launches for row in rows), 'launch')}: {counts}", *(row.text for row in rows)]
    )


def report_json() -> dict[str, Any]:
    """The launches of this process as plain JSON values."""
    rows = [{**vars(row), "config": dict(row.config), "passed": list(row.passed)} for row in launches()]
    return {"kind": KIND, "schema_version": SCHEMA_VERSION, "process": os.getpid(), "launches": rows}


def read_report(path: str | os.PathLike[str]) -> list[LaunchedConfig]:
    """The launches in a file that a process wrote at its end.

    Raises:
        CacheError: The file cannot be read, or is no such report of this version.
    """
    where = expanded(path)
    try:
        content = Sealed.parsed(NamedFile(where).read())
        if (content["kind"], content["schema_version"]) != (KIND, SCHEMA_VERSION):
            raise ValueError(f"it is {content['kind']!r}, version {content['schema_version']!r}")
        return msgspec.convert(content["launches"], list[LaunchedConfig], dec_hook=config_from_json)
    except OSError as error:
        raise CacheError(f"{where} cannot be read: {error.strerror or error}", hint="name a report") from error
    except (ValueError, KeyError, SpaceError, msgspec.ValidationError) as error:
        raise CacheError(
            f"{where} is no report of launches of this version: {error}",
            hint="TRITON_OPS_REPORT=FILE lets a process write one",
        ) from error


def _row(decision: Decision) -> LaunchedConfig:
    answer = decision.found
    return LaunchedConfig(
        kernel=decision.kernel, problem=decision.problem, device=decision.device, rung=answer.rung,
        config=answer.config, why=answer.why, passed=decision.passed, record=answer.record, launches=0,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _report_at_exit() -> None:
    if settings.report():
        atexit.register(_tell, os.getpid())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_begin_anew)


def _begin_anew() -> None:
    """In a forked child: what its parent has launched is none of its own, and tells its number to nobody here."""
    global _counts
    _counts = _Counts()
    for decides in list(_deciders):
        decides.begin_anew()


def _tell(process: int) -> None:
    where = settings.report()
    if os.getpid() != process or not where:  # a forked child has launched nothing that the parent does not tell
        return
    if where == "1":
        sys.stderr.write(report_text() + "\n")
        return
    path = where.replace("%p", str(process))
    try:
        NamedFile(expanded(path)).write(canonical_json(report_json()) + "\n")
    except (OSError, SettingsError) as error:
        _log.warning("the report of launches cannot be written to %s: %s", path, getattr(error, "strerror", error))
