"""What this process has launched: every decision with its number of launches, and a report at the end on request."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from triton_ops import _files, settings
from triton_ops._hashing import canonical_json
from triton_ops._paths import expanded
from triton_ops._sealed import parsed
from triton_ops._text import counted
from triton_ops.dispatch.decision import RUNGS, Decision
from triton_ops.exceptions import CacheError, SettingsError, SpaceError
from triton_ops.space import Config
from triton_ops.space.config import config_from_json

KIND = "triton-ops report"
SCHEMA_VERSION = 1

_log = logging.getLogger("triton_ops")


class Decides(Protocol):
    """What has taken decisions, such as a decorated kernel."""

    @property
    def decisions(self) -> list[Decision]:
        """The decisions so far."""

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
        return f"{where}: {counted(self.launches, 'launch')} of ({self.config}) by {self.rung}: {self.why}"


_deciders: weakref.WeakSet[Any] = weakref.WeakSet()
_dropped: dict[tuple[Any, ...], LaunchedConfig] = {}


def register(decides: Decides, kept: Mapping[Any, Decision] | None = None) -> None:
    """Count the launches of `decides` from now on; those of the decisions in `kept` also when `decides` is no more."""
    _deciders.add(decides)
    if kept is not None:
        weakref.finalize(decides, _drop_all, kept).atexit = False  # a report at the exit counts what is there
    _report_at_exit()


def forget_decisions() -> None:
    """Have every call of this process decided again; the counts of launches stay."""
    for decides in list(_deciders):
        decides.forget()


def drop(decisions: list[Decision]) -> None:
    """Keep the counts of decisions that are forgotten."""
    _merge(_dropped, decisions)


def keep(kept: MutableMapping[Any, Decision], place: Any, decision: Decision) -> None:
    """Put a decision at its place; the launches of the one that stood there stay counted."""
    before = kept.get(place)
    kept[place] = decision
    if before is not None and before is not decision:
        drop([before])


def _drop_all(kept: Mapping[Any, Decision]) -> None:
    drop(list(kept.values()))


def _merge(rows: dict[tuple[Any, ...], LaunchedConfig], decisions: Iterable[Decision]) -> None:
    """Add what was launched to rows of equal launches."""
    for row in (row for row in map(_row, decisions) if row.launches):
        place = (row.kernel, row.problem, row.device, row.rung, row.config, row.why)
        before = rows[place].launches if place in rows else 0
        rows[place] = replace(row, launches=row.launches + before)


def launches() -> list[LaunchedConfig]:
    """Every config that this process has launched through a decorated kernel or an operation, the most launched first.

    Cost: no device work; counters are read.
    """
    merged = dict(_dropped)
    _merge(merged, _decisions())
    return sorted(merged.values(), key=lambda row: (-row.launches, row.kernel, row.problem, RUNGS.index(row.rung)))


def report_text() -> str:
    """The launches of this process as text, one line each."""
    rows = launches()
    if not rows:
        return "triton-ops: nothing was launched through it"
    by_rung = {rung: sum(row.launches for row in rows if row.rung == rung) for rung in RUNGS}
    told = ", ".join(f"{count:,} by {rung}" for rung, count in by_rung.items() if count)
    return "\n".join(
        [f"triton-ops: {counted(sum(row.launches for row in rows), 'launch')}: {told}", *(row.text for row in rows)]
    )


def report_json() -> dict[str, Any]:
    """The launches of this process as plain JSON values."""
    rows = [{**_fields(row), "config": dict(row.config), "passed": list(row.passed)} for row in launches()]
    return {"kind": KIND, "schema_version": SCHEMA_VERSION, "process": os.getpid(), "launches": rows}


def read_report(path: str | os.PathLike[str]) -> list[LaunchedConfig]:
    """The launches in a file that a process wrote at its end.

    Raises:
        CacheError: The file cannot be read, or is no such report of this version.
    """
    where = expanded(path)
    try:
        content = parsed(_files.read_named(where))
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


def _fields(row: LaunchedConfig) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _decisions() -> Iterator[Decision]:
    for decides in list(_deciders):
        yield from decides.decisions


def _row(decision: Decision) -> LaunchedConfig:
    found = decision.found
    return LaunchedConfig(
        kernel=decision.kernel, problem=decision.problem, device=decision.device, rung=found.rung, config=found.config,
        why=found.why, passed=decision.passed, record=found.record, launches=decision.count.value,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _report_at_exit() -> None:
    """Tell at the end of the process what it launched, if the environment asks for that."""
    if settings.report():
        atexit.register(_tell, os.getpid())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_begin_anew)


def _begin_anew() -> None:
    _dropped.clear()
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
        _files.write_named(expanded(path), canonical_json(report_json()) + "\n")
    except (OSError, SettingsError) as error:
        _log.warning("the report of launches cannot be written to %s: %s", path, getattr(error, "strerror", error))
