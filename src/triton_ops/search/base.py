"""The roles around a search: who proposes configs, and who knows something of them beforehand.

A searcher sees configs and trials, and nothing else: no device, no clock, no disk.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from triton_ops.exceptions import SettingsError
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


@runtime_checkable
class EstimatesGain(Protocol):
    """A searcher that knows when little is left to gain: a run may then end before its budget is spent."""

    def expected_gain(self) -> float:
        """How much faster than the best so far, as a share, the most promising config left is expected to be.

        Infinite while the searcher cannot know. A run ends when this is below what its measurement can tell apart.
        """


@runtime_checkable
class UsesPreviews(Protocol):
    """A searcher that also learns from previews: configs that are compiled only so that it sees what became of them.

    A preview costs a compiler's time and none of the device's. Nobody has to answer: a searcher that is shown no
    preview proposes what it would propose without these methods.
    """

    def wanted_previews(self, count: int) -> list[Config]:
        """Up to `count` valid configs that the searcher would like to see compiled, the most useful first.

        No config that the searcher has proposed, that was tried, or that it has asked for here before.
        """

    def take_previews(self, found: Sequence[Compiled]) -> None:
        """What the compiler made of configs: of the previews, and of proposals as soon as they are compiled.

        Afterwards the searcher never proposes a config that cannot be launched, nor one that is the same program as
        a config that it has proposed.
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


_REPEATED_ANSWERS = 100  # answers in a row without a new config after which a searcher has nothing new to propose


def new_configs(searcher: Searcher, count: int, proposed: Collection[Config]) -> list[Config]:
    """Up to `count` configs from `searcher` that are not in `proposed`; an empty list when it has nothing new.

    A searcher that forgets what it was told of, as one that goes on with an interrupted run may, is asked again.

    Raises:
        SettingsError: The searcher proposes something that is no config.
    """
    for _ in range(_REPEATED_ANSWERS):
        asked: Sequence[Any] = searcher.ask(count)  # the searcher may be a user's
        if wrong := [config for config in asked if not isinstance(config, Config)]:
            raise SettingsError(
                f"{type(searcher).__qualname__}.ask returned {wrong[0]!r}, which is no Config",
                hint="return configs of the space, or make one with triton_ops.Config(BLOCK=128)",
            )
        if found := [config for config in dict.fromkeys(asked) if config not in proposed]:
            return found
        if not asked:
            break
    return []


def expected_gain(searcher: Searcher) -> float:
    """What `searcher` expects to gain; infinite for a searcher that does not estimate it."""
    return searcher.expected_gain() if isinstance(searcher, EstimatesGain) else math.inf
