"""The measured problems and configs of one kernel: who was tried where, and by which share it was slower than the best.

Times of different runs are never compared as they are. Each is taken as a ratio to the time of the default config of
the same run: by the race, where both were raced, else by their screenings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from triton_ops.cache import Key, Record
from triton_ops.history.run_log import Run
from triton_ops.history.runs import Runs
from triton_ops.space import Config
from triton_ops.trial import Trial


@dataclass(frozen=True, kw_only=True)
class MeasuredProblem:
    """One problem with what was measured on it.

    Attributes:
        key: The key of its record.
        ratios: Of each config that ran, its time over that of the default.
        failed: Configs that were tried and did not run, or were wrong.
        noise: The relative difference below which two configs count as equal in its tune.
    """

    key: Key
    ratios: Mapping[Config, float]
    failed: frozenset[Config] = frozenset()
    noise: float = 0.0

    @cached_property
    def best(self) -> Config:
        """The fastest config."""
        return min(self.ratios, key=lambda config: (self.ratios[config], config.text))

    def regret(self, config: Config) -> float:
        """The share by which a config is slower than the best here; infinite if it was not measured, or failed."""
        ratio = self.ratios.get(config)
        return math.inf if ratio is None else max(0.0, ratio / self.ratios[self.best] - 1.0)


def measured(record: Record, folder: Path) -> MeasuredProblem | None:
    """What is known of a record's problem, from its kept run logs, else from the record; None if nothing was measured.

    Args:
        record: The record.
        folder: The cache folder that has the run logs.
    """
    ratios: dict[Config, float] = {}
    failed: set[Config] = set()
    for run in Runs(folder, record.id).with_trials(record.run):
        for config, ratio in _ratios(run, record.default).items():
            ratios.setdefault(config, ratio)
        failed |= {trial.config for trial in run.trials.values() if trial.failed}
    ratios = ratios or _of_record(record)
    if not ratios:
        return None
    return MeasuredProblem(key=record.key, ratios=ratios, failed=frozenset(failed - ratios.keys()), noise=record.noise)


def configs_of(problems: Iterable[MeasuredProblem]) -> list[Config]:
    """All configs that ran on a problem, in the order of their texts."""
    return sorted({config for problem in problems for config in problem.ratios}, key=lambda config: config.text)


def _ratios(run: Run, default: Config | None) -> dict[Config, float]:
    """Of each config that ran in a run, its time over that of the default; empty if the default did not run."""
    beside = None if default is None else run.trials.get(default)
    if beside is None or not beside.ok:
        return {}
    found = {trial.config: _ratio(trial, beside) for trial in run.trials.values() if trial.ok}
    return {config: ratio for config, ratio in found.items() if math.isfinite(ratio) and ratio > 0}


def _ratio(trial: Trial, beside: Trial) -> float:
    if trial.final is not None and beside.final is not None:
        return _over(trial.final.median_ms, beside.final.median_ms)
    if trial.relative is not None and beside.relative is not None:
        return _over(trial.relative, beside.relative)
    if trial.measurement is None or beside.measurement is None or trial.measurement.mode != beside.measurement.mode:
        return math.nan
    return _over(trial.measurement.median_ms, beside.measurement.median_ms)


def _over(time: float, default: float) -> float:
    return time / default if default > 0 else math.nan


def _of_record(record: Record) -> dict[Config, float]:
    """Winner, ties and default of a record whose run logs are gone: the ties count as fast as the winner."""
    if record.default is None or record.default_timing is None or record.default_timing.median_ms <= 0:
        return {record.winner: 1.0}
    ratio = record.timing.median_ms / record.default_timing.median_ms
    if record.raced_gain is not None and record.raced_gain > 0:
        ratio = 1.0 / record.raced_gain
    return {record.default: 1.0, **dict.fromkeys(record.ties, ratio), record.winner: ratio}
