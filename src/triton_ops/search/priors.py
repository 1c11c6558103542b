"""The priors' expected times of configs, weighted by how well they agree with the measurements.

Each prior is one column of expected log time. A search's expectation of a config is a weighted sum of the columns, plus
the surrogate's expectation of the rest. The weights start at an even share each, that of a record of another place at
less where the model of this problem orders the configs differently, and follow the measurements by a Bayesian linear
regression: a prior that orders the measured configs wrongly soon has no weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from triton_ops.search.base import LearnsPreviews, Prior
from triton_ops.search.encoding import Floats
from triton_ops.space import Config
from triton_ops.trial import Compiled, Trial

_DOUBT = 0.5  # standard deviation of a weight before any measurement; its expectation is its share
_ROUGHNESS = 0.25  # standard deviation of log time around a good prior
_CANNOT_RUN = 3.0  # standard deviations above the average for a config that a prior expects not to run
_RECORDS = 0.5  # weight of a record that agrees with this problem's priors, in weights of one of these
_LARGEST_WEIGHT = 1.5  # most that one prior may weigh
_STALE = 1.25  # priors are asked anew after so many times the trials


class Priors:
    """The columns of several priors; without priors every sum is 0.

    Args:
        priors: Prior knowledge of this problem, such as a model of it.
        records: Prior knowledge from other places.
        typical: Configs of the space; their average stands for a config that a prior does not know.

    Attributes:
        own: The number of columns of this problem, which are the first columns.
        edition: A number that rises after each quarter more trials, when the priors' costs may have changed.
        compiled: Configs whose costs may have changed since because they were compiled, in that order.
    """

    def __init__(self, priors: Sequence[Prior], records: Sequence[Prior], typical: Sequence[Config]) -> None:
        self._all = (*priors, *records)
        self.own = len(priors)
        self._told, self._next_edition = 0, 1.0
        self.edition = 0
        self.compiled: list[Config] = []
        logs = self._logs(typical)
        logs[np.isinf(logs)] = math.nan
        known = np.maximum((~np.isnan(logs)).sum(axis=0), 1)
        self._centre = np.nansum(logs, axis=0) / known
        off = np.nan_to_num(logs - self._centre)
        self._scale = np.maximum(np.sqrt((off**2).sum(axis=0) / known), 1e-9)
        self._trust = self._trusted(off / self._scale)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def leading(self) -> int:
        """The number of priors, from the first on, that choose the first configs: this problem's, else all."""
        return self.own or len(self._all)

    def columns(self, configs: Sequence[Config]) -> Floats:
        """Expected log time by each prior less its average; 0 for an unknown config, high for an expected failure.

        Returns:
            Shape (number of configs, number of priors).
        """
        off = self._logs(configs) - self._centre
        found: Floats = np.nan_to_num(np.where(np.isposinf(off), _CANNOT_RUN * self._scale, off))
        return found

    def features(self, columns: Floats) -> Floats:
        """The columns in units of their spread over the space, for the surrogate."""
        found: Floats = np.clip(columns / (4 * self._scale), -1.0, 1.0)  # a range of about 1, as the tunables' columns
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass finished trials on to all priors."""
        for prior in self._all:
            prior.tell(trials)
        self._told += len(trials)
        if self._told >= self._next_edition:
            self._next_edition = self._told * _STALE + 1
            self.edition += 1

    def take_previews(self, found: Sequence[Compiled]) -> None:
        """Pass the compiler's results on to the priors that learn from them."""
        for prior in self._all:
            if isinstance(prior, LearnsPreviews):
                prior.take_previews(found)
        self.compiled += [one.config for one in found]

    def weights(self, columns: Floats, values: Floats) -> Floats:
        """The weight of each column, 0 to 1.5, by the columns and the values of the measured configs."""
        count = columns.shape[1]
        share = self._trust[:count] / max(float(self._trust[:count].sum()), 1e-9)
        if count == 0 or len(values) < 2:
            return share
        centred = columns - columns.mean(axis=0)
        precision = centred.T @ centred / _ROUGHNESS**2 + np.eye(count) / _DOUBT**2
        rest = values - values.mean() - centred @ share
        found: Floats = np.clip(
            share + np.linalg.solve(precision, centred.T @ rest / _ROUGHNESS**2), 0.0, _LARGEST_WEIGHT
        )
        return found

    def _trusted(self, columns: Floats) -> Floats:
        """How much each prior counts at first: 1, and a record of another place by its agreement with this problem's.

        The agreement is the square of the correlation with the mean of this problem's priors. Where a model tells how
        this problem differs from the other, a record that is of no such place does not delay the search.
        """
        found = np.ones(len(self._all))
        if self.own and len(self._all) > self.own and len(columns):
            model = columns[:, : self.own].mean(axis=1)
            records = columns[:, self.own :]
            alike = records.T @ model / np.maximum(np.linalg.norm(records, axis=0) * np.linalg.norm(model), 1e-9)
            found[self.own :] = _RECORDS * np.clip(alike, 0.0, 1.0) ** 2
        return found

    def _logs(self, configs: Sequence[Config]) -> Floats:
        """The logarithms of the priors' scores; shape (number of configs, number of priors)."""
        costs = [[_log(score) for score in prior.score(configs)] for prior in self._all] if configs else []
        return np.array(costs, dtype=float).reshape(len(self._all), len(configs)).T


def _log(score: float) -> float:
    return math.log(score) if score > 0 else math.nan
