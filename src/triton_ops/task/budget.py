"""The limits of a run: a number of trials, a number of seconds, or both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from triton_ops.exceptions import SettingsError


@dataclass(frozen=True)
class Budget:
    """The limits of one run; None is no limit.

    Attributes:
        trials: Most trials, failures and those taken over from an interrupted run included.
        seconds: Most wall seconds for the search; the last comparison comes on top.

    Raises:
        SettingsError: A limit is not a positive number.
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        limits: tuple[tuple[str, Any, Any], ...] = (("trials", self.trials, Integral), ("seconds", self.seconds, Real))
        for name, value, kind in limits:
            if value is not None and not (isinstance(value, kind) and value > 0 and math.isfinite(value)):
                what = "whole number" if kind is Integral else "number"
                raise SettingsError(
                    f"the limit of {name} is {value!r}; it must be a positive {what}",
                    hint="leave it out to take the effort's",
                )
            if value is not None and type(value) not in (
                int,
                float,
            ):  # such as NumPy's numbers, which records cannot hold
                object.__setattr__(self, name, int(value) if kind is Integral else float(value))


def checked_seed(seed: Any) -> int:
    """`seed` as an int.

    Raises:
        SettingsError: It is no whole number of 0 or more.
    """
    if not isinstance(seed, Integral) or int(seed) < 0:
        raise SettingsError(f"the seed is {seed!r}; it must be a whole number of 0 or more", hint="0 is the default")
    return int(seed)


class RunningBudget:
    """A budget and the clock that counts its seconds, from the moment this object is made."""

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self._clock = clock
        self._start = clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def spent(self, trials: int) -> str | None:
        """Why the run must end after `trials` trials: `trials` or `seconds`; None if it may go on."""
        if self.budget.trials is not None and trials >= self.budget.trials:
            return "trials"
        if self.budget.seconds is not None and self.elapsed_s >= self.budget.seconds:
            return "seconds"
        return None
