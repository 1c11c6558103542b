"""A measured space as arrays: which value of each tunable a config has, by number, and what became of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_ops.replay.recording import Recording
from triton_ops.space import Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """The configs of a recording, in its order.

    Attributes:
        values: Of each tunable its values: numbers in rising order, others in the order of the space.
        ordered: The tunables whose values have neighbours: those of numbers, and those that the space says are ordered.
        codes: Of each tunable for each config the place of its value: int64 [configs].
        ms: Milliseconds: float64 [configs]; NaN for a config that did not run.
        failed: bool [configs].
    """

    values: dict[str, tuple[Value, ...]]
    ordered: frozenset[str]
    codes: dict[str, np.ndarray[Any, Any]]
    ms: np.ndarray[Any, Any]
    failed: np.ndarray[Any, Any]

    @property
    def ran(self) -> Any:
        """Which ran: bool [configs]."""
        return np.isfinite(self.ms)


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether values are numbers, so that they have an order of their own."""
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def in_order(values: Sequence[Any]) -> tuple[Any, ...]:
    """Numbers in rising order, whatever theirs in a space, where the default's may come first; other values as is."""
    return tuple(sorted(values)) if are_numbers(values) else tuple(values)


def measured(recording: Recording) -> Measured:
    """The configs of a recording as arrays.

    Cost: 1 s for 100,000 configs of ten tunables.
    """
    trials = recording.trials.values()
    tunables = recording.space.tunables
    values = {name: in_order(each.values) for name, each in tunables.items()}
    ordered = frozenset(name for name, each in tunables.items() if each.ordered or are_numbers(each.values))
    codes: dict[str, np.ndarray[Any, Any]] = {}
    for name, several in values.items():
        known: dict[Hashable, int] = {_key(value): code for code, value in enumerate(several)}
        places = (known.setdefault(_key(config.get(name)), len(known)) for config in recording.trials)
        codes[name] = np.fromiter(places, dtype=np.int64, count=len(recording.trials))
    ms = [trial.median_ms if trial.ok else np.nan for trial in trials]
    failed = np.array([trial.failed for trial in trials])
    return Measured(values=values, ordered=ordered, codes=codes, ms=np.array(ms), failed=failed)


def _key(value: Value) -> Hashable:
    """A value that tells `1` from `True`."""
    return type(value), value
