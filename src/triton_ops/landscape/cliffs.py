"""Where times jump in a measured space: one step of one tunable that makes configs much slower, spill, or fail.

Two configs are compared only if they differ in nothing else, so that a jump is due to that step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul
from statistics import median
from typing import Any, TypeAlias

from triton_ops.landscape.measured import measured
from triton_ops.replay.recording import Recording
from triton_ops.resources import WASTEFUL_SPILL_BYTES
from triton_ops.space import Value
from triton_ops.trial import Trial

_STEEP = 1.5  # times slower that count as a jump
_OFTEN = 0.25  # of the pairs in which it must be


@dataclass(frozen=True, kw_only=True)
class Cliff:
    """One step of one tunable that costs much.

    Attributes:
        name: The tunable.
        before: The value before the step.
        after: The value after it.
        pairs: Pairs of configs that differ in this step alone, of which the first ran.
        steep: Those of which the second is at least 1.5 times slower.
        spills: Those of which only the second spills.
        fails: Those of which the second failed.
        slower: The median of the second's time over the first's, where both ran; None if none did.
        slower_if_spilled: The same for those of which only the second spills.
    """

    name: str
    before: Value
    after: Value
    pairs: int
    steep: int
    spills: int
    fails: int
    slower: float | None
    slower_if_spilled: float | None


def cliffs(recording: Recording) -> list[Cliff]:
    """The steps that cost much, the most frequent first; both directions of a step count, each by itself.

    A file that has no figures of the compiler tells nothing of spills.
    """
    seen = measured(recording)
    trials = list(recording.trials.values())
    widths = {name: int(codes.max()) + 1 for name, codes in seen.codes.items()}
    places = dict(zip(seen.codes, accumulate(widths.values(), mul, initial=1), strict=False))
    numbers = _numbers(seen.codes, places, len(trials))
    found: list[Cliff] = []
    for name, values in seen.values.items():
        if name not in seen.ordered:
            continue
        by_value: dict[int, dict[int, Trial]] = {}
        for number, code, trial in zip(numbers, seen.codes[name].tolist(), trials, strict=True):
            by_value.setdefault(code, {})[number - code * places[name]] = trial
        for low, high in pairwise(range(len(values))):
            for before, after in ((low, high), (high, low)):
                pairs = list(_pairs(by_value.get(before, {}), by_value.get(after, {})))
                cliff = _cliff(pairs, name, values[before], values[after])
                if cliff is not None:
                    found.append(cliff)
    return sorted(found, key=lambda one: (-one.spills, -one.steep / one.pairs, -one.fails))


_Trials: TypeAlias = "Mapping[int, Trial]"


def _numbers(codes: Mapping[str, Any], places: Mapping[str, int], count: int) -> list[int]:
    """A number for each config, of which the value of each tunable is a digit."""
    found = [0] * count
    for name, column in codes.items():
        found = [number + code * places[name] for number, code in zip(found, column.tolist(), strict=True)]
    return found


def _cliff(pairs: Sequence[tuple[Trial, Trial]], name: str, before: Value, after: Value) -> Cliff | None:
    if not pairs:
        return None
    ratios = [second.median_ms / first.median_ms for first, second in pairs if second.ok]
    spilled = [second for first, second in pairs if _spills(second) and not _spills(first)]
    if_spilled = [
        second.median_ms / first.median_ms
        for first, second in pairs
        if second.ok and _spills(second) and not _spills(first)
    ]
    steep = sum(ratio >= _STEEP for ratio in ratios)
    fails = sum(second.failed for _, second in pairs)
    if not spilled and steep < max(1.0, _OFTEN * len(ratios)) and fails < max(1.0, _OFTEN * len(pairs)):
        return None
    return Cliff(
        name=name, before=before, after=after, pairs=len(pairs), steep=steep, spills=len(spilled), fails=fails,
        slower=median(ratios) if ratios else None, slower_if_spilled=median(if_spilled) if if_spilled else None,
    )  # fmt: skip


def _pairs(first: _Trials, second: _Trials) -> Iterator[tuple[Trial, Trial]]:
    """Trials that differ in this step alone, of which the first ran."""
    for rest, trial in first.items():
        if trial.ok and trial.median_ms > 0 and (other := second.get(rest)) is not None:
            yield trial, other


def _spills(trial: Trial) -> bool:
    return trial.resources is not None and (trial.resources.spill_bytes or 0) > WASTEFUL_SPILL_BYTES
