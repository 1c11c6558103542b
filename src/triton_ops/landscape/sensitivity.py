"""Which tunables matter in a measured space, by a run log or a recording.

The logarithm of the time is fitted by a sum of one effect for each value of each tunable, so that configs need not be
on a grid. What such a sum does not explain is due to tunables that act together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from triton_ops.exceptions import RecordingError
from triton_ops.replay.recording import Recording
from triton_ops.space import Config, Value
from triton_ops.trial import Trial

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
        effects: Its values, in the order of the space.
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

    Cost: some 20 ms for a thousand configs, 2 s for 100,000.
    """
    ran = [(config, trial.median_ms) for config, trial in recording.trials.items() if trial.ok]
    if any(ms <= 0 for _, ms in ran):
        raise RecordingError(f"{recording.file} has a config that took no time", hint="leave that config out")
    times = [math.log(ms) for _, ms in ran]
    mean = fmean(times) if ran else 0.0
    spread = sum((time - mean) ** 2 for time in times)
    columns = {name: [value_key(config.get(name)) for config, _ in ran] for name in recording.space.tunables}
    columns = {name: column for name, column in columns.items() if len(set(column)) > 1}
    if len(ran) < _FEWEST or spread <= _CLOSE**2 or not columns:
        raise RecordingError(
            f"{recording.file} has {len(ran)} configs that ran in different times; nothing can be told from them",
            hint=f"give a file with {_FEWEST} or more",
        )
    effects = _fitted(columns, [time - mean for time in times])
    left = sum((time - mean - fit) ** 2 for time, fit in zip(times, _sums(columns, effects), strict=True))
    knobs = [_knob(name, effects[name], recording, spread) for name in columns]
    return Sensitivity(
        kernel=" ".join(filter(None, (recording.kernel, "x".join(map(str, recording.problem)), recording.dtype))),
        device=recording.device, configs=len(ran), failed=sum(trial.failed for trial in recording.trials.values()),
        best=min(ran, key=lambda pair: pair[1])[0], best_ms=recording.best_ms, explained=max(0.0, 1 - left / spread),
        knobs=tuple(sorted(knobs, key=lambda knob: -knob.share)),
    )  # fmt: skip


def value_key(value: Value) -> Hashable:
    """A value that tells `1` from `True`."""
    return type(value).__name__, value


_Columns: TypeAlias = "Mapping[str, Sequence[Hashable]]"  # of each tunable the value of every config
_Effects: TypeAlias = "dict[str, dict[Hashable, float]]"


def _fitted(columns: _Columns, times: Sequence[float]) -> _Effects:
    """The effect of each value of each tunable, by fitting one tunable after another to what the others leave.

    How many configs have two values together is all that a round asks for, so that its cost is not that of the configs.
    """
    together = {
        (one, other): Counter(zip(columns[one], columns[other], strict=True))
        for one in columns for other in columns if one != other
    }  # fmt: skip
    counts = {name: Counter(column) for name, column in columns.items()}
    sums = {name: _summed(column, times) for name, column in columns.items()}
    effects: _Effects = {name: dict.fromkeys(count, 0.0) for name, count in counts.items()}
    for _ in range(_ROUNDS):
        moved = 0.0
        for name in columns:
            rest = dict(sums[name])
            for other in columns:
                for (key, beside), configs in together.get((name, other), {}).items():
                    rest[key] -= configs * effects[other][beside]
            for key, left in rest.items():
                effect = left / counts[name][key]
                moved = max(moved, abs(effect - effects[name][key]))
                effects[name][key] = effect
        if moved < _CLOSE:
            break
    return effects


def _summed(column: Sequence[Hashable], times: Sequence[float]) -> dict[Hashable, float]:
    found: dict[Hashable, float] = {}
    for key, time in zip(column, times, strict=True):
        found[key] = found.get(key, 0.0) + time
    return found


def _sums(columns: _Columns, effects: _Effects) -> Iterator[float]:
    """The sum of the effects for each config."""
    each = [map(effects[name].__getitem__, column) for name, column in columns.items()]
    return map(sum, zip(*each, strict=True))


def _knob(name: str, effects: Mapping[Hashable, float], recording: Recording, spread: float) -> Knob:
    least = min(effects.values())
    by_value: dict[Hashable, list[Trial]] = {}
    for config, trial in recording.trials.items():
        by_value.setdefault(value_key(config.get(name)), []).append(trial)
    values = []
    counted = 0.0
    for value in recording.space.tunables[name].values:
        trials = by_value.get(value_key(value), [])
        ran = [trial for trial in trials if trial.ok]
        effect = effects.get(value_key(value)) if ran else None
        counted += len(ran) * (effect or 0.0) ** 2
        values.append(_value(value, trials, ran, None if effect is None else math.expm1(effect - least), recording))
    return Knob(name, counted / spread, tuple(values))


def _value(
    value: Value, trials: Sequence[Trial], ran: Sequence[Trial], slower: float | None, recording: Recording
) -> ValueEffect:
    best_ms = min((trial.median_ms for trial in ran), default=None)
    return ValueEffect(
        value=value, configs=len(ran), failed=sum(trial.failed for trial in trials), slower=slower, best_ms=best_ms,
        loss=None if best_ms is None else best_ms / recording.best_ms - 1,
    )  # fmt: skip
