"""The default search: it starts from prior knowledge, learns from every trial, and tells when little is left to gain.

1. The first configs are the first choices of the priors of this problem, or else of the records of others, each in
   turn. Without priors, each is far from all before; of a Triton kernel the first is nearest to the middle of all
   ranges, and the next ones cover their inner part: see `Middle`, which is then the one prior. While too few run,
   further ones are random and the most likely to run, by turns.
2. Every later config is the one with the largest expected gain: see `gains`, and `priors` for what is expected before
   any trial. Priors may mislead, so from eight trials on every second config is chosen without them, and some early
   configs are those with which a search without priors begins. With records alone, some are far from all before.
3. Several configs of one time are kept apart, since each lowers the doubt around it.
4. The search asks for previews, and uses the compiler's figures of configs before they are measured: a config that
   cannot be launched is never proposed, a config that spills comes last, of two configs that are the same program one
   is proposed, and the compiler's figures are columns of the surrogate. The first previews are spread over the space,
   or are the priors' first choices; later previews have the largest expected gain.

A space of up to 64 configs is tried whole, after the first configs those near fast ones or far from all. A larger space
is never enumerated beyond 30,000 configs: `OpenConfigs` holds a sample that grows around the best configs so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from triton_ops.search import surrogate
from triton_ops.search.gains import ExpectedGains, GainEstimator
from triton_ops.search.middle import Middle
from triton_ops.search.priors import Priors
from triton_ops.search.sampling import OpenConfigs, farthest
from triton_ops.search.searchers import Prior, Search
from triton_ops.search.surrogate import Floats
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.values import Compiled, Trial

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
        compiled_at = self._columns.places([self._open_configs.configs[each] for each in at])
        return self._columns.rows(self._open_configs.rows[at], compiled_at)

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
