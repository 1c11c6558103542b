"""Who wins: from blocks taken side by side to a winner, the configs that tie with it, and the noise.

Rules: contrasts inside rounds decide, not absolute times; a difference below the indifference zone or the noise is
no difference; among equals the one in use stays, then the default, then the cheaper one; and a winner must beat the
default or the default wins.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops.measure.stats import Z95, Interval, bootstrap_median, contrasts, median_error, robust_sigma

Preference: TypeAlias = "tuple[int | float | str, ...]"

INDIFFERENCE = 0.005  # a faster config must be faster by more than this share


@dataclass(frozen=True)
class Decision:
    """The outcome of a comparison; indices are positions in the list that was compared.

    Attributes:
        winner: The one to use.
        fastest: The one with the smallest median contrast, whatever the ties.
        ties: Those that could not be told from the fastest, itself included, best first.
        noise: Half-width of a typical 95 % interval of a contrast, as a share of the time.
    """

    winner: int
    fastest: int
    ties: tuple[int, ...]
    noise: float


def decide(
    rows_ms: Sequence[Sequence[float]],
    preference: Sequence[Preference],
    *,
    kept: Collection[int] = (),
    default: int | None = None,
    zone: float = INDIFFERENCE,
) -> Decision:
    """Compare candidates that were measured in the same rounds.

    Args:
        rows_ms: Per candidate, its block medians in milliseconds, one per round from the first on. One with fewer
            rounds than others was dropped, and cannot tie.
        preference: Per candidate a sort key: among equals the smallest wins.
        kept: Positions of what is in use, and of the default: they win whatever ties with them; others must also be
            within `zone` of the fastest by what was measured, however wide the noise is.
        default: Position of the default: a winner that does not tie with it beats it by more than `zone`.
        zone: Differences up to this share count as none.

    Raises:
        ValueError: No candidates, or no rounds.
    """
    longest = max(map(len, rows_ms), default=0)
    if not longest:
        raise ValueError("a decision needs candidates with at least one round")
    alive = [i for i, row in enumerate(rows_ms) if len(row) == longest]
    levels = dict(zip(alive, relative_levels([rows_ms[i] for i in alive]), strict=True))
    fastest = min(alive, key=lambda i: (levels[i], preference[i]))
    gaps = {i: gap(rows_ms[i], rows_ms[fastest]) for i in alive}
    ties = sorted((i for i in alive if _tied(gaps[i], zone)), key=lambda i: preference[i])
    winner = next(i for i in ties if i in kept or gaps[i].centre <= zone)
    if default in levels and default not in ties and gap(rows_ms[default], rows_ms[winner]).centre <= zone:
        winner = fastest  # which does beat the default by more, or the default would be among the ties
    margins = [gaps[i].margin for i in alive if i != fastest]
    return Decision(winner, fastest, tuple(ties), statistics.median(margins) if margins else 0.0)


def relative_levels(rows_ms: Sequence[Sequence[float]]) -> list[float]:
    """How slow each row is relative to its rounds' medians, as a logarithm: smaller is faster."""
    centres = [statistics.median(column) for column in zip(*rows_ms, strict=True)]
    return [statistics.median(contrasts(row, centres)) for row in rows_ms]


def gap(row_ms: Sequence[float], other_ms: Sequence[float]) -> Interval:
    """By which share `row` is slower than `other`, with its 95 % interval, over the rounds that both have.

    The interval is that of a median of normal noise, which is what a race can afford to ask for often. With a single
    round it has no width: nothing is known of the noise.
    """
    values = contrasts(row_ms, other_ms)
    centre = statistics.median(values)
    margin = Z95 * median_error(robust_sigma(values), len(values))
    return Interval(centre, centre - margin, centre + margin)


def gain(slow_ms: Sequence[float], fast_ms: Sequence[float], seed: int = 0) -> Interval:
    """By which share the first is slower than the second, with its bootstrap 95 % interval over shared rounds."""
    return bootstrap_median(contrasts(slow_ms, fast_ms), seed)


def _tied(found: Interval, zone: float) -> bool:
    return found.centre <= max(zone, found.margin)
