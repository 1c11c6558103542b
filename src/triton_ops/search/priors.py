"""The priors of a search as columns of expected log time, and how much each column weighs.

Each prior is one column of expected log time. A search's expectation of a config is a weighted sum of the columns, plus
the surrogate's expectation of the rest. The weights start at an even share each, that of a record of another place at
less where the model of this problem orders the configs differently, and follow the measurements by a Bayesian linear
regression: a prior that orders the measured configs wrongly soon has no weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from triton_ops.search.searchers import LearnsPreviews, Prior
from triton_ops.search.surrogate import Floats
from triton_ops.space import Config
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
