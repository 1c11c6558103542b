"""Which tunables matter in a measured space, by a run log or a recording.

The logarithm of the time is fitted by a sum of one effect for each value of each tunable, so that configs need not be
on a grid. What such a sum does not explain is due to tunables that act together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from triton_ops.exceptions import RecordingError
from triton_ops.landscape.measured import Measured, measured
from triton_ops.replay.recording import Recording
from triton_ops.space import Config, Value

_Array: TypeAlias = "np.ndarray[Any, Any]"
_ROUNDS = 60  # of the fit; each tunable's effects are fitted to what the others leave
_CLOSE = 1e-9
_FEWEST = 3  # configs below which nothing is said


@dataclass(frozen=True, kw_only=True)
class ValueEffect:
    """What one value of a tunable does.

    Attributes:
        value: The value.
        configs: Configs with this value that ran.
        failed: Configs with this value that failed.
        slower: How much slower it makes a config than the tunable's best value, by the fit: 0.1 is a tenth.
        best_ms: The fastest config with this value; None if none ran.
        loss: How much slower that is than the fastest of all: what is lost if the tunable is fixed to this value.
    """

    value: Value
    configs: int
    failed: int
    slower: float | None
    best_ms: float | None
    loss: float | None


@dataclass(frozen=True)
class Knob:
    """What a tunable does to the time.

    Attributes:
        name: The tunable.
        share: Share of the variance of the logarithm of the time that its effects have.
        effects: Its values: numbers in rising order, others in the order of the space.
    """

    name: str
    share: float
    effects: tuple[ValueEffect, ...]

    @property
    def best(self) -> ValueEffect:
        """The value with the least effect."""
        return min((one for one in self.effects if one.slower is not None), key=lambda one: one.slower or 0.0)

    @property
    def span(self) -> float:
        """How much slower the worst value makes a config than the best one, by the fit."""
        return max(one.slower for one in self.effects if one.slower is not None)

    @property
    def most_lost(self) -> float:
        """What is lost if the tunable is fixed to its worst value, and all others are chosen anew."""
        return max(one.loss for one in self.effects if one.loss is not None)


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Which tunables matter in a measured space.

    Attributes:
        kernel: The kernel and its problem.
        device: The device; empty if the file does not say.
        configs: Configs that ran.
        failed: Configs that failed.
        best: The fastest config.
        best_ms: Its milliseconds.
        explained: Share of the variance of the logarithm of the time that single tunables explain.
        knobs: The tunables with several values, the one that matters most first.
    """

    kernel: str
    device: str
    configs: int
    failed: int
    best: Config
    best_ms: float
    explained: float
    knobs: tuple[Knob, ...]


def sensitivity(recording: Recording) -> Sensitivity:
    """Which tunables matter in a recording or run log.

    Raises:
        RecordingError: Fewer than three configs ran, all ran equally long, or one took no time.

    Cost: 20 ms for a thousand configs, and 2 s for 100,000 of ten tunables.
    """
    seen = measured(recording)
    ran = seen.ran
    if (seen.ms[ran] <= 0).any():
        raise RecordingError(f"{recording.file} has a config that took no time", hint="leave that config out")
    times = np.log(seen.ms[ran])
    times -= times.mean() if len(times) else 0.0
    spread = float(times @ times)
    columns = {name: codes[ran] for name, codes in seen.codes.items()}
    columns = {name: column for name, column in columns.items() if len(np.unique(column)) > 1}
    if len(times) < _FEWEST or spread <= _CLOSE**2 or not columns:
        raise RecordingError(
            f"{recording.file} has {len(times)} configs that ran in different times; nothing can be told from them",
            hint=f"give a file with {_FEWEST} or more",
        )
    effects, left = _fitted(columns, times)
    knobs = [_knob(seen, name, effects[name], spread) for name in columns]
    best = int(np.nanargmin(seen.ms))
    return Sensitivity(
        kernel=" ".join(filter(None, (recording.kernel, "x".join(map(str, recording.problem)), recording.dtype))),
        device=recording.device, configs=len(times), failed=int(seen.failed.sum()),
        best=next(islice(recording.trials, best, None)), best_ms=recording.best_ms,
        explained=max(0.0, 1 - float(left @ left) / spread), knobs=tuple(sorted(knobs, key=lambda knob: -knob.share)),
    )  # fmt: skip


def _fitted(columns: Mapping[str, _Array], times: _Array) -> tuple[dict[str, _Array], _Array]:
    """The effect of each value of each tunable, and what is left of each time.

    One tunable after another is fitted to what the others leave, until no effect changes.
    """
    counts = {name: np.maximum(np.bincount(column), 1) for name, column in columns.items()}
    effects = {name: np.zeros(len(count)) for name, count in counts.items()}
    left = times.copy()
    for _ in range(_ROUNDS):
        moved = 0.0
        for name, column in columns.items():
            change = np.bincount(column, weights=left, minlength=len(counts[name])) / counts[name]
            effects[name] += change
            left -= change[column]
            moved = max(moved, float(np.abs(change).max()))
        if moved < _CLOSE:
            break
    return effects, left


def _knob(seen: Measured, name: str, effects: _Array, spread: float) -> Knob:
    several, codes = seen.values[name], seen.codes[name]
    ran = np.bincount(codes[seen.ran], minlength=len(several))
    failed = np.bincount(codes[seen.failed], minlength=len(several))
    best_ms = np.full(max(len(several), len(ran)), np.inf)
    np.minimum.at(best_ms, codes[seen.ran], seen.ms[seen.ran])
    of_any = effects[np.flatnonzero(ran[: len(effects)])]
    values = []
    for code, value in enumerate(several):
        measured_ms = float(best_ms[code]) if ran[code] else None
        effect = ValueEffect(
            value=value, configs=int(ran[code]), failed=int(failed[code]), best_ms=measured_ms,
            slower=math.expm1(effects[code] - of_any.min()) if ran[code] else None,
            loss=None if measured_ms is None else measured_ms / float(best_ms.min()) - 1,
        )  # fmt: skip
        values.append(effect)
    listed = effects[: len(several)]  # a file may hold values that its space does not list
    return Knob(name, float(ran[: len(listed)] @ listed**2) / spread, tuple(values))
