"""The conclusion of a tune: what its record keeps and its result shows, beside the winner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from triton_ops.base import Count, Nested, NotNegative
from triton_ops.space import Config


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The fields that a record and a result of a tune share; `TuningResult` says what each of them means."""

    mode: str = ""
    ties: tuple[Config, ...] = ()
    noise: NotNegative = 0.0
    raced_gain: NotNegative | None = None
    gain_interval: tuple[NotNegative, NotNegative] | None = None
    within_1pct: NotNegative | None = None
    confidence: str = "ok"
    guard: Mapping[str, Nested] = field(default_factory=dict)
    stopped: str = ""
    totals: Mapping[str, Count] = field(default_factory=dict)
    run: str = ""
    place: str = ""
    notes: tuple[str, ...] = ()
    waited_s: NotNegative = 0.0
    ordered_by: tuple[str, ...] = ()
    bits: str = ""

    @property
    def shared(self) -> dict[str, Any]:
        """The shared fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(Conclusion)}

    def gain_by(self, default_ms: float, winner_ms: float) -> float | None:
        """The default's time over the winner's: of their race, else of these medians; None for a winner without one."""
        if self.raced_gain is not None:
            return self.raced_gain
        return default_ms / winner_ms if winner_ms > 0 else None
