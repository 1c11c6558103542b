"""The loop: ask → try → tell → journal, until the search or the budget ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from triton_ops.runner.budget import RunningBudget
from triton_ops.runner.events import Listener, Standing
from triton_ops.runner.feed import DirectFeed, Feed, Ready
from triton_ops.runner.journal import Journal
from triton_ops.runner.quarantine import Quarantine
from triton_ops.runner.station import Station
from triton_ops.search import Searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Status, Trial


@dataclass
class Search:
    """One search, running.

    Attributes:
        station: Tries configs.
        space: Says which configs are valid.
        searcher: Proposes them.
        budget: Ends the search.
        journal: Holds every finished trial.
        listener: Hears of every finished trial.
        default: The default config, tried first.
        feed: Holds proposals until they are tried.
        quarantine: Configs that ended their process before; they are not run.
        trials: What was tried so far, in order.
        stopped: Why it ended.
    """

    station: Station
    space: ConfigSpace
    searcher: Searcher
    budget: RunningBudget
    journal: Journal
    listener: Listener
    default: Config
    feed: Feed = field(default_factory=DirectFeed)
    quarantine: Quarantine = field(default_factory=lambda: Quarantine(None))
    trials: dict[Config, Trial] = field(default_factory=dict)
    stopped: str = "complete"
    _proposed: set[Config] = field(default_factory=set)

    def run(self, first: Sequence[Config], known: Iterable[Trial] = ()) -> None:
        """Search until nothing is left or the budget is spent; Ctrl-C ends it and keeps everything.

        Args:
            first: Tried before the searcher is asked: the default, and what is worth checking.
            known: Finished trials of an interrupted run; they are taken over, not repeated.
        """
        self.trials.update((trial.config, trial) for trial in known)
        self._proposed.update(self.trials)
        if self.trials:
            self.searcher.tell(list(self.trials.values()))
        try:
            self._propose(first)
            while self.stopped == "complete" and (ready := self._next()) is not None:
                self._finish(ready)
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    @property
    def best(self) -> Trial | None:
        """The fastest so far by first looks."""
        return min((t for t in self.trials.values() if t.ok), key=lambda t: t.rank, default=None)

    def standing(self) -> Standing:
        """Where the search is."""
        default = self.trials.get(self.default)
        measured = default if default is not None and default.ok else None
        return Standing(len(self.trials), self.best, measured, self.budget.elapsed_s)

    def _next(self) -> Ready | None:
        """What to try now, with the searcher asked for as much as the feed can use; None if the search must end."""
        if (reason := self.budget.spent(len(self.trials))) is not None:
            self.stopped = reason if self._more() else "complete"
            return None
        self._fill()
        return self.feed.next()

    def _fill(self) -> None:
        while (room := self.feed.room) > 0:
            asked = self.searcher.ask(room)
            if not asked:
                return
            self._propose(asked)

    def _more(self) -> bool:
        """Whether anything was left to try when the budget was spent."""
        self._fill()
        return self.feed.next() is not None

    def _propose(self, configs: Iterable[Config]) -> None:
        new = [config for config in dict.fromkeys(configs) if config not in self._proposed]
        self._proposed.update(new)
        self.feed.add(new)

    def _finish(self, ready: Ready) -> None:
        trial = ready.trial or self._refused(ready.config) or self._measured(ready)
        self._keep(trial)
        if trial.measurement is not None:
            self._repeat_others(trial.measurement.mode)
        self.searcher.tell([trial])
        self.listener.tried(trial, self.standing())
        if self.station.facts.lost is not None:
            self.stopped = "device lost"

    def _refused(self, config: Config) -> Trial | None:
        """The trial of what is not run at all."""
        if (reason := self.space.why_not(config)) is not None:
            return Trial(config, Status.CONSTRAINT, error=reason)
        return self.quarantine.held(config)

    def _measured(self, ready: Ready) -> Trial:
        known = self.trials.get(ready.twin) if ready.twin is not None else None
        if known is not None and known.status in (Status.OK, Status.WRONG):
            same = f"the same machine code as ({known.config})"
            error = f"{same}: {known.error}" if known.error else ""
            return replace(known, config=ready.config, twin=known.config, error=error)
        trial = self.station.attempt(ready.config, self.best)
        self.quarantine.add(trial)
        return trial

    def _keep(self, trial: Trial) -> None:
        self.journal.add(trial)
        self.trials[trial.config] = trial

    def _repeat_others(self, mode: str) -> None:
        """Measure again what another clock measured: times of different modes are never compared."""
        others = [t.config for t in self.trials.values() if t.measurement is not None and t.measurement.mode != mode]
        for config in others:
            self._keep(self.station.attempt(config, None))
