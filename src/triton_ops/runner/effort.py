"""Effort: one word for how much a tune may cost, and the single place of every default behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_ops import settings
from triton_ops.measure import ScreenPolicy
from triton_ops.runner.budget import Budget
from triton_ops.search import checked_search


@dataclass(frozen=True)
class Effort:
    """What a word stands for.

    Attributes:
        name: `quick`, `full` or `exhaustive`, rising.
        search: The searcher's name.
        budget: When the search must end.
        screen: The first look at every candidate.
        finalists: How many of the best are compared side by side at the end.
        rounds: Most rounds of that comparison.
        rounds_s: Most seconds of that comparison, after two rounds.
    """

    name: str
    search: str
    budget: Budget
    screen: ScreenPolicy
    finalists: int
    rounds: int
    rounds_s: float


PRESETS = {
    "quick": Effort("quick", "random", Budget(trials=64, seconds=60), ScreenPolicy(), 8, 16, 5.0),
    "full": Effort("full", "random", Budget(trials=1000, seconds=600), ScreenPolicy(), 12, 40, 20.0),
    "exhaustive": Effort("exhaustive", "exhaustive", Budget(), ScreenPolicy(), 12, 40, 20.0),
}


def effort_of(name: str | None = None) -> Effort:
    """The preset called `name`; None asks the environment, then takes `quick`.

    Raises:
        SettingsError: There is none of that name.
    """
    return PRESETS[settings.effort() if name is None else settings.checked_effort(name)]


def chosen_effort(
    name: str | None = None, search: str | None = None, trials: int | None = None, budget_s: float | None = None
) -> Effort:
    """The preset called `name` with what is given in place of its own; does no work.

    Raises:
        SettingsError: There is no such effort or search, or a limit is not a positive number.
    """
    preset = effort_of(name)
    limits = Budget(
        preset.budget.trials if trials is None else trials,
        preset.budget.seconds if budget_s is None else budget_s,
    )
    return replace(preset, search=checked_search(preset.search if search is None else search), budget=limits)


def covers(done: str, asked: str) -> bool:
    """Whether a winner found with effort `done` answers a request for effort `asked`."""
    order = settings.EFFORTS
    return done in order and order.index(done) >= order.index(asked)
