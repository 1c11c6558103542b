"""The searcher role: which configs to try next. A searcher sees configs and trials, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triton_ops.space import Config
from triton_ops.trial import Trial


class Searcher(Protocol):
    """Proposes configs of one space.

    Deterministic: the same space, seed and answers give the same questions. Never proposes a config twice.
    """

    def ask(self, count: int) -> list[Config]:
        """Up to `count` valid configs not proposed before; an empty list when there is nothing left to try."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Finished trials: its own proposals, and any that were tried beside them."""
