"""The decisions of one kernel: each is taken by one thread, and no launch is lost when it is taken anew."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from triton_ops.dispatch.decision import Decision
from triton_ops.dispatch.policy import within

_MOST = 4_096  # problems of one kernel; then all are decided anew


class Decisions(dict[Any, Decision]):
    """The decisions that are kept, by place. It outlives its kernel and never holds it: launches stay counted."""

    def __init__(self) -> None:
        super().__init__()
        self._begin()

    def _begin(self) -> None:
        self._locks: defaultdict[Any, threading.RLock] = defaultdict(threading.RLock)

    def begin_anew(self) -> None:
        """Forget every decision and every lock: in a forked child, whose other threads are gone."""
        self._begin()
        self.clear()

    def holding(self, place: Any) -> Decision | None:
        """The decision at a place, if a launch now is decided in the same way."""
        decision = self.get(place)
        return decision if decision is not None and decision.holds(within) else None

    def of(
        self, place: Any, decide: Callable[[], Decision], full: Callable[[], None], *, kept: bool = True
    ) -> Decision:
        """The decision at a place; one that does not hold is taken anew.

        Args:
            place: Equal for equal problems.
            decide: Takes the decision, which may take as long as a tune; other threads wait for it.
            full: Forgets all of them, where there are too many.
            kept: False leaves a new one to the caller alone.
        """
        decision = self.holding(place)
        if decision is not None:
            return decision
        with self._locks[place]:
            decision = self.holding(place)
            if decision is None:
                try:
                    decision = decide()
                    if kept and decision.kept:
                        if len(self) >= _MOST:
                            full()
                        self[place] = decision
                finally:
                    self._locks.pop(place, None)  # who waits for it has it; later calls find the decision
        return decision
