"""The chance that a config runs, learned from the configs that ran and those that failed.

A failed trial costs as much as another and brings nothing, so an expected gain counts by the chance that there is one.
Failures mostly have a cause that follows the tunables, such as memory, so that a surrogate of "ran" (1) and "failed"
(0) knows after a few of them where the rest is. Far from all trials the chance is the share of those that ran.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from triton_ops.search.correlation import Correlation
from triton_ops.search.encoding import Floats
from triton_ops.search.surrogate import Surrogate

_LEAST = 0.02  # least chance, because the surrogate is sometimes too sure


class Chance:
    """The chance of each config to run; 1 until one config has failed and another has run.

    Args:
        correlation: How alike the chances of two rows are expected to be.
    """

    def __init__(self, correlation: Correlation) -> None:
        self._correlation = correlation
        self._surrogate: Surrogate | None = None
        self.known = False

    def learn(self, rows: Floats, ran: Sequence[bool]) -> None:
        """Learn which rows ran, in place of all before."""
        failed = len(ran) - sum(ran)
        self.known = 0 < failed < len(ran)
        if self.known:
            self._surrogate = self._surrogate or Surrogate(self._correlation)
            self._surrogate.learn(rows, np.array(ran, dtype=float), np.zeros(len(ran)))

    def of(self, rows: Floats) -> Floats:
        """The chance of each row, from 0.02 to 1."""
        if not self.known or self._surrogate is None:
            return np.ones(len(rows))
        found: Floats = np.clip(self._surrogate.predict(rows)[0], _LEAST, 1.0)
        return found
