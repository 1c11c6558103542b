"""Two runs beside each other: what differs in where and how they took place, and how the configs of both compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1
from statistics import quantiles
from typing import Literal, TypeAlias

from triton_ops.cost_model import spearman
from triton_ops.report.facts import Report
from triton_ops.report.words import headline
from triton_ops.space import Config

_FEWEST = 2  # configs of which quartiles can be told

Agreement: TypeAlias = Literal["same", "tie", "differ", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Common:
    """The configs that ran in both runs.

    Attributes:
        quartiles: The second run's time over the first's: a quarter of the configs are below the first number, half
            below the second, three quarters below the third.
        places: The place of the first run's best config in the second run, and of the second's in the first, from 1
            on; None if it did not run there.
    """

    configs: int
    quartiles: tuple[float, float, float]
    correlation: float
    places: tuple[int | None, int | None]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs beside each other.

    Attributes:
        differences: What differs, by name, each with the text of the first and of the second; empty where it has none.
        common: The configs of both; a text says why their times cannot be compared.
        agreement: Whether both tunes of one problem came to the same: `same` winner, winners that `tie` in one of the
            runs, winners that `differ`, or `unknown` where a run has none.
    """

    first: Report
    second: Report
    differences: dict[str, tuple[str, str]]
    common: Common | str
    agreement: Agreement = "unknown"


def compared(reports: Sequence[Report]) -> list[Report]:
    """The runs that are compared with the first: all but those of its kernel on other problems, which the map shows."""
    first, *others = [(one, one.run.head.key) for one in reports]
    return [one for one, key in others if key.kernel != first[1].kernel or key.problem == first[1].problem]


def comparison_of(first: Report, second: Report) -> Comparison:
    """The comparison of two runs."""
    one, other = _facts(first), _facts(second)
    differences = {
        name: (one.get(name, ""), other.get(name, ""))
        for name in dict.fromkeys((*one, *other))
        if one.get(name, "") != other.get(name, "")
    }
    return Comparison(
        first=first, second=second, differences=differences, common=_common(first, second),
        agreement=_agreement(first, second),
    )  # fmt: skip


def _facts(report: Report) -> dict[str, str]:
    return {**headline(report), "space": report.run.head.space.fingerprint, **report.environment}


def _agreement(first: Report, second: Report) -> Agreement:
    one, other = first.record, second.record
    if one is None or other is None or not _of_one_problem(first, second):
        return "unknown"
    if one.winner == other.winner:
        return "same"
    return "tie" if other.winner in one.ties or one.winner in other.ties else "differ"


def agreement_text(comparison: Comparison) -> str:
    """The agreement of two tunes of one problem, in a sentence; empty where it is not known."""
    one, other = comparison.first.record, comparison.second.record
    if comparison.agreement == "unknown" or one is None or other is None:
        return ""
    if comparison.agreement == "same":
        return "both tunes have the same winner"
    winners = f"{one.winner} in the first, {other.winner} in the second"
    if comparison.agreement == "tie":
        return f"the winners are others, and tie: {winners}"
    gap = next((each.gap for each in comparison.first.contenders if each.trial.config == other.winner), None)
    detail = f": there the second's is slower by {expm1(gap.centre):.1%}" if gap is not None else ""
    return f"the tunes disagree on the winner: {winners}{detail}"


def _of_one_problem(first: Report, second: Report) -> bool:
    one, other = first.run.head.key, second.run.head.key
    return (one.kernel, one.problem) == (other.kernel, other.problem)


def _common(first: Report, second: Report) -> Common | str:
    if not _of_one_problem(first, second):
        return "the kernel or the problem is another one, so that times are not compared"
    times, others = _times(first), _times(second)
    both = [config for config in times if config in others]
    if len(both) < _FEWEST:
        return f"{len(both)} of the configs ran in both runs, too few to compare"
    if len({mode for run in (times, others) for config in both for mode in (run[config][1],)}) > 1:
        return "the runs measured in different modes, so that times are not compared"
    firsts, seconds = ([run[config][0] for config in both] for run in (times, others))
    if min(firsts) <= 0:
        return "a config has no measurable time"
    low, middle, high = quantiles([b / a for a, b in zip(firsts, seconds, strict=True)], n=4, method="inclusive")
    return Common(
        configs=len(both), quartiles=(low, middle, high), correlation=spearman(firsts, seconds),
        places=(_place(first, second), _place(second, first)),
    )  # fmt: skip


def _times(report: Report) -> dict[Config, tuple[float, str]]:
    pairs = ((trial.config, trial.measurement) for trial in report.run.trials.values())
    return {config: (times.median_ms, times.mode) for config, times in pairs if times is not None}


def _place(of: Report, among: Report) -> int | None:
    """The place of one run's best config in another one's order."""
    configs = [row.trial.config for row in among.fastest_first if row.trial.ok]
    return configs.index(of.best.config) + 1 if of.best is not None and of.best.config in configs else None


def comparison_text(comparison: Comparison) -> str:
    """The agreement of the tunes, and the comparison of the configs of both runs."""
    return "; ".join(filter(None, [agreement_text(comparison), common_text(comparison.common)]))


def common_text(common: Common | str) -> str:
    """The configs of both runs in a sentence."""
    if isinstance(common, str):
        return common
    low, middle, high = common.quartiles
    first, second = ("not run there" if place is None else f"place {place}" for place in common.places)
    return (
        f"{common.configs} configs ran in both: the second run's times are {middle:.3f}x the first's "
        f"(quartiles {low:.3f}x and {high:.3f}x), the orders' correlation is {common.correlation:.2f}; "
        f"the first run's best config is {first} in the second, the second's is {second} in the first"
    )
