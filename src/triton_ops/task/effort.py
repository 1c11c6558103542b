"""Effort: one word for how much a tune may cost, and the single place of every default behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from triton_ops import settings
from triton_ops.cache import Record
from triton_ops.exceptions import SettingsError
from triton_ops.measure import RacePolicy, ScreenPolicy
from triton_ops.search import checked_search
from triton_ops.task.budget import Budget


@dataclass(frozen=True)
class Patience:
    """After how many seconds something has hung. Only a process of its own can be ended, so inline nothing is.

    Attributes:
        compile_s: One compilation.
        launch_s: One step of verifying and timing, of which a trial has about ten; most take milliseconds.
        trial_s: All of one trial.
        setup_s: Starting a process, making the arguments, and the reference's results.
    """

    compile_s: float = 60.0
    launch_s: float = 20.0
    trial_s: float = 180.0
    setup_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("compile_s", "launch_s", "trial_s", "setup_s"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be a positive number of seconds")


@dataclass(frozen=True)
class Effort:
    """What a word stands for.

    Attributes:
        name: `quick`, `full` or `exhaustive`, rising.
        search: The searcher's name.
        budget: When the search must end.
        screen: The first look at every candidate.
        near: Every config this near the best by first looks is a finalist.
        finalists: At least this many are, however far.
        race: How long the finalists may race, and when one is out.
        processes: How many fresh processes measure the finalists again if none leads clearly.
        patience: When a trial has hung.
        thorough: Whether configs that spill registers heavily are run as well, at last; else only if nothing else
            works.
        hold_compilers: Whether nothing is compiled while a candidate is timed. Not needed where it was measured: on an
            H200's host, compilers on all CPUs move times by less than 0.04 % (benchmarks/host_load.py), since events
            are recorded behind a delay that hides what the host does.
        looks: How many configs at most are compiled, in spare time, only because the search would like to see what the
            compiler makes of them; 0 for none. With one compiling process there are none.
        worthwhile: The search ends when it expects to gain less than this share: what a comparison cannot tell apart.
    """

    name: str
    search: str
    budget: Budget
    race: RacePolicy
    screen: ScreenPolicy = field(default_factory=ScreenPolicy)
    near: float = 0.15
    finalists: int = 8
    processes: int = 0
    patience: Patience = field(default_factory=Patience)
    thorough: bool = False
    hold_compilers: bool = False
    looks: int = 512
    worthwhile: float = 0.005


PRESETS = {
    "quick": Effort(
        "quick",
        "auto",
        Budget(trials=64, seconds=60),
        RacePolicy(looks=(4, 8, 16, 32), seconds=1.0),
        near=0.06,
        finalists=4,
    ),
    "full": Effort("full", "auto", Budget(trials=1000, seconds=600), RacePolicy(seconds=20.0), looks=4096),
    "exhaustive": Effort(
        "exhaustive",
        "exhaustive",
        Budget(),
        RacePolicy(looks=(4, 8, 16, 32, 64, 128, 256), seconds=20.0),
        processes=3,
        thorough=True,
        looks=0,
        worthwhile=0.0,
    ),
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


def covers(record: Record, asked: Effort) -> bool:
    """Whether a stored winner answers a request: found with at least this effort, and not cut short by less budget."""
    order = settings.EFFORTS
    if record.effort not in order or order.index(record.effort) < order.index(asked.name):
        return False
    limits = record.budget
    enough = _least(asked.budget.trials) <= _least(limits.trials) and _least(asked.budget.seconds) <= _least(
        limits.seconds
    )
    return record.stopped in ("complete", "settled") or enough


def _least(limit: float | None) -> float:
    return math.inf if limit is None else limit
