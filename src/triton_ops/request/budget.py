"""The limits of a run: a number of trials, a number of seconds, or both."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from triton_ops.exceptions import SettingsError

_LARGEST_RESERVE = 0.35  # of the budget
_LATEST = 5  # trials by which the next one's time is judged
_FEWEST = 4  # trials of a run whose seconds are used up early, such as by its start
_MOST_OVER = 0.25  # of the budget, that these may take together although the seconds are over
_LEAST_RESERVE = 0.2  # of the budget, for the last comparison after trials that began when the seconds were over


@dataclass(frozen=True)
class Budget:
    """The limits of one run; None is no limit.

    Attributes:
        trials: Most trials, failures and those taken over from an interrupted run included, and not those of an
            undecided tune that is gone on with.
        seconds: Most wall seconds of the whole run, the last comparison included. A step that has begun is not ended,
            so the run may last longer by one trial or one round; and where they are used up before four trials, as by
            the start, up to four short ones and a short comparison follow.

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
            if value is not None and type(value) not in (int, float):  # records cannot hold others, such as NumPy's
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
    """A budget and the clock that counts its seconds.

    Args:
        budget: The limits.
        clock: Returns monotonic seconds.
        start: When the run began, by that clock; None is now.
        reserve_s: Seconds that the search leaves for the last comparison; at most a third of the budget.
    """

    def __init__(
        self,
        budget: Budget,
        clock: Callable[[], float] = time.monotonic,
        *,
        start: float | None = None,
        reserve_s: float = 0.0,
    ) -> None:
        self.budget = budget
        self._clock = clock
        self._start = clock() if start is None else start
        whole_s = math.inf if budget.seconds is None else budget.seconds
        self._search_s = whole_s - min(reserve_s, whole_s * _LARGEST_RESERVE)
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self._compile_s = 0.0
        self._first_s: float | None = None
        self._late = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    @property
    def left_s(self) -> float | None:
        """Seconds that are left of the whole run, at least 0; None without a limit."""
        return None if self.budget.seconds is None else max(self.budget.seconds - self.elapsed_s, 0.0)

    @property
    def comparison_s(self) -> float | None:
        """Seconds for the last comparison; None without a limit. Trials that began late are compared all the same."""
        if self.budget.seconds is None or self.left_s is None:
            return None
        return max(self.left_s, _LEAST_RESERVE * self.budget.seconds if self._late else 0.0)

    @property
    def late_start_s(self) -> float | None:
        """When the first trial began, if the seconds for the search were over by then; else None."""
        return self._first_s if self._first_s is not None and self._first_s >= self._search_s else None

    def note(self, trial_s: float, compile_s: float = 0.0) -> None:
        """A trial took so long, and so may the next; a process took so long to compile its config."""
        self._latest.append(trial_s)
        self._compile_s = max(self._compile_s, compile_s)
        begun_s = self.elapsed_s - trial_s
        self._first_s = begun_s if self._first_s is None else min(self._first_s, begun_s)
        self._late |= begun_s >= self._search_s

    def spent(self, trials: int) -> str | None:
        """The reason why the search must end after `trials` trials: `trials` or `seconds`; None if it may go on.

        It ends before a trial that would not fit, judged by the shortest of the latest ones. After one to three trials
        it goes on all the same if they were short.
        """
        if self.budget.trials is not None and trials >= self.budget.trials:
            return "trials"
        if self.budget.seconds is None:
            return None
        expected_s = min(self._latest, default=0.0)
        few_s = self._compile_s + (_FEWEST - trials) * expected_s
        few = bool(self._latest) and trials < _FEWEST and few_s <= _MOST_OVER * self.budget.seconds
        return "seconds" if self.elapsed_s + expected_s >= self._search_s and not few else None
