"""Optuna's samplers as searchers; needs the extra `optuna`.

Optuna gets numbers, in whatever order they are listed, and other ordered tunables as integers, the positions of their
values, so that it knows their order, and all other tunables as choices. A proposal that breaks a constraint is reported
to Optuna as failed, and a repeated proposal with its known time; after 20 such proposals in a row a random config is
proposed instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from triton_ops.base import require
from triton_ops.search.sampling import RandomSearch
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Trial

_TRIES = 20  # proposals in a row that may be invalid or known
_PURPOSE = "the search `optuna`"


class OptunaSearch(RandomSearch):
    """A searcher around a sampler of Optuna: its tree of Parzen estimators with this seed, or any given sampler."""

    def __init__(self, space: ConfigSpace, seed: int = 0, sampler: Any = None) -> None:
        super().__init__(space, seed)
        self._optuna = require("optuna", _PURPOSE)
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        # NumPy's RandomState, which this sampler makes of the seed, takes 32 bits
        self._study = self._optuna.create_study(sampler=sampler or self._optuna.samplers.TPESampler(seed=seed % 2**32))
        self._axes = {name: self._distribution(name) for name in space.tunables}
        self._proposals: dict[Config, Any] = {}
        self._trials: dict[Config, Trial] = {}

    def tell(self, trials: Sequence[Trial]) -> None:
        """Report the trials to Optuna; configs that others proposed are added to the study as trials."""
        for trial in trials:
            if trial.config not in self._space or not self._space.names_agree(trial.config):
                continue
            self._taken.add(trial.config)
            self._trials[trial.config] = trial
            if (proposal := self._proposals.pop(trial.config, None)) is not None:
                self._answer(proposal, trial)
            elif trial.ok:
                self._study.add_trial(
                    self._optuna.trial.create_trial(
                        params=self._positions(trial.config), distributions=self._axes, value=_value(trial)
                    )
                )

    def _next(self) -> Config | None:
        for _ in range(_TRIES):
            proposal = self._study.ask(self._axes)
            positions, tunables = proposal.params, self._space.tunables
            config = Config({name: tunable.in_order[positions[name]] for name, tunable in tunables.items()})
            if config in self._space and self._first_of([config]) is not None:
                self._proposals[config] = proposal
                return config
            self._answer(proposal, self._trials.get(config))  # else the study would hold it for a running trial
        return super()._next()

    def _answer(self, proposal: Any, trial: Trial | None) -> None:
        if trial is not None and trial.ok:
            self._study.tell(proposal, _value(trial))
        else:
            self._study.tell(proposal, state=self._optuna.trial.TrialState.FAIL)

    def _distribution(self, name: str) -> Any:
        tunable = self._space.tunables[name]
        if tunable.ordered or tunable.of_numbers:
            return self._optuna.distributions.IntDistribution(0, len(tunable) - 1)
        return self._optuna.distributions.CategoricalDistribution(list(range(len(tunable))))

    def _positions(self, config: Config) -> dict[str, int]:
        # with their types, because True equals 1
        typed = {name: [(type(v), v) for v in tunable.in_order] for name, tunable in self._space.tunables.items()}
        return {name: values.index((type(config.get(name)), config.get(name))) for name, values in typed.items()}


def _value(trial: Trial) -> float:
    return math.log(max(trial.rank, 1e-9))
