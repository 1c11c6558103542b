"""Which config promises the largest gain, and how large that is: surrogate, priors and compile times put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from triton_ops.search.compiler_columns import CompilerColumns
from triton_ops.search.encoding import Encoder, Floats
from triton_ops.search.evidence import most_telling, noise_of, values_of
from triton_ops.search.guidance import Guidance
from triton_ops.search.open_configs import OpenConfigs
from triton_ops.search.surrogate import Surrogate, expected_improvement
from triton_ops.space import Config
from triton_ops.trial import Trial

_PATIENCE = 4.0  # a config may compile this many times the usual seconds before it must promise more
_FAST_S = 1.0  # compile times below this are waited for without a thought
_BLIND = 2.0  # times as much must a config promise that was not compiled yet: the compiler may refuse it
_TIMED = 200  # configs whose compile time is estimated: no other has a chance to be next


class Forecast:
    """Learns trials, and looks at configs."""

    def __init__(self, encoder: Encoder, guidance: Guidance, columns: CompilerColumns) -> None:
        self._encoder = encoder
        self._guidance = guidance
        self._columns = columns
        self._surrogates: dict[int, Surrogate] = {}
        self._heard = slice(None)  # the priors that have a say
        self._weights: Floats = np.zeros(len(guidance))
        self._best = 0.0
        self._trials: list[Trial] = []
        self._said: Floats = np.zeros((0, len(guidance)))  # what the priors say of the open configs
        self._edition = -1
        self._seen: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._taken_over = 0  # of what was seen

    def learn(self, trials: Sequence[Trial], borrowed: bool = True) -> None:
        """Take `trials`, of which at least two are ok, in place of all before.

        Args:
            trials: What was measured so far.
            borrowed: Whether records of other places have a say.
        """
        self._heard = slice(None) if borrowed else slice(self._guidance.own)
        self._trials = most_telling(trials)
        configs = [trial.config for trial in self._trials]
        values, said = values_of(self._trials), self._guidance.columns(configs)
        self._weights = self._guidance.weights(said[:, self._heard], values)
        rows = self._features(self._encoder.rows(configs), self._columns.places(configs), said)
        self._surrogate = self._surrogates.setdefault(rows.shape[1], Surrogate(rows.shape[1]))
        self._surrogate.learn(rows, values - said[:, self._heard] @ self._weights, noise_of(self._trials))
        self._best = float(values.min())

    def outlook(self, open_configs: OpenConfigs, at: NDArray[np.intp], pending: Iterable[Config]) -> Outlook:
        """What the configs of `open_configs` at these positions promise, while `pending` are being tried."""
        said = self.said(open_configs)[at]
        seen = self.seen(open_configs)[at]
        rows = self._features(open_configs.rows[at], seen, said)
        mean, doubt = self._surrogate.predict(rows)
        outlook = Outlook(
            at, rows, mean + said[:, self._heard] @ self._weights, doubt, self._best, self._surrogate.alike
        )
        slowness = self._slowness(open_configs.rows[at], outlook)
        if self._columns.width:
            outlook.mistrust(seen < 0)
            slowness = np.where(seen < 0, slowness, 1.0)  # what was compiled need not be compiled again
        outlook.slow_down(slowness)
        waiting = list(pending)
        said = self._guidance.columns(waiting)
        for row in self._features(self._encoder.rows(waiting), self._columns.places(waiting), said):
            outlook.keep_apart(row)
        return outlook

    def said(self, open_configs: OpenConfigs) -> Floats:
        """What the priors say of every config of `open_configs`: asked once, and anew when they have learned."""
        if self._edition != self._guidance.edition:
            self._said, self._edition = self._said[:0], self._guidance.edition
        if len(self._said) < len(open_configs.configs):
            self._said = np.vstack([self._said, self._guidance.columns(open_configs.configs[len(self._said) :])])
        return self._said

    def seen(self, open_configs: OpenConfigs) -> NDArray[np.intp]:
        """Of every config of `open_configs`, where it is among those that were seen compiled; -1 if it was not."""
        if len(self._seen) < len(open_configs.configs):
            self._seen, self._taken_over = np.full(len(open_configs.configs), -1, dtype=np.intp), 0
        for number, config in enumerate(self._columns.configs[self._taken_over :], self._taken_over):
            if (at := open_configs.place(config)) is not None:
                self._seen[at] = number
        self._taken_over = len(self._columns)
        return self._seen

    def _features(self, rows: Floats, seen: NDArray[np.intp], said: Floats) -> Floats:
        return np.hstack([self._columns.rows(rows, seen), self._guidance.features(said)[:, self._heard]])

    def _slowness(self, rows: Floats, outlook: Outlook) -> Floats:
        """By how much each config's gain counts for less, because it compiles for long: 1 or more."""
        found = np.ones(len(rows))
        timed = {trial.config: trial.compile_s for trial in self._trials if trial.compile_s is not None}
        if len(timed) < 4 or max(timed.values()) < _FAST_S * _PATIENCE:
            return found
        known, seconds = self._encoder.rows(list(timed)), np.array(list(timed.values()))
        usual = max(float(np.median(seconds)), _FAST_S) * _PATIENCE
        for at in outlook.order[:_TIMED]:
            nearest = np.argsort(np.abs(known - rows[at]).sum(axis=1), kind="stable")[:3]
            found[at] = max(float(seconds[nearest].mean()) / usual, 1.0)
        return found


class Outlook:
    """What some configs promise.

    Attributes:
        positions: Where they are among the open configs.
    """

    def __init__(
        self,
        positions: NDArray[np.intp],
        rows: Floats,
        mean: Floats,
        doubt: Floats,
        best: float,
        alike: Callable[[Floats, Floats], Floats],
    ) -> None:
        self.positions = positions
        self._rows, self._mean, self._doubt, self._best, self._alike = rows, mean, doubt, best, alike
        self._slowness: Floats = np.ones(len(mean))
        self._unseen: NDArray[np.bool_] = np.zeros(len(mean), dtype=bool)
        self._gains = expected_improvement(mean, doubt, best)
        self._open = np.ones(len(mean), dtype=bool)

    @property
    def gain(self) -> float:
        """The largest expected improvement of the logarithm of time, that is of time relative to the best."""
        return float(self._gains[self._open].max(initial=0.0))

    @property
    def order(self) -> NDArray[np.intp]:
        """All of them, the most promising first; as indices of `positions`."""
        found: NDArray[np.intp] = np.lexsort((self._mean, -self._gains / self._slowness))
        return found

    def slow_down(self, slowness: Floats) -> None:
        """Divide each gain by this."""
        self._slowness = slowness

    def mistrust(self, unseen: NDArray[np.bool_]) -> None:
        """Those that were not compiled yet must promise more than those that were; their order is left as it is."""
        self._unseen = unseen

    def keep_apart(self, row: Floats) -> None:
        """Count on learning what `row` is like: near it there is less doubt, and so less to hope for."""
        self._doubt = self._doubt * np.sqrt(np.maximum(1 - self._alike(self._rows, row) ** 2, 1e-9))
        self._gains = expected_improvement(self._mean, self._doubt, self._best)

    def best(self, among: NDArray[np.intp] | None = None) -> int | None:
        """The position of the most promising config not returned before; None when there is no more.

        Args:
            among: Positions to which the choice is limited, if one of them is there.
        """
        left = np.flatnonzero(self._open)
        if among is not None and len(near := left[np.isin(self.positions[left], among)]):
            left = near
        if not len(left):
            return None
        worth = self._gains / self._slowness / np.where(self._unseen, _BLIND, 1.0)
        first = int(left[np.lexsort((self._mean[left], -worth[left]))[0]])
        self._open[first] = False
        self.keep_apart(self._rows[first])
        return int(self.positions[first])
