"""Effort: how much a tune may cost, under one name, and the single place of every default behind the shipped names."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from triton_ops import settings
from triton_ops.cache import Record
from triton_ops.exceptions import SettingsError
from triton_ops.measure import INDIFFERENCE, RacePolicy, ScreenPolicy
from triton_ops.search import AnySearch, checked_search, search_name
from triton_ops.task.budget import Budget


@dataclass(frozen=True)
class Patience:
    """After how many seconds something has hung. Only a process of its own can be ended, so inline nothing is.

    Attributes:
        compile_s: One compilation.
        launch_s: One step of verifying and timing, of which a trial has about ten; most take milliseconds.
        trial_s: All of one trial.
        setup_s: Starting a process, making the arguments, and the reference's results.

    Raises:
        SettingsError: One of them is not positive.
    """

    compile_s: float = 60.0
    launch_s: float = 20.0
    trial_s: float = 180.0
    setup_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("compile_s", "launch_s", "trial_s", "setup_s"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be a positive number of seconds")


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much a tune may cost, and what it does for that. `quick`, `full` and `exhaustive` are shipped.

    Attributes:
        name: What records call it. A record answers a later tune if it was found under the same name, or both names
            are shipped and its own is the greater effort: an effort that does more deserves a name of its own.
        search: A searcher's name, a searcher, or a function from a space and a seed to a searcher.
        budget: When the search must end.
        race: How long the finalists may race, and when one is out.
        screen: How much the screening of one candidate may cost.
        near: Every config whose screening was within this share of the best is a finalist.
        finalists: At least this many are, however far.
        processes: How many fresh processes measure the finalists again if none leads clearly.
        patience: When a trial has hung.
        thorough: Whether configs that spill registers heavily are run as well, at last; else only if nothing else
            works.
        previews: How many configs at most are compiled, in spare time, only so that the search sees what the compiler
            makes of them; 0 for none. With one compiling process there are none.
        worthwhile: The search ends when it expects to gain less than this share. By default it is what a comparison
            cannot tell apart.

    Raises:
        SettingsError: A field has a value that it cannot have.
    """

    name: str
    search: AnySearch = "auto"
    budget: Budget = field(default_factory=Budget)
    race: RacePolicy = field(default_factory=RacePolicy)
    screen: ScreenPolicy = field(default_factory=ScreenPolicy)
    near: float = 0.15
    finalists: int = 8
    processes: int = 0
    patience: Patience = field(default_factory=Patience)
    thorough: bool = False
    previews: int = 512
    worthwhile: float = INDIFFERENCE

    def __post_init__(self) -> None:
        if not str(self.name).strip():
            raise SettingsError(f"an effort's name is {self.name!r}; it must be a word", hint="records are found by it")
        for field_name, least in (("near", 0), ("finalists", 1), ("processes", 0), ("previews", 0), ("worthwhile", 0)):
            value = getattr(self, field_name)
            if not (isinstance(value, (int, float)) and value >= least):
                raise SettingsError(f"{field_name} of effort {self.name} is {value!r}; it must be {least} or more")

    @property
    def search_name(self) -> str:
        """What records call its search."""
        return search_name(self.search)


PRESETS = {
    "quick": Effort(
        name="quick",
        budget=Budget(trials=64, seconds=60),
        race=RacePolicy(checkpoints=(4, 8, 16, 32), seconds=1.0),
        near=0.06,
        finalists=4,
    ),
    "full": Effort(
        name="full",
        budget=Budget(trials=1000, seconds=600),
        race=RacePolicy(seconds=20.0),
        previews=4096,
    ),
    "exhaustive": Effort(
        name="exhaustive",
        search="exhaustive",
        race=RacePolicy(checkpoints=(4, 8, 16, 32, 64, 128, 256), seconds=20.0),
        processes=3,
        thorough=True,
        previews=0,
        worthwhile=0.0,
    ),
}


def effort_of(effort: str | Effort | None = None) -> Effort:
    """The shipped effort of that name, or `effort` itself; None asks the environment, then takes `quick`.

    Raises:
        SettingsError: There is none of that name, or it is neither a name nor an effort.
    """
    if isinstance(effort, Effort):
        return effort
    if effort is not None and not isinstance(effort, str):
        raise SettingsError(f"effort is {effort!r}", hint=f"pass {', '.join(PRESETS)}, or a triton_ops.Effort")
    return PRESETS[settings.effort() if effort is None else settings.checked_effort(effort)]


def chosen_effort(
    effort: str | Effort | None = None,
    search: AnySearch | None = None,
    trials: int | None = None,
    budget_s: float | None = None,
) -> Effort:
    """The effort that `effort` names or is, with what else is given in place of its own; does no work.

    Raises:
        SettingsError: There is no such effort or search, or a limit is not a positive number.
    """
    chosen = effort_of(effort)
    limits = Budget(
        chosen.budget.trials if trials is None else trials,
        chosen.budget.seconds if budget_s is None else budget_s,
    )
    return replace(chosen, search=checked_search(chosen.search if search is None else search), budget=limits)


def covers(record: Record, asked: Effort) -> bool:
    """Whether a stored winner answers a request: found with at least this effort, and not cut short by less budget."""
    if record.effort != asked.name and not _is_greater(record.effort, asked.name):
        return False
    limits = record.budget
    enough = _least(asked.budget.trials) <= _least(limits.trials) and _least(asked.budget.seconds) <= _least(
        limits.seconds
    )
    return record.stopped in ("complete", "settled") or enough


def _is_greater(name: str, other: str) -> bool:
    """Whether both are names of shipped efforts, and the first is the greater."""
    order = settings.EFFORTS
    return name in order and other in order and order.index(name) > order.index(other)


def _least(limit: float | None) -> float:
    return math.inf if limit is None else limit
