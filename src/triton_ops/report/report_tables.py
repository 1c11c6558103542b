"""The tables of a report, for one run or for several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Literal

from triton_ops.base import gain_text
from triton_ops.cost_model import Model
from triton_ops.report.run_facts import Report, ms_text
from triton_ops.space import Config
from triton_ops.terminal import Facts

FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class ProblemRow:
    """One problem of the kernel."""

    report: Report
    slower: dict[Config, float | str | None]  # times of all problems' best over that here; None: did not run

    @property
    def label(self) -> str:
        """The problem, with the device."""
        return f"{self.report.run.head.key.label or self.report.run.head.id}, {self.report.device}"

    @property
    def of_limit(self) -> float | None:
        """The share of its limit that the best config reaches; None if the limit is not known."""
        place = self.report.placed(self.report.best)
        return None if place is None else place.of_limit

    @property
    def cells(self) -> list[str]:
        """One line of the map over problems: problem, time, share of the limit, gain, then what each config costs."""
        best, record = self.report.best, self.report.record
        interval, unproven = (None, "") if record is None else (record.gain_interval, record.unproven)
        of_limit = "-" if self.of_limit is None else f"{self.of_limit:.0%}"
        costs = [f"{cost:.2f}x" if isinstance(cost, float) else cost or "-" for cost in self.slower.values()]
        over = gain_text(self.report.gain, interval, unproven)
        return [self.label, ms_text(None if best is None else best.median_ms), of_limit, over, *costs]


def problem_map(reports: Sequence[Report]) -> list[ProblemRow]:
    """The problems of the first run's kernel by their extents; of equal ones the first run counts. Empty for one."""
    by_problem = {
        one.run.head.key_id: one
        for one in reversed(reports)
        if one.run.head.key.kernel == reports[0].run.head.key.kernel and one.best is not None
    }
    ordered = sorted(by_problem.values(), key=lambda one: (one.device, one.run.head.shape or (), one.title))
    if len(ordered) < 2:
        return []
    configs = dict.fromkeys(one.best.config for one in ordered if one.best is not None)
    return [ProblemRow(report=one, slower={config: _slower(one, config) for config in configs}) for one in ordered]


def _slower(report: Report, config: Config) -> float | str | None:
    trial, best = report.run.trials.get(config), report.best
    if trial is None or best is None or not (trial.ok or trial.failed):
        return None
    return FAILED if trial.failed else trial.over(best)


def letter(number: int) -> str:
    """A short name of a config of the map: A to Z, then A1 to Z1 and so on."""
    return f"{chr(ord('A') + number % 26)}{number // 26 or ''}"


_FEWEST = 2  # configs of which quartiles can be told


@dataclass(frozen=True, kw_only=True)
class Common:
    """The configs that ran in both runs, with quartiles of the second run's times over the first's.

    Places are that of the first run's best config in the second run, and the reverse, from 1 on; None if it did not run
    there.
    """

    configs: int
    quartiles: tuple[float, float, float]
    correlation: float
    places: tuple[int | None, int | None]


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Two runs beside each other."""

    first: Report
    second: Report
    differences: dict[str, tuple[str, str]]  # by name, the first's text and the second's; empty where it has none
    common: Common | str  # a text says why their times cannot be compared

    @property
    def agreement(self) -> Literal["same", "tie", "differ", "unknown"]:
        """The agreement of the winners of one problem; unknown where a run has none."""
        one, other = self.first.record, self.second.record
        if one is None or other is None or not _of_one_problem(self.first, self.second):
            return "unknown"
        if one.winner == other.winner:
            return "same"
        return "tie" if other.winner in one.ties or one.winner in other.ties else "differ"

    @property
    def text(self) -> str:
        """The agreement of the tunes, and the comparison of the configs of both runs."""
        common = self.common
        if isinstance(common, str):
            return "; ".join(filter(None, [self._agreement_text(), common]))
        low, middle, high = common.quartiles
        first, second = ("not run there" if place is None else f"place {place}" for place in common.places)
        text = (
            f"{common.configs} configs ran in both: the second run's times are {middle:.3f}x the first's "
            f"(quartiles {low:.3f}x and {high:.3f}x), the orders' correlation is {common.correlation:.2f}; "
            f"the first run's best config is {first} in the second, the second's is {second} in the first"
        )
        return "; ".join(filter(None, [self._agreement_text(), text]))

    def _agreement_text(self) -> str:
        one, other = self.first.record, self.second.record
        if self.agreement == "unknown" or one is None or other is None:
            return ""
        if self.agreement == "same":
            return "both tunes have the same winner"
        winners = f"{one.winner} in the first, {other.winner} in the second"
        if self.agreement == "tie":
            return f"the winners differ, and tie: {winners}"
        gap = next((each.gap for each in self.first.contenders if each.trial.config == other.winner), None)
        detail = f": there the second's is slower by {gap.centre:.1%}" if gap is not None else ""
        return f"the tunes disagree on the winner: {winners}{detail}"


def comparisons_of(reports: Sequence[Report]) -> list[RunComparison]:
    """The comparisons with the first run, but for runs of its kernel on other problems, which the map shows."""
    first, *others = reports
    own, pairs = first.run.head.key, [(one, one.run.head.key) for one in others]
    return [_comparison(first, one) for one, key in pairs if key.kernel != own.kernel or key.problem == own.problem]


def _comparison(first: Report, second: Report) -> RunComparison:
    one, other = _facts(first), _facts(second)
    differences = {
        name: (one.get(name, ""), other.get(name, ""))
        for name in dict.fromkeys((*one, *other))
        if one.get(name, "") != other.get(name, "")
    }
    return RunComparison(first=first, second=second, differences=differences, common=_common(first, second))


def _facts(report: Report) -> dict[str, str]:
    return {**report.headline, "space": report.run.head.space.fingerprint, **report.environment}


def _of_one_problem(first: Report, second: Report) -> bool:
    one, other = first.run.head.key, second.run.head.key
    return (one.kernel, one.problem) == (other.kernel, other.problem)


def _common(first: Report, second: Report) -> Common | str:
    if not _of_one_problem(first, second):
        return "the runs are of different kernels or problems, so that their times are not compared"
    times, others = _times(first), _times(second)
    both = [config for config in times if config in others]
    if len(both) < _FEWEST:
        return f"{len(both)} of the configs ran in both runs, too few to compare"
    if len({mode for run in (times, others) for config in both for mode in (run[config][1],)}) > 1:
        return "the runs measured in different modes, so that times are not compared"
    firsts, seconds = ([run[config][0] for config in both] for run in (times, others))
    if min(firsts) <= 0:
        return "a config has no measurable time"
    # The other method would give quartiles beyond all ratios where these are few.
    low, middle, high = quantiles([b / a for a, b in zip(firsts, seconds, strict=True)], n=4, method="inclusive")
    return Common(
        configs=len(both), quartiles=(low, middle, high), correlation=Model.spearman(firsts, seconds),
        places=(_place(first, second), _place(second, first)),
    )  # fmt: skip


def _times(report: Report) -> dict[Config, tuple[float, str]]:
    pairs = ((trial.config, trial.measurement) for trial in report.run.trials.values())
    return {config: (times.median_ms, times.mode) for config, times in pairs if times is not None}


def _place(of: Report, among: Report) -> int | None:
    configs = [row.trial.config for row in among.fastest_first if row.trial.ok]
    return configs.index(of.best.config) + 1 if of.best is not None and of.best.config in configs else None


SHOWN = 20
_MARKS = 12
_COMPARED = ("ms", "slower than the winner, 95 %", "rounds", "outcome", "config")
_MAPPED = 4  # cells of a line of the map before those of the configs
_MOST_CONFIGS = 10  # of a map over problems that a terminal has room for


def add_run(facts: Facts, report: Report, top: int = SHOWN) -> None:
    """Add the parts of a run's report; those of which the run log has nothing are left out."""
    facts.heading(report.title).listing(report.headline)
    compared = {"Last comparison": report.contenders} | {
        f"Compared again, in fresh process {process}": entries for process, entries in report.confirmations.items()
    }
    for title, entries in compared.items():
        if entries:
            facts.table(_COMPARED, [one.cells for one in entries], ("ms", "rounds"), title=title)
    if roof := report.roof_facts:
        facts.listing(roof, "Roofline")
    _add_trials(facts, report, top)
    _add_curve(facts, report)
    for name, text in report.paste.items():
        if name != "lockfile":
            facts.paste(name, text)
    if report.dropped:
        dropped = [[str(count), by] for by, count in report.dropped.items()]
        facts.table(("configs", "by"), dropped, ("configs",), title="Dropped by")
    if report.failures:
        failed = [[str(one.configs), str(one.status), str(one.first), one.reason] for one in report.failures[:top]]
        more = len(report.failures) - top
        header = ("configs", "status", "the first", "its reason")
        facts.table(header, failed, ("configs",), title="Failures", note=f"{more} more reasons" if more > 0 else "")
    _add_sensitivity(facts, report)
    facts.listing(report.environment, "Environment")


def add_comparisons(facts: Facts, reports: Sequence[Report]) -> None:
    """Add the parts of several runs together: the kernel over its problems, and the comparisons with the first run."""
    if problems := problem_map(reports):
        _add_map(facts, problems)
    for comparison in comparisons_of(reports):
        rows = [[name, *both] for name, both in comparison.differences.items()]
        header = ("", comparison.first.run.head.id, comparison.second.run.head.id)
        facts.table(header, rows, title="What differs", note=comparison.text)


def _add_map(facts: Facts, problems: Sequence[ProblemRow]) -> None:
    configs = list(problems[0].slower)[:_MOST_CONFIGS]
    names = [letter(number) for number in range(len(configs))]
    rows = [row.cells[: _MAPPED + len(names)] for row in problems]
    more = len(problems[0].slower) - len(configs)
    note = "each config's time over that of the problem's best config" + (f"; {more} configs more" if more > 0 else "")
    header = ("problem", "ms", "of limit", "vs default", *names)
    facts.table(header, rows, header[1:], title="Over problems", note=note)
    facts.table(("", "config"), list(zip(names, map(str, configs), strict=True)), title="Their best configs")


def _add_trials(facts: Facts, report: Report, top: int) -> None:
    if rows := report.fastest_first:
        header = ("ms", "vs default", "outcome", "config")
        cells = [
            [ms_text(report.ms_of(row.trial)), gain_text(*report.gain_of(row.trial)), row.fate, str(row.trial.config)]
            for row in rows[:top]
        ]
        more = f"{len(rows) - top} more" if len(rows) > top else ""
        facts.table(header, cells, header[:2], title="Trials", note=more)


def _add_curve(facts: Facts, report: Report) -> None:
    points = report.best_so_far
    shown_points = points if len(points) <= _MARKS else [*points[: _MARKS // 2], *points[-_MARKS // 2 :]]
    rows = [[f"{at_s:.1f}", f"{trial.median_ms:.4g}", str(trial.config)] for at_s, trial in shown_points]
    left_out = len(points) - len(shown_points)
    header, note = ("after s", "ms", "config"), f"{left_out} in between are left out" if left_out else ""
    if rows:
        facts.table(header, rows, header[:2], title="Best so far, by screening", note=note)


def _add_sensitivity(facts: Facts, report: Report) -> None:
    sensitivity = report.sensitivity
    if isinstance(sensitivity, str) or not sensitivity.knobs:
        return
    rows = [[knob.name, f"{knob.share:.0%}", f"+{knob.span:.0%}", str(knob.best.value)] for knob in sensitivity.knobs]
    header = ("tunable", "share", "span", "best")
    facts.table(header, rows, header[1:3], title="Which tunables matter")
