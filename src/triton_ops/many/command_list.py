"""Lists of problems on the command line: tuned as one run, and shown as a table.

`triton-ops tune --problems` and `--all` make them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from triton_ops.backend import Operation
from triton_ops.base import counted, gain_text
from triton_ops.device import probe
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.many.executor import Job
from triton_ops.many.problem import ProblemLine, RunOptions, job_of, read_problems
from triton_ops.many.session import ManyResult, ProblemOutcome, run_jobs
from triton_ops.request import TuneProblem
from triton_ops.space import Config
from triton_ops.terminal import ExitCode, Facts
from triton_ops.typed import TypedProblem
from triton_ops.values import Tolerance

_HEADER = ("", "kernel and problem", "median ms", "vs default", "config")
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

    def __post_init__(self) -> None:
        """Refuse what does not fit, before any work."""
        if self.device is not None:
            probe(self.device)
        Tolerance.of(self.tolerance)

    def tune(self, problems: str | None, targets: Sequence[str], load: Loader) -> Facts:
        """Tune a file of problems, or for None the targets' named ones."""
        lines = _named_problems(targets, load) if problems is None else read_problems(Path(problems))
        result = run_jobs([_job(line, self, load) for line in lines], self.options)
        facts = _facts(result)
        if result.stopped == "interrupted":
            facts.code = ExitCode.INTERRUPTED
        elif result.failures or not any(outcome.result for outcome in result.outcomes):
            facts.code = ExitCode.NONE_RAN
        return facts


def _named_problems(targets: Sequence[str], load: Loader) -> list[ProblemLine]:
    lines: list[ProblemLine] = []
    for target in dict.fromkeys(targets):
        if not (names := _names(load(target))):
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
            message = f"{line.target} has no problem called {line.problem}; it has {names}"
            raise SettingsError(message, hint="name one of these, or give a shape")
        shape, dtype = problems[line.problem]
    typed = TypedProblem([] if shape is None else [shape], dtype, line.space)
    operation, space, extents, element = typed.operation(target)
    return TuneProblem(
        target=operation, space=space, shape=extents, dtype=element, device=line.device or run.device,
        cold=not (line.warm or run.warm), weight=line.weight, tolerance=run.tolerance,
    )  # fmt: skip


def _facts(result: ManyResult) -> Facts:
    document = {"stopped": result.stopped, "elapsed_s": result.elapsed_s, "totals": result.totals}
    problems = [
        {
            "label": outcome.label, "status": outcome.status,
            "reason": "" if outcome.error is None else str(outcome.error), "device": outcome.device,
            "began_s": outcome.began_s, "ended_s": outcome.ended_s,
            "result": None if outcome.result is None else outcome.result.as_json,
        }
        for outcome in result.outcomes
    ]  # fmt: skip
    facts = Facts("tune list", {**document, "problems": problems})
    facts.table(_HEADER, list(map(_row, result.outcomes)), _HEADER[2:-1])
    counts = ", ".join(f"{count} {status}" for status, count in result.totals.items())
    problems_text = counted(len(result.outcomes), "problem")
    return facts.tell(f"{problems_text} in {result.elapsed_s:.1f} s: {counts}{_ENDS[result.stopped]}")


def _row(outcome: ProblemOutcome) -> list[str]:
    if (result := outcome.result) is None:
        reason = "" if outcome.error is None else f"{outcome.error}".partition("\n")[0]
        return [outcome.status, outcome.label, "-", "-", reason]
    gain = gain_text(result.gain, result.gain_interval, result.unproven)
    return [outcome.status, outcome.label, f"{result.metrics.latency_ms:.4g}", gain, str(Config(result.best_config))]
