"""`triton-ops tune --problems FILE` and `--all`: tune a list of problems as one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from triton_ops import kernels
from triton_ops.backend import Operation
from triton_ops.cli.console import bold, only_data_on_stdout, say, say_json, tell, width
from triton_ops.cli.from_misses import tune_from_misses
from triton_ops.cli.interrupts import INTERRUPTED
from triton_ops.cli.layout import table
from triton_ops.cli.problem import operation_of
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.target import load_kernels, load_target
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.hardware import probe
from triton_ops.many.cluster.engine import RayEngine
from triton_ops.many.executor import Job
from triton_ops.many.problem import Options, TuneProblem, job_of
from triton_ops.many.problem_file import Line, read_problems
from triton_ops.many.session import ManyResult, ProblemOutcome, run_jobs
from triton_ops.results.as_json import result_json
from triton_ops.space import Config
from triton_ops.tolerance import as_tolerance

_SOME_FAILED = 1
_HEADER = ("", "kernel and problem", "median ms", "vs default", "config")
_NUMBERS = ("median ms", "vs default")
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
    wanted: Wanted, options: Options, budget_s: float | None, only_for_one: Mapping[str, Any], *, as_json: bool
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


def _lines(wanted: Wanted) -> list[Line]:
    """The problems of the file, or the named ones of the targets, of all shipped kernels where none is given.

    Raises:
        SettingsError: A line is no problem, or a target has no named ones.
        TargetError: A target does not exist.
    """
    if wanted.problems is not None:
        return read_problems(Path(wanted.problems))
    found: list[Line] = []
    for target in dict.fromkeys(wanted.targets or kernels.names()):
        operation = load_target(target)
        named = operation.problems if isinstance(operation, Operation) else {}
        if not named:
            raise SettingsError(f"{target} has no named problems", hint="list its shapes in a file: --problems FILE")
        found += [Line(where=target, target=target, problem=name) for name in named]
    return found


def _job(line: Line, wanted: Wanted, options: Options, among: Mapping[str, Any] | None) -> Job:
    try:
        return job_of(_problem(line, wanted, among), options)
    except TritonKernelError as error:
        raise error.about(line.where) from error


def _problem(line: Line, wanted: Wanted, among: Mapping[str, Any] | None) -> TuneProblem:
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
        header, *rows = table(_HEADER, [_row(each) for each in found.outcomes], width(), _NUMBERS)
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


def _row(outcome: ProblemOutcome) -> list[str]:
    result = outcome.result
    if result is None:
        reason = "" if outcome.error is None else f"{outcome.error}".partition("\n")[0]
        return [outcome.status, outcome.label, "-", "-", reason]
    gain = "unproven" if result.unproven else "-" if result.gain is None else f"{result.gain:.2f}x"
    return [outcome.status, outcome.label, f"{result.metrics.latency_ms:.4g}", gain, str(Config(result.best_config))]
