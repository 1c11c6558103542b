"""What the lint, and commands on tables of serving engines, print."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from website.documents.common import Config, Form


class Finding(Form):
    """A pitfall that a kernel has.

    Attributes:
        symptom: What a user of the kernel sees.
        evidence: The facts that decided.
        fix: What to change.
        level: What was looked at: `source`, `ttir`, `binary`, `run` or `model`.
    """

    rule: str
    kernel: str
    file: str
    line: int
    symptom: str
    evidence: str
    fix: str
    level: str


class Undecided(Form):
    """A rule that could not decide about a kernel."""

    rule: str
    kernel: str
    why: str
    file: str


class Lint(Form):
    """What the lint found.

    Attributes:
        file: In a line of `--jsonl` alone: what was read.
        unread: The reason by file.
    """

    findings: list[Finding]
    undecided: list[Undecided]
    unread: dict[str, str]
    file: str | UnsetType = UNSET


class EngineProblem(Form):
    """A table that an engine looks for.

    Attributes:
        facts: What the engine looks the table up by.
        extents: What else the kernel takes of a problem.
        row: The extent that names a row.
        sizes: Its values, for which the engine's own table has rows.
    """

    form: str
    layer: str
    facts: dict[str, Any]
    extents: dict[str, int]
    row: str
    sizes: list[int]
    problem: str
    rows: str


class EngineProblems(Form):
    """The tables that an engine looks for when it serves a model."""

    engine: str
    model: str
    problems: list[EngineProblem]


class EngineTable(Form):
    """A table that an engine finds, or not.

    Attributes:
        file: Null where it finds none.
        rows: How many rows it has; null where there is none, or it is no table.
        pinned: How many rows the lockfile has.
        says: What is wrong with it; empty for nothing.
    """

    form: str
    layer: str
    problem: str
    file: str | None
    rows: int | None
    pinned: int
    says: str


class EngineTables(Form):
    """Which tables an engine finds for a model."""

    engine: str
    model: str
    device: str
    triton: str
    tables: list[EngineTable]


class EngineRow(Form):
    """A row of an engine's table that was tuned; null where it was not.

    Attributes:
        was, was_ms: The config that the engine takes now, and its time.
        config: What the lockfile pins.
        gain, interval: How many times as fast it is, and the 95 % interval; null where the engine's row stays.
        tried, seconds: How many configs were tried, in how many seconds.
        verdict: `stays`, the gain, or why there is none.
    """

    form: str
    problem: str
    row: int
    status: str
    was: Config | None
    was_ms: float | None
    config: Config | None
    ms: float | None
    gain: float | None
    interval: list[float] | None
    tried: int | None
    seconds: float | None
    verdict: str


class EngineRows(Form):
    """The rows that were tuned."""

    engine: str
    model: str
    device: str
    routing: str
    rows: list[EngineRow]


class EngineChange(Form):
    """A row that changes.

    Attributes:
        row: Its size, or `all` where a whole table is put back.
        was: The engine's config before, or in words what was there; null if it had none.
        now: The config, or in words what is there now.
        ms: The time with which it won; null if that is not known.
        source: Where the row comes from.
    """

    file: str
    row: int | str
    was: Config | str | None
    now: Config | str
    ms: float | None
    source: str


class EngineChanges(Form):
    """What changes in an engine's tables."""

    engine: str
    model: str
    device: str
    changes: list[EngineChange]


DOCUMENTS: dict[str, Any] = {
    "lint": Lint,
    "engine problems": EngineProblems,
    "engine tables": EngineTables,
    "engine rows": EngineRows,
    "engine changes": EngineChanges,
}
