"""What commands on lockfiles and tables of other engines print."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from website.documents.common import Config, Form
from website.documents.records import NotedCall
from website.documents.tuning import Result


class Measured(Form):
    """The times with which an entry won; null is not known."""

    cache_state: str
    mode: str
    median_ms: float | None
    default_ms: float | None
    gain: float | None


class Range(Form):
    """Extents, equal among themselves, in which a problem may differ."""

    extents: list[str]
    low: int
    high: int


class Origin(Form):
    """Where an entry comes from.

    Attributes:
        source: `record`, `race`, `edited by hand, and accepted`, `repaired: …`, `expected: …`, or what was imported.
        record, run: Ids; empty if there is none.
        created: UTC.
        form, detail: The exchange format of an imported entry, and the name of its table.
    """

    source: str
    record: str
    run: str
    created: str
    driver: str | None
    versions: dict[str, str]
    form: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class Entry(Form):
    """An entry of a lockfile.

    Attributes:
        device: An alias of the lockfile's devices.
        identity: As in a record's key.
        default: The default config when it was found; null if that is not known.
        ranges: Where the config also holds.
        ignored: Arguments that make no difference.
        bits: The class of the config's bits, where it is told.
        same_bits: Whether launches keep to that class.
        call: Of a decorated kernel the call that was tuned, or why it cannot be made again.
        checksum: Of the other members.
    """

    kernel: str
    device: str
    label: str
    config: Config
    default: Config | None
    measured: Measured | None
    problem: dict[str, Any]
    ranges: list[dict[str, Any]]
    ignored: list[str]
    identity: dict[str, Any]
    origin: Origin
    bits: str | UnsetType = UNSET
    same_bits: bool | UnsetType = UNSET
    call: NotedCall | str | UnsetType | None = UNSET
    checksum: str | UnsetType = UNSET


class Change(Form):
    """One difference.

    Attributes:
        kind: `added`, `removed` or `changed`.
        fields: Each as `field: before | after`.
    """

    kind: str
    entry: Entry
    fields: list[str]


class Lock(Form):
    """What `triton-ops lock` wrote, or would write.

    Attributes:
        entries: Their number.
        digest: Of the file as it is, or with `--check` as it would be.
        by_hand: With `--refresh` alone: the entries that were edited.
    """

    file: str
    entries: int
    digest: str | UnsetType = UNSET
    changes: list[Change] | UnsetType = UNSET
    by_hand: list[Entry] | UnsetType = UNSET


class VerifiedEntry(Form):
    """What is true of one entry.

    Attributes:
        outcome: `ok`, `unreachable`, `invalid`, `slower`, `not known`, `repaired`, `not loaded` or `not measured`.
        at: The extents of a held-out size; empty for the entry's own problem.
        regret: How much longer the config takes than the fastest that was measured; null if nothing was.
        result: As of `tune`; null if nothing was measured.
        becomes: The entry as a race has confirmed or repaired it; null if it stays as it was.
    """

    outcome: str
    reason: str
    at: str
    regret: float | None
    entry: Entry
    result: Result | None
    becomes: Entry | None


class KeyPart(Form):
    """Fields of a problem that always changed together.

    Attributes:
        values: How many values they had.
        compared: How many pairs of records differ in nothing else.
        verdict: `matters`, `never mattered` or `not known`.
        regret: The largest loss of serving both problems of a pair with one of their winners; null if not known.
        spared_s: The seconds of tuning that a key without them would have spared.
        in_key: Whether the key that was asked about has them; null if none was.
        advice: What to change of the key; empty for nothing.
    """

    names: list[str]
    values: int
    compared: int
    verdict: str
    regret: float | None
    spared_s: float
    in_key: bool | None
    advice: str


class KernelKeys(Form):
    """What records say of the key of one kernel on one device.

    Attributes:
        records, unproven: How many problems have a proven winner, and how many another one.
        winners: How many configs won.
        elapsed_s: Of the tunes.
    """

    kernel: str
    device: str
    records: int
    unproven: int
    winners: int
    elapsed_s: float
    parts: list[KeyPart]


class Served(Form):
    """A problem, and the config that serves it.

    Attributes:
        id: That of its record.
        config, regret, gain: Null where none serves; the gain is over the default.
        best: The fastest config that was measured.
        weight: What it counts in the mean.
    """

    label: str
    id: str
    config: Config | None
    regret: float | None
    gain: float | None
    best: Config
    weight: float


class Unmeasured(Form):
    """A chosen config, and the problems on which it was never tried."""

    config: Config
    problems: list[str]


class Portfolio(Form):
    """Few configs for many problems.

    Attributes:
        objective: `worst` or `mean`.
        worst, mean: The regrets.
        bound: No choice has less.
        exact: Whether the choice is proven best.
        measured, cells: How many of so many pairs of config and problem were measured.
        left_out: Why records do not count, with their number.
    """

    kernel: str
    device: str
    configs: list[Config]
    problems: list[Served]
    objective: str
    worst: float | None
    mean: float | None
    bound: float | None
    exact: bool
    noise: float
    measured: int
    cells: int
    unmeasured: list[Unmeasured]
    left_out: dict[str, int]


class ExportedTable(Form):
    """The table that was written, the number of its rows, and its facts."""

    file: str
    rows: int
    facts: dict[str, Any]


class ImportedTable(Form):
    """What of a table is in the lockfile now.

    Attributes:
        rows, added: How many were read, and how many are new.
        differ: How many entries differ from the table; `replaced` says whether they were.
        remarks: What was not understood.
    """

    file: str
    rows: int
    added: int
    differ: int
    replaced: bool
    remarks: list[str]
    facts: dict[str, Any]


class LookedUp(Form):
    """The config that an engine would take, and the row and file that have it."""

    config: Config
    row: list[Any]
    file: str


DOCUMENTS: dict[str, Any] = {
    "lock": Lock,
    "verify": list[VerifiedEntry],
    "keys": list[KernelKeys],
    "portfolio": Portfolio,
    "exported table": ExportedTable,
    "imported table": ImportedTable,
    "looked up": LookedUp,
}
