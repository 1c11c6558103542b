"""Efforts: how much a tune may cost; the defaults of the shipped ones stand here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from triton_ops import search as searches
from triton_ops import settings
from triton_ops.exceptions import SettingsError
from triton_ops.timing import RacePolicy, ScreenPolicy


@dataclass(frozen=True)
class Budget:
    """The limits of one run; None is no limit.

    Attributes:
        trials: Most trials, failures and those taken over from an interrupted run included, and not those of an
            undecided tune that is gone on with.
        seconds: Most wall seconds of the whole run, the last comparison included. A step that has begun is not ended,
            so the run may last longer by one trial or one round; and where they are used up before four trials, as by
            the start, up to four short ones and a short comparison follow.
        firm: Whether the last comparison ends with the seconds, too. If not, one of long launches goes on until it can
            tell.

    Raises:
        SettingsError: A limit is not a positive number.
    """

    trials: int | None = None
    seconds: float | None = None
    firm: bool = True

    def __post_init__(self) -> None:
        limits: dict[str, Any] = {"trials": self.trials, "seconds": self.seconds}
        for name, value in limits.items():
            if value is None:
                continue
            whole, hint = name == "trials", "leave it out to take the effort's"
            SettingsError.checked(f"the limit of {name}", value, whole=whole, hint=hint)
            if type(value) not in (int, float):  # records cannot hold others, such as NumPy's
                object.__setattr__(self, name, int(value) if whole else float(value))


_CHECKS = 1.5  # times the race: results are checked again after it, and a doubt is resolved
_LEAST_FINAL_S = 1.0
_FIRST_S, _EACH_S = 0.08, 0.025  # a race of few configs, and more for each; Triton's tuner measures one for 0.12


@dataclass(frozen=True)
class Patience:
    """The number of seconds after which a step has hung. Only a worker can be ended: inline there are no such limits.

    Attributes:
        compile_s: For one compilation.
        launch_s: For one step of verifying and timing, beside three launches of the default; a trial has about ten
            steps, and most take milliseconds.
        trial_s: For all of one trial.
        setup_s: For the start of a worker, the making of the arguments, and the reference's results.

    Raises:
        SettingsError: A limit is not positive.
    """

    compile_s: float = 60.0
    launch_s: float = 20.0
    trial_s: float = 180.0
    setup_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("compile_s", "launch_s", "trial_s", "setup_s"):
            SettingsError.checked(name, getattr(self, name), finite=False)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The cost that a tune may have, and its use. `expected`, `race`, `quick`, `full`, `exhaustive` are shipped.

    Attributes:
        name: The name in records. A record answers a later tune if both have the same name, or if both names are of
            shipped efforts and the record's is the greater: an effort that does more needs a name of its own.
        search: A searcher's name, a searcher, or a function from a space and a seed to a searcher.
        budget: When the search must end.
        race: How long the finalists may race, and when an arm is dropped.
        screen: How much the screening of one candidate may cost.
        near: Every config whose screening was slower than the fastest by no more than this share is a finalist.
        finalists: The least number of finalists, however much slower they are.
        processes: How many fresh processes compare the tied configs again.
        patience: When a trial has hung.
        thorough: Whether deferred configs, which spill registers heavily, are tried at the end of the search; if not,
            they are tried only where nothing else works.
        previews: How many configs at most are compiled in spare time only so that the searcher sees what the compiler
            makes of them; 0 for none. With one compiling process there are none.
        doubt_s: Seconds that a doubt about the default may take after the race, beside the race's own.
        worthwhile: The search ends when it expects to gain less than this share; the default is the indifference zone,
            below which a comparison counts two configs as equal.
        persistence: For how many times the trials so far the search goes on all the same. An expected gain that is
            worthwhile again begins the count anew.
        compiled_first: Whether the seconds of the budget begin once the searcher's first proposals are compiled and
            something can be measured, and not with the call. A slow compilation then takes no proposal's place.
        expected_gain: Share by which the model of the kernel must expect its first pick to be faster than the default,
            with what the compiler made of both and without a calibration of this machine. Then these two alone are
            compared, else nothing is measured and an `UntunedError` says why. 0 measures in any case.

    Raises:
        SettingsError: A field has a value that it cannot have.
    """

    FEW: ClassVar[int] = 8  # configs, of which each is tried in any order

    name: str
    search: searches.AnySearch = "auto"
    budget: Budget = field(default_factory=Budget)
    race: RacePolicy = field(default_factory=RacePolicy)
    screen: ScreenPolicy = field(default_factory=ScreenPolicy)
    near: float = 0.15
    finalists: int = 8
    processes: int = 0
    patience: Patience = field(default_factory=Patience)
    thorough: bool = False
    previews: int = 512
    doubt_s: float = 3.0
    worthwhile: float = RacePolicy.zone
    persistence: float = 0.0
    compiled_first: bool = False
    expected_gain: float = 0.0

    def __post_init__(self) -> None:
        if not str(self.name).strip():
            raise SettingsError(f"an effort's name is {self.name!r}; it must be a word", hint="records are found by it")
        if not isinstance(self.patience, Patience):
            raise SettingsError(f"patience is {self.patience!r}; it must be a Patience", hint="Patience(trial_s=60.0)")
        for field_name, least in (("near", 0), ("finalists", 1), ("processes", 0), ("previews", 0), ("doubt_s", 0),
                                  ("worthwhile", 0), ("persistence", 0), ("expected_gain", 0)):  # fmt: skip
            SettingsError.checked(f"{field_name} of effort {self.name}", getattr(self, field_name), least)

    @classmethod
    def named(cls, effort: str | Effort | None = None) -> Effort:
        """The shipped effort of that name, or `effort` itself; None takes the environment's, or else `quick`.

        SettingsError: there is no such effort.
        """
        if isinstance(effort, cls):
            return effort
        if effort is not None and not isinstance(effort, str):
            raise SettingsError(f"effort is {effort!r}", hint=f"pass {', '.join(PRESETS)}, or a triton_ops.Effort")
        return PRESETS[settings.effort() if effort is None else settings.one_of(settings.EFFORTS, effort, "effort")]

    def for_a_launch(self, configs: int) -> Effort:
        """This effort for a launch that waits for its tune: a few configs are compared for a shorter time.

        Which of two or three is the fastest is plain after tenths of a second on a GPU; else the default is left. A
        launch of milliseconds is screened by one sample, and few are finalists that are not near the fastest.
        """
        if configs > self.FEW:
            return self
        seconds = min(self.race.seconds, _FIRST_S + _EACH_S * configs)
        return replace(
            self, race=replace(self.race, seconds=seconds), doubt_s=min(self.doubt_s, seconds),
            screen=replace(self.screen, least=1), finalists=min(self.finalists, 2),
        )  # fmt: skip

    def with_own(
        self, search: searches.AnySearch | None, trials: int | None, budget_s: float | None, patience: Patience | None
    ) -> Effort:
        """This effort with what is not None in place of its own."""
        search = self.search if search is None else search
        if search != Effort.search:  # what every effort has by itself is right, and asking would import the searchers
            searches.Search.checked(search)
        budget = replace(self.budget, trials=self.budget.trials if trials is None else trials)
        budget = budget if budget_s is None else Budget(budget.trials, budget_s)
        return replace(self, search=search, budget=budget, patience=self.patience if patience is None else patience)

    def within(self, seconds: float | None) -> Effort:
        """This effort with at most so many seconds for the whole tune; None changes nothing."""
        own = self.budget.seconds
        if seconds is None or (own is not None and own <= seconds):
            return self
        return replace(self, budget=Budget(self.budget.trials, seconds))

    def beyond(self, trials: int) -> Effort:
        """This effort with a limit of trials that does not count so many, which earlier tunes have made."""
        own = self.budget.trials
        return self if own is None or not trials else replace(self, budget=replace(self.budget, trials=own + trials))

    @property
    def final_s(self) -> float:
        """Seconds that the search leaves for the last comparison: the race, and the checks after it."""
        return _CHECKS * self.race.seconds + _LEAST_FINAL_S

    @property
    def search_name(self) -> str:
        """The name of the search in records."""
        return searches.Search(self.search).name


_SURE = 0.15
"""Expected gain over the default from which on a model's first pick was right in the spaces that it was set on.

It was slower than the default by more than 2 % for 2 of 5,823 defaults, by 2.2 % at most; with 0.1, for 4 of 6,096
(`benchmarks/model/inferred_quality.py`). In spaces of other kinds 111 of 1,263 were: the two are compared first.
"""

PRESETS = {
    "expected": Effort(
        name="expected", search="ranked", budget=Budget(trials=2, seconds=2, firm=False),
        race=RacePolicy(checkpoints=(4, 8, 16), seconds=0.05, visit_ms=1.25, regret=RacePolicy.zone),
        finalists=2, patience=Patience(compile_s=15.0), previews=8, doubt_s=0.1, compiled_first=True,
        expected_gain=_SURE,
    ),
    "race": Effort(
        name="race", search="ranked", budget=Budget(trials=6, seconds=5, firm=False),
        race=RacePolicy(checkpoints=(4, 8, 16, 32), seconds=0.25, visit_ms=1.25, regret=RacePolicy.zone),
        near=0.06, finalists=2, previews=12, doubt_s=0.5, compiled_first=True,
    ),
    "quick": Effort(
        name="quick", budget=Budget(seconds=60, firm=False),
        race=RacePolicy(
            checkpoints=(4, 6, 8, 12, 16, 24, 32, 48, 64), seconds=1.0, visit_ms=1.25, regret=RacePolicy.zone
        ),
        near=0.06, finalists=4, doubt_s=1.5,
    ),
    "full": Effort(
        name="full", budget=Budget(trials=1000, seconds=600, firm=False), race=RacePolicy(seconds=20.0), previews=4096,
        persistence=1.0,
    ),
    "exhaustive": Effort(
        name="exhaustive", search="exhaustive",
        race=RacePolicy(checkpoints=(4, 8, 16, 32, 64, 128, 256), seconds=20.0),
        processes=3, thorough=True, previews=0, worthwhile=0.0,
    ),
}  # fmt: skip
