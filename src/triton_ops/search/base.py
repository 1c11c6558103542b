"""The roles around a search: who proposes configs, and who knows something of them beforehand.

A searcher sees configs and trials, and nothing else: no device, no clock, no disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from triton_ops.space import Config
from triton_ops.trial import Compiled, Trial


class Searcher(Protocol):
    """Proposes configs of one space.

    Deterministic: the same space, seed and answers give the same questions. Never proposes a config twice.
    """

    def ask(self, count: int) -> list[Config]:
        """Up to `count` valid configs not proposed before; an empty list when there is nothing left to try."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Finished trials: its own proposals, and any that were tried beside them."""

    def expected_gain(self) -> float:
        """How much faster than the best so far, as a share, the most promising config left is expected to be.

        Infinite where the searcher cannot know. A run may end when this is below what its measurement can tell apart.
        """


@runtime_checkable
class Scout(Protocol):
    """A searcher that also learns from what the compiler makes of configs that nobody has proposed yet.

    A look costs a compiler's time and none of the device's. Nobody has to answer: without looks it searches as if it
    had no such methods.
    """

    def wanted(self, count: int) -> list[Config]:
        """Up to `count` valid configs whose compilation it would like to see, the most useful first.

        None that it has proposed, that was tried, or that it has wanted before.
        """

    def looked(self, found: Sequence[Compiled]) -> None:
        """What became of configs in a compiler: those it wanted, and any that were compiled beside them.

        A config that cannot be launched is never proposed afterwards; nor is one that is the same program as another
        that was.
        """


class Prior(Protocol):
    """Knows something of configs before they are measured: a model of the kernel, or records of other problems.

    What it says orders the start and is one more feature of a search; measurements decide how far it is believed.
    """

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds, or any cost whose ratios mean ratios of time.

        NaN where it has nothing to say, infinite where it expects that the config cannot run.

        May change after `tell`, as a model learns what the compiler made of a config.
        """

    def tell(self, trials: Sequence[Trial]) -> None:
        """Finished trials of this space, for a prior that learns from them."""
