"""The roles around a search: a searcher proposes configs, and a prior knows something of configs beforehand.

A searcher sees configs and trials, and nothing else: no device, no clock, no disk.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from triton_ops.exceptions import SettingsError
from triton_ops.space import Config
from triton_ops.values import Compiled, Trial


class Searcher(Protocol):
    """Proposes configs of one space.

    A searcher is deterministic: the same space, seed and trials give the same proposals. No config is proposed twice.
    """

    def ask(self, count: int) -> list[Config]:
        """Up to `count` valid configs that were not proposed before; an empty list when no config is left."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take finished trials of the searcher's own proposals, and of configs that others proposed."""


@runtime_checkable
class EstimatesGain(Protocol):
    """A searcher that can tell when little is left to gain, so that a run may end before its budget is spent."""

    def expected_gain(self) -> float:
        """The share by which the most promising config left is expected to be faster than the best so far.

        The share is infinite while the searcher cannot know. A run ends once the share is below the smallest difference
        that its measurement can tell.
        """


@runtime_checkable
class UsesPreviews(Protocol):
    """A searcher that also learns from previews: configs that are compiled only for the searcher to see the result.

    A preview costs a compiler's time and none of the device's. Previews need not be made: without them the searcher
    proposes the same configs as it would without these methods.
    """

    def wanted_previews(self, count: int) -> list[Config]:
        """Up to `count` valid configs that the searcher wants compiled, the most useful first.

        None of them was proposed, tried or asked for here before.
        """

    def take_previews(self, previews: Sequence[Compiled]) -> None:
        """Take the compiler's results for previews, and for proposals as soon as they are compiled.

        Afterwards the searcher never proposes a config that cannot be launched, nor a config that is the same program
        as an earlier proposal.
        """


class Prior(Protocol):
    """Knows something of configs before they are measured: a model of the kernel, or records of other problems.

    A prior orders the first proposals and is one more feature of a search; measurements decide how much it counts.
    """

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds of each config, or another cost whose ratios are ratios of time.

        NaN means that the prior does not know, and infinity that it expects the config not to run.

        Costs may change after `tell`, because a model learns the compiler's figures of a config.
        """

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take finished trials of this space, for a prior that learns from them."""


@runtime_checkable
class LearnsPreviews(Protocol):
    """A prior that expects another cost of a config once the config was compiled."""

    def take_previews(self, previews: Sequence[Compiled]) -> None:
        """Take the compiler's results for configs of this space; `score` may then say something else of them."""


SMALL = 64  # a space of at most this many configs is tried whole by `auto`: a search would save less than it costs
_REPEATED_ANSWERS = 100  # after so many answers in a row without a new config, the searcher counts as exhausted


def new_configs(searcher: Searcher, count: int, proposed: Collection[Config]) -> list[Config]:
    """Up to `count` configs from `searcher` that are not in `proposed`; an empty list when no new config comes.

    A searcher that repeats configs is asked again: it may continue an interrupted run without a memory of the trials.

    Raises:
        SettingsError: The searcher proposes an object that is no config.
    """
    for _ in range(_REPEATED_ANSWERS):
        answer: Sequence[Any] = searcher.ask(count)  # the searcher may be a user's, so its answer is checked
        if wrong := [config for config in answer if not isinstance(config, Config)]:
            raise SettingsError(
                f"{type(searcher).__qualname__}.ask returned {wrong[0]!r}, which is no Config",
                hint="return configs of the space, or make one with triton_ops.Config(BLOCK=128)",
            )
        if fresh := [config for config in dict.fromkeys(answer) if config not in proposed]:
            return fresh
        if not answer:
            break
    return []


def expected_gain(searcher: Searcher) -> float:
    """The gain that `searcher` expects; infinite for a searcher that does not estimate a gain."""
    return searcher.expected_gain() if isinstance(searcher, EstimatesGain) else math.inf
