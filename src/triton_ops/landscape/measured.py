"""A measured space as arrays: which value of each tunable a config has, by number, and what became of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_ops.replay.recording import Recording
from triton_ops.space import Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """The configs of a recording, in its order.

    Attributes:
        values: Of each tunable its values, in the order of the space.
        codes: Of each tunable for each config the place of its value: int64 [configs].
        ms: Milliseconds: float64 [configs]; NaN for a config that did not run.
        failed: bool [configs].
    """

    values: dict[str, tuple[Value, ...]]
    codes: dict[str, np.ndarray[Any, Any]]
    ms: np.ndarray[Any, Any]
    failed: np.ndarray[Any, Any]

    @property
    def ran(self) -> Any:
        """Which ran: bool [configs]."""
        return np.isfinite(self.ms)


def measured(recording: Recording) -> Measured:
    """The configs of a recording as arrays.

    Cost: 1 s for 100,000 configs of ten tunables.
    """
    trials = recording.trials.values()
    values = {name: tuple(tunable.values) for name, tunable in recording.space.tunables.items()}
    codes: dict[str, np.ndarray[Any, Any]] = {}
    for name, several in values.items():
        known: dict[Hashable, int] = {_key(value): code for code, value in enumerate(several)}
        places = (known.setdefault(_key(config.get(name)), len(known)) for config in recording.trials)
        codes[name] = np.fromiter(places, dtype=np.int64, count=len(recording.trials))
    ms = [trial.median_ms if trial.ok else np.nan for trial in trials]
    return Measured(values=values, codes=codes, ms=np.array(ms), failed=np.array([trial.failed for trial in trials]))


def _key(value: Value) -> Hashable:
    """A value that tells `1` from `True`."""
    return type(value), value
