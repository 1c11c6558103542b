"""The default search: it starts from prior knowledge, learns from every trial, and tells when little is left to gain.

1. The first configs are the first choices of the priors of this problem, or else of the records of others, each in
   turn. Without priors, each of the first configs is the one among the compiled configs that is nearest to all others.
   Without compiled configs, each of the first configs is far from all before. These have a usual number of warps, where
   the space has `num_warps`. While too few of them run, further ones are random and the most likely to run, by turns.
2. Every later config is the one with the largest expected gain (`gains`): a surrogate learns the trials, and the
   priors correct its expectation as far as the trials agree with them. Doubt raises the expected gain of a config, and
   the chance that the config fails lowers it. Records of other places may mislead, so some early configs are far from
   all before where nothing else is known, and from twenty trials on every second config is chosen without the records.
3. Several configs of one time are kept apart: a config that is proposed but not finished lowers the doubt around it.
4. A config that would compile for long needs a larger expected gain.
5. The search asks for previews, and uses the compiler's figures of configs before they are measured
   (`columns`): a config that cannot be launched is never proposed, a config that spills comes last, of two
   configs that are the same program one is proposed, and the compiler's figures are columns of the surrogate. The first
   previews are spread over the space, or are the priors' first choices; later previews have the largest expected gain.

A space of up to 64 configs is tried whole, each config as far as possible from all before. A larger space is never
enumerated beyond 30,000 configs: `OpenConfigs` holds a sample that grows around the best configs so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from triton_ops.search.columns import CompilerColumns, Encoder, Floats, wasteful
from triton_ops.search.gains import ExpectedGains, GainEstimator, Priors
from triton_ops.search.sampling import OpenConfigs, farthest, middle
from triton_ops.search.searchers import SMALL, Prior
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Compiled, Trial

_START = 7  # configs spread over the space before the surrogate is used
_START_COMPILED = 4  # the same with compiled configs, whose figures tell much of the rest
_FAR_CONFIGS = (6, 12)  # with records alone, the proposals after so many configs are far from all before
_FIRST_CHOICES = 8  # after a prior's first choice was tried, the most different of so many of its choices comes next
_USUAL_WARPS = (4, 8)  # of the first configs: 128 and 256 threads, where NVIDIA's guide of best practices begins too
_FEWEST_OK = 3  # ok trials that a surrogate needs
_WITHOUT_RECORDS_FROM = 20  # trials from which on each second config is chosen without the records
_WITHOUT_RECORDS_EACH = 2
_POLISH_BELOW, _POLISH_EACH = 0.01, 2  # below this expected gain, each second config is a neighbour of the best
_MOST_COMPARED = 300  # compiled configs among which the one nearest to all others is searched
_LEADERS = 5
_SHORTLIST = 1_500  # configs whose gain is estimated between two estimates of all configs
_RECENT, _RECENT_WITH_PRIORS = 70, 28  # at least so many latest gains were small before a small gain is reported
_FULL_PASS_GROWTH = 1.05  # the gains of all configs are estimated again after so many times the trials


class AutoSearch:
    """The searcher `auto`, as the module describes; `records` are prior knowledge from other problems and devices."""

    def __init__(
        self, space: ConfigSpace, seed: int = 0, priors: Sequence[Prior] = (), records: Sequence[Prior] = ()
    ) -> None:
        self._encoder = Encoder(space)
        self._open_configs = OpenConfigs(space, self._encoder, seed)
        self._small = self._open_configs.whole and len(self._open_configs.configs) <= SMALL
        self._space = space
        self._names = set(space.tunables)
        self._random = np.random.default_rng(seed)
        self._priors = Priors(priors, records, self._open_configs.configs)
        self._columns = CompilerColumns()
        self._estimator = GainEstimator(self._encoder, self._priors, self._columns)
        self._previewed: dict[Config, None] = {}  # configs whose preview was asked for or came without a question
        self._preview_random = np.random.default_rng((seed, 1))  # separate, so that previews change no later proposal
        self._trials: dict[Config, Trial] = {}
        self._pending: dict[Config, None] = {}
        self._shortlist: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._next_full_pass = 0.0
        self._largest_gains: list[float] = []

    def ask(self, count: int) -> list[Config]:
        """Up to `count` configs, the largest expected gain first."""
        proposals: list[Config] = []
        gains: ExpectedGains | None = None
        while len(proposals) < count and len(positions := self._open_configs.left()):
            at = self._start_config(positions)
            if at is None:
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
        mine = [trial for trial in trials if set(trial.config) == self._names]
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
            if wasteful(one):
                self._open_configs.hold(one.config)
            same = [one.config, *self._columns.same_program(one.config)]
            if any(config in self._trials or config in self._pending for config in same):
                self._close(same)

    def expected_gain(self) -> float:
        """The largest of the latest expected gains.

        The latest gains are those of a third of all trials, and at least 28 with priors and 70 without: a
        surrogate of few trials is easily too sure, and its next trials often raise the expected gain again. The gain is
        infinite before so many trials, and for a space that is tried whole.
        """
        latest = max(_RECENT_WITH_PRIORS if len(self._priors) else _RECENT, len(self._trials) // 3)
        if self._small or len(self._largest_gains) < latest:
            return math.inf
        return max(self._largest_gains[-latest:])

    def _propose(self, at: int) -> Config:
        config = self._open_configs.configs[at]
        self._open_configs.take(config)
        self._pending[config] = None
        self._close(self._columns.same_program(config))
        return config

    def _close(self, configs: Sequence[Config]) -> None:
        for config in configs:
            self._open_configs.take(config)

    def _preview_order(self) -> Iterator[int]:
        if len(self._shortlist):
            return (int(at) for at in self._shortlist if self._needs_preview(int(at)))
        if len(self._priors):
            costs = self._estimator.prior_costs(self._open_configs)
            orders = np.argsort(costs, axis=0, kind="stable").ravel()  # the first of each prior, then the second
            return (int(at) for at in orders if self._needs_preview(int(at)))
        return self._all_over()

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
        count, priors = len(self._trials) + len(self._pending), self._priors.leading
        start = _START_COMPILED if self._columns.width else _START
        if self._small and not priors:
            return self._far(positions)
        if priors and not self._priors.own and count in _FAR_CONFIGS:
            return self._far(positions)
        if sum(trial.ok for trial in self._trials.values()) >= _FEWEST_OK and count >= (priors or start):
            return None if not self._small else self._first_choice(positions)
        if priors and count < max(priors, _FEWEST_OK):
            return self._first_choice(positions)
        return self._most_informative(positions) if count < start else self._after_failures(positions)

    def _after_failures(self, positions: NDArray[np.intp]) -> int:
        """Position of a config while too few have run: by turns a random one and the one most likely to run.

        Configs far from all before are often at the edges of a space, where more of them fail.
        """
        if (len(self._trials) + len(self._pending)) % 2:
            return int(self._random.choice(positions))
        if self._estimator.learn_chance(list(self._trials.values())):
            return self._estimator.likeliest(self._open_configs, positions)
        return self._most_informative(positions)

    def _far(self, positions: NDArray[np.intp]) -> int:
        return int(positions[farthest(self._rows(positions), self._known_rows(), self._random)])

    def _most_informative(self, positions: NDArray[np.intp]) -> int:
        """Position of the compiled config nearest to all others; without one, of a config far from all before.

        Where some of these have a usual number of warps, only they count.
        """
        compiled = self._estimator.compiled_at(self._open_configs)[positions] >= 0
        candidates = positions[compiled & (self._columns.width > 0)]
        if not len(candidates):
            return self._far(self._usual(positions))
        candidates = self._usual(candidates)
        if len(candidates) > _MOST_COMPARED:
            candidates = self._random.permutation(candidates)[:_MOST_COMPARED]
        return int(candidates[middle(self._rows(candidates), self._known_rows())])

    def _usual(self, at: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the positions whose configs have a usual number of warps; all positions where none has."""
        configs = self._open_configs.configs
        usual = [one for one in at if configs[one].get("num_warps") in _USUAL_WARPS]
        return np.array(usual, dtype=np.intp) if usual else at

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
        self._estimator.learn(
            list(self._trials.values()), count < _WITHOUT_RECORDS_FROM or count % _WITHOUT_RECORDS_EACH == 0
        )
        if len(positions) > 2 * _SHORTLIST and count < self._next_full_pass:
            near = self._open_configs.nearby(self._leaders())[: _SHORTLIST // 3]
            positions = np.unique(np.concatenate([self._shortlist[self._open_configs.open[self._shortlist]], near]))
        else:
            self._next_full_pass = count * _FULL_PASS_GROWTH + 1
        gains = self._estimator.gains(self._open_configs, positions, self._pending)
        self._shortlist = gains.positions[gains.order[:_SHORTLIST]]
        return gains

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
