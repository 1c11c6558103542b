"""`triton-ops replay`: judge searches on recorded spaces, in which every config's time is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from triton_ops.base import usable_cpus
from triton_ops.cli.console import Json, Verbose, bold, say, say_json, table, tell, width
from triton_ops.exceptions import SettingsError
from triton_ops.lab import (
    LiveConditions,
    LiveSummary,
    PreviewAllowance,
    ReplayPlan,
    SpaceSummary,
    replay_all,
    replay_live,
)
from triton_ops.request import Effort, effort_of
from triton_ops.search import checked_search

_MANY = "--records"


class Command(TyperCommand):
    """A command whose `--records` takes all files up to the next option, as in `--records one two`.

    This holds only if RECORDING precedes the option; otherwise the option takes one file, since the rest may be
    RECORDING.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its files, which is the form that the parser knows."""
        found: list[str] = []
        many = False
        for at, word in enumerate(args):
            if word == _MANY:
                many = any(not before.startswith("-") for before in args[:1])
                found.append(word)
                continue
            many = many and not word.startswith("-")
            if many and args[at - 1] != _MANY:
                found.append(_MANY)
            found.append(word)
        return super().parse_args(ctx, found)


def replay_command(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="RECORDING...", help="Recorded spaces: files, or folders of them.")
    ],
    search: Annotated[
        str, typer.Option("--search", metavar="NAME", help="A searcher, or several as NAME,NAME.")
    ] = "auto",
    trials: Annotated[
        str, typer.Option("--trials", metavar="N,N", help="Numbers of evaluations to report.")
    ] = "10,25,50,100,200",
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each search.")] = 5,
    records: Annotated[
        list[Path] | None,
        typer.Option("--records", metavar="FILE", help="Recordings of other problems to learn from; several files."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Configs asked for at a time.")] = 1,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes; default one per core.")
    ] = None,
    no_model: Annotated[
        bool, typer.Option("--no-model", help="Search without a model of the kernel's work, declared or read.")
    ] = False,
    previews: Annotated[
        str,
        typer.Option(
            "--previews",
            metavar="FIRST,EACH",
            help="Configs compiled only for the search to see: at first, and with each evaluation.",
        ),
    ] = f"{PreviewAllowance.first},{PreviewAllowance.each}",
    undeclared: Annotated[
        bool, typer.Option("--undeclared", help="Search by what was read of the kernel, as if none had declared work.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Simulate whole tunes, with compilers, noise and the search's own end.")
    ] = False,
    effort: Annotated[
        str | None, typer.Option("--effort", metavar="NAME", help="The effort of simulated tunes; default quick.")
    ] = None,
    noise: Annotated[
        float, typer.Option("--noise", metavar="SHARE", min=0.0, help="Noise of simulated measurements.")
    ] = LiveConditions.noise,
    compilers: Annotated[
        int, typer.Option("--compilers", metavar="N", min=1, help="Processes that compile in simulated tunes.")
    ] = LiveConditions.compilers,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Let a search loose on recorded spaces, where every time is known, and say how near it comes to the optimum.

    A fraction of 0.95 after 25 evaluations: the best of the first 25 configs asked for takes 1 / 0.95 of the time of
    the best there is. Configs that fail count as evaluations; previews, which are only compiled, do not.
    """
    plan = ReplayPlan(
        recordings=tuple(_files(recordings)),
        searches=tuple(checked_search(name.strip()) for name in search.split(",")),
        budgets=tuple(sorted({_count(text) for text in trials.split(",")})),
        seeds=seeds,
        records=tuple(_files(records or [])),
        batch=batch,
        model=not no_model,
        undeclared=undeclared,
        previews=_previews(previews),
    )
    if live:
        conditions = LiveConditions(noise=noise, compilers=compilers)
        _live(plan, effort_of(effort), conditions, jobs, as_json)
        return
    runs = len(plan.recordings) * len(plan.searches) * seeds
    found: list[SpaceSummary] = []
    for summary in replay_all(plan, min(jobs or usable_cpus(), runs)):
        tell(f"{summary.search} on {summary.file}: done")
        found.append(summary)
    order = {
        (path.name, name): at for at, (path, name) in enumerate((p, n) for p in plan.recordings for n in plan.searches)
    }
    found.sort(key=lambda summary: order[summary.file, summary.search])
    if as_json:
        say_json({"spaces": [summary.as_json() for summary in found]})
    else:
        lines = _lines(found, plan, width())
        say(bold(lines[0]), *lines[1:])


def _live(plan: ReplayPlan, effort: Effort, conditions: LiveConditions, jobs: int | None, as_json: bool) -> None:
    """Simulate tunes, and print their outcomes."""
    runs = len(plan.recordings) * len(plan.searches) * plan.seeds
    found: list[LiveSummary] = []
    for summary in replay_live(plan, effort, conditions, min(jobs or usable_cpus(), runs)):
        tell(f"{summary.search} on {summary.file}: done")
        found.append(summary)
    order = [(path.name, name) for path in plan.recordings for name in plan.searches]
    found.sort(key=lambda summary: order.index((summary.file, summary.search)))
    if as_json:
        say_json({"effort": effort.name, "spaces": [summary.as_json() for summary in found]})
        return
    header = ["search", "within 1%", "mean regret", "worst", "trials", "s", "ended", "recording"]
    lines = table(header, [_live_row(summary) for summary in found], width(), header[1:-2])
    say(bold(lines[0]), *lines[1:])


def _live_row(summary: LiveSummary) -> list[str]:
    regrets = [f"{regret:.2%}" for regret in (summary.regret_mean, summary.regret_worst)]
    ended = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.stopped.items()))
    times = [f"{summary.trials:.1f}", f"{summary.seconds:.1f}"]
    return [summary.search, f"{summary.within_1pct:.2f}", *regrets, *times, ended, summary.file]


def _files(given: list[Path]) -> list[Path]:
    """The given files, and the files of given folders in order of name.

    Raises:
        SettingsError: A path does not exist, or a folder holds no recordings.
    """
    found: list[Path] = []
    for path in given:
        inside = sorted(p for p in path.rglob("*") if p.name.endswith((".json", ".json.gz", ".jsonl")))
        if not path.exists() or (path.is_dir() and not inside):
            what = "holds no recording" if path.is_dir() else "is not there"
            raise SettingsError(f"{path} {what}", hint="name files that end in .json, .json.gz or .jsonl")
        found += inside if path.is_dir() else [path]
    return list(dict.fromkeys(found))


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise SettingsError(f"--trials holds {text!r}", hint="write whole numbers above 0: --trials 25,100")
    return int(text)


def _previews(text: str) -> PreviewAllowance:
    first, comma, each = text.partition(",")
    if not comma or not first.strip().isdecimal() or not each.strip().isdecimal():
        raise SettingsError(
            f"--previews is {text!r}", hint="write two whole numbers: --previews 128,8, or 0,0 for none"
        )
    return PreviewAllowance(int(first), int(each))


def _lines(found: list[SpaceSummary], plan: ReplayPlan, columns: int | None) -> list[str]:
    counts = [str(budget) for budget in plan.budgets]
    header = ["search", *counts, "to 5%", "to 1%", "ms each", "recording"]
    rows = [_row(summary) for summary in found]
    for name in plan.searches:
        of_search = [summary for summary in found if summary.search == name]
        if len(of_search) > 1:
            means = [sum(s.budgets[budget].mean for s in of_search) / len(of_search) for budget in plan.budgets]
            rows.append([name, *(f"{mean:.3f}" for mean in means), "", "", "", f"mean of {len(of_search)}"])
    return table(header, rows, columns, header[1:-1])


def _row(summary: SpaceSummary) -> list[str]:
    reach = [f"{_said(found.median)} ({_said(found.p90)})" for found in (summary.to_5pct, summary.to_1pct)]
    means = [f"{share.mean:.3f}" for share in summary.budgets.values()]
    return [summary.search, *means, *reach, f"{summary.overhead_ms:.1f}", summary.file]


def _said(count: int | None) -> str:
    return "-" if count is None else str(count)
