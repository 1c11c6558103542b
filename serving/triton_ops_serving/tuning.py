"""Tunes of an engine's tables: which operation a table's rows are tuned by, in what order, and how they are pinned."""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from triton_ops import ConfigSpace, Operation, TuneProblem, tune_many
from triton_ops.base import installed_version
from triton_ops.many import ProblemOutcome
from triton_ops.records import Lockfile
from triton_ops.ship import Table
from triton_ops.space import Config
from triton_ops_serving import experts, linear, lora, sglang_experts, sglang_lora, state_space
from triton_ops_serving.kernels import NotTunedError, Row, Served, row_of
from triton_ops_serving.model import EngineProblem, Model
from triton_ops_serving.pinned import rows_of
from triton_ops_serving.tables import Place

OPERATIONS: dict[str, Callable[[EngineProblem, Served], Operation]] = {
    "vllm-moe": experts.operation_of, "vllm-linear": linear.operation_of, "vllm-mamba": state_space.operation_of,
    "vllm-lora": lora.operation_of, "sglang-moe": sglang_experts.operation_of, "sglang-linear": linear.operation_of,
    "sglang-lora": sglang_lora.operation_of,
}  # fmt: skip
_Job: TypeAlias = tuple[EngineProblem, int, TuneProblem]
LIMITS = ("effort", "trials", "budget_s", "seed", "force", "cache_dir")
_LEAST_S = 1.0  # of all that is left
_OF_TUNED = ("was", "was_ms", "config", "ms", "gain", "interval", "tried", "seconds")


class TunedTables:
    """A model's tables on a device, tuned and pinned in a lockfile; second products once the first ones are."""

    def __init__(
        self, place: Place, lockfile: Path, model: Model, routing: str, sizes: Sequence[int],
        limits: Mapping[str, Any], each_s: float | None,
    ) -> None:  # fmt: skip
        self._place, self._lockfile, self._model, self._routing = place, lockfile, model, routing
        self._sizes, self._limits, self._each_s = tuple(dict.fromkeys(sizes)), limits, each_s
        self.rows: list[dict[str, Any]] = []
        self.elapsed_s, self.interrupted = 0.0, False

    def tune(self, problems: Sequence[EngineProblem]) -> None:
        """Tune the rows of some problems, those of second products beside the rows that the first ones then have.

        All are one run. With a budget of seconds each table is one, in its share of what is left: else the rows that
        promise least would be left with what is too little for a search.
        """
        stages = [[each for each in problems if bool(each.facts.get("down")) == down] for down in (False, True)]
        if self._limits["budget_s"] is not None:
            stages = [[each] for stage in stages for each in stage]
        remaining = sum(len(self._sizes or each.sizes) for each in problems)
        for stage in filter(None, stages):
            if not self.interrupted:
                self._tune(stage, remaining)
            remaining -= sum(len(self._sizes or each.sizes) for each in stage)

    def _tune(self, problems: Sequence[EngineProblem], remaining: int) -> None:
        """One run of some of the remaining rows, with their share of the remaining seconds."""
        jobs = [
            (problem, size, TuneProblem(target=operation, shape=(size,)))
            for problem, operation in self._operations(problems)
            for size in self._sizes or problem.sizes
        ]
        if not jobs:
            return
        limits, each_s = dict(self._limits), self._each_s
        if limits["budget_s"] is not None:
            share_s = max(limits["budget_s"] - self.elapsed_s, _LEAST_S) / remaining
            limits["budget_s"] = share_s * len(jobs)
            each_s = each_s or share_s  # else the first rows would leave the last ones nothing
        until_s = self.elapsed_s + (limits["budget_s"] or math.inf)
        outcomes = self._run(jobs, limits, each_s)
        rows = [_tuned(job, end) for job, end in zip(jobs, outcomes, strict=True)]
        left_s = until_s - self.elapsed_s
        if left_s > _LEAST_S and not self.interrupted:
            limits["budget_s"] = limits["budget_s"] and left_s
            self._race_neighbours(jobs, outcomes, rows, limits, each_s)
        for problem in problems:
            self._pin(problem, rows)
        self.rows += rows

    def _run(self, jobs: Sequence[_Job], limits: Mapping[str, Any], each_s: float | None) -> Sequence[ProblemOutcome]:
        result = tune_many([job for *_, job in jobs], each_s=each_s, **limits)
        self.elapsed_s += result.elapsed_s
        self.interrupted = result.stopped == "interrupted"
        return result.outcomes

    def _race_neighbours(
        self, jobs: Sequence[_Job], outcomes: Sequence[ProblemOutcome], rows: list[dict[str, Any]],
        limits: Mapping[str, Any], each_s: float | None,
    ) -> None:  # fmt: skip
        """Race each row with the winners of the sizes beside it that were not tried, and replace rows that lose.

        A search that had little time, or that began before those of its neighbours had ended, may lack what they found.
        """
        again = {at: job for at, job in enumerate(_beside_neighbours(jobs, outcomes)) if job}
        if not again:
            return
        with tempfile.TemporaryDirectory() as folder:  # a record of few configs must not take the place of the search's
            ends = self._run([*again.values()], {**limits, "cache_dir": folder, "force": True}, each_s)
        for (at, job), end in zip(again.items(), ends, strict=True):
            row, before = _tuned(job, end), rows[at]
            if end.result is not None and row["tried"]:
                equal = before["config"] in map(row_of, end.result.ties)
                spent = {name: before[name] + row[name] for name in ("tried", "seconds")}
                rows[at] = {**(row if row["interval"] and not equal else before), **spent}

    def _operations(self, problems: Sequence[EngineProblem]) -> Iterator[tuple[EngineProblem, Operation]]:
        """The operation of each problem; what cannot be tuned is a remark."""
        for problem in problems:
            try:
                yield problem, OPERATIONS[problem.form](problem, self._served(problem))
            except NotTunedError as error:  # noqa: PERF203 - the others go on
                self._model.remarks.append(f"{problem.form} {problem.label}: {error.message}: left out")

    def _served(self, problem: EngineProblem) -> Served:
        """The rows that the engine takes for a problem now, and for the other product of SGLang's experts."""
        down = problem.facts.get("down")
        other = replace(problem, facts={**problem.facts, "down": not down}) if down is not None else None
        return Served(
            rows=self._rows(problem), other=self._rows(other, pinned=True) if other else {}, routing=self._routing,
            dtype=self._model.dtype,
        )  # fmt: skip

    def _rows(self, problem: EngineProblem, *, pinned: bool = False) -> dict[int, Row]:
        table = self._place.find(problem)
        rows = dict(table.rows) if table and not (problem.facts.get("down") and table.of_first) else {}
        lock = rows_of(Lockfile.read(self._lockfile, or_empty=True), problem.form, problem.facts, self._place.device)
        return {**rows, **({size: dict(entry.config) for size, entry in lock.items()} if pinned else {})}

    def _pin(self, problem: EngineProblem, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to the lockfile, in the place of those that it has for the same problems."""
        mine = [row for row in rows if (row["form"], row["problem"]) == (problem.form, problem.label) and row["config"]]
        if not mine:
            return
        engine = problem.form.partition("-")[0]
        version = installed_version(engine) or getattr(importlib.import_module(engine), "__version__", "of no version")
        table = Table.by_size(
            {"device_name": self._place.device}, ((row["row"], row["config"], row["ms"]) for row in mine)
        )
        facts = {name: str(value) if isinstance(value, list) else value for name, value in problem.facts.items()}
        source = f"{engine} {version}, routing {self._routing}" if "E" in facts else f"{engine} {version}"
        new = table.lockfile(problem.form, (problem.row,), facts, source)
        with Lockfile.editing(self._lockfile):
            Lockfile.merged([new, Lockfile.read(self._lockfile, or_empty=True)]).write(self._lockfile)


def _beside_neighbours(jobs: Sequence[_Job], outcomes: Sequence[ProblemOutcome]) -> Iterator[_Job | None]:
    """Each row's race of its default, its winner, and those of the sizes beside it; None where all were tried."""
    winners = list(map(_winner, outcomes))
    for (problem, size, job), end, winner in zip(jobs, outcomes, winners, strict=True):
        if winner is None or end.result is None or end.result.default is None or end.result.from_cache:
            yield None
            continue
        others = {other: each for (of, other, _), each in zip(jobs, winners, strict=True) if of is problem and each}
        smaller, larger = sorted(each for each in others if each < size), sorted(each for each in others if each > size)
        beside, operation = [others[each] for each in (*smaller[-1:], *larger[:1])], cast(Any, job.target)
        space = operation.space(operation.problem((size,)))
        tried = {each.config for each in end.result.trials if each.ok or each.failed}
        new = [each for each in beside if each not in tried and space.why_not(each) is None]
        default = end.result.default.config
        few = ConfigSpace.from_configs([default, winner, *new], default=default)
        yield (problem, size, replace(job, space=few)) if new else None


def _winner(outcome: ProblemOutcome) -> Config | None:
    """The winner of a tune, or the default where none is proven; None where the default failed."""
    result = outcome.result
    if result is None or result.default is None:
        return None
    return Config(result.best_config) if result.gain and not result.unproven else result.default.config


def _tuned(job: _Job, outcome: ProblemOutcome) -> dict[str, Any]:
    """What a tune of one row has found: a winner that is not proven gives way to the row that the engine takes.

    So does what was not tuned where tables of several layers are one file, which ends the engine if one is missing.
    """
    (problem, size, tuned), result = job, outcome.result
    row = {"form": problem.form, "problem": problem.label, "row": size, "status": outcome.status}
    row |= dict.fromkeys(_OF_TUNED)
    config = _winner(outcome)
    if result is None or result.default is None or config is None:
        if problem.form == "vllm-lora":
            operation = cast(Any, tuned.target)
            row["config"] = row_of(operation.space(operation.problem((size,))).default)
        return {**row, "verdict": str(outcome.error or "it was not begun")}
    now = result.default
    stays = config == now.config
    interval = None if stays else result.gain_interval
    between = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return {
        **row, "was": row_of(now.config), "was_ms": now.median_ms, "config": row_of(config),
        "ms": now.median_ms if stays else result.metrics.latency_ms, "gain": 1.0 if stays else result.gain,
        "interval": interval, "tried": len(result.trials), "seconds": result.elapsed_s,
        "verdict": "stays" if stays else f"{result.gain:.3f}x{between}",
    }  # fmt: skip
