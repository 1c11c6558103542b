"""One search on one recording, as it would have gone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from triton_ops.measure import INDIFFERENCE
from triton_ops.replay.recording import Recording
from triton_ops.search import Scout, Searcher, expected_gain
from triton_ops.space import Config
from triton_ops.trial import Trial


@dataclass(frozen=True)
class Run:
    """What one search found.

    Attributes:
        fractions: After each evaluation, the best time recorded over the best time found so far: 0 until one ran.
            An evaluation is a distinct config asked to be measured; those that failed count. Configs that were only
            looked at do not: no device was used for them.
        overhead_s: Seconds that the search itself took for each evaluation: its question and its answer's part.
        looks: How many configs it has seen compiled without having asked to measure them before.
        ended: After how many evaluations it expected less than the noise to gain; None if it never did.
    """

    fractions: tuple[float, ...]
    overhead_s: tuple[float, ...]
    ended: int | None = None
    looks: int = 0

    def at(self, budget: int) -> float:
        """The fraction after `budget` evaluations, or after the last one if there were fewer."""
        return self.fractions[min(budget, len(self.fractions)) - 1] if self.fractions else 0.0

    def first_within(self, share: float) -> int | None:
        """How many evaluations until a config at most `share` slower than the best was found; None if never."""
        found = (count for count, fraction in enumerate(self.fractions, 1) if fraction * (1 + share) >= 1)
        return next(found, None)


@dataclass(frozen=True)
class Looks:
    """How much a search may see compiled beside what it proposes, as the compilers of a real tune would get done.

    Attributes:
        first: Configs before the first evaluation. 128 are what sixteen compilers manage in three seconds, about as
            long as a process that measures takes to start.
        each: Configs per evaluation, while one is measured.
    """

    first: int = 128
    each: int = 8


def replay(
    recording: Recording,
    searcher: Searcher,
    budget: int,
    *,
    batch: int = 1,
    worthwhile: float = INDIFFERENCE,
    looks: Looks | None = None,
) -> Run:
    """Let `searcher` try up to `budget` configs of `recording`, whose times it learns from the recording.

    Only what it asked for is shown to it: times of configs it asked to measure, and the compiler's figures of these
    and of configs it asked to look at.

    Args:
        recording: Where the times come from.
        searcher: A fresh one, of the recording's space.
        budget: Most evaluations.
        batch: How many configs are asked for at a time.
        worthwhile: Expected gains below this count as nothing to gain.
        looks: How many configs it may see compiled; None takes the usual numbers. A recording without a compiler's
            figures shows none.
    """
    allowed = looks or Looks()
    scout = searcher if isinstance(searcher, Scout) and recording.compiled else None
    best, asked = 0.0, set[Config]()
    fractions: list[float] = []
    overhead: list[float] = []
    ended: int | None = None
    looked = 0
    while len(fractions) < budget:
        if ended is None and expected_gain(searcher) < worthwhile:
            ended = len(fractions)
        start = time.perf_counter()
        if scout is not None:
            looked += look(recording, scout, allowed.each * batch if fractions else allowed.first)
        configs = searcher.ask(min(batch, budget - len(fractions)))
        took = time.perf_counter() - start
        if not configs:
            break
        trials = [recording.trials[config] for config in configs if config not in asked]
        asked.update(configs)
        start = time.perf_counter()
        searcher.tell(trials)
        took += time.perf_counter() - start
        for trial in trials:
            best = max(best, _fraction(recording, trial))
            fractions.append(best)
        overhead += [took / len(configs)] * len(trials)
    return Run(tuple(fractions), tuple(overhead), ended, looked)


def look(recording: Recording, scout: Scout, count: int) -> int:
    """Show `scout` what the compiler made of configs that it wants to see, `count` at most; how many these were."""
    wanted = scout.wanted(count)
    scout.looked([recording.compiled[config] for config in wanted])
    return len(wanted)


def _fraction(recording: Recording, trial: Trial) -> float:
    return recording.best_ms / trial.median_ms if trial.ok else 0.0
