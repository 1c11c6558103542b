"""A replay: one search on one recording, which answers with its recorded times."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass

from triton_ops.measure import INDIFFERENCE
from triton_ops.replay.recording import Recording
from triton_ops.search import Searcher, UsesPreviews, expected_gain
from triton_ops.space import Config
from triton_ops.trial import Trial


@dataclass(frozen=True)
class ReplayRun:
    """The course of one replayed search.

    Attributes:
        fractions: The best recorded time over the best time found so far, after each evaluation; 0 until a config ran.
            An evaluation is a distinct config that the search asked to measure, also one that failed. Previews do not
            count, because they use no device.
        overhead_s: Seconds of the search itself for each evaluation, in `ask` and `tell`.
        ended: Number of evaluations after which the search expected to gain less than the noise; None if never.
        previews: Number of previews that the search was shown.
    """

    fractions: tuple[float, ...]
    overhead_s: tuple[float, ...]
    _: KW_ONLY
    ended: int | None = None
    previews: int = 0

    def at(self, budget: int) -> float:
        """The fraction after `budget` evaluations, or after the last one if there were fewer."""
        return self.fractions[min(budget, len(self.fractions)) - 1] if self.fractions else 0.0

    def first_within(self, share: float) -> int | None:
        """Number of evaluations until a config at most `share` slower than the best was found; None if never."""
        found = (count for count, fraction in enumerate(self.fractions, 1) if fraction * (1 + share) >= 1)
        return next(found, None)


@dataclass(frozen=True)
class PreviewAllowance:
    """Number of previews that a search may have, about as many as the compilers of a live tune manage.

    Attributes:
        first: Previews before the first evaluation. Sixteen compilers manage 128 in three seconds, about as long as a
            process that measures takes to start.
        each: Previews per evaluation, while a config is measured.
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
) -> ReplayRun:
    """Let `searcher` try up to `budget` configs of `recording`, and tell it their recorded times.

    The searcher sees only times of configs that it asked to measure, and the compiler's figures of these and of its
    previews.

    Args:
        recording: The recording with the times.
        searcher: A new searcher of the recording's space.
        budget: Most evaluations.
        batch: Number of configs that are asked for at a time.
        worthwhile: Smaller expected gains count as no gain.
        previews: Number of previews that the searcher may have; None takes the defaults. A recording without the
            compiler's figures has no previews.
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
    return ReplayRun(tuple(fractions), tuple(overhead), ended=ended, previews=shown)


def show_previews(recording: Recording, previewing: UsesPreviews, count: int) -> int:
    """Show a searcher up to `count` previews that it wants; returns the number of previews shown."""
    wanted = previewing.wanted_previews(count)
    previewing.take_previews([recording.compiled[config] for config in wanted])
    return len(wanted)


def _fraction(recording: Recording, trial: Trial) -> float:
    return recording.best_ms / trial.median_ms if trial.ok else 0.0
