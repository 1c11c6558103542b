"""The ranking model as a search's prior: it knows a config better once it was compiled."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops.ranking.predict import Model
from triton_ops.space import Config
from triton_ops.trial import Resources, Trial


class ModelPrior:
    """What the model expects of configs, with the compiler's own figures for those that were tried.

    Args:
        model: Of the problem and device that are searched.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._resources: dict[Config, Resources] = {}

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds: NaN where the model is silent, infinite where a block will not fit.

        Cost: about 20 µs per config.
        """
        return [self._model.expected_ms(config, self._resources.get(config)) for config in configs]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take what the compiler made of them."""
        self._resources.update((t.config, t.resources) for t in trials if t.resources is not None)
