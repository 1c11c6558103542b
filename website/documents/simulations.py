"""What the simulator, recordings and replays print."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from website.documents.common import Config, Form


class PlacedConfig(Form):
    """A config in its ranking.

    Attributes:
        place: Null if it cannot run; `why_not` says why.
        score: 100 times the first one's expected time over its own.
        terms: What each resource would take alone, in milliseconds.
        idle: The share of the last wave that is empty.
        occupancy, of_shared: Shares of the warps, and of the shared memory of a block.
        reasons: The rows of `explain`.
    """

    place: int | None
    config: Config
    expected_ms: float | None
    score: float
    why_not: str | None
    limited_by: str
    occupancy: float
    idle: float
    of_shared: float
    reasons: dict[str, str]
    lower_bound_ms: float | UnsetType = UNSET
    terms: dict[str, float] | UnsetType = UNSET
    blocks_per_unit: int | UnsetType = UNSET
    waves: float | UnsetType = UNSET
    registers: float | UnsetType = UNSET
    spill_bytes: float | UnsetType = UNSET
    shared_bytes: int | UnsetType = UNSET
    compiled: bool | UnsetType = UNSET


class Turn(Form):
    """The winner with one value of a tunable; `own` is the value that it has."""

    value: Any
    expected_ms: float | None
    why_not: str
    own: bool


class Dial(Form):
    """One tunable of the winner, varied alone.

    Attributes:
        range: How much slower its worst value is than its best.
    """

    name: str
    turns: list[Turn]
    range: float | None


class SweptShape(Form):
    """The configs at one size: the best time, which config has it, and how much slower each is."""

    extents: list[int]
    best_ms: float | None
    winner: int | None
    slower: list[float | None]


class Over(Form):
    """The configs at several sizes of one extent."""

    extent: str
    shapes: list[SweptShape]


class Simulation(Form):
    """A ranking of a workload's configs.

    Attributes:
        source: `model`: nothing was measured.
        knobs: Each tunable of the winner, varied alone.
    """

    workload: str
    shape: list[int]
    dtype: str
    device: str
    source: str
    advice: str
    configs: list[PlacedConfig]
    knobs: list[Dial]
    over: Over | UnsetType = UNSET


class OverlaidConfig(Form):
    """A config with the expected and the measured time of a launch."""

    config: Config
    expected_ms: float | None
    measured_ms: float


class Overlay(Form):
    """A recorded space beside the prediction.

    Attributes:
        source: `declared` or `inferred`.
        spearman, asked: The correlation of both orders, and what is asked of it.
        first_share: The speed of the config that is expected to win, over the best measured one.
        failed: How many recorded configs failed.
    """

    file: str
    title: str
    device: str
    source: str
    spearman: float | None
    asked: float
    first_share: float
    failed: int
    configs: list[OverlaidConfig]


class Simulate(Form):
    """What the model expects, and what recordings say of it."""

    simulations: list[Simulation]
    recordings: list[Overlay]


class Recording(Form):
    """What was written: how many configs, how many of them ran, and in how many passes."""

    file: str
    configs: int
    ok: int
    passes: int


class Fraction(Form):
    """The fraction of the optimum after a number of evaluations, over all seeds."""

    mean: float
    median: float
    p10: float


class Needed(Form):
    """Evaluations that half, and nine tenths, of the runs needed; null: that many never got there."""

    median: float | None
    p90: float | None


class ReplayedSpace(Form):
    """A search on a recording; the members from `within_1pct` on are those of `--live`.

    Attributes:
        budgets: By the number of evaluations.
        to_5pct, to_1pct: Evaluations until a config within 5 % and within 1 % of the optimum was found.
        overhead_ms, overhead_mean_ms: What the search itself takes for an evaluation: the median and the mean.
        previews: Configs that were only compiled, for each run.
        within_1pct: The share of tunes that chose a config within 1 % of the optimum.
        regret_mean, regret_worst: How much slower the chosen config is than the best; null if no config ran.
        promised: The mean chance of that which the tunes told; null if none told one.
        trials, seconds: Means of a tune.
        stopped: Why searches ended.
    """

    file: str
    search: str
    budgets: dict[str, Fraction] | UnsetType = UNSET
    to_5pct: Needed | UnsetType = UNSET
    to_1pct: Needed | UnsetType = UNSET
    overhead_ms: float | UnsetType = UNSET
    overhead_mean_ms: float | UnsetType = UNSET
    previews: float | UnsetType = UNSET
    within_1pct: float | UnsetType = UNSET
    regret_mean: float | UnsetType | None = UNSET
    regret_worst: float | UnsetType | None = UNSET
    promised: float | UnsetType | None = UNSET
    trials: float | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    stopped: dict[str, int] | UnsetType = UNSET


class Replay(Form):
    """How near searches come to the optimum.

    Attributes:
        effort: With `--live` alone: the effort of the tunes.
    """

    spaces: list[ReplayedSpace]
    effort: str | UnsetType = UNSET


DOCUMENTS: dict[str, Any] = {"simulate": Simulate, "recording": Recording, "replay": Replay}
