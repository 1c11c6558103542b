"""Who wins: from blocks taken side by side to a winner, the configs that tie with it, and the noise floor.

Rules: contrasts inside rounds decide, not absolute times; a difference below the indifference zone or the noise is
no difference; among equals the one in use stays, then the default, then the cheaper one; and a winner must beat the
default or the default wins.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Preference: TypeAlias = "tuple[int | float | str, ...]"

INDIFFERENCE = 0.005  # a faster config must be faster by more than this share
_Z95 = 1.96
_MEDIAN_EFFICIENCY = 1.2533  # standard error of a median over that of a mean, for normal noise
_MAD_TO_SIGMA = 1.4826


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
    blocks_ms: Sequence[Sequence[float]],
    preference: Sequence[Preference],
    *,
    default: int | None = None,
    zone: float = INDIFFERENCE,
) -> Decision:
    """Compare candidates that were measured in the same rounds.

    Args:
        blocks_ms: Per candidate, its block medians in milliseconds, one per round; all of the same length, at least 1.
        preference: Per candidate a sort key: among equals the smallest wins.
        default: Position of the default: a winner that does not tie with it beats it by more than `zone`.
        zone: Differences up to this share count as none.

    Raises:
        ValueError: No candidates, or different numbers of rounds.
    """
    if not blocks_ms or len({len(blocks) for blocks in blocks_ms}) != 1 or not blocks_ms[0]:
        raise ValueError("a decision needs candidates with the same number of rounds, at least one")
    logs = [[math.log(max(block, 1e-9)) for block in blocks] for blocks in blocks_ms]
    centres = [statistics.median(column) for column in zip(*logs, strict=True)]
    level = [statistics.median(y - c for y, c in zip(row, centres, strict=True)) for row in logs]
    fastest = min(range(len(logs)), key=lambda i: (level[i], preference[i]))
    gaps = [contrast(row, logs[fastest]) for row in logs]
    ties = [i for i, (gap, margin) in enumerate(gaps) if i == fastest or gap <= max(zone, margin)]
    ties.sort(key=lambda i: preference[i])
    winner = ties[0]
    if default is not None and default not in ties and contrast(logs[default], logs[winner])[0] <= zone:
        winner = fastest  # which does beat the default by more, or the default would be among the ties
    margins = [margin for i, (_, margin) in enumerate(gaps) if i != fastest]
    return Decision(winner, fastest, tuple(ties), statistics.median(margins) if margins else 0.0)


def contrast(row: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Median of `row - other` and the half-width of its 95 % interval; log times in the same rounds.

    With a single round the half-width is 0: nothing is known of the noise.
    """
    differences = [a - b for a, b in zip(row, other, strict=True)]
    centre = statistics.median(differences)
    mad = statistics.median(abs(d - centre) for d in differences)
    margin = _Z95 * _MEDIAN_EFFICIENCY * _MAD_TO_SIGMA * mad / math.sqrt(len(differences))
    return centre, margin
