"""The expected gain of each config, from the surrogate, the priors and the compile times together.

Each prior is one column of expected log time. A search's expectation of a config is a weighted sum of the columns, plus
the surrogate's expectation of the rest. The weights start at an even share each, that of a record of another place at
less where the model of this problem orders the configs differently, and follow the measurements by a Bayesian linear
regression: a prior that orders the measured configs wrongly soon has no weight.

A failed trial costs as much as another and brings nothing, so an expected gain counts by the chance that there is one.
Failures mostly have a cause that follows the tunables, such as memory, so that a surrogate of "ran" (1) and "failed"
(0) knows after a few of them where the rest is. Far from all trials the chance is the share of those that ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from triton_ops.search.columns import CompilerColumns, Encoder, Floats
from triton_ops.search.sampling import OpenConfigs
from triton_ops.search.searchers import LearnsPreviews, Prior
from triton_ops.search.surrogate import (
    ByDistance,
    ByTunables,
    Correlation,
    Surrogate,
    expected_improvement,
    most_telling,
    noise_of,
    values_of,
)
from triton_ops.space import Config
from triton_ops.values import Compiled, Trial

_DOUBT = 0.5  # standard deviation of a weight before any measurement; its expectation is its share
_ROUGHNESS = 0.25  # standard deviation of log time around a good prior
_CANNOT_RUN = 3.0  # standard deviations above the average for a config that a prior expects not to run
_RECORDS = 0.5  # weight of a record that agrees with this problem's priors, in weights of one of these
_LARGEST_WEIGHT = 1.5  # most that one prior may weigh
_STALE = 1.25  # priors are asked anew after so many times the trials


class Priors:
    """The columns of several priors, of which `own` are of this problem; without priors every sum is 0.

    The average of `typical` configs stands for a config that a prior does not know. `edition` rises after each quarter
    more trials, when the priors' costs may have changed; `news` are the configs whose costs may have changed since
    because they were compiled, in that order.
    """

    def __init__(self, priors: Sequence[Prior], records: Sequence[Prior], typical: Sequence[Config]) -> None:
        self._all = (*priors, *records)
        self.own = len(priors)
        self._trial_count, self._next_edition = 0, 1.0
        self.edition = 0
        self.news: list[Config] = []
        logs = self._logs(typical)
        logs[np.isinf(logs)] = math.nan
        counts = np.maximum((~np.isnan(logs)).sum(axis=0), 1)
        self._centre = np.nansum(logs, axis=0) / counts
        off = np.nan_to_num(logs - self._centre)
        self._scale = np.maximum(np.sqrt((off**2).sum(axis=0) / counts), 1e-9)
        self._trust = self._first_trust(off / self._scale)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def leading(self) -> int:
        """The number of priors, from the first on, that choose the first configs: this problem's, else all."""
        return self.own or len(self._all)

    def columns(self, configs: Sequence[Config]) -> Floats:
        """Expected log time by each prior less its average; 0 for an unknown config, high for an expected failure."""
        off = self._logs(configs) - self._centre
        columns: Floats = np.nan_to_num(np.where(np.isposinf(off), _CANNOT_RUN * self._scale, off))
        return columns

    def features(self, columns: Floats) -> Floats:
        """The columns in units of their spread over the space, for the surrogate."""
        features: Floats = np.clip(columns / (4 * self._scale), -1.0, 1.0)  # about 1 wide, as the tunables' columns
        return features

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass finished trials on to all priors."""
        for prior in self._all:
            prior.tell(trials)
        self._trial_count += len(trials)
        if self._trial_count >= self._next_edition:
            self._next_edition = self._trial_count * _STALE + 1
            self.edition += 1

    def take_previews(self, previews: Sequence[Compiled]) -> None:
        """Pass the compiler's results on to the priors that learn from them."""
        for prior in self._all:
            if isinstance(prior, LearnsPreviews):
                prior.take_previews(previews)
        self.news += [one.config for one in previews]

    def weights(self, columns: Floats, values: Floats) -> Floats:
        """The weight of each column, 0 to 1.5, by the columns and the values of the measured configs."""
        count = columns.shape[1]
        share = self._trust[:count] / max(float(self._trust[:count].sum()), 1e-9)
        if count == 0 or len(values) < 2:
            return share
        centred = columns - columns.mean(axis=0)
        precision = centred.T @ centred / _ROUGHNESS**2 + np.eye(count) / _DOUBT**2
        rest = values - values.mean() - centred @ share
        weights: Floats = np.clip(
            share + np.linalg.solve(precision, centred.T @ rest / _ROUGHNESS**2), 0.0, _LARGEST_WEIGHT
        )
        return weights

    def _first_trust(self, columns: Floats) -> Floats:
        """The first weight of each prior: 1, and of a record of another place its agreement with this problem's.

        The agreement is the square of the correlation with the mean of this problem's priors. Where a model tells how
        this problem differs from the other, a record that is of no such place does not delay the search.
        """
        trust = np.ones(len(self._all))
        if self.own and len(self._all) > self.own and len(columns):
            model = columns[:, : self.own].mean(axis=1)
            records = columns[:, self.own :]
            alike = records.T @ model / np.maximum(np.linalg.norm(records, axis=0) * np.linalg.norm(model), 1e-9)
            trust[self.own :] = _RECORDS * np.clip(alike, 0.0, 1.0) ** 2
        return trust

    def _logs(self, configs: Sequence[Config]) -> Floats:
        costs = [[_log(score) for score in prior.score(configs)] for prior in self._all] if configs else []
        return np.array(costs, dtype=float).reshape(len(self._all), len(configs)).T


def _log(score: float) -> float:
    return math.log(score) if score > 0 else math.nan


_LEAST = 0.02  # least chance, because the surrogate is sometimes too sure


class Chance:
    """The chance of each config to run; 1 until one config has failed and another has run."""

    def __init__(self, correlation: Correlation) -> None:
        self._correlation = correlation
        self._surrogate: Surrogate | None = None
        self.is_known = False

    def learn(self, rows: Floats, successes: Sequence[bool]) -> None:
        """Learn which rows ran, in place of all before."""
        failures = len(successes) - sum(successes)
        self.is_known = 0 < failures < len(successes)
        if self.is_known:
            self._surrogate = self._surrogate or Surrogate(self._correlation)
            self._surrogate.learn(rows, np.array(successes, dtype=float), np.zeros(len(successes)))

    def of(self, rows: Floats) -> Floats:
        """The chance of each row, from 0.02 to 1."""
        if not self.is_known or self._surrogate is None:
            return np.ones(len(rows))
        chances: Floats = np.clip(self._surrogate.predict(rows)[0], _LEAST, 1.0)
        return chances


_PATIENCE = 4.0  # a config that compiles for more than so many times the usual seconds needs a larger gain
_FAST_S = 1.0  # shorter compile times count as this
_UNCOMPILED = 2.0  # a config that is not compiled yet needs so many times the gain, because the compiler may refuse it
_BY_TUNABLES_FROM = 25  # trials from which on configs that are alike in some tunables are alike to some degree
_COMPILE_TIMED = 200  # configs whose compile time is estimated: all others have too small a gain to be next


class GainEstimator:
    """Learns trials, and estimates the gains of other configs."""

    def __init__(self, encoder: Encoder, priors: Priors, columns: CompilerColumns) -> None:
        self._encoder = encoder
        self._priors = priors
        self._columns = columns
        self._chance = Chance(ByDistance(encoder.scales, encoder.flags))
        self._surrogates: dict[tuple[int, bool], Surrogate] = {}
        self._slice = slice(None)  # the priors in use
        self._weights: Floats = np.zeros(len(priors))
        self._best = 0.0
        self._trials: list[Trial] = []
        self._prior_costs: Floats = np.zeros((0, len(priors)))  # of the open configs
        self._edition = -1
        self._priced = 0  # number of compiled configs whose new costs are in `_prior_costs`
        self._compiled_at: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._placed_count = 0  # number of compiled configs in `_compiled_at`

    def learn(self, trials: Sequence[Trial], with_records: bool = True) -> None:
        """Learn `trials`, at least two of them ok, in place of all before, with records of other places or without."""
        self._slice = slice(None) if with_records else slice(self._priors.own)
        self._trials = most_telling(trials)
        configs = [trial.config for trial in self._trials]
        values, costs = values_of(self._trials), self._priors.columns(configs)
        self._weights = self._priors.weights(costs[:, self._slice], values)
        rows = self._features(self._encoder.rows(configs), self._columns.places(configs), costs)
        self._surrogate = self._surrogate_of(rows.shape[1], len(trials) >= _BY_TUNABLES_FROM)
        self._surrogate.learn(rows, values - costs[:, self._slice] @ self._weights, noise_of(self._trials))
        self._best = float(values.min())
        self.learn_chance(self._trials)

    def learn_chance(self, trials: Sequence[Trial]) -> bool:
        """Learn which of `trials` ran, as `learn` does too; whether the chances of configs then differ.

        What the compiler refuses does not count where previews tell it: a config that is compiled has passed there.
        """
        told = bool(self._columns.width)
        sample = [one for one in trials if one.ok or (one.failed and not (told and one.status.facts.refused))]
        self._chance.learn(self._encoder.rows([trial.config for trial in sample]), [trial.ok for trial in sample])
        return self._chance.is_known

    def likeliest(self, open_configs: OpenConfigs, at: NDArray[np.intp]) -> int:
        """The one of the positions `at` of `open_configs` whose config is the most likely to run."""
        return int(at[np.argmax(self._chance.of(open_configs.rows[at]))])

    def gains(self, open_configs: OpenConfigs, at: NDArray[np.intp], pending: Iterable[Config]) -> ExpectedGains:
        """The expected gains of the configs at the positions `at` of `open_configs`, while `pending` are tried."""
        costs = self.prior_costs(open_configs)[at]
        compiled_at = self.compiled_at(open_configs)[at]
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

    def compiled_at(self, open_configs: OpenConfigs) -> NDArray[np.intp]:
        """The position of each config of `open_configs` among the compiled configs; -1 if it was not compiled."""
        if len(self._compiled_at) < len(open_configs.configs):
            self._compiled_at, self._placed_count = np.full(len(open_configs.configs), -1, dtype=np.intp), 0
        for number, config in enumerate(self._columns.configs[self._placed_count :], self._placed_count):
            if (at := open_configs.place(config)) is not None:
                self._compiled_at[at] = number
        self._placed_count = len(self._columns.configs)
        return self._compiled_at

    def _features(self, rows: Floats, compiled_at: NDArray[np.intp], costs: Floats) -> Floats:
        return np.hstack([self._columns.rows(rows, compiled_at), self._priors.features(costs)[:, self._slice]])

    def _surrogate_of(self, width: int, by_tunables: bool) -> Surrogate:
        """The surrogate of rows of so many columns, made once, since to make one takes longer than to teach it."""
        key = width, by_tunables
        if key not in self._surrogates:
            scales = _with_further(self._encoder.scales, width)
            by: Correlation = ByDistance(scales, self._encoder.flags)
            if by_tunables:
                by = ByTunables(scales, _with_further(self._encoder.tunables, width), self._encoder.flags)
            self._surrogates[key] = Surrogate(by)
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
        self,
        positions: NDArray[np.intp],
        rows: Floats,
        mean: Floats,
        doubt: Floats,
        best: float,
        correlation: Callable[[Floats, Floats], Floats],
    ) -> None:
        self.positions = positions
        self._rows, self._mean, self._doubt, self._best, self._correlation = rows, mean, doubt, best, correlation
        self.slowness: Floats = np.ones(len(mean))  # by which gains are divided
        self.uncompiled: NDArray[np.bool_] = np.zeros(len(mean), dtype=bool)  # these come later in `best` alone
        self._gains = expected_improvement(mean, doubt, best)
        self._open = np.ones(len(mean), dtype=bool)

    @property
    def largest(self) -> float:
        """The largest expected gain: the decrease of the logarithm of time, relative to the best so far."""
        return float(self._gains[self._open].max(initial=0.0))

    @property
    def order(self) -> NDArray[np.intp]:
        """Indices of `positions`, the largest gain first."""
        order: NDArray[np.intp] = np.lexsort((self._mean, -self._gains / self.slowness))
        return order

    def keep_apart(self, row: Floats) -> None:
        """Lower the doubt near `row`, whose config will be measured, and with it the gains near `row`."""
        self._doubt = self._doubt * np.sqrt(np.maximum(1 - self._correlation(self._rows, row) ** 2, 1e-9))
        self._gains = expected_improvement(self._mean, self._doubt, self._best)

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
