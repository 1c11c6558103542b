"""What priors say of configs, and how far measurements bear them out.

Each prior is one column of expected log time. What a search expects of a config is a weighted sum of the columns plus
what its surrogate makes of the rest. The weights start at an even share each and follow the measurements (a Bayesian
linear regression): a prior that orders the measured configs wrongly soon weighs nothing, and none can outvote them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from triton_ops.search.base import Prior
from triton_ops.search.encoding import Floats
from triton_ops.space import Config
from triton_ops.trial import Trial

_DOUBT = 0.5  # standard deviation of a weight beforehand, whose expectation is one share
_ROUGHNESS = 0.25  # log time that even a good prior is off by
_IMPOSSIBLE = 3.0  # deviations above the average that a config counts for of which a prior says that it cannot run
_MOST = 1.5  # what one prior may weigh
_STALE = 1.25  # times as many trials: when priors that learn are asked anew


class Guidance:
    """Several priors, heard together; with none, every sum is 0.

    Args:
        priors: What is known of this very problem, such as a model of it.
        records: What is known of other places.
        typical: Configs of the space, whose average is what a prior says where it is silent.

    Attributes:
        own: How many of the columns, the first ones, are of this problem.
        edition: Rises when priors may say something else than before, since they were told a quarter more trials.
    """

    def __init__(self, priors: Sequence[Prior], records: Sequence[Prior], typical: Sequence[Config]) -> None:
        self._priors = (*priors, *records)
        self.own = len(priors)
        self._told, self._next_edition = 0, 1.0
        self.edition = 0
        logs = self._logs(typical)
        logs[np.isinf(logs)] = math.nan
        known = np.maximum((~np.isnan(logs)).sum(axis=0), 1)
        self._centre = np.nansum(logs, axis=0) / known
        off = np.nan_to_num(logs - self._centre)
        self._scale = np.maximum(np.sqrt((off**2).sum(axis=0) / known), 1e-9)

    def __len__(self) -> int:
        return len(self._priors)

    def columns(self, configs: Sequence[Config]) -> Floats:
        """Expected log time by each prior, less its average; 0 where it is silent, high where it expects a failure.

        Returns:
            Shape (number of configs, number of priors).
        """
        off = self._logs(configs) - self._centre
        found: Floats = np.nan_to_num(np.where(np.isposinf(off), _IMPOSSIBLE * self._scale, off))
        return found

    def features(self, columns: Floats) -> Floats:
        """The columns in units of their own spread over the space, as a surrogate takes them."""
        found: Floats = np.clip(columns / (4 * self._scale), -1.0, 1.0)  # about 1 from end to end, as tunables' columns
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass finished trials on."""
        for prior in self._priors:
            prior.tell(trials)
        self._told += len(trials)
        if self._told >= self._next_edition:
            self._next_edition = self._told * _STALE + 1
            self.edition += 1

    def weights(self, columns: Floats, values: Floats) -> Floats:
        """How much each column counts, given the values of as many measured configs: 0 to 1.5 each."""
        count = columns.shape[1]
        share = np.full(count, 1.0 / max(count, 1))
        if count == 0 or len(values) < 2:
            return share
        centred = columns - columns.mean(axis=0)
        precision = centred.T @ centred / _ROUGHNESS**2 + np.eye(count) / _DOUBT**2
        rest = values - values.mean() - centred @ share
        found: Floats = np.clip(share + np.linalg.solve(precision, centred.T @ rest / _ROUGHNESS**2), 0.0, _MOST)
        return found

    def _logs(self, configs: Sequence[Config]) -> Floats:
        """Shape (number of configs, number of priors); NaN where silent, infinite where a failure is expected."""
        said = [[_log(score) for score in prior.score(configs)] for prior in self._priors] if configs else []
        return np.array(said, dtype=float).reshape(len(self._priors), len(configs)).T


def _log(score: float) -> float:
    return math.log(score) if score > 0 else math.nan
