"""Lists of problems on the command line: tuned as one run, and shown as a table.

`triton-ops tune --problems` and `--all` make them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import typer

from triton_ops.backend import Operation
from triton_ops.device import probe
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.many.executor import Job
from triton_ops.many.problem import ProblemLine, RunOptions, job_of, read_problems
from triton_ops.many.session import ManyResult, ProblemOutcome, run_jobs, run_options
from triton_ops.request import TuneOptions, TuneProblem, operation_of
from triton_ops.space import Config
from triton_ops.terminal import INTERRUPTED, folder_of, headed_table, only_data_on_stdout, say, say_json, tell, width
from triton_ops.tuner import result_json
from triton_ops.values import Tolerance

_SOME_FAILED = 1
_HEADER = ("", "kernel and problem", "median ms", "vs default", "config")
_NUMBERS = ("median ms", "vs default")
_ENDS = {
    "complete": "",
    "seconds": "; the budget left no time for the rest, and the same command goes on with it",
    "interrupted": "; interrupted: the same command goes on where it stopped",
    "no device": "; no device is left, and the same command goes on where it stopped",
}
Loader: TypeAlias = Callable[[str], Operation | Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class ListedTune:
    """Options that the problems of a list have in common; `warm` ones are timed with their data in L2."""

    options: RunOptions
    device: str | None = None
    warm: bool = False
    tolerance: float | None = None

    @classmethod
    def checked(
        cls,
        each: TuneOptions,
        *,
        engine: str | None,
        gpus: str | None,
        budget_s: float | None,
        device: str | None,
        warm: bool,
        tolerance: float | None,
    ) -> ListedTune:
        """The options as they were typed; a `TritonKernelError` if one is wrong."""
        options = run_options(each, gpus=gpus, budget_s=budget_s, engine=engine)
        folder_of(each.cache_dir)
        if device is not None:
            probe(device)
        Tolerance.of(tolerance)
        return cls(options=options, device=device, warm=warm, tolerance=tolerance)

    def tune(self, problems: str | None, targets: Sequence[str], load: Loader, *, as_json: bool) -> int:
        """Tune a file of problems, or for None the targets' named ones, print them, and return the exit code."""
        with only_data_on_stdout():
            lines = _named_problems(targets, load) if problems is None else read_problems(Path(problems))
            result = run_jobs([_job(line, self, load) for line in lines], self.options)
        _show(result, as_json=as_json)
        if result.stopped == "interrupted":
            raise typer.Exit(INTERRUPTED)
        nothing = not any(outcome.result for outcome in result.outcomes)
        return _SOME_FAILED if result.failures or nothing else 0


def _named_problems(targets: Sequence[str], load: Loader) -> list[ProblemLine]:
    lines: list[ProblemLine] = []
    for target in dict.fromkeys(targets):
        names = _names(load(target))
        if not names:
            raise SettingsError(f"{target} has no named problems", hint="list its shapes in a file: --problems FILE")
        lines += [ProblemLine(where=target, target=target, problem=name) for name in names]
    return lines


def _names(target: Operation | Callable[..., Any]) -> dict[str, Any]:
    return dict(target.problems) if isinstance(target, Operation) else {}


def _job(line: ProblemLine, run: ListedTune, load: Loader) -> Job:
    try:
        return job_of(_problem(line, run, load), run.options)
    except TritonKernelError as error:
        raise error.about(line.where) from error


def _problem(line: ProblemLine, run: ListedTune, load: Loader) -> TuneProblem:
    target = load(line.target)
    shape, dtype = line.shape, line.dtype
    if line.problem is not None:
        problems = _names(target)
        if line.problem not in problems:
            names = ", ".join(problems) or "none with a name"
            raise SettingsError(
                f"{line.target} has no problem called {line.problem}; it has {names}",
                hint="name one of these, or give a shape",
            )
        shape, dtype = problems[line.problem]
    operation, space, extents, element = operation_of(target, line.space, [] if shape is None else [shape], dtype)
    return TuneProblem(
        target=operation, space=space, shape=extents, dtype=element, device=line.device or run.device,
        cold=not (line.warm or run.warm), weight=line.weight, tolerance=run.tolerance,
    )  # fmt: skip


def _show(result: ManyResult, *, as_json: bool) -> None:
    if as_json:
        document = {"stopped": result.stopped, "elapsed_s": result.elapsed_s, "totals": result.totals}
        say_json({**document, "problems": [_outcome_json(outcome) for outcome in result.outcomes]})
    else:
        say(*headed_table(_HEADER, [_row(outcome) for outcome in result.outcomes], width(), _NUMBERS))
    counts = ", ".join(f"{count} {status}" for status, count in result.totals.items())
    tell(f"{len(result.outcomes)} problems in {result.elapsed_s:.1f} s: {counts}{_ENDS[result.stopped]}")


def _outcome_json(outcome: ProblemOutcome) -> dict[str, Any]:
    return {
        "label": outcome.label, "status": outcome.status,
        "reason": "" if outcome.error is None else str(outcome.error), "device": outcome.device,
        "began_s": outcome.began_s, "ended_s": outcome.ended_s,
        "result": None if outcome.result is None else result_json(outcome.result),
    }  # fmt: skip


def _row(outcome: ProblemOutcome) -> list[str]:
    result = outcome.result
    if result is None:
        reason = "" if outcome.error is None else f"{outcome.error}".partition("\n")[0]
        return [outcome.status, outcome.label, "-", "-", reason]
    gain = "unproven" if result.unproven else "-" if result.gain is None else f"{result.gain:.2f}x"
    return [outcome.status, outcome.label, f"{result.metrics.latency_ms:.4g}", gain, str(Config(result.best_config))]
