"""What commands on records, calls and this machine print, and every command that fails."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from website.documents.common import Config, Form, Resources
from website.documents.tuning import FailedConfig, Result


class Key(Form):
    """What must be equal for a winner to hold.

    Attributes:
        problem: Every argument by name: a number, a word, or a tensor's shape, dtype, stride and alignment.
        identity: Hashes of the source and the grid, and the versions of what it uses.
        device: Where it ran, with its driver or its threads.
        cache_state: `cold` or `warm`.
        held_to: The tolerance and the check in place of the rule for verdicts.
        label: The problem in short, for people; no part of the id.
    """

    kernel: str
    problem: dict[str, Any]
    identity: dict[str, Any]
    device: dict[str, Any]
    cache_state: str
    held_to: dict[str, Any]
    label: str


class Timing(Form):
    """Times of a config in the last comparison, in milliseconds of a launch."""

    median_ms: float
    p20_ms: float
    p80_ms: float
    samples: int


class Budget(Form):
    """The limits of a search; null is no limit."""

    trials: int | None
    seconds: float | None


class Verified(Form):
    """What results were compared with.

    Attributes:
        against: In words; empty if nothing was compared.
        reference: The reference's fingerprint; null if the default config was the judge.
    """

    against: str
    reference: str | None


class NotedCall(Form):
    """The call of a decorated kernel.

    Attributes:
        arguments: By name; of tensors their specs alone.
        grids: The grid of each config, or why it has none.
    """

    arguments: dict[str, Any]
    configs: list[Config]
    grids: list[Any]


class Record(Form):
    """A record as its file holds it.

    Attributes:
        kind, schema_version: Those of the file.
        id: The hash of the key without its label.
        mode: The clock and the state of the cache.
        default, default_timing: The default config, and its times beside the winner's; null if it failed.
        ties: Configs that could not be told from the fastest.
        noise: The relative difference below which two count as equal.
        raced_gain, gain_interval: The default's time over the winner's, round by round, and its 95 % interval.
        within_1pct: The chance that nothing of the space is faster by more than 1 %; null where it is unknown.
        confidence: `ok`, or why the comparison should not be relied on.
        guard: What the device said meanwhile, as of `tune`.
        resources: What the compiler made of the winner; null for functions.
        space: The hash of the config space.
        stopped: `complete`, `settled`, `trials` or `seconds`.
        created: UTC.
        run: The id of the run log.
        place: Where candidates ran.
        waited_s: Seconds in which nothing could be measured because nothing was compiled yet.
        failures: The first 32 failed configs.
        contents: The times of raced configs on each of several contents.
        call: Of a decorated kernel the call that was tuned, or why it cannot be made again.
        tunes: How many tunes have led to it.
        step: The step in which the winner was chosen, where it was raced in place.
        ordered_by: What ordered the configs before they were measured.
        bits: The class of the winner's bits; empty where it cannot be told.
        checksum: Of everything else.
    """

    kind: str
    schema_version: int
    id: str
    key: Key
    winner: Config
    timing: Timing
    mode: str
    ties: list[Config]
    noise: float
    confidence: str
    space: str
    effort: str
    search: str
    budget: Budget
    stopped: str
    totals: dict[str, int]
    elapsed_s: float
    created: str
    versions: dict[str, str]
    run: str
    verified: Verified
    place: str
    notes: list[str]
    waited_s: float
    failures: list[FailedConfig]
    checksum: str
    default: Config | UnsetType | None = UNSET
    default_timing: Timing | UnsetType | None = UNSET
    raced_gain: float | UnsetType | None = UNSET
    gain_interval: list[float] | UnsetType | None = UNSET
    within_1pct: float | UnsetType | None = UNSET
    guard: dict[str, Any] | UnsetType | None = UNSET
    resources: Resources | UnsetType | None = UNSET
    contents: list[Any] | UnsetType = UNSET
    call: NotedCall | str | UnsetType | None = UNSET
    tunes: int | UnsetType = UNSET
    step: str | UnsetType = UNSET
    ordered_by: list[str] | UnsetType = UNSET
    bits: str | UnsetType = UNSET


class Miss(Form):
    """A problem that nothing answered.

    Attributes:
        count: How often it was asked for.
        expected_ms: Of one launch; null if nobody could tell.
        first, last: UTC.
        call: The first call of a decorated kernel; null for operations.
    """

    id: str
    key: Key
    count: int
    expected_ms: float | None
    first: str
    last: str
    call: NotedCall | None


class TunedMiss(Miss):
    """A miss, and what became of it.

    Attributes:
        result: What was found, or null.
        outcome: `tuned`, `not tuned` or `not loaded`.
        stored: Whether its winner is remembered.
        reason: Why it was not tuned.
    """

    result: Result | None
    outcome: str
    stored: bool
    reason: str


class Removed(Form):
    """The ids of the records that were removed."""

    removed: list[str]


class FolderOfRecords(Form):
    """Where records are kept; it need not exist."""

    path: str


class Exported(Form):
    """How many records were written, and where."""

    exported: int
    file: str


class Imported(Form):
    """What became of the records of a file.

    Attributes:
        added, replaced: Their ids.
        skipped: The reason by id, or by the place in the file.
        devices: The device's name of each record that was taken.
    """

    added: list[str]
    replaced: list[str]
    skipped: dict[str, str]
    devices: dict[str, str]


class Launched(Form):
    """One config that a process launched for one problem.

    Attributes:
        rung: The source that the config came from.
        why: Why this config.
        record: The id of its record; empty if there is none.
        passed: What the sources before that one answered.
    """

    kernel: str
    problem: str
    device: str
    rung: str
    config: Config
    why: str
    passed: list[str]
    record: str
    launches: int


class Why(Form):
    """Which config a call would run, and why; or, of a process's report, what it launched.

    Attributes:
        rung: The source that the config came from.
        record: The id of its record; empty if there is none.
        passed: What the sources before that one answered.
        launches: Of a report alone.
    """

    kernel: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    device: str | UnsetType = UNSET
    rung: str | UnsetType = UNSET
    config: Config | UnsetType = UNSET
    why: str | UnsetType = UNSET
    record: str | UnsetType = UNSET
    passed: list[str] | UnsetType = UNSET
    launches: list[Launched] | UnsetType = UNSET


class CheckedPart(Form):
    """One part of the installation, such as torch.

    Attributes:
        found: Its version or state.
        means: What follows from it.
    """

    name: str
    found: str
    ok: bool
    means: str


class Calibration(Form):
    """What was measured of a GPU; null where a figure could not be taken.

    Attributes:
        dram_gbps: Bytes read and written by a copy much larger than L2, 10^9 per second.
        l2_gbps: Bytes read and written by a copy that stays in L2, 10^9 per second.
        launch_us: Device time around one tiny kernel.
        sync_us: Host time from the launch of a tiny kernel until a synchronize returns.
        mma_tflops: The rate of the vendor's matrix product by dtype.
    """

    device: str
    driver: str | None
    dram_gbps: float | None
    l2_gbps: float | None
    launch_us: float | None
    sync_us: float | None
    mma_tflops: dict[str, float]


class Tour(Form):
    """Where the files of the tour are."""

    folder: str


class Error(Form):
    """Why a command failed.

    Attributes:
        error: The class of the error; `UsageError` where the words were not understood.
        hint: What to do; empty where nothing is known to help.
        exit_code: What the command ended with.
        failures: Every config, where none ran.
    """

    error: str
    message: str
    hint: str
    exit_code: int
    failures: list[FailedConfig]


class Completion(Form):
    """What a shell reads to complete commands."""

    shell: str
    script: str


DOCUMENTS: dict[str, Any] = {
    "records": list[Record],
    "misses": list[Miss],
    "tune misses": list[TunedMiss],
    "removed records": Removed,
    "folder of records": FolderOfRecords,
    "exported records": Exported,
    "imported records": Imported,
    "why": Why,
    "doctor": list[CheckedPart],
    "calibration": Calibration,
    "tour": Tour,
    "completion": Completion,
    "error": Error,
}
