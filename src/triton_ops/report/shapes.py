"""One kernel over its problems: where it is fast, and what each problem loses with the winner of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triton_ops.report.facts import Report
from triton_ops.space import Config
from triton_ops.values import Trial

FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class ProblemRow:
    """One problem of the kernel.

    Attributes:
        slower: For each config of the map its time over that of the problem's best config; None where it did not run,
            `failed` where it failed.
    """

    report: Report
    slower: tuple[float | str | None, ...]

    @property
    def label(self) -> str:
        """The problem, with the device."""
        return f"{self.report.run.head.key.label or self.report.run.head.id}, {self.report.device}"

    @property
    def of_limit(self) -> float | None:
        """The share of its limit that the best config reaches; None if the limit is not known."""
        place = self.report.placed(self.report.best)
        return None if place is None else place.of_limit


@dataclass(frozen=True, kw_only=True)
class ProblemMap:
    """A kernel over its problems.

    Attributes:
        configs: The best configs of all problems, each once.
        rows: The problems in the order of their extents.
    """

    configs: tuple[Config, ...]
    rows: tuple[ProblemRow, ...]


def problem_map(reports: Sequence[Report]) -> ProblemMap | None:
    """The map of the runs of the first one's kernel; of equal problems the first run counts. None for one problem."""
    by_problem = {
        one.run.head.key_id: one
        for one in reversed(reports)
        if one.run.head.key.kernel == reports[0].run.head.key.kernel and one.best is not None
    }
    ordered = sorted(by_problem.values(), key=lambda one: (one.device, one.run.head.shape or (), one.title))
    if len(ordered) < 2:
        return None
    configs = tuple(dict.fromkeys(one.best.config for one in ordered if one.best is not None))
    rows = [ProblemRow(report=one, slower=tuple(_slower(one, config) for config in configs)) for one in ordered]
    return ProblemMap(configs=configs, rows=tuple(rows))


def _slower(report: Report, config: Config) -> float | str | None:
    trial, best = report.run.trials.get(config), report.best
    if trial is None or best is None or not (trial.ok or trial.failed):
        return None
    return FAILED if trial.failed else _over(trial, best)


def _over(trial: Trial, best: Trial) -> float | None:
    """A time over another one, by times that were taken alike: the last comparison's, else the screening's."""
    if trial.final is not None and best.final is not None:
        low, high = best.final.median_ms, trial.final.median_ms
    elif trial.relative is not None and best.relative is not None:
        low, high = best.relative, trial.relative
    elif trial.measurement is not None and best.measurement is not None:
        low, high = best.measurement.median_ms, trial.measurement.median_ms
    return high / low if low > 0 else None
