"""Hyperopt's tree of Parzen estimators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.league.tuners import EVALUATIONS, Called


class Tpe(Called):
    """Values are positions: whole numbers where a tunable has an order, else choices."""

    def search(self) -> None:
        """Minimise the logarithm of the time; a config outside of the space fails."""
        import hyperopt

        def loss(positions: dict[str, float]) -> dict[str, Any]:
            ms = self.measure(self.space.at({name: int(at) for name, at in positions.items()}))
            return {"status": "fail"} if ms is None else {"status": "ok", "loss": math.log(ms)}

        axes: dict[str, Any] = {
            name: hyperopt.hp.uniformint(name, 0, len(values) - 1)
            if self.space.is_ordered(name)
            else hyperopt.hp.choice(name, range(len(values)))
            for name, values in self.space.tunables.items()
        }
        hyperopt.fmin(
            loss, axes, hyperopt.tpe.suggest, max_evals=100 * EVALUATIONS, rstate=np.random.default_rng(self.seed),
            points_to_evaluate=self.default and [self.space.positions(self.default)], show_progressbar=False,
            verbose=False, return_argmin=False,
        )  # fmt: skip
