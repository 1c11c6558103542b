"""A search that begins before its priors are there.

Priors that are read from the kernel take a second or two, or many where the processes that read have much to import.
While the process that measures is not ready either, waiting costs nothing, and the first proposals are the better for
it. Once it is ready the default is tried. Then the search waits for a moment, goes on without priors, and begins anew
with all that was found when they come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from triton_ops.base import inform, warn
from triton_ops.processes import WorkerProcess
from triton_ops.search import Prior, Search, Searcher, UsesPreviews
from triton_ops.space import Config
from triton_ops.values import Compiled, Trial

_LOOK_S = 0.01  # between two looks whether the process that measures is ready
_PATIENCE_S = 1.0  # after the default was tried: about as long as a kernel is read once its processes are there
_SHARE = 0.1  # of the budget's seconds, at most

_INLINE_S = 2.0  # for the priors before the first proposals where this process measures

Make = Callable[[Sequence[Prior]], Searcher]


def readiness(process: WorkerProcess | None) -> Callable[[], bool]:
    """A test if something could be measured: the worker has answered or ended; without one, two seconds are over."""
    if process is not None:
        return lambda: process.has_written
    end_s = time.monotonic() + _INLINE_S
    return lambda: time.monotonic() >= end_s


def searcher_over(
    make: Make, priors: Future[list[Prior]], ready: Callable[[], bool], budget_s: float | None = None
) -> Searcher:
    """The searcher with its priors if they come before something can be measured, else one that takes them later."""
    while not priors.done() and not ready():
        wait([priors], timeout=_LOOK_S)
    if priors.done():
        return make(priors.result())
    return LatePriors(make, priors, _PATIENCE_S if budget_s is None else min(_PATIENCE_S, _SHARE * budget_s))


class LatePriors:
    """A searcher that proposes nothing until the default was tried, and then waits once for its priors."""

    def __init__(self, make: Make, priors: Future[list[Prior]], patience_s: float) -> None:
        self._make, self._priors, self._patience_s = make, priors, patience_s
        self._searcher: Searcher | None = None
        self._whole = False  # whether the searcher has its priors
        self._trials: list[Trial] = []
        self._compiled: list[Compiled] = []

    def ask(self, count: int) -> list[Config]:
        """Proposals of the searcher; an empty list before the first trial, unless the priors have come."""
        searcher = self._awaited()
        return [] if searcher is None else searcher.ask(count)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take finished trials."""
        searcher = self._current()
        self._trials += trials
        if searcher is not None:
            searcher.tell(trials)

    def expected_gain(self) -> float:
        """As of the searcher; infinite until it is there."""
        return math.inf if (searcher := self._current()) is None else Search.expected_gain(searcher)

    def wanted_previews(self, count: int) -> list[Config]:
        """Previews of the searcher, which are asked for before proposals are; none before the first trial."""
        if (searcher := self._awaited()) is None or not isinstance(searcher, UsesPreviews):
            return []
        return searcher.wanted_previews(count)

    def take_previews(self, results: Sequence[Compiled]) -> None:
        """Take the compiler's results."""
        searcher = self._current()
        self._compiled += results
        if searcher is not None and isinstance(searcher, UsesPreviews):
            searcher.take_previews(results)

    def _awaited(self) -> Searcher | None:
        """The searcher, which is waited for once, after the first trial; None before, unless the priors have come."""
        if self._current() is None and self._trials:
            wait([self._priors], timeout=self._patience_s)
            if self._current() is None:
                inform("the search begins before the kernel is read")
                self._begin([])
        return self._searcher

    def _current(self) -> Searcher | None:
        """The searcher, begun anew with its priors if they have come meanwhile; None if there is none yet."""
        if not self._whole and self._priors.done():
            self._whole, error = True, self._priors.exception()
            late = self._searcher is not None and isinstance(error, Exception)
            if late:  # what went wrong with the priors ends no search that has begun without them
                warn("the search goes on without a model: reading the kernel failed", exc_info=error)
            priors = [] if late else self._priors.result()
            if priors or self._searcher is None:
                self._begin(priors)
        return self._searcher

    def _begin(self, priors: Sequence[Prior]) -> None:
        self._searcher = self._make(priors)
        if self._trials:
            self._searcher.tell(list(self._trials))
        if self._compiled and isinstance(self._searcher, UsesPreviews):
            self._searcher.take_previews(list(self._compiled))
