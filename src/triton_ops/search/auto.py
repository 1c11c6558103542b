"""The default search: learns from every trial, starts from what is known, and says when little is left to gain.

1. The start: what the priors put first, each in turn; without priors, of the configs seen compiled the one that tells
   most of the others; without these, configs as far as possible from all before.
2. From then on, whatever promises the largest gain (`forecast.py`): a surrogate learns the trials, priors correct its
   expectation as far as the trials bear them out. Doubt counts for a config: where nothing was measured, much may be
   gained.
   Records of other places may help and must not blind: some early questions go far from what they praise, and from
   twenty trials on each second one is asked without them.
3. Several at a time are kept apart: what is proposed but not finished lowers the doubt around it.
4. A config that would compile for long must promise more.
5. The search asks for previews, and uses what the compiler says of configs before they are measured
   (`compiler_columns.py`): a config that cannot be launched is never proposed, a config that spills comes last, of two
   configs that are the same program one is proposed, and the compiler's figures are columns of the surrogate. The
   first previews are of configs all over the space, or of what the priors put first, later ones of the most promising.

Spaces of up to 64 configs are simply tried whole, from the far corners inwards. Larger ones are never walked beyond
30,000 configs: `open_configs.py` holds a sample that grows around the leaders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from triton_ops._optional import preload
from triton_ops.search.base import Prior
from triton_ops.search.compiler_columns import CompilerColumns, wasteful
from triton_ops.search.encoding import Encoder, Floats
from triton_ops.search.forecast import Forecast, Outlook
from triton_ops.search.guidance import Guidance
from triton_ops.search.neighbours import neighbours
from triton_ops.search.open_configs import OpenConfigs
from triton_ops.search.spread import farthest, middle
from triton_ops.search.surrogate import SURROGATE_PACKAGES
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Compiled, Trial

SMALL = 64  # configs: at most this many are tried whole; a search would save less than it costs
_START = 7  # configs spread over the space before the surrogate is asked
_START_SEEN = 4  # where configs were seen compiled: what the compiler says of them tells much of the rest
_APART = (6, 12)  # with records: questions that look elsewhere, so that what they do not know is seen early
_FIRST = 8  # of a prior's first choices the most different is taken, when its very first was tried
_OPENED = 3  # ok trials that a surrogate needs
_ALONE_FROM, _ALONE_EACH = 20, 2  # from so many trials on, each second question is asked without the records
_POLISH_BELOW, _POLISH_EACH = 0.01, 3  # expected gain below which each third question is a neighbour of the best
_CROWD = 300  # configs among which the one that tells most of the others is looked for
_LEADERS = 5
_SHORT = 1_500  # configs looked at between two looks at all
_LATELY, _LATELY_GUIDED = 30, 10  # questions, at least, that all promised little before little is expected
_AGAIN = 1.05  # all are looked at when there are this many times the trials of the last time


class AutoSearch:
    """See the module.

    Args:
        space: What may be tried.
        seed: Of all that is drawn.
        priors: What is known of this very problem, such as a model of it.
        records: What is known of other problems and devices (`transfer.py`).
    """

    def __init__(
        self, space: ConfigSpace, seed: int = 0, priors: Sequence[Prior] = (), records: Sequence[Prior] = ()
    ) -> None:
        self._encoder = Encoder(space)
        self._open_configs = OpenConfigs(space, self._encoder, seed)
        self._small = self._open_configs.whole and len(self._open_configs.configs) <= SMALL
        self._space = space
        self._names = set(space.tunables)
        self._random = np.random.default_rng(seed)
        self._guidance = Guidance(priors, records, self._open_configs.configs)
        self._columns = CompilerColumns()
        self._forecast = Forecast(self._encoder, self._guidance, self._columns)
        self._previewed: dict[Config, None] = {}  # asked for, or seen without being asked for
        self._preview_random = np.random.default_rng((seed, 1))  # of its own: questions are the same without answers
        self._trials: dict[Config, Trial] = {}
        self._pending: dict[Config, None] = {}
        self._short: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._look_at_all = 0.0
        self._gains: list[float] = []
        if not self._small:
            preload(*SURROGATE_PACKAGES)  # a second, while the first configs are compiled and measured

    def ask(self, count: int) -> list[Config]:
        """Up to `count` configs, the most promising first."""
        found: list[Config] = []
        outlook: Outlook | None = None
        while len(found) < count and len(left := self._open_configs.left()):
            at = self._opening(left)
            if at is None:
                outlook = outlook or self._outlook(left)
                self._gains.append(outlook.gain)
                at = outlook.best(self._polish(outlook.gain))
            if at is None:  # every config of the outlook is proposed
                at = int(left[0])
            if not self._open_configs.open[
                at
            ]:  # it is the same program as one that was proposed since the outlook was made
                continue
            found.append(self._propose(at))
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from them; trials of configs with other tunables say nothing here."""
        mine = [trial for trial in trials if set(trial.config) == self._names]
        for trial in mine:
            self._trials[trial.config] = trial
            self._pending.pop(trial.config, None)
            self._open_configs.take(trial.config)
        if mine:
            self._guidance.tell(mine)
            self._open_configs.widen(self._leaders())

    def wanted_previews(self, count: int) -> list[Config]:
        """Up to `count` configs to be previewed; none of a space that is tried whole."""
        found: list[Config] = []
        if not self._small:
            order = self._preview_order()
            while len(found) < count and (at := next(order, None)) is not None:
                found.append(self._open_configs.configs[at])
                self._previewed[found[-1]] = None
        return found

    def take_previews(self, found: Sequence[Compiled]) -> None:
        """Learn what the compiler made of configs; those with other tunables say nothing here."""
        for one in found:
            if set(one.config) != self._names:
                continue
            self._previewed[one.config] = None
            if not one.launchable:
                self._open_configs.take(one.config)
                continue
            if one.resources is not None and one.resources.registers is not None:
                self._columns.take(one, self._encoder.rows([one.config])[0])
            if wasteful(one):
                self._open_configs.hold(one.config)
            same = [one.config, *self._columns.twins(one.config)]
            if any(config in self._trials or config in self._pending for config in same):
                self._close(same)

    def expected_gain(self) -> float:
        """The largest that the surrogate has expected of late.

        Of late is a third of all trials, and at least ten with priors and thirty without: a surrogate that has seen
        little is easily too sure, and what it then tries teaches it to hope again. Infinite before that many, and for
        spaces that are tried whole.
        """
        latest = max(_LATELY_GUIDED if len(self._guidance) else _LATELY, len(self._trials) // 3)
        return max(self._gains[-latest:]) if len(self._gains) >= latest and not self._small else math.inf

    def _propose(self, at: int) -> Config:
        config = self._open_configs.configs[at]
        self._open_configs.take(config)
        self._pending[config] = None
        self._close(self._columns.twins(config))
        return config

    def _close(self, configs: Sequence[Config]) -> None:
        """Propose none of them any more."""
        for config in configs:
            self._open_configs.take(config)

    def _preview_order(self) -> Iterator[int]:
        """Positions of configs that were not previewed, the most useful to preview first."""
        if len(self._short):
            return (int(at) for at in self._short if self._unseen(int(at)))
        if len(self._guidance):
            said = self._forecast.said(self._open_configs)
            orders = np.argsort(said, axis=0, kind="stable").ravel()  # the first of each prior, then the second
            return (int(at) for at in orders if self._unseen(int(at)))
        return self._all_over()

    def _all_over(self) -> Iterator[int]:
        left = np.array([at for at in np.flatnonzero(self._open_configs.open) if self._unseen(int(at))], dtype=np.intp)
        rows = self._encoder.rows([*self._trials, *self._pending, *self._previewed])
        while len(left):
            at = farthest(self._open_configs.rows[left], rows, self._preview_random)
            yield int(left[at])
            rows = np.vstack([rows, self._open_configs.rows[left[at]]])
            left = np.delete(left, at)

    def _unseen(self, at: int) -> bool:
        return bool(self._open_configs.open[at]) and self._open_configs.configs[at] not in self._previewed

    def _opening(self, left: NDArray[np.intp]) -> int | None:
        """The next config of the start; None when the surrogate may be asked."""
        known, priors = len(self._trials) + len(self._pending), len(self._guidance)
        start = _START_SEEN if self._columns.width else _START
        if self._small and not priors:
            return self._far(left)
        if self._guidance.own < priors and known in _APART:
            return self._far(left)
        if sum(trial.ok for trial in self._trials.values()) >= _OPENED and known >= (priors or start):
            return None if not self._small else self._first_choice(left)
        if priors and known < max(priors, _OPENED):
            return self._first_choice(left)
        return self._telling(left)

    def _far(self, left: NDArray[np.intp]) -> int:
        """What is far from all before."""
        return int(left[farthest(self._rows(left), self._known_rows(), self._random)])

    def _telling(self, left: NDArray[np.intp]) -> int:
        """What tells most of the others, among configs that were seen compiled; without any, what is far from all."""
        seen = left[self._forecast.seen(self._open_configs)[left] >= 0] if self._columns.width else left[:0]
        if not len(seen):
            return self._far(left)
        if len(seen) > _CROWD:
            seen = self._random.permutation(seen)[:_CROWD]
        return int(seen[middle(self._rows(seen), self._known_rows())])

    def _first_choice(self, left: NDArray[np.intp]) -> int:
        """What the priors, each in its turn, put first; in later rounds, the most different of its first few."""
        turn, prior = divmod(len(self._trials) + len(self._pending), len(self._guidance))
        said = self._forecast.said(self._open_configs)[left, prior]
        first = left[np.argsort(said, kind="stable")[: 1 if turn == 0 else _FIRST]]
        return int(first[farthest(self._rows(first), self._known_rows(), self._random)])

    def _rows(self, at: NDArray[np.intp]) -> Floats:
        return self._columns.rows(self._open_configs.rows[at], self._forecast.seen(self._open_configs)[at])

    def _known_rows(self) -> Floats:
        known = [*self._trials, *self._pending]
        return self._columns.rows(self._encoder.rows(known), self._columns.places(known))

    def _outlook(self, left: NDArray[np.intp]) -> Outlook:
        known = len(self._trials)
        self._forecast.learn(list(self._trials.values()), known < _ALONE_FROM or known % _ALONE_EACH == 0)
        if len(left) > 2 * _SHORT and known < self._look_at_all:
            near = self._open_configs.nearby(self._leaders())[: _SHORT // 3]
            left = np.unique(np.concatenate([self._short[self._open_configs.open[self._short]], near]))
        else:
            self._look_at_all = known * _AGAIN + 1
        outlook = self._forecast.outlook(self._open_configs, left, self._pending)
        self._short = outlook.positions[outlook.order[:_SHORT]]
        return outlook

    def _polish(self, gain: float) -> NDArray[np.intp] | None:
        """Positions of the open neighbours of the best, each third time when the surrogate has little hope left.

        It smooths over what is sharp: the config beside the best may be better, however unlikely it finds that.
        """
        if gain > _POLISH_BELOW or (len(self._trials) + len(self._pending)) % _POLISH_EACH > 0:
            return None
        found = (
            self._open_configs.position(config)
            for config in neighbours(self._space, self._leaders()[0], steps_only=True)
        )
        return np.array([at for at in found if at is not None], dtype=np.intp)

    def _leaders(self) -> list[Config]:
        ok = sorted((t for t in self._trials.values() if t.ok), key=lambda t: (t.rank, t.config.text))
        return [trial.config for trial in ok[:_LEADERS]]
