"""What `triton-ops report` prints of run logs."""

from __future__ import annotations

from typing import Any

from website.documents.common import Config, Form, Resources
from website.documents.expectations import KnobValue, Place


class ReportedConfig(Form):
    """A config of a run, with its best times.

    Attributes:
        relative: Its time over the default's; null if one of them is not known.
        gain_interval: The 95 % interval of the default's time over its own.
    """

    status: str
    error: str
    compile_s: float | None
    resources: Resources | None
    config: Config
    median_ms: float | None
    p20_ms: float | None
    p80_ms: float | None
    relative: float | None
    gain_interval: list[float] | None


class ReportedTrial(ReportedConfig):
    """A trial of a run.

    Attributes:
        number: Its place in the order tried.
        at_s: Seconds of tuning until it ended.
        origin: Why it was tried.
        fate: What became of it.
    """

    number: int
    at_s: float
    origin: str
    fate: str


class Gap(Form):
    """By which share a config is slower, with its 95 % interval."""

    centre: float
    low: float
    high: float


class Finalist(Form):
    """A config of the last comparison.

    Attributes:
        fate: `winner`, `tie` or `slower`, and after how many rounds.
        gap: Null for what it is compared with.
    """

    config: Config
    rounds: int
    fate: str
    gap: Gap | None


class ReportedLimit(Form):
    """One roof of the device."""

    name: str
    peak: float
    measured: float | None


class ReportedRoofline(Form):
    """The work of a launch beside the device's limits.

    Attributes:
        parts: The products of each dtype, with their limits.
        best, default: How near these configs come to it.
    """

    flops: float
    bytes: float
    memory: ReportedLimit | None
    units: ReportedLimit | None
    parts: list[Any]
    unknown: list[str]
    intensity: float | None
    ridge: float | None
    least_ms: float
    best: Place | None
    default: Place | None


class BestSoFar(Form):
    """The fastest config after so many seconds."""

    at_s: float
    median_ms: float
    config: Config


class ReportedFailure(Form):
    """A reason for which configs failed, with their number and the first of them."""

    status: str
    reason: str
    configs: int
    first: Config


class ReportedKnob(Form):
    """How much one tunable matters.

    Attributes:
        share: Of what varies, the share that it explains.
        span: How much slower its worst value is than its best.
    """

    name: str
    share: float
    span: float | None
    values: list[KnobValue]


class ReportedSensitivity(Form):
    """Which tunables matter in a run."""

    explained: float | None
    knobs: list[ReportedKnob]


class Run(Form):
    """One run.

    Attributes:
        run, file: Its id, and its log.
        state: Whether it has ended, and how.
        best: Null if no config ran.
        gain: The default's time over the best one's.
        unproven: Why its winner is unproven; null without a record.
        paste: Texts to paste, such as a decorator or an entry of a lockfile.
        confirmations: The finalists of each fresh process that compared ties again.
        dropped: How many configs were dropped, by the reason.
        sensitivity: Null if nothing can be told.
        environment: Versions, host, device and manner, in words.
    """

    run: str
    file: str
    kernel: str
    problem: str
    device: str
    state: str
    elapsed_s: float
    totals: dict[str, int]
    best: ReportedConfig | None
    gain: float | None
    unproven: str | None
    paste: dict[str, str]
    finalists: list[Finalist]
    confirmations: list[list[Finalist]]
    roofline: ReportedRoofline | None
    trials: list[ReportedTrial]
    best_so_far: list[BestSoFar]
    dropped: dict[str, int]
    failures: list[ReportedFailure]
    sensitivity: ReportedSensitivity | None
    environment: dict[str, str]


class ProblemRow(Form):
    """One problem of a kernel.

    Attributes:
        of_limit: The share of its limit that its best config reaches.
        slower: For each of `configs` its time over the best one's here, `failed`, or null.
    """

    run: str
    problem: str
    of_limit: float | None
    gain: float | None
    slower: list[float | str | None]


class ProblemMap(Form):
    """A kernel over its problems: the best configs of all, and a row for each problem."""

    configs: list[Config]
    rows: list[ProblemRow]


class CommonConfigs(Form):
    """Configs that two runs have measured.

    Attributes:
        quartiles: Of the ratio of their times.
        correlation: Of their orders.
        places: Where the winner of each is in the other's order.
    """

    configs: int
    quartiles: list[float]
    correlation: float | None
    places: list[int | None]


class RunComparison(Form):
    """Two runs of one problem.

    Attributes:
        agreement: `same`, `tie`, `differ` or `unknown`.
        differences: What differs, with both sides.
        why_not: Why there is nothing in common.
    """

    first: str
    second: str
    agreement: str
    differences: dict[str, list[str]]
    common: CommonConfigs | None
    why_not: str


class Report(Form):
    """What run logs say.

    Attributes:
        problems: Null for one problem.
        comparisons: Of each further run of a problem with the first.
    """

    runs: list[Run]
    problems: ProblemMap | None
    comparisons: list[RunComparison]


DOCUMENTS: dict[str, Any] = {"report": Report}
