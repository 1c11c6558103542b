"""The summary of many runs of one search on one recording."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from triton_ops.replay.live_replay import LiveRun
from triton_ops.replay.single_replay import ReplayRun

_NEAR = 0.01


@dataclass(frozen=True)
class Share:
    """Fractions of the optimum over several runs: their mean, their median, and their first tenth."""

    mean: float
    median: float
    p10: float


@dataclass(frozen=True)
class Reach:
    """Evaluations until a goal over several runs: median and ninth tenth; None if too few runs reached the goal."""

    median: int | None
    p90: int | None


@dataclass(frozen=True, kw_only=True)
class SpaceSummary:
    """The summary of one search on one recording.

    Attributes:
        file: Name of the recording's file.
        search: Name of the searcher.
        budgets: Fractions of the optimum after each number of evaluations.
        to_5pct: Evaluations until a config within 5 % of the optimum was found.
        to_1pct: Evaluations until a config within 1 % of the optimum was found.
        overhead_ms: Median milliseconds of the search itself per evaluation.
        overhead_mean_ms: Mean milliseconds of the search itself, since a few evaluations take much longer than others.
        previews: Mean number of previews per run; a preview does not count as an evaluation.
    """

    file: str
    search: str
    budgets: dict[int, Share]
    to_5pct: Reach
    to_1pct: Reach
    overhead_ms: float
    overhead_mean_ms: float
    previews: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The summary as plain JSON values, with fractions rounded to four digits."""
        return {
            "file": self.file,
            "search": self.search,
            "budgets": {
                str(budget): {name: round(getattr(share, name), 4) for name in ("mean", "median", "p10")}
                for budget, share in self.budgets.items()
            },
            "to_5pct": {"median": self.to_5pct.median, "p90": self.to_5pct.p90},
            "to_1pct": {"median": self.to_1pct.median, "p90": self.to_1pct.p90},
            "overhead_ms": round(self.overhead_ms, 3),
            "overhead_mean_ms": round(self.overhead_mean_ms, 3),
            "previews": round(self.previews, 1),
        }


@dataclass(frozen=True, kw_only=True)
class LiveSummary:
    """The summary of simulated tunes with one search on one recording.

    Attributes:
        file: Name of the recording's file.
        search: Name of the searcher.
        within_1pct: Share of the tunes that chose a config within 1 % of the optimum.
        regret_mean: Mean of how much slower the chosen config is than the best.
        regret_worst: The same of the worst tune.
        trials: Mean number of trials.
        seconds: Mean seconds of a tune.
        stopped: How many tunes ended for each reason.
    """

    file: str
    search: str
    within_1pct: float
    regret_mean: float
    regret_worst: float
    trials: float
    seconds: float
    stopped: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The summary as plain JSON values; a tune in which no config ran has no regret, which is null."""
        rounded = {name: round(value, 4) for name, value in asdict(self).items() if isinstance(value, float)}
        return {**asdict(self), **{name: v if math.isfinite(v) else None for name, v in rounded.items()}}


def summarise_live(file: str, search: str, runs: Sequence[LiveRun]) -> LiveSummary:
    """The summary of simulated tunes, at least one, that differ in their seed."""
    regrets = [run.regret for run in runs]
    return LiveSummary(
        file=file,
        search=search,
        within_1pct=statistics.fmean(regret <= _NEAR for regret in regrets),
        regret_mean=statistics.fmean(regrets),
        regret_worst=max(regrets),
        trials=statistics.fmean(run.trials for run in runs),
        seconds=statistics.fmean(run.seconds for run in runs),
        stopped=dict(Counter(run.stopped for run in runs)),
    )


def summarise(file: str, search: str, runs: Sequence[ReplayRun], budgets: Sequence[int]) -> SpaceSummary:
    """The summary of runs, at least one, that differ in their seed."""
    overhead = [seconds * 1e3 for run in runs for seconds in run.overhead_s]
    return SpaceSummary(
        file=file,
        search=search,
        budgets={budget: _share([run.at(budget) for run in runs]) for budget in budgets},
        to_5pct=_reach([run.first_within(0.05) for run in runs]),
        to_1pct=_reach([run.first_within(0.01) for run in runs]),
        overhead_ms=statistics.median(overhead) if overhead else 0.0,
        overhead_mean_ms=statistics.fmean(overhead) if overhead else 0.0,
        previews=statistics.fmean(run.previews for run in runs),
    )


def _share(fractions: list[float]) -> Share:
    return Share(statistics.fmean(fractions), statistics.median(fractions), _quantile(fractions, 0.1))


def _reach(counts: list[int | None]) -> Reach:
    numbers = [math.inf if count is None else count for count in counts]
    return Reach(_whole(_nearest(numbers, 0.5)), _whole(_nearest(numbers, 0.9)))


def _whole(number: float) -> int | None:
    return int(number) if math.isfinite(number) else None


def _nearest(numbers: list[float], share: float) -> float:
    """The smallest of `numbers` that at least this share of them does not exceed."""
    return sorted(numbers)[max(math.ceil(share * len(numbers)), 1) - 1]


def _quantile(numbers: list[float], share: float) -> float:
    """The quantile of `numbers`, interpolated linearly between neighbours as by NumPy."""
    at = share * (len(numbers) - 1)
    ordered, low = sorted(numbers), math.floor(at)
    high = min(low + 1, len(numbers) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
