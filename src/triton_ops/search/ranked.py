"""The search that takes the priors at their word, for a comparison of a few configs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from triton_ops.search.auto import AutoSearch


class RankedSearch(AutoSearch):
    """The searcher `ranked`: what the first prior expects to be fast comes first; without priors, far from all before.

    Over few trials this finds more than `auto`, which spends some of them on what it may learn. It sees previews of a
    small space too: a config that cannot be launched takes no trial.
    """

    _tried_whole = 0

    def _start_config(self, positions: NDArray[np.intp]) -> int:
        if not self._informed:
            return self._far(positions)
        return int(positions[np.argmin(self._estimator.prior_costs(self._open_configs)[positions, 0])])
