"""`triton-ops tune`: find the fastest config of a kernel for one problem, or recall it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops import kernels
from triton_ops.backend import Operation
from triton_ops.base import gain_text
from triton_ops.cli.console import (
    CacheDir,
    Device,
    Dtype,
    Json,
    Shape,
    Space,
    Verbose,
    bold,
    fits,
    is_verbose,
    only_data_on_stdout,
    paragraph,
    say,
    say_json,
    table,
    tell,
    tell_failures,
    width,
)
from triton_ops.cli.from_misses import tune_from_misses
from triton_ops.cli.hints import hints
from triton_ops.cli.interrupts import INTERRUPTED
from triton_ops.cli.problem import operation_of, parse_shapes, parse_space
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.show import ENDS
from triton_ops.cli.target import load_check, load_kernels, load_target
from triton_ops.cli.terminal import stderr
from triton_ops.device import chosen_gpus, probe
from triton_ops.exceptions import SettingsError, TritonKernelError, TuningFailedError
from triton_ops.many import (
    Job,
    ManyResult,
    ProblemLine,
    ProblemOutcome,
    RayEngine,
    RunOptions,
    TuneProblem,
    checked_budget,
    chosen_engine,
    job_of,
    read_problems,
    run_jobs,
)
from triton_ops.records import INTERPRETED
from triton_ops.report import watched
from triton_ops.request import checked_seed, chosen_effort
from triton_ops.space import Config
from triton_ops.tuner import Listener, ProgressBar, result_json, trials_json, tune
from triton_ops.values import Trial, TuningResult, as_tolerance, dtype_name

_SOME_FAILED = 1
_TUNE_MANY_HEADER = ("", "kernel and problem", "median ms", "vs default", "config")
_TUNE_MANY_NUMBERS = ("median ms", "vs default")
_STOPPED = {
    "complete": "",
    "seconds": "; the budget left no time for the rest, and the same command goes on with it",
    "interrupted": "; interrupted: the same command goes on where it stopped",
    "no device": "; no device is left, and the same command goes on where it stopped",
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which problems are asked for.

    Attributes:
        lists: The options that name a list; one of `--problems`, `--all` and `--from-misses` is right.
        targets: The TARGETs.
        problems: The file of `--problems`.
        device: Where problems that name no device are tuned; None follows the operation.
        warm: Whether problems are timed with their data in L2.
        most: How many misses are tuned at most; None is no limit.
        tolerance: How far a right result may be from the expected one.
        cluster: The GPUs of a cluster, where the problems are measured; None measures on this machine.
        kernels: What the lines of a file and the misses may name beside shipped kernels.
    """

    lists: tuple[str, ...]
    targets: tuple[str, ...] = ()
    problems: str | None = None
    device: str | None = None
    warm: bool = False
    most: int | None = None
    tolerance: float | None = None
    cluster: RayEngine | None = None
    kernels: tuple[str, ...] = ()


def tune_listed(
    wanted: Wanted, options: RunOptions, budget_s: float | None, only_for_one: Mapping[str, Any], *, as_json: bool
) -> int:
    """Tune a list of problems as one run, and return the exit code: 1 if a problem failed.

    Args:
        wanted: Which problems.
        options: What they have in common.
        budget_s: The limit of seconds of the run; None is no limit.
        only_for_one: Options that a list of problems cannot have, with what was given for them.
        as_json: Whether one JSON document is printed.

    Raises:
        TritonKernelError: An option or a problem does not fit; raised before any work.
    """
    first, *others = wanted.lists
    if others:
        raise SettingsError(f"{' and '.join(wanted.lists)} name several lists", hint="one run has one list")
    folder = folder_of(None if options.cache_dir is None else str(options.cache_dir))
    if wanted.device is not None:
        probe(wanted.device)
    as_tolerance(wanted.tolerance)
    if first == "--from-misses":
        more = {"--device": wanted.device, "--warm": wanted.warm or None}
        _refuse({**only_for_one, **more}, first)
        return tune_from_misses(
            wanted.targets, wanted.most, replace(options, cache_dir=folder), wanted.tolerance, budget_s,
            wanted.cluster,
            kernels=wanted.kernels,
            as_json=as_json,
        )  # fmt: skip
    strange = "TARGET" if first == "--problems" else "--kernels"
    _refuse({**only_for_one, strange: (wanted.targets if first == "--problems" else wanted.kernels) or None}, first)
    with only_data_on_stdout():
        among = load_kernels(wanted.kernels) if first == "--problems" else None
        jobs = [_job(line, wanted, options, among) for line in _lines(wanted)]
        found = run_jobs(jobs, options, budget_s=budget_s, cluster=wanted.cluster)
    show(found, as_json=as_json)
    if found.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)
    nothing = not any(each.result for each in found.outcomes)
    return _SOME_FAILED if found.failures or nothing else 0


def _refuse(given: Mapping[str, Any], with_what: str) -> None:
    """Refuse options that do not go together with a list.

    Raises:
        SettingsError: One was given.
    """
    if strange := [name for name, value in given.items() if value is not None]:
        raise SettingsError(f"{', '.join(strange)} and {with_what} do not go together", hint="leave one of them out")


def _lines(wanted: Wanted) -> list[ProblemLine]:
    """The problems of the file, or the named ones of the targets, of all shipped kernels where none is given.

    Raises:
        SettingsError: A line is no problem, or a target has no named ones.
        TargetError: A target does not exist.
    """
    if wanted.problems is not None:
        return read_problems(Path(wanted.problems))
    found: list[ProblemLine] = []
    for target in dict.fromkeys(wanted.targets or kernels.names()):
        operation = load_target(target)
        named = operation.problems if isinstance(operation, Operation) else {}
        if not named:
            raise SettingsError(f"{target} has no named problems", hint="list its shapes in a file: --problems FILE")
        found += [ProblemLine(where=target, target=target, problem=name) for name in named]
    return found


def _job(line: ProblemLine, wanted: Wanted, options: RunOptions, among: Mapping[str, Any] | None) -> Job:
    try:
        return job_of(_problem(line, wanted, among), options)
    except TritonKernelError as error:
        raise error.about(line.where) from error


def _problem(line: ProblemLine, wanted: Wanted, among: Mapping[str, Any] | None) -> TuneProblem:
    found = load_target(line.target, among)
    shape, dtype = line.shape, line.dtype
    if line.problem is not None:
        named = found.problems if isinstance(found, Operation) else {}
        if line.problem not in named:
            raise SettingsError(
                f"{line.target} has no problem called {line.problem}; it has {', '.join(named) or 'none with a name'}",
                hint="name one of these, or give a shape",
            )
        shape, dtype = named[line.problem]
    operation, space, extents, chosen = operation_of(found, line.space, [] if shape is None else [shape], dtype)
    return TuneProblem(
        target=operation, space=space, shape=extents, dtype=chosen, device=line.device or wanted.device,
        cold=not (line.warm or wanted.warm), weight=line.weight, tolerance=wanted.tolerance,
    )  # fmt: skip


def show(found: ManyResult, *, as_json: bool) -> None:
    """Print what became of the problems: a table, or one JSON document."""
    if as_json:
        say_json(
            {
                "stopped": found.stopped,
                "elapsed_s": found.elapsed_s,
                "totals": found.totals,
                "problems": [outcome_json(each) for each in found.outcomes],
            }
        )
    else:
        header, *rows = table(
            _TUNE_MANY_HEADER, [_tune_many_row(each) for each in found.outcomes], width(), _TUNE_MANY_NUMBERS
        )
        say(bold(header), *rows)
    counts = ", ".join(f"{count} {status}" for status, count in found.totals.items())
    tell(f"{len(found.outcomes)} problems in {found.elapsed_s:.1f} s: {counts}{_STOPPED[found.stopped]}")


def outcome_json(outcome: ProblemOutcome) -> dict[str, Any]:
    """What became of a problem, as JSON values."""
    return {
        "label": outcome.label,
        "status": outcome.status,
        "reason": "" if outcome.error is None else str(outcome.error),
        "device": outcome.device,
        "began_s": outcome.began_s,
        "ended_s": outcome.ended_s,
        "result": None if outcome.result is None else result_json(outcome.result),
    }


def _tune_many_row(outcome: ProblemOutcome) -> list[str]:
    result = outcome.result
    if result is None:
        reason = "" if outcome.error is None else f"{outcome.error}".partition("\n")[0]
        return [outcome.status, outcome.label, "-", "-", reason]
    gain = "unproven" if result.unproven else "-" if result.gain is None else f"{result.gain:.2f}x"
    return [outcome.status, outcome.label, f"{result.metrics.latency_ms:.4g}", gain, str(Config(result.best_config))]


_LISTS = "--problems, --all and --from-misses"
_LISTS_OF = {
    "--most": "--from-misses", "--kernels": "--problems and --from-misses", "--each-s": _LISTS, "--engine": _LISTS,
    "--gpus": _LISTS,
}  # fmt: skip
_SHOWN = 10
_SHOWN_FAILED = 5
_WORTH_TELLING_S = 0.1
_HEADER = ("", "median ms", "spread", "vs default", "config")
_NUMBERS = ("median ms", "spread", "vs default")


def tune_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET", help="A shipped kernel, module:object, or file.py:object.", show_default=False
        ),
    ] = None,
    shape: Shape = None,
    dtype: Dtype = None,
    space: Space = None,
    effort: Annotated[
        str | None,
        typer.Option("--effort", metavar="WORD", help="quick, full or exhaustive; default TRITON_OPS_EFFORT or quick."),
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", metavar="WORD", help="auto, random, exhaustive, …; default by effort.")
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", metavar="N", help="Most trials; default by effort.")] = None,
    budget_s: Annotated[
        float | None,
        typer.Option("--budget-s", metavar="S", help="Most seconds of the whole; default by effort, for a list none."),
    ] = None,
    each_s: Annotated[
        float | None,
        typer.Option("--each-s", metavar="S", help="For a list, most seconds of each problem; default by effort."),
    ] = None,
    device: Device = None,
    warm: Annotated[bool, typer.Option("--warm", help="Time GPU kernels with their data in L2; default cold.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the search's order and the inputs.")] = 0,
    isolate: Annotated[
        bool | None,
        typer.Option("--isolate/--inline", help="Try configs in a process of their own; default for Triton on a GPU."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", metavar="X", help="Largest relative error of an element; default the rule."),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="PLACE:NAME", help="Own comparison, check(result, expected), as a TARGET."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Search again even if the winner is known.")] = False,
    no_transfer: Annotated[
        bool, typer.Option("--no-transfer", help="Do not learn from records of other problems and devices.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End with an error if another process measures on the GPU.")
    ] = False,
    problems: Annotated[
        str | None, typer.Option("--problems", metavar="FILE", help="Tune the problems in FILE, one in a line.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Tune the named problems of each TARGET, or of all shipped kernels.")
    ] = False,
    from_misses: Annotated[
        bool, typer.Option("--from-misses", help="Tune what `triton-ops misses` lists; TARGET restricts it.")
    ] = False,
    kernels: Annotated[
        list[str] | None,
        typer.Option("--kernels", metavar="KERNELS", help="For a list, a file, module or TARGET to load; repeat it."),
    ] = None,
    most: Annotated[int | None, typer.Option("--most", metavar="N", help="With --from-misses, at most N.")] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="LIST", help="For a list, the GPUs that measure: all, or 0,2.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME", help="For a list, ray or ray:HOST:PORT: the GPUs of a cluster."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the growing report to this machine's browsers while the tune runs.")
    ] = False,
    watch_port: Annotated[
        int | None, typer.Option("--watch-port", metavar="N", help="With --watch; default a free port.")
    ] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> int | None:
    """Find the fastest configuration of TARGET for one problem, or recall it."""
    asked = (("--problems", problems), ("--all", every), ("--from-misses", from_misses))
    lists = [name for name, given in asked if given]
    chosen_effort(effort, search, trials, None if lists else budget_s)  # refused before the target's code runs
    checked_seed(seed)
    _check_watch(watch, watch_port, lists)
    if lists:
        only_for_one = {
            "--shape": shape, "--dtype": dtype, "--space": space or None, "--check": check,
            "--most": None if from_misses else most,
        }  # fmt: skip
        cluster = chosen_engine(engine, gpus)
        options = RunOptions(
            plan=chosen_effort(effort, search, trials, each_s), cache_dir=cache_dir, seed=seed, force=force,
            isolate=isolate, transfer=not no_transfer, wait=not no_wait, devices=chosen_gpus(gpus),
        )  # fmt: skip
        wanted = Wanted(
            lists=tuple(lists),
            targets=tuple(targets or ()),
            problems=problems,
            device=device,
            warm=warm,
            most=most,
            tolerance=tolerance,
            cluster=cluster,
            kernels=tuple(kernels or ()),
        )
        return tune_listed(wanted, options, checked_budget(budget_s), only_for_one, as_json=as_json)
    target = _one_target(
        targets,
        {"--most": most, "--kernels": kernels or None, "--each-s": each_s, "--engine": engine, "--gpus": gpus},
    )
    shapes, values = parse_shapes(shape), parse_space(space or [])
    _check(dtype, device, cache_dir)
    as_tolerance(tolerance)
    try:
        with only_data_on_stdout(), _listener(watch, watch_port) as listener:
            operation, narrowed, extents, chosen_dtype = operation_of(load_target(target), values, shapes, dtype)
            result = _tuned(
                operation, space=narrowed, shape=extents, dtype=chosen_dtype, device=device, effort=effort,
                search=search, trials=trials, budget_s=budget_s, seed=seed, cache_dir=cache_dir, force=force,
                cold=not warm, isolate=isolate, wait=not no_wait, transfer=not no_transfer, tolerance=tolerance,
                check=None if check is None else load_check(check), listener=listener,
            )  # fmt: skip
    except KeyboardInterrupt:
        tell("interrupted before any config ran; the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED) from None
    _tell_hints(operation, [trial.status.value for trial in result.failures])
    tell_failures((str(trial.config), f"{trial.status}: {trial.error}", trial.trace) for trial in result.failures)
    if result.unproven and result.stopped != "interrupted":
        tell(f"unproven: {result.unproven}; {_next_step(result)}", "warning", "yellow")
    elif not result.unproven and result.confidence != "ok" and result.noise > 0:  # one config is compared with none
        tell(f"low confidence: {result.confidence}", "warning", "yellow")
    if as_json:
        say_json({**result_json(result), "trials": trials_json(result.trials)})
    else:
        say(*_report(operation.name, result, width()))
    if result.stopped == "interrupted":
        tell("interrupted: this is the best so far; the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED)
    return None


def _next_step(result: TuningResult) -> str:
    """What proves a winner that is unproven."""
    if result.unproven == INTERPRETED:
        return "tune it on a GPU, without TRITON_INTERPRET"
    if result.from_cache or (result.noise > 0 and result.stopped in ("complete", "settled")):
        return "a larger budget, or --force, searches again"
    return "the same command goes on with it"


def _tuned(operation: Operation, **settings: Any) -> TuningResult:
    """The result of `tune`; where no config ran and some were wrong, what the linter finds is said before the error."""
    try:
        return tune(operation, **settings)
    except TuningFailedError as error:
        _tell_hints(operation, [reason.partition(":")[0] for _, reason in error.failures])
        raise


def _tell_hints(operation: Operation, statuses: list[str]) -> None:
    for line in hints(operation, statuses):
        tell(line, "hint", "yellow")


def _check_watch(watch: bool, port: int | None, lists: list[str]) -> None:
    if watch and lists:
        raise SettingsError(f"--watch shows one run, and {lists[0]} makes several", hint="leave one out")
    if port is not None and not watch:
        raise SettingsError("--watch-port is for --watch", hint="give both, or leave it out")


def _listener(watch: bool, port: int | None) -> AbstractContextManager[Listener]:
    bar = ProgressBar(stderr())
    return watched(bar, port or 0, tell) if watch else nullcontext(bar)


def _one_target(targets: list[str] | None, only_for_lists: Mapping[str, Any]) -> str:
    if not targets:
        raise SettingsError("Missing argument 'TARGET'", hint="triton-ops tune --help")
    if len(targets) > 1:
        raise SettingsError(
            f"{len(targets)} targets were given, {', '.join(targets)}", hint="--all tunes the named problems of several"
        )
    for option, given in only_for_lists.items():
        if given is not None:
            raise SettingsError(f"{option} is for {_LISTS_OF[option]}", hint="leave it out")
    return targets[0]


def _check(dtype: str | None, device: str | None, cache_dir: str | None) -> None:
    if dtype is not None:
        dtype_name(dtype)
    if device is not None:
        probe(device)
    folder_of(cache_dir)


def _report(name: str, result: TuningResult, columns: int | None) -> list[str]:
    lines = [f"{name} {result.problem_size}".rstrip() + f" on {result.device}"]
    if result.trials:
        lines += [*_ranking(result, columns), _summary(result)]
    lines += paragraph("", _manner(result), columns)
    config, label = str(Config(result.best_config)), "winner  "
    first, *rest = paragraph(label, config, columns)
    return [*lines, bold(label) + first[len(label) :], *rest, *paragraph(" " * len(label), _speed(result), columns)]


def _ranking(result: TuningResult, columns: int | None) -> list[str]:
    """The fastest trials, best first: winner, ties, others of the last comparison; below them some that failed."""
    ranked = sorted((t for t in result.trials if t.ok), key=lambda trial: _rank(trial, result))[:_SHOWN]
    rows = [_row(position, trial, result) for position, trial in enumerate(ranked, 1)]
    failed = result.failures[:_SHOWN_FAILED]
    ranked += failed
    rows += [[trial.status.value, "-", "-", "-", str(trial.config)] for trial in failed]
    lines = table(_HEADER, rows, columns, _NUMBERS)
    common = _common([trial.config for trial in ranked])
    if not common or fits(table(_HEADER, rows, None, _NUMBERS), columns):
        return [bold(lines[0]), *lines[1:]]
    for row, trial in zip(rows, ranked, strict=True):
        row[-1] = str(Config({name: value for name, value in trial.config.items() if name not in common}))
    lines = table(_HEADER, rows, columns, _NUMBERS)
    return [*paragraph("in all: ", str(common), columns), bold(lines[0]), *lines[1:]]


def _common(configs: list[Config]) -> Config:
    """The values that several configs have in common; empty for a single config."""
    if len(configs) < 2:
        return Config()
    return Config(
        {name: v for name, v in configs[0].items() if all(repr(config[name]) == repr(v) for config in configs)}
    )


def _won(trial: Trial, result: TuningResult) -> bool:
    return result.winner is not None and trial.config == result.winner.config


def _rank(trial: Trial, result: TuningResult) -> tuple[bool, bool, bool, float, str]:
    return (
        not _won(trial, result),
        trial.config not in result.ties,
        trial.final is None,
        trial.median_ms,
        trial.config.text,
    )


def _row(position: int, trial: Trial, result: TuningResult) -> list[str]:
    default = result.default
    versus = f"{default.median_ms / trial.median_ms:.2f}x" if default and default.ok and trial.median_ms else "-"
    spread = f"{trial.best_measurement.spread:.1%}"
    return [f"{position}{_mark(trial, result)}", f"{trial.median_ms:.4g}", spread, versus, str(trial.config)]


def _mark(trial: Trial, result: TuningResult) -> str:
    if _won(trial, result):
        return " winner"
    if trial.config in result.ties:
        return " tie"
    return " default" if result.default is not None and trial.config == result.default.config else ""


def _summary(result: TuningResult) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in result.totals.items())
    end = ENDS.get(result.stopped, result.stopped)
    why = "; -v says why configs failed" if result.failures and not is_verbose() else ""
    return f"{len(result.trials)} trials: {counts}; {end}, {result.elapsed_s:.1f} s{why}"


def _manner(result: TuningResult) -> str:
    """The manner of the tune: place of the candidates, wait for the compiler, expected results, and notes."""
    ran = [f"run {result.place}"] if result.place else []
    waited = [f"{result.waited_s:.1f} s waited for the compiler"] if result.waited_s >= _WORTH_TELLING_S else []
    checked = [f"results compared with {result.verified}"] if result.verified else []
    return "; ".join([*ran, *waited, *checked, *result.notes])


def _speed(result: TuningResult) -> str:
    metrics = result.metrics
    parts = [f"{metrics.latency_ms:.4g} ms", _against_default(result)]
    if metrics.throughput_tflops:
        tflops = metrics.throughput_tflops
        parts.append(f"{tflops:.1f} TFLOP/s" if tflops >= 1 else f"{tflops:.3g} TFLOP/s")
    if metrics.bandwidth_gbps:
        share = f" ({metrics.bandwidth_utilization:.0f} % of peak)" if metrics.bandwidth_utilization else ""
        parts.append(f"{metrics.bandwidth_gbps:.0f} GB/s{share}")
    if len(result.ties) > 1:
        parts.append(f"{len(result.ties) - 1} more within noise")
    if result.unproven:
        parts.append("unproven")
    parts.append("from the cache, not measured again" if result.from_cache else "measured now")
    return ", ".join(filter(None, parts))


def _against_default(result: TuningResult) -> str:
    if result.default is not None and _won(result.default, result):
        return "the default itself"
    return "" if result.gain is None else f"{gain_text(result.gain, result.gain_interval)} as fast as the default"
