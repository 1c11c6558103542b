"""The budget of a running search: what is left of it, and what the search leaves for the last comparison."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from triton_ops.request import Budget

_LARGEST_RESERVE = 0.35  # of the budget
_LATEST = 5  # trials by which the next one's time is judged
_FEWEST = 4  # trials of a run whose seconds are used up early, such as by its start
_MOST_OVER = 0.25  # of the budget, that these may take together although the seconds are over
_LEAST_RESERVE = 0.2  # of the budget, for the last comparison after trials that began when the seconds were over


class RunningBudget:
    """A budget and its clock, by which the run began at `start`; `reserve_s` are left for the last comparison."""

    def __init__(
        self, budget: Budget, clock: Callable[[], float] = time.monotonic, *, start: float | None = None,
        reserve_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.budget = budget
        self._clock = clock
        self._start = clock() if start is None else start
        self.reserve_s = reserve_s
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self._compile_s = 0.0
        self._first_s: float | None = None
        self._late = False

    @property
    def _search_s(self) -> float:
        whole_s = math.inf if self.budget.seconds is None else self.budget.seconds
        return whole_s - min(self.reserve_s, whole_s * _LARGEST_RESERVE)

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
        """Seconds for the last comparison; None without a firm limit. A late start leaves some all the same."""
        if self.budget.seconds is None or self.left_s is None or not self.budget.firm:
            return None
        return max(self.left_s, _LEAST_RESERVE * self.budget.seconds if self._late else 0.0)

    @property
    def late_start_s(self) -> float | None:
        """When the first trial began, if the seconds for the search were over by then; else None."""
        return self._first_s if self._first_s is not None and self._first_s >= self._search_s else None

    def begin(self) -> None:
        """Let the seconds count from now."""
        self._start = self._clock()

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
        fits = not self.budget.firm or few_s <= _MOST_OVER * self.budget.seconds
        few = bool(self._latest) and trials < _FEWEST and fits
        return "seconds" if self.elapsed_s + expected_s >= self._search_s and not few else None


_ROUNDS, _FAR_ROUNDS = 12.0, 6.0  # eight rounds, or four of one that takes more than twice the best's time, and checks


def rounds_s(times_ms: Sequence[float]) -> float:
    """Seconds that the search leaves for rounds of the default and the best, whose times these are."""
    return sum(ms * (_FAR_ROUNDS if ms > 2.0 * min(times_ms) else _ROUNDS) for ms in times_ms) / 1e3
