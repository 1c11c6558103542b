"""The parts of a report in words, one after another: what the terminal and Markdown write in their own ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triton_ops.report.comparison import compared, comparison_of, comparison_text
from triton_ops.report.facts import Report
from triton_ops.report.shapes import ProblemMap, problem_map
from triton_ops.report.words import contender_cells, headline, letter, map_cells, place_cells, roof_facts

SHOWN = 20
_MARKS = 12
_COMPARED = ("ms", "slower than the winner, 95 %", "rounds", "became", "config")
_MAPPED = 4  # cells of a line of the map before those of the configs
_MOST_CONFIGS = 10  # of a map over problems that a terminal has room for


@dataclass(frozen=True)
class Part:
    """A part of a report.

    Attributes:
        header: Names of the columns; empty strings for a list of names and facts.
        rows: The rows, each with one text per column.
        right: Names of the columns that hold numbers.
        note: A remark below it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True)
class Block:
    """A text to paste."""

    title: str
    text: str


def parts_of(report: Report, top: int = SHOWN) -> Iterator[Part | Block]:
    """The parts of a run's report; those of which the run log has nothing are left out."""
    yield Part("", ("", ""), list(headline(report).items()))
    yield from (Block(name, text) for name, text in report.paste.items() if name != "lockfile")
    if report.contenders:
        yield Part("Last comparison", _COMPARED, list(map(contender_cells, report.contenders)), ("ms", "rounds"))
    for process, contenders in report.confirmations.items():
        title = f"Compared again, in fresh process {process}"
        yield Part(title, _COMPARED, list(map(contender_cells, contenders)), ("ms", "rounds"))
    if rows := list(roof_facts(report).items()):
        yield Part("Roofline", ("", ""), rows)
    yield from _trials(report, top)
    yield from _curve(report)
    if report.dropped:
        dropped = [[str(count), by] for by, count in report.dropped.items()]
        yield Part("Dropped by", ("configs", "by"), dropped, ("configs",))
    if report.failures:
        failed = [[str(one.configs), str(one.status), str(one.first), one.reason] for one in report.failures[:top]]
        more = len(report.failures) - top
        note = f"{more} more reasons" if more > 0 else ""
        yield Part("Failures", ("configs", "status", "the first", "its reason"), failed, ("configs",), note)
    yield from _sensitivity(report)
    yield Part("Environment", ("", ""), list(report.environment.items()))


def comparison_parts(first: Report, second: Report) -> Iterator[Part]:
    """The parts of the comparison of two runs."""
    comparison = comparison_of(first, second)
    rows = [[name, *both] for name, both in comparison.differences.items()]
    header = ("", first.run.head.id, second.run.head.id)
    yield Part("What differs", header, rows, note=comparison_text(comparison))


def further_parts(reports: Sequence[Report]) -> Iterator[Part]:
    """The parts of several runs together: the kernel over its problems, and the comparisons with the first run."""
    problems = problem_map(reports)
    if problems is not None:
        yield from _map_parts(problems)
    for other in compared(reports):
        yield from comparison_parts(reports[0], other)


def _map_parts(problems: ProblemMap) -> Iterator[Part]:
    configs = problems.configs[:_MOST_CONFIGS]
    names = [letter(number) for number in range(len(configs))]
    rows = [map_cells(row)[: _MAPPED + len(names)] for row in problems.rows]
    more = len(problems.configs) - len(configs)
    note = "each best config's time over that of the problem's own" + (f"; {more} configs more" if more > 0 else "")
    header = ("problem", "ms", "of limit", "over default", *names)
    yield Part("Over problems", header, rows, header[1:], note)
    yield Part(
        "Their best configs", ("", "config"), [[name, str(one)] for name, one in zip(names, configs, strict=True)]
    )


def _trials(report: Report, top: int) -> Iterator[Part]:
    rows = report.fastest_first
    if rows:
        more = f"{len(rows) - top} more" if len(rows) > top else ""
        header = ("ms", "over default", "became, or was dropped by", "config")
        yield Part("Trials", header, list(map(place_cells, rows[:top])), header[:2], more)


def _curve(report: Report) -> Iterator[Part]:
    points = report.run.best_so_far
    if not points:
        return
    shown_points = points if len(points) <= _MARKS else [*points[: _MARKS // 2], *points[-_MARKS // 2 :]]
    rows = [[f"{at_s:.1f}", f"{trial.median_ms:.4g}", str(trial.config)] for at_s, trial in shown_points]
    note = f"{len(points) - len(shown_points)} in between are left out" if len(shown_points) < len(points) else ""
    yield Part("Best so far, by screening", ("after s", "ms", "config"), rows, ("after s", "ms"), note)


def _sensitivity(report: Report) -> Iterator[Part]:
    sensitivity = report.sensitivity
    if isinstance(sensitivity, str) or not sensitivity.knobs:
        return
    rows = [[knob.name, f"{knob.share:.0%}", f"+{knob.span:.0%}", str(knob.best.value)] for knob in sensitivity.knobs]
    header = ("tunable", "share", "span", "best")
    yield Part("Which tunables matter", header, rows, header[1:3])
