"""Expected gains: how much faster than the best config another may be, by the surrogate and the priors.

A surrogate learns the trials, and the priors correct its expectation as far as the trials agree with them. Doubt raises
the expected gain of a config, and the chance that the config fails lowers it. A config that is proposed but not
finished lowers the doubt around it. A config that would compile for long needs a larger expected gain.

A failed trial costs as much as another and brings nothing, so an expected gain counts by the chance that there is one.
Failures mostly have a cause that follows the tunables, such as memory, so that a surrogate of "ran" (1) and "failed"
(0) knows after a few of them where the rest is. Far from all trials the chance is the share of those that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from triton_ops.search import surrogate
from triton_ops.search.priors import Priors
from triton_ops.search.sampling import OpenConfigs
from triton_ops.search.surrogate import Floats
from triton_ops.space import Config
from triton_ops.values import Trial

_LEAST = 0.02  # least chance, because the surrogate is sometimes too sure


class Chance:
    """The chance of each config to run; 1 until one config has failed and another has run."""

    def __init__(self, correlation: surrogate.Correlation) -> None:
        self._correlation = correlation
        self._surrogate: surrogate.Surrogate | None = None
        self.is_known = False

    def learn(self, rows: Floats, successes: Sequence[bool]) -> None:
        """Learn which rows ran, in place of all before."""
        self.is_known = 0 < sum(successes) < len(successes)
        if self.is_known:
            self._surrogate = self._surrogate or surrogate.Surrogate(self._correlation)
            self._surrogate.learn(rows, np.array(successes, dtype=float), np.zeros(len(successes)))

    def of(self, rows: Floats) -> Floats:
        """The chance of each row, from 0.02 to 1."""
        if not self.is_known or self._surrogate is None:
            return np.ones(len(rows))
        return np.clip(self._surrogate.predict(rows)[0], _LEAST, 1.0)


_PATIENCE = 4.0  # a config that compiles for more than so many times the usual seconds needs a larger gain
_FAST_S = 1.0  # shorter compile times count as this
_UNCOMPILED = 2.0  # a config that is not compiled yet needs so many times the gain, because the compiler may refuse it
_BY_TUNABLES_FROM = 25  # trials from which on configs that are alike in some tunables are alike to some degree
_COMPILE_TIMED = 200  # configs whose compile time is estimated: all others have too small a gain to be next


class GainEstimator:
    """Learns trials, and estimates the gains of other configs."""

    def __init__(self, encoder: surrogate.Encoder, priors: Priors, columns: surrogate.CompilerColumns) -> None:
        self._encoder, self._priors, self._columns = encoder, priors, columns
        self._chance = Chance(surrogate.ByDistance(encoder.scales, encoder.flags))
        self._surrogates: dict[tuple[int, bool], surrogate.Surrogate] = {}
        self._slice = slice(None)  # the priors in use
        self._weights: Floats = np.zeros(len(priors))
        self._best = 0.0
        self.agreement = 1.0  # of the priors with the trials
        self._trials: list[Trial] = []
        self._prior_costs: Floats = np.zeros((0, len(priors)))  # of the open configs
        self._edition = -1
        self._priced = 0  # number of compiled configs whose new costs are in `_prior_costs`

    def learn(self, trials: Sequence[Trial], priors: int | None = None) -> None:
        """Learn `trials`, at least two of them ok, in place of all before, with so many of the priors; None is all."""
        self._slice = slice(priors)
        self._trials = surrogate.most_telling(trials)
        configs = [trial.config for trial in self._trials]
        values, costs = surrogate.values_of(self._trials), self._priors.columns(configs)
        self._weights = self._priors.weights(costs[:, self._slice], values)
        rows = self._features(self._encoder.rows(configs), self._columns.places(configs), costs)
        self._surrogate = self._surrogate_of(rows.shape[1], len(trials) >= _BY_TUNABLES_FROM)
        self._surrogate.learn(rows, values - costs[:, self._slice] @ self._weights, surrogate.noise_of(self._trials))
        self._best = float(values.min())
        if len(self._priors):
            ran = [at for at, trial in enumerate(self._trials) if trial.ok]
            self.agreement = self._priors.agreement(costs[ran], values[ran])
        self.learn_chance(self._trials)

    def learn_chance(self, trials: Sequence[Trial]) -> bool:
        """Learn which of `trials` ran, as `learn` does too; whether the chances of configs then differ.

        What the compiler refuses does not count where previews tell it: a config that is compiled has passed there.
        """
        figures = bool(self._columns.width)
        sample = [one for one in trials if one.ok or (one.failed and not (figures and one.status.facts.refused))]
        self._chance.learn(self._encoder.rows([trial.config for trial in sample]), [trial.ok for trial in sample])
        return self._chance.is_known

    def likeliest(self, open_configs: OpenConfigs, at: NDArray[np.intp]) -> int:
        """The one of the positions `at` of `open_configs` whose config is the most likely to run."""
        return int(at[np.argmax(self._chance.of(open_configs.rows[at]))])

    def gains(self, open_configs: OpenConfigs, at: NDArray[np.intp], pending: Iterable[Config]) -> ExpectedGains:
        """The expected gains of the configs at the positions `at` of `open_configs`, while `pending` are tried."""
        costs = self.prior_costs(open_configs)[at]
        compiled_at = self._columns.places([open_configs.configs[each] for each in at])
        rows = self._features(open_configs.rows[at], compiled_at, costs)
        mean, doubt = self._surrogate.predict(rows)
        gains = ExpectedGains(
            at, rows, mean + costs[:, self._slice] @ self._weights, doubt, self._best, self._surrogate.correlation
        )
        slowness = self._slowness(open_configs.rows[at], gains)
        if self._columns.width:
            gains.uncompiled = compiled_at < 0
            slowness = np.where(compiled_at < 0, slowness, 1.0)  # a compiled config is not compiled again
        gains.slowness = slowness / self._chance.of(open_configs.rows[at])
        waiting = list(pending)
        costs = self._priors.columns(waiting)
        for row in self._features(self._encoder.rows(waiting), self._columns.places(waiting), costs):
            gains.keep_apart(row)
        return gains

    def prior_costs(self, open_configs: OpenConfigs) -> Floats:
        """The priors' columns of all configs of `open_configs`; asked for again once the priors have learned."""
        if self._edition != self._priors.edition:
            self._prior_costs, self._edition = self._prior_costs[:0], self._priors.edition
        news = self._priors.news[self._priced :]
        self._priced += len(news)
        places = [at for config in news if (at := open_configs.place(config)) is not None]
        if places := [at for at in places if at < len(self._prior_costs)]:
            self._prior_costs[places] = self._priors.columns([open_configs.configs[at] for at in places])
        if len(self._prior_costs) < len(open_configs.configs):
            self._prior_costs = np.vstack(
                [self._prior_costs, self._priors.columns(open_configs.configs[len(self._prior_costs) :])]
            )
        return self._prior_costs

    def _features(self, rows: Floats, compiled_at: NDArray[np.intp], costs: Floats) -> Floats:
        return np.hstack([self._columns.rows(rows, compiled_at), self._priors.features(costs)[:, self._slice]])

    def _surrogate_of(self, width: int, by_tunables: bool) -> surrogate.Surrogate:
        """The surrogate of rows of so many columns, made once, since to make one takes longer than to teach it."""
        key = width, by_tunables
        if key not in self._surrogates:
            scales = _with_further(self._encoder.scales, width)
            by: surrogate.Correlation = surrogate.ByDistance(scales, self._encoder.flags)
            if by_tunables:
                by = surrogate.ByTunables(scales, _with_further(self._encoder.tunables, width), self._encoder.flags)
            self._surrogates[key] = surrogate.Surrogate(by)
        return self._surrogates[key]

    def _slowness(self, rows: Floats, gains: ExpectedGains) -> Floats:
        """The divisor of each config's gain for a long compile time: 1 or more."""
        slowness = np.ones(len(rows))
        timed = {trial.config: trial.compile_s for trial in self._trials if trial.compile_s is not None}
        if len(timed) < 4 or max(timed.values()) < _FAST_S * _PATIENCE:
            return slowness
        rows_of_timed, seconds = self._encoder.rows(list(timed)), np.array(list(timed.values()))
        usual = max(float(np.median(seconds)), _FAST_S) * _PATIENCE
        for at in gains.order[:_COMPILE_TIMED]:
            nearest = np.argsort(np.abs(rows_of_timed - rows[at]).sum(axis=1), kind="stable")[:3]
            slowness[at] = max(float(seconds[nearest].mean()) / usual, 1.0)
        return slowness


def _with_further(numbers: Sequence[int], width: int) -> list[int]:
    first = max(numbers, default=-1) + 1
    return [*numbers, *range(first, first + width - len(numbers))]


class ExpectedGains:
    """The expected gains of some of the open configs, at these positions among them."""

    def __init__(
        self, positions: NDArray[np.intp], rows: Floats, mean: Floats, doubt: Floats, best: float,
        correlation: Callable[[Floats, Floats], Floats],
    ) -> None:  # fmt: skip
        self.positions = positions
        self._rows, self._mean, self._doubt, self._best, self._correlation = rows, mean, doubt, best, correlation
        self.slowness: Floats = np.ones(len(mean))  # by which gains are divided
        self.uncompiled: NDArray[np.bool_] = np.zeros(len(mean), dtype=bool)  # these come later in `best` alone
        self._gains = surrogate.expected_improvement(mean, doubt, best)
        self._open = np.ones(len(mean), dtype=bool)

    @property
    def largest(self) -> float:
        """The largest expected gain: the decrease of the logarithm of time, relative to the best so far."""
        return float(self._gains[self._open].max(initial=0.0))

    @property
    def order(self) -> NDArray[np.intp]:
        """Indices of `positions`, the largest gain first."""
        # the gains of configs that are surely slower are all 0: the expected time orders these
        order: NDArray[np.intp] = np.lexsort((self._mean, -self._gains / self.slowness))
        return order

    def keep_apart(self, row: Floats) -> None:
        """Lower the doubt near `row`, whose config will be measured, and with it the gains near `row`."""
        # what a measurement of `row` without noise would leave of each variance, were nothing else measured
        self._doubt = self._doubt * np.sqrt(np.maximum(1 - self._correlation(self._rows, row) ** 2, 1e-9))
        self._gains = surrogate.expected_improvement(self._mean, self._doubt, self._best)

    def best(self, among: NDArray[np.intp] | None = None) -> int | None:
        """The position of the config with the largest gain, if any is left of those `among`; each once, then None."""
        candidates = np.flatnonzero(self._open)
        if among is not None and len(near := candidates[np.isin(self.positions[candidates], among)]):
            candidates = near
        if not len(candidates):
            return None
        worth = self._gains / self.slowness / np.where(self.uncompiled, _UNCOMPILED, 1.0)
        first = int(candidates[np.lexsort((self._mean[candidates], -worth[candidates]))[0]])
        self._open[first] = False
        self.keep_apart(self._rows[first])
        return int(self.positions[first])
