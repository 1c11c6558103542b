"""Commands on recorded spaces: one makes them, others judge searches or tunables on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from typer.core import TyperCommand

from triton_ops.base import Host, counted
from triton_ops.exceptions import SettingsError
from triton_ops.request import Effort
from triton_ops.search import Search
from triton_ops.terminal import Facts, followed, option, tell
from triton_ops.typed import TypedTarget
from triton_ops_lab.recording import read_recording, record, write_recording
from triton_ops_lab.replayed_search import LiveConditions, LiveSummary, PreviewAllowance, ReplayPlan, SpaceSummary
from triton_ops_lab.sensitivities import Cliff, Sensitivity, cliffs, sensitivity

_MANY = "--records"
_KNOBS = ("tunable", "share", "span", "fixed", "best", "by value: slower than the best value")
_JUMPS = ("step", "pairs", "slower", "steep", "spills", "if spilled", "fails")
_SHOWN = 12
_Summary = TypeVar("_Summary", SpaceSummary, LiveSummary)


class _ManyRecords(TyperCommand):
    """A command whose `--records` after RECORDING takes all files up to the next option, as in `--records one two`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its files, which is the form that the parser knows."""
        words: list[str] = []
        many = False
        for at, word in enumerate(args):
            if word == _MANY:
                # where no RECORDING came before, the words after the first file may be RECORDINGs
                many = any(not before.startswith("-") for before in args[:1])
            else:
                many = many and not word.startswith("-")
                if many and args[at - 1] != _MANY:
                    words.append(_MANY)
            words.append(word)
        return super().parse_args(ctx, words)


def replay_command(
    recordings: Annotated[list[Path], option("RECORDING...", "Recorded spaces: files, or folders of them.")],
    search: Annotated[str, option("--search", "A searcher, or several as NAME,NAME.", "NAME")] = "auto",
    trials: Annotated[str, option("--trials", "Numbers of evaluations to report.", "N,N")] = "10,25,50,100,200",
    seeds: Annotated[int, option("--seeds", "Runs of each search.", "N", min=1)] = 5,
    records: Annotated[
        list[Path] | None, option("--records", "Recordings of other problems to learn from; several files.", "FILE")
    ] = None,
    batch: Annotated[int, option("--batch", "Configs asked for at a time.", "N", min=1)] = 1,
    jobs: Annotated[int | None, option("--jobs", "Processes; default one per core.", "N", min=1)] = None,
    no_model: Annotated[
        bool, option("--no-model", "Search without a model of the kernel's work, declared or read.")
    ] = False,
    previews: Annotated[
        str,
        option(
            "--previews",
            "Configs compiled only for the search to see: at first, and with each evaluation.",
            "FIRST,EACH",
        ),
    ] = f"{PreviewAllowance.first},{PreviewAllowance.each}",
    undeclared: Annotated[
        bool, option("--undeclared", "Pass over declared work, and search by what was read of the kernel.")
    ] = False,
    live: Annotated[
        bool, option("--live", "Simulate whole tunes, with compilers, noise and the search's own end.")
    ] = False,
    effort: Annotated[str | None, option("--effort", "The effort of simulated tunes; default quick.", "NAME")] = None,
    noise: Annotated[
        float, option("--noise", "Noise of simulated measurements.", "SHARE", min=0.0)
    ] = LiveConditions.noise,
    compilers: Annotated[
        int, option("--compilers", "Processes that compile in simulated tunes.", "N", min=1)
    ] = LiveConditions.compilers,
) -> Facts:
    """Run a search on recorded spaces, where every time is known, and say how near it comes to the optimum.

    A fraction of 0.95 after 25 evaluations: the best of the first 25 configs asked for takes 1 / 0.95 of the time of
    the best there is. Configs that fail count as evaluations; previews, which are only compiled, do not.

    RECORDING is what `triton-ops record` wrote, a cache file of Kernel Tuner, or a run log. The table has the mean
    fraction after each number of evaluations, and the evaluations until a config within 5 % and within 1 % of
    the optimum was found: the median, and what nine tenths of the runs needed.

    --live runs the whole loop on a simulated clock, with compilers, noise and the search's own end. Its table has
    the share of tunes within 1 % of the optimum, the mean and the worst loss, trials, seconds, and why searches
    ended.
    """
    plan = ReplayPlan(
        recordings=tuple(_files(recordings)),
        searches=tuple(Search.checked(name.strip()) for name in search.split(",")),
        budgets=tuple(sorted({_count(text) for text in trials.split(",")})), seeds=seeds,
        records=tuple(_files(records or [])), batch=batch, model=not no_model, undeclared=undeclared,
        previews=_previews(previews),
    )  # fmt: skip
    processes = min(jobs or Host.usable_cpus(), len(plan.recordings) * len(plan.searches) * seeds)
    if live:
        level, conditions = Effort.named(effort), LiveConditions(noise=noise, compilers=compilers)
        tunes = list(_announce(plan.tuned(level, conditions, processes, followed)))
        facts = Facts("replay", {"effort": level.name, "spaces": tunes})
        header = ["search", "within 1%", "promised", "mean regret", "worst", "trials", "s", "ended", "recording"]
        rows = []
        for one in tunes:
            regrets = [f"{regret:.2%}" for regret in (one.regret_mean, one.regret_worst)]
            ends = ", ".join(f"{count} {reason}" for reason, count in sorted(one.stopped.items()))
            figures = [
                f"{one.within_1pct:.2f}",
                Facts.cell(one.promised, ".2f"),
                *regrets,
                f"{one.trials:.1f}",
                f"{one.seconds:.1f}",
            ]
            rows.append([one.search, *figures, ends, one.file])
        return facts.table(header, rows, header[1:-2])
    summaries = list(_announce(plan.replayed(processes, followed)))
    facts = Facts("replay", {"spaces": summaries})
    return facts.table(*_replay_table(summaries, plan))


replay_command.parser = _ManyRecords  # type: ignore[attr-defined]


def _announce(summaries: Iterable[_Summary]) -> Iterator[_Summary]:
    """Pass summaries on, and tell each when it is there."""
    for summary in summaries:
        tell(f"{summary.search} on {summary.file}: done")
        yield summary


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.name.endswith((".json", ".json.gz", ".jsonl")))
        if not path.exists() or (path.is_dir() and not inside):
            fault = "holds no recording" if path.is_dir() else "is not there"
            raise SettingsError(f"{path} {fault}", hint="name files that end in .json, .json.gz or .jsonl")
        files += inside if path.is_dir() else [path]
    return list(dict.fromkeys(files))


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise SettingsError(f"--trials holds {text!r}", hint="write whole numbers above 0: --trials 25,100")
    return int(text)


def _previews(text: str) -> PreviewAllowance:
    first, comma, each = text.partition(",")
    if not comma or not first.strip().isdecimal() or not each.strip().isdecimal():
        message = f"--previews is {text!r}"
        raise SettingsError(message, hint="write two whole numbers: --previews 128,8, or 0,0 for none")
    return PreviewAllowance(int(first), int(each))


def _replay_table(summaries: list[SpaceSummary], plan: ReplayPlan) -> tuple[list[str], list[list[str]], list[str]]:
    """The header, the rows, and the columns of numbers."""
    header = ["search", *map(str, plan.budgets), "to 5%", "to 1%", "ms each", "recording"]
    rows = []
    for one in summaries:
        reach = [f"{trials.median or '-'} ({trials.p90 or '-'})" for trials in (one.to_5pct, one.to_1pct)]
        shares = [f"{share.mean:.3f}" for share in one.budgets.values()]
        rows.append([one.search, *shares, *reach, f"{one.overhead_ms:.1f}", one.file])
    for name in plan.searches:
        same = [summary for summary in summaries if summary.search == name]
        if len(same) > 1:
            means = [sum(s.budgets[budget].mean for s in same) / len(same) for budget in plan.budgets]
            rows.append([name, *(f"{mean:.3f}" for mean in means), "", "", "", f"mean of {len(same)}"])
    return header, rows, header[1:-1]


def record_command(
    out: Annotated[Path, option("--out", "Where to write it: FILE.json.gz.", "FILE")],
    target: Annotated[TypedTarget, "text shape dtype arg space"],
    passes: Annotated[int, option("--passes", "How often the whole space is measured.", "N", min=1)] = 2,
    device: str | None = None,
    warm: Annotated[bool, option("--warm", "On a GPU, leave L2 as the launch before left it.")] = False,
) -> Facts:
    """Measure every config of TARGET's space for one problem, and write a recording for `triton-ops replay`.

    Each pass measures the whole space in another order. An interrupted recording is not written.
    """
    if not out.name.endswith(".json.gz"):
        hint = f"write {str(out).removesuffix('.json')}.json.gz"
        raise SettingsError(f"--out is {out}; a recording's name ends in .json.gz", hint=hint)
    if not out.absolute().parent.is_dir():  # before the space is measured, which may take hours
        raise SettingsError(f"{out.absolute().parent} is no folder", hint="make it first")
    try:
        tuned = target.tuned(target.load())
        content = record(*tuned, passes=passes, device=device, cold=not warm)
    except KeyboardInterrupt:
        text = f"interrupted: {out} is not written, since a part of a recording is of no use"
        raise KeyboardInterrupt(text) from None
    write_recording(out, content)
    rows = content["rows"]
    ok = sum(row["status"] == "ok" for row in rows)
    data = {"file": str(out), "configs": len(rows), "ok": ok, "passes": passes}
    return Facts("recording", data).lines(f"{out}: {counted(len(rows), 'config')}, {ok} of them ran, {passes} passes")


def sensitivity_command(
    files: Annotated[list[Path], option("FILE...", "Run logs, or recordings of whole spaces.")],
) -> Facts:
    """Say which tunables matter in a measured space, what each value costs, and at which steps times jump.

    Reads run logs of tunes, recordings of `triton-ops record`, and Kernel Tuner's cache files.

    Exit code 2: fewer than three configs of a file ran, or all took equally long.
    """
    results = [(sensitivity(recording), cliffs(recording)) for recording in map(read_recording, files)]
    spaces = [_sensitivity_json(str(file), *result) for file, result in zip(files, results, strict=True)]
    facts = Facts("explain sensitivity", spaces)
    for result in results:
        _add_space(facts.heading(result[0].kernel), *result)
    return facts


def _add_space(facts: Facts, space: Sensitivity, jumps: list[Cliff]) -> None:
    listed = {
        "space": f"{space.kernel}, {space.device or 'device not named'}",
        "configs": f"{space.configs} ran, {space.failed} failed",
        "fastest": f"{space.best_ms:.4g} ms: {space.best}",
        "explained": f"{space.explained:.0%} of the differences by tunables alone, the rest by tunables together",
    }
    rows = []
    for knob in space.knobs:
        figures = [f"{knob.share:.0%}", f"+{knob.span:.0%}", f"+{knob.most_lost:.0%}"]
        slower = (f"{one.value}: {'none ran' if one.slower is None else f'+{one.slower:.0%}'}" for one in knob.effects)
        rows.append([knob.name, *figures, str(knob.best.value), ", ".join(slower)])
    facts.listing(listed).table(_KNOBS, rows, _KNOBS[1:4])
    jump_rows = [
        [f"{one.name} {one.before} -> {one.after}", str(one.pairs), Facts.cell(one.slower, ".2f", "x"), str(one.steep),
         str(one.spills), Facts.cell(one.slower_if_spilled, ".2f", "x"), str(one.fails)]
        for one in jumps[:_SHOWN]
    ]  # fmt: skip
    facts.table(_JUMPS, jump_rows, _JUMPS[1:])


def _sensitivity_json(file: str, space: Sensitivity, jumps: list[Cliff]) -> dict[str, Any]:
    knobs = [
        {**Facts.members(knob, "name", "share", "span", "most_lost", values="effects"), "best": knob.best.value}
        for knob in space.knobs
    ]
    figures = Facts.members(space, "kernel", "device", "configs", "failed", "best", "best_ms", "explained")
    return {"file": file, **figures, "knobs": knobs, "cliffs": jumps}
