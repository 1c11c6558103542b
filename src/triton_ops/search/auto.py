"""The default search: it starts from prior knowledge, learns from every trial, and tells when little is left to gain.

1. The first configs are the first choices of the priors of this problem, or else of the records of others, each in
   turn. Without priors, each is far from all before; of a Triton kernel the first is nearest to the middle of all
   ranges, and the next ones cover their inner part: see `Middle`, which is then the one prior. While too few run,
   further ones are random and the most likely to run, by turns.
2. Every later config is the one with the largest expected gain: a surrogate learns the trials, and the
   priors correct its expectation as far as the trials agree with them. Doubt raises the expected gain of a config, and
   the chance that the config fails lowers it. Priors may mislead, so from eight trials on every second config is chosen
   without them, and some early configs are those with which a search without priors begins. With records alone, some
   are far from all before.
3. Several configs of one time are kept apart: a config that is proposed but not finished lowers the doubt around it.
4. A config that would compile for long needs a larger expected gain.
5. The search asks for previews, and uses the compiler's figures of configs before they are measured: a config that
   cannot be launched is never proposed, a config that spills comes last, of two configs that are the same program one
   is proposed, and the compiler's figures are columns of the surrogate. The first previews are spread over the space,
   or are the priors' first choices; later previews have the largest expected gain.

A space of up to 64 configs is tried whole, after the first configs those near fast ones or far from all. A larger space
is never enumerated beyond 30,000 configs: `OpenConfigs` holds a sample that grows around the best configs so far.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from triton_ops.search import surrogate
from triton_ops.search.middle import Middle
from triton_ops.search.sampling import OpenConfigs, farthest
from triton_ops.search.searchers import LearnsPreviews, Prior, Search
from triton_ops.search.surrogate import Floats
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Compiled, Trial

_DOUBT = 0.5  # standard deviation of a weight before any measurement; its expectation is its share
_ROUGHNESS = 0.25  # standard deviation of log time around a good prior
_CANNOT_RUN = 3.0  # standard deviations above the average for a config that a prior expects not to run
_RECORDS = 0.5  # weight of a record that agrees with this problem's priors, in weights of one of these
_LARGEST_WEIGHT = 1.5  # most that one prior may weigh
_STALE = 1.25  # priors are asked anew after so many times the trials
_ALIKE, _UNLIKE = 0.02, 0.2  # differences of log time: smaller ones do not count, and larger ones all count as much
_NEAR_BEST = 0.15  # log time above the best at which a pair counts 1/e


class Priors:
    """The columns of several priors, of which `own` are of this problem; without priors every sum is 0.

    The average of `typical` configs stands for a config that a prior does not know. `edition` rises after each quarter
    more trials, when the priors' costs may have changed; `news` are the configs whose costs may have changed since
    because they were compiled, in that order.
    """

    def __init__(self, priors: Sequence[Prior], records: Sequence[Prior], typical: Sequence[Config]) -> None:
        self._all = (*priors, *records)
        self.own = len(priors)
        self.leading = self.own or len(self._all)  # that choose the first configs: this problem's, else all
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

    def agreement(self, columns: Floats, values: Floats) -> float:
        """How far the order by the mean of the columns is that of the values, from -1 to 1; 1 without pairs to tell it.

        This is Kendall's rank correlation, in which a pair counts the more the nearer its faster config is to the best.
        """
        apart, expected = (each[:, None] - each[None] for each in (values, columns.mean(axis=1)))
        from_best = np.minimum(values[:, None], values[None]) - values.min(initial=math.inf)
        counts = np.where(np.abs(apart) > _ALIKE, np.minimum(np.abs(apart), _UNLIKE), 0.0)
        counts *= np.exp(-from_best / _NEAR_BEST)
        total = float(counts.sum())
        return float((counts * np.sign(apart) * np.sign(expected)).sum()) / total if total > 0 else 1.0

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
        scores = [prior.score(configs) for prior in self._all] if configs else []
        logs = [[math.log(score) if score > 0 else math.nan for score in row] for row in scores]
        return np.array(logs, dtype=float).reshape(len(self._all), len(configs)).T


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
        self._compiled_at: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._placed_count = 0  # number of compiled configs in `_compiled_at`

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


_START = 5  # configs that cover the space before the surrogate is used
_FAR_CONFIGS = (6, 12)  # with records alone, the proposals after so many configs are far from all before
_COVERING_CONFIGS = (9, 12, 15, 18)  # with priors, the proposals after so many are the first ones without priors
_FIRST_CHOICES = 8  # after a prior's first choice was tried, the most different of so many of its choices comes next
_NEARBY = 0.15  # distance of configs over which times of a small space are averaged, where a whole range is 1 long
_FEWEST_OK = 3  # ok trials that a surrogate needs
_WITHOUT_RECORDS_FROM = 20  # trials from which on each second of the others is chosen without the records
_WITHOUT_PRIORS_FROM = 8  # trials from which on each second config is chosen without any priors
_POLISH_BELOW, _POLISH_EACH = 0.01, 2  # below this expected gain, each second config is a neighbour of the best
_LEADERS = 5
_SHORTLIST = 1_500  # configs whose gain is estimated between two estimates of all configs
_RECENT, _RECENT_WITH_PRIORS = 70, 48  # at least so many latest gains were small before a small gain is reported
_RECENT_UNLISTED = 56  # the same with priors in a space that nobody has listed: in 28 it ends 5 % off now and then
_AGREES = 0.5  # agreement from which on priors are trusted, as nine of ten models of recorded spaces are
_FULL_PASS_GROWTH = 1.05  # the gains of all configs are estimated again after so many times the trials


class AutoSearch:
    """The searcher `auto`, as the module describes; `records` are prior knowledge from other problems and devices."""

    _tried_whole: ClassVar[int] = Search.SMALL  # configs, of which none is left out

    def __init__(
        self, space: ConfigSpace, seed: int = 0, priors: Sequence[Prior] = (), records: Sequence[Prior] = ()
    ) -> None:
        self._encoder = surrogate.Encoder(space)
        self._open_configs = OpenConfigs(space, self._encoder, seed)
        self._small = self._open_configs.whole and len(self._open_configs.configs) <= self._tried_whole
        self._space = space
        self._names = set(space.tunables)
        self._random = np.random.default_rng(seed)
        self._informed = bool(priors or records)
        self._beginnings = np.zeros((0, self._encoder.columns))
        if Middle.is_known_of(space):
            middle = Middle(space)
            self._beginnings = self._encoder.rows(middle.combinations(_START, self._random))
            priors = priors if self._informed else [middle]
        self._priors = Priors(priors, records, self._open_configs.configs)
        self._columns = surrogate.CompilerColumns()
        self._estimator = GainEstimator(self._encoder, self._priors, self._columns)
        self._previewed: dict[Config, None] = {}  # configs whose preview was asked for or came without a question
        self._preview_random = np.random.default_rng((seed, 1))  # separate, so that previews change no later proposal
        self._trials: dict[Config, Trial] = {}
        self._pending: dict[Config, None] = {}
        self._shortlist: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._next_full_pass = 0.0
        self._estimates = 0
        self._largest_gains: list[float] = []

    def ask(self, count: int) -> list[Config]:
        """Up to `count` configs, the largest expected gain first."""
        proposals: list[Config] = []
        gains: ExpectedGains | None = None
        while len(proposals) < count and len(positions := self._open_configs.left()):
            if (at := self._start_config(positions)) is None:
                gains = gains or self._expected_gains(positions)
                self._largest_gains.append(gains.largest)
                at = gains.best(self._polish(gains.largest))
            if at is None:  # every config of `gains` is proposed
                at = int(positions[0])
            if not self._open_configs.open[at]:  # a config of the same program was proposed meanwhile
                continue
            proposals.append(self._propose(at))
        return proposals

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from the trials, except those of configs with other tunables."""
        mine = [trial for trial in trials if self._space.names_agree(trial.config)]
        for trial in mine:
            self._trials[trial.config] = trial
            self._pending.pop(trial.config, None)
            self._open_configs.take(trial.config)
        if mine:
            self._priors.tell(mine)
            self._open_configs.widen(self._leaders())

    def wanted_previews(self, count: int) -> list[Config]:
        """Up to `count` configs to preview; none of a space that is tried whole."""
        previews: list[Config] = []
        if not self._small:
            order = self._preview_order()
            while len(previews) < count and (at := next(order, None)) is not None:
                previews.append(self._open_configs.configs[at])
                self._previewed[previews[-1]] = None
        return previews

    def take_previews(self, previews: Sequence[Compiled]) -> None:
        """Learn from the compiler's figures, except those of configs with other tunables."""
        mine = [one for one in previews if set(one.config) == self._names]
        self._priors.take_previews(mine)
        for one in mine:
            self._previewed[one.config] = None
            if not one.launchable:
                self._open_configs.take(one.config)
                continue
            if one.resources is not None and one.resources.registers is not None:
                self._columns.take(one, self._encoder.rows([one.config])[0])
            if surrogate.wasteful(one):
                self._open_configs.hold(one.config)
            same = [one.config, *self._columns.same_program(one.config)]
            if any(config in self._trials or config in self._pending for config in same):
                self._open_configs.take(*same)

    def expected_gain(self) -> float:
        """The largest of the latest expected gains.

        The latest gains are those of a third of all trials, and at least 70: a surrogate of few trials is easily too
        sure, and its next trials often raise the expected gain again. With priors that agree with the trials they are
        at least 48, and 56 where nobody has listed the space. The gain is infinite before so many trials, and for a
        space that is tried whole.
        """
        least: float = _RECENT
        if self._informed:
            least = _RECENT_UNLISTED if isinstance(self._space, UnlistedSpace) else _RECENT_WITH_PRIORS
            least += (_RECENT - least) * (1 - min(max(self._estimator.agreement / _AGREES, 0.0), 1.0))
        latest = max(round(least), len(self._trials) // 3)
        if self._small or len(self._largest_gains) < latest:
            return math.inf
        return max(self._largest_gains[-latest:])

    def _propose(self, at: int) -> Config:
        config = self._open_configs.configs[at]
        self._open_configs.take(config, *self._columns.same_program(config))
        self._pending[config] = None
        return config

    def _preview_order(self) -> Iterator[int]:
        order = self._shortlist
        if not len(order) and not self._informed:
            return self._all_over()
        if not len(order):  # the first of each prior, then the second
            order = np.argsort(self._estimator.prior_costs(self._open_configs), axis=0, kind="stable").ravel()
        return (int(at) for at in order if self._needs_preview(int(at)))

    def _all_over(self) -> Iterator[int]:
        positions = np.array(
            [at for at in np.flatnonzero(self._open_configs.open) if self._needs_preview(int(at))], dtype=np.intp
        )
        rows = self._encoder.rows([*self._trials, *self._pending, *self._previewed])
        while len(positions):
            at = farthest(self._open_configs.rows[positions], rows, self._preview_random)
            yield int(positions[at])
            rows = np.vstack([rows, self._open_configs.rows[positions[at]]])
            positions = np.delete(positions, at)

    def _needs_preview(self, at: int) -> bool:
        return bool(self._open_configs.open[at]) and self._open_configs.configs[at] not in self._previewed

    def _start_config(self, positions: NDArray[np.intp]) -> int | None:
        """Position of the next of the first configs; None once the surrogate chooses."""
        count = len(self._trials) + len(self._pending)
        priors = self._priors.leading if self._informed else 0
        if priors and not self._priors.own and count in _FAR_CONFIGS:
            return self._far(positions)
        if priors and not self._small and len(self._beginnings) and count in _COVERING_CONFIGS:
            return self._covering(positions, _COVERING_CONFIGS.index(count))
        if sum(trial.ok for trial in self._trials.values()) >= _FEWEST_OK and count >= (priors or _START):
            if not self._small:
                return None
            return self._first_choice(positions) if priors else self._near_the_best(positions)
        if priors and count < max(priors, _FEWEST_OK):
            return self._first_choice(positions)
        if count < len(self._beginnings):
            return self._covering(positions, count)
        return self._far(positions) if count < _START or self._small else self._after_failures(positions)

    def _after_failures(self, positions: NDArray[np.intp]) -> int:
        """Position of a config while too few have run: by turns a random one and the one most likely to run.

        Configs far from all before are often at the edges of a space, where more of them fail.
        """
        if (len(self._trials) + len(self._pending)) % 2:
            return int(self._random.choice(positions))
        if self._estimator.learn_chance(list(self._trials.values())):
            return self._estimator.likeliest(self._open_configs, positions)
        return self._far(positions)

    def _far(self, positions: NDArray[np.intp]) -> int:
        return int(positions[farthest(self._rows(positions), self._known_rows(), self._random)])

    def _covering(self, positions: NDArray[np.intp], count: int) -> int:
        """Position of the config nearest to the first combination so many places on: the middle comes first."""
        apart = np.abs(self._open_configs.rows[positions] - self._beginnings[count]).sum(axis=1)
        return int(positions[np.argmin(apart)])

    def _near_the_best(self, positions: NDArray[np.intp]) -> int:
        """Position of a config that is near fast ones or far from all, for a space that is tried whole.

        Such a space needs no surrogate, and thus no import of SciPy, but the fast configs come early.
        """
        trials = list(self._trials.values())
        values, rows = surrogate.values_of(trials), self._encoder.rows([*self._trials, *self._pending])
        apart = np.abs(self._open_configs.rows[positions][:, None] - rows[None]).sum(axis=2)
        weights = np.exp(-apart[:, : len(trials)] / _NEARBY) + 1e-12
        expected = weights @ values / weights.sum(axis=1)
        return int(positions[np.argmin(expected - values.std() * apart.min(axis=1))])

    def _first_choice(self, positions: NDArray[np.intp]) -> int:
        """Position of a prior's first choice, each in turn; later, of the most different of its first choices."""
        turn, prior = divmod(len(self._trials) + len(self._pending), self._priors.leading)
        costs = self._estimator.prior_costs(self._open_configs)[positions, prior]
        first = positions[np.argsort(costs, kind="stable")[: 1 if turn == 0 else _FIRST_CHOICES]]
        return int(first[farthest(self._rows(first), self._known_rows(), self._random)])

    def _rows(self, at: NDArray[np.intp]) -> Floats:
        return self._columns.rows(self._open_configs.rows[at], self._estimator.compiled_at(self._open_configs)[at])

    def _known_rows(self) -> Floats:
        configs = [*self._trials, *self._pending]
        return self._columns.rows(self._encoder.rows(configs), self._columns.places(configs))

    def _expected_gains(self, positions: NDArray[np.intp]) -> ExpectedGains:
        count = len(self._trials)
        self._estimates += 1
        self._estimator.learn(list(self._trials.values()), self._priors_in_use(count))
        if len(positions) > 2 * _SHORTLIST and count < self._next_full_pass:
            near = self._open_configs.nearby(self._leaders())[: _SHORTLIST // 3]
            positions = np.unique(np.concatenate([self._shortlist[self._open_configs.open[self._shortlist]], near]))
        else:
            self._next_full_pass = count * _FULL_PASS_GROWTH + 1
        gains = self._estimator.gains(self._open_configs, positions, self._pending)
        self._shortlist = gains.positions[gains.order[:_SHORTLIST]]
        return gains

    def _priors_in_use(self, trials: int) -> int | None:
        """How many of the first priors choose the next config; None is all."""
        if not self._informed:
            return None
        if trials >= _WITHOUT_PRIORS_FROM and self._estimates % 2 == 0:
            return 0
        without_records = self._priors.own and trials >= _WITHOUT_RECORDS_FROM and self._estimates % 4 == 1
        return self._priors.own if without_records else None

    def _polish(self, gain: float) -> NDArray[np.intp] | None:
        """Positions of the open neighbours of the best config, each second time when little is expected to be gained.

        The surrogate smooths over sharp differences, so a neighbour of the best may be better than it expects.
        """
        if gain > _POLISH_BELOW or (len(self._trials) + len(self._pending)) % _POLISH_EACH > 0:
            return None
        positions = (
            self._open_configs.position(config)
            for config in self._space.neighbours(self._leaders()[0], steps_only=True)
        )
        return np.array([at for at in positions if at is not None], dtype=np.intp)

    def _leaders(self) -> list[Config]:
        ok = sorted((t for t in self._trials.values() if t.ok), key=lambda t: (t.rank, t.config.text))
        return [trial.config for trial in ok[:_LEADERS]]
