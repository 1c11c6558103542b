"""The ranking model as the prior of a search: the forecast of a config is better once the config was compiled."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops.ranking.predict import Model
from triton_ops.resources import Resources
from triton_ops.space import Config
from triton_ops.trial import Compiled, Trial


class ModelPrior:
    """The model's expected times, with the compiler's own figures for the configs that were tried.

    Args:
        model: The model of the problem and device that are searched.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._resources: dict[Config, Resources] = {}
        self._guessed: dict[Config, float] = {}  # for configs of which nothing is known, which a search asks for again

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds: NaN for a config without a forecast, infinite if a block does not fit.

        Cost: about 20 µs per config.
        """
        return [self._expected_ms(config) for config in configs]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Keep the resources that the compiler gave the tried configs."""
        self._resources.update((t.config, t.resources) for t in trials if t.resources is not None)

    def take_previews(self, found: Sequence[Compiled]) -> None:
        """Keep what no guess can tell of configs that are not tried yet: whether their products are serialised.

        Registers are guessed until a config is tried, because real ones for some configs and guesses for the others
        would order them worse than guesses for all.
        """
        for one in found:
            if one.resources is not None and one.resources.serialised is not None:
                self._resources.setdefault(one.config, Resources(serialised=one.resources.serialised))

    def _expected_ms(self, config: Config) -> float:
        if (made := self._resources.get(config)) is not None:
            return self._model.expected_ms(config, made)
        if config not in self._guessed:
            self._guessed[config] = self._model.expected_ms(config)
        return self._guessed[config]
