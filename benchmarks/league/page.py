"""The page of the league's figures, from traces alone: equal traces give an equal page.

A tuner counts where its trace has all spaces that the trace of `OURS` has, with equal sums. A fraction is the best time
of the space over the best that a run has found; the mean of the seeds is one figure of a space, and each space counts
alike. Differences are paired by space, and their intervals are those of a bootstrap over spaces.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.league.race import STARTS
from benchmarks.league.spaces import CALLABLES, GROUPS
from benchmarks.league.tuners import BARE, EVALUATIONS, OURS, TUNERS

Trace = Mapping[str, Any]
BUDGETS = (10, 25, 50)
_NEAR = 1.01  # within 1 % of the best
_BEHIND = ("Optuna TPE", 25, 0.02)  # a peer, evaluations, and the least difference to be listed
_LAUNCHES = 20  # of an evaluation, about those of a screening
_TRIAL_S = 0.025  # of an evaluation beside its launches
_DRAWS = 10_000


def best_so_far(space: Trace, asked: Sequence[int]) -> list[float]:
    """The fraction after each evaluation; 0 until one ran."""
    best, fractions = math.inf, []
    for at in asked:
        ms = space["configs"][str(at)][0]
        best = best if ms is None else min(best, ms)
        fractions.append(space["best_ms"] / best)
    return fractions


def fraction(space: Trace, start: str, budget: int) -> float:
    """The mean fraction after `budget` evaluations, or after the last one if there were fewer."""
    runs = space["runs"][start]
    return statistics.mean(best_so_far(space, asked[:budget])[-1] for asked in runs)


def evaluations_to_near(space: Trace, start: str) -> list[float]:
    """For each seed the evaluations until a config is within 1 % of the best; infinite if none was."""
    runs = space["runs"][start]
    return [
        next((n for n, share in enumerate(best_so_far(space, asked), 1) if share * _NEAR >= 1), math.inf)
        for asked in runs
    ]


def seconds_to_near(space: Trace, start: str, cpus: int) -> list[float]:
    """For each seed the seconds to compile on so many CPUs and to launch until a config is within 1 % of the best."""
    seconds = []
    for seed, count in enumerate(evaluations_to_near(space, start)):
        if math.isinf(count):
            seconds.append(count)
            continue
        rows = [space["configs"][str(at)] for at in space["runs"][start][seed][: int(count)]]
        ahead = space.get("compiled_s")
        compiled_s = ahead[start][seed][int(count) - 1] if ahead else sum(row[1] for row in rows)
        launches = 1 if space["group"] == CALLABLES else _LAUNCHES
        seconds.append(compiled_s / cpus + sum(launches * (row[0] or 0.0) / 1e3 + _TRIAL_S for row in rows))
    return seconds


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean by a bootstrap over spaces."""
    values = np.array(differences)
    draws = np.random.default_rng(0).integers(0, len(values), (_DRAWS, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def page_of(traces: Mapping[str, Trace]) -> str:
    """The page, in Markdown."""
    spaces = traces[OURS]["spaces"] if OURS in traces else next(iter(traces.values()))["spaces"]
    whole = {
        name: {**trace, "spaces": {space: trace["spaces"][space] for space in spaces}}
        for name, trace in traces.items()
        if _has_all(trace, spaces)
    }
    counts = {group: sum(space["group"] == group for space in spaces.values()) for group in GROUPS}
    lines = ["# Tuners on recorded spaces", "", *_introduction(whole, counts), ""]
    for start, title in STARTS.items():
        lines += [f"## All start {title}", "", _FRACTIONS, "", *_fractions(whole, start, counts), ""]
        for own in (BARE, OURS):
            if own in whole and len(whole) > 1:
                lines += [f"### `{own}` less each other tuner", "", *_differences(whole, own, start), ""]
        lines += [*_behind(whole, start), "### Until a config is within 1 % of the best", ""]
        lines += [*_to_near(whole, start), ""]
    lines += ["## Seconds, and time of the tuner itself", "", _SECONDS, "", _THINKING, "", *_thinking(whole)]
    if missing := [name for name in traces if name not in whole]:
        lines += ["", f"Traces that lack spaces, or are of other recordings, are left out: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


_FRACTIONS = f"Mean fraction of the optimum after {', '.join(map(str, BUDGETS[:-1]))} and {BUDGETS[-1]} evaluations:"
_SECONDS = f"""\
Counts and seconds until a config is within 1 % of the best are medians of all runs; `-` where less than half of them
got there. Seconds have all compiles, previews too, shared evenly by the CPUs; {_LAUNCHES} launches of each config (one
of a callable); and {_TRIAL_S} s for each evaluation. They have no time of the tuner itself."""
_THINKING = """\
A tuner itself takes these milliseconds for each evaluation, on two cores that other work shared: not the same twice."""


def _introduction(traces: Mapping[str, Trace], counts: Mapping[str, int]) -> list[str]:
    lines = [
        f"{len(traces)} tuners search {sum(counts.values())} recorded spaces, {EVALUATIONS} evaluations in each run.",
        "A config that fails counts as an evaluation, one that was tried before does not.",
        "[Another page](../../league/README.md) says how tuners are run, and how to add one.",
        "",
        *_rows(["group", "spaces", "what they are"], ([name, counts[name], about] for name, about in GROUPS.items())),
        "",
    ]
    about = {name: TUNERS[name].about if name in TUNERS else "" for name in traces}
    rows = ([name, trace["version"], trace["seeds"], about[name]] for name, trace in traces.items())
    return [*lines, *_rows(["tuner", "version or commit", "seeds", "how it is run"], rows)]


def _fractions(traces: Mapping[str, Trace], start: str, counts: Mapping[str, int]) -> list[str]:
    def cell(trace: Trace, group: str | None) -> str:
        spaces = [space for space in trace["spaces"].values() if group in (None, space["group"])]
        return " / ".join(f"{statistics.mean(fraction(s, start, n) for s in spaces):.3f}" for n in BUDGETS)

    groups = [group for group, count in counts.items() if count]
    rows = [[name, cell(trace, None), *(cell(trace, group) for group in groups)] for name, trace in traces.items()]
    return _rows(["tuner", "all", *groups], rows)


def _differences(traces: Mapping[str, Trace], own: str, start: str) -> list[str]:
    rows = []
    for name, trace in traces.items():
        if name not in (OURS, BARE):
            cells, better = [], []
            for budget in BUDGETS:
                each = _paired(traces[own], trace, start, budget)
                low, high = interval(each)
                cells.append(f"{statistics.mean(each):+.3f} ({low:+.3f} to {high:+.3f})")
                better += _better(trace["spaces"].values(), each, budget)
            rows.append([name, *cells, ", ".join(better) or "-"])
    return _rows(["tuner", *(f"after {budget}" for budget in BUDGETS), "where the other tuner is better"], rows)


def _better(spaces: Iterable[Trace], differences: Sequence[float], budget: int) -> list[str]:
    """The groups, and all spaces, in which the interval of the differences lies below zero."""
    pairs = [(space["group"], difference) for space, difference in zip(spaces, differences, strict=True)]
    by_group = {"all": list(differences)}
    by_group |= {group: [difference for of, difference in pairs if of == group] for group in GROUPS}
    return [f"{name} after {budget}" for name, each in by_group.items() if each and interval(each)[1] < 0]


def _paired(own: Trace, other: Trace, start: str, budget: int) -> list[float]:
    """The differences of the fractions, space by space."""
    pairs = ((space, other["spaces"][name]) for name, space in own["spaces"].items())
    return [fraction(space, start, budget) - fraction(its, start, budget) for space, its in pairs]


def _behind(traces: Mapping[str, Trace], start: str) -> list[str]:
    peer, budget, least = _BEHIND
    if peer not in traces or BARE not in traces:
        return []
    names = list(traces[BARE]["spaces"])
    each = sorted(zip(_paired(traces[BARE], traces[peer], start, budget), names, strict=True))
    rows = [[name, f"{difference:+.3f}"] for difference, name in each if difference < -least]
    title = f"### Spaces where `{BARE}` is behind {peer} by more than {least} after {budget}"
    return [title, "", *(_rows(["space", "difference"], rows) if rows else ["None."]), ""]


def _to_near(traces: Mapping[str, Trace], start: str) -> list[str]:
    rows = []
    for name, trace in traces.items():
        spaces = trace["spaces"].values()
        counts = [count for space in spaces for count in evaluations_to_near(space, start)]
        share = statistics.mean(count < math.inf for count in counts)
        seconds = (_median((s for space in spaces for s in seconds_to_near(space, start, cpus)), 1) for cpus in (2, 16))
        rows.append([name, f"{share:.0%}", _median(counts, 0), *seconds])
    return _rows(["tuner", "runs that got there", "evaluations", "seconds on 2 CPUs", "on 16"], rows)


def _thinking(traces: Mapping[str, Trace]) -> list[str]:
    medians = {name: [s["thinking_ms"] for s in trace["spaces"].values()] for name, trace in traces.items()}
    rows = ([name, f"{statistics.median(each):.1f}", f"{max(each):.1f}"] for name, each in medians.items())
    return _rows(["tuner", "median of the spaces", "most"], rows)


def _has_all(trace: Trace, spaces: Mapping[str, Trace]) -> bool:
    known = trace["spaces"]
    return all(name in known and known[name]["digest"] == space["digest"] for name, space in spaces.items())


def _median(values: Iterable[float], digits: int) -> str:
    median = statistics.median_high(list(values))
    return "-" if math.isinf(median) else f"{median:.{digits}f}"


def _rows(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    line: Callable[[Sequence[object]], str] = lambda cells: "| " + " | ".join(map(str, cells)) + " |"  # noqa: E731
    return [line(head), line(["---"] * len(head)), *map(line, rows)]
