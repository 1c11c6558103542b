"""A table of tuned configs in no engine's format, and the role of a format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from triton_ops._files import ensure_folder, read_named, write_named
from triton_ops._sealed import DamagedError, parsed
from triton_ops.exceptions import CacheError, SettingsError, SpaceError
from triton_ops.space import Config

_LARGEST_BYTES = 64 << 20
_LONGEST_MS = 1e12  # 30 years
_SHOWN = 60


@dataclass(frozen=True)
class Row:
    """One config of a table.

    Attributes:
        at: What the config is for, such as `(16,)`, a number of tokens; empty where the table is of one problem.
        config: The config, with the engine's names.
        median_ms: Its time; None if the table has none.
        failure: Why it failed, in the words of `Status`; empty if it did not.
    """

    at: tuple[Any, ...]
    config: Config
    _: KW_ONLY
    median_ms: float | None = None
    failure: str = ""


@dataclass(frozen=True)
class Table:
    """Tuned configs of one kernel.

    Attributes:
        facts: What the engine looks the table up by, such as `E`, `N`, `device_name` and `dtype`.
        rows: The configs.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    def best(self) -> tuple[Row, ...]:
        """For each `at` the fastest config that did not fail; where no time is known the first one."""
        found: dict[str, Row] = {}
        for row in self.rows:
            name = json.dumps(row.at)
            known = found.get(name)
            if not row.failure and (known is None or _time(row) < _time(known)):
                found[name] = row
        return tuple(found.values())


class Format(Protocol):
    """How one engine keeps its tables."""

    def write(self, table: Table, folder: Path) -> Path:
        """Write a table where the engine looks for it below `folder`, and return the file.

        Raises:
            SettingsError: A fact is missing, or a config lacks a value that the engine needs.
            CacheError: The file cannot be written.
        """
        ...

    def read(self, path: Path) -> Table:
        """The table in a file.

        Raises:
            CacheError: The file cannot be read, or is not of this format.
        """
        ...

    def look_up(self, folder: Path, facts: Mapping[str, Any], at: Sequence[Any]) -> Config | None:
        """The config that the engine would take, by its own rule for names and for what is nearest; None for none."""
        ...


def needed(facts: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of facts that an engine cannot do without.

    Raises:
        SettingsError: One is missing.
    """
    missing = [name for name in names if facts.get(name) in (None, "")]
    if missing:
        raise SettingsError(f"the table needs {', '.join(missing)}", hint=f"--set {missing[0]}=VALUE")
    return [facts[name] for name in names]


def check_values(table: Table, *names: str) -> None:
    """Check that every config has the values that an engine reads by name.

    Raises:
        SettingsError: One is missing.
    """
    for row in table.rows:
        missing = [name for name in names if name not in row.config]
        if missing:
            raise SettingsError(
                f"config ({row.config}) has no {', '.join(missing)}, which the engine needs",
                hint=f"--rename OURS={missing[0]}",
            )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        CacheError: The file cannot be read, or holds no JSON object.
    """
    try:
        return parsed(read_named(path, _LARGEST_BYTES))
    except OSError as error:
        raise CacheError(f"{path} cannot be read: {error.strerror or error}", hint="name a table") from error
    except DamagedError as error:
        raise CacheError(f"{path} is no table: {error}", hint="check the path") from error


def write_object(folder: Path, place: str, content: Mapping[str, Any]) -> Path:
    """Write a JSON object, indented, to a place below a folder, and return the path.

    Raises:
        CacheError: The file cannot be written.
        SettingsError: The place, which is made of facts, is not below the folder.
    """
    path = folder / place
    if Path(place).is_absolute() or ".." in Path(place).parts:
        raise SettingsError(f"the table would be written to {place}", hint="correct the facts that name it: --set")
    try:
        ensure_folder(path.parent)
        write_named(path, json.dumps(content, indent=4) + "\n")
    except OSError as error:
        raise CacheError(f"{path} cannot be written: {error.strerror or error}", hint="name another folder") from error
    return path


def milliseconds_in(value: Any, path: Path) -> float:
    """A time in decoded JSON.

    Raises:
        CacheError: It is none.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LONGEST_MS:
        return float(value)
    raise CacheError(f"{path} has the time {str(value)[:_SHOWN]}", hint="a time is in milliseconds, 0 or more")


def config_in(value: Any, path: Path) -> Config:
    """A config in decoded JSON.

    Raises:
        CacheError: It is none.
    """
    try:
        return Config.from_json(value)
    except SpaceError as error:
        raise CacheError(f"{path} is no table: {error}", hint="check the path") from error


def _time(row: Row) -> float:
    return float("inf") if row.median_ms is None else row.median_ms
