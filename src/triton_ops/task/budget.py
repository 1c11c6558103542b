"""The limits of a run: a number of trials, a number of seconds, or both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

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
        for name, value in (("trials", self.trials), ("seconds", self.seconds)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise SettingsError(
                    f"the limit of {name} is {value}; it must be a positive number",
                    hint="leave it out to take the effort's",
                )


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
