"""One search on one recording, as it would have gone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from triton_ops.measure import INDIFFERENCE
from triton_ops.replay.recording import Recording
from triton_ops.search import Searcher, UsesPreviews, expected_gain
from triton_ops.space import Config
from triton_ops.trial import Trial


@dataclass(frozen=True)
class Run:
    """What one search found.

    Attributes:
        fractions: After each evaluation, the best time recorded over the best time found so far: 0 until one ran.
            An evaluation is a distinct config asked to be measured; those that failed count. Previews do not count:
            no device was used for them.
        overhead_s: Seconds that the search itself took for each evaluation: its question and its answer's part.
        previews: How many configs it has seen compiled only because it asked for a preview.
        ended: After how many evaluations it expected less than the noise to gain; None if it never did.
    """

    fractions: tuple[float, ...]
    overhead_s: tuple[float, ...]
    ended: int | None = None
    previews: int = 0

    def at(self, budget: int) -> float:
        """The fraction after `budget` evaluations, or after the last one if there were fewer."""
        return self.fractions[min(budget, len(self.fractions)) - 1] if self.fractions else 0.0

    def first_within(self, share: float) -> int | None:
        """How many evaluations until a config at most `share` slower than the best was found; None if never."""
        found = (count for count, fraction in enumerate(self.fractions, 1) if fraction * (1 + share) >= 1)
        return next(found, None)


@dataclass(frozen=True)
class PreviewAllowance:
    """How many previews a search may have, as the compilers of a real tune would get done.

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
    previews: PreviewAllowance | None = None,
) -> Run:
    """Let `searcher` try up to `budget` configs of `recording`, whose times it learns from the recording.

    The search is shown only what it asked for: times of configs that it asked to measure, and the compiler's figures
    of these and of its previews.

    Args:
        recording: Where the times come from.
        searcher: A fresh one, of the recording's space.
        budget: Most evaluations.
        batch: How many configs are asked for at a time.
        worthwhile: Expected gains below this count as nothing to gain.
        previews: How many previews it may have; None takes the usual numbers. A recording without a compiler's
            figures has none.
    """
    allowed = previews or PreviewAllowance()
    previewing = searcher if isinstance(searcher, UsesPreviews) and recording.compiled else None
    best, asked = 0.0, set[Config]()
    fractions: list[float] = []
    overhead: list[float] = []
    ended: int | None = None
    shown = 0
    while len(fractions) < budget:
        if ended is None and expected_gain(searcher) < worthwhile:
            ended = len(fractions)
        start = time.perf_counter()
        if previewing is not None:
            shown += show_previews(recording, previewing, allowed.each * batch if fractions else allowed.first)
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
    return Run(tuple(fractions), tuple(overhead), ended, shown)


def show_previews(recording: Recording, previewing: UsesPreviews, count: int) -> int:
    """Show a searcher the previews that it wants, `count` at most; returns how many these were."""
    wanted = previewing.wanted_previews(count)
    previewing.take_previews([recording.compiled[config] for config in wanted])
    return len(wanted)


def _fraction(recording: Recording, trial: Trial) -> float:
    return recording.best_ms / trial.median_ms if trial.ok else 0.0
