"""The loop: ask the searcher, try what the feed has ready, tell the searcher, until the search or the budget ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from triton_ops.evaluation.station import TriesConfigs
from triton_ops.feed.base import Feed, Ready
from triton_ops.history.quarantine import Quarantine
from triton_ops.history.run_log import Origin, RunLog
from triton_ops.progress.events import Listener, RunProgress
from triton_ops.runner.doubts import Doubts
from triton_ops.search import Searcher, expected_gain, new_configs
from triton_ops.space import Config, ConfigSpace
from triton_ops.task.budget import RunningBudget
from triton_ops.trial import Status, Trial


@dataclass(kw_only=True)
class TuningLoop:
    """The loop of one search.

    Attributes:
        space: The config space; it refuses configs that break a constraint.
        searcher: Proposes configs.
        budget: The limits of the search.
        log: Takes every finished trial.
        listener: Is told of every finished trial.
        default: The default config, which is tried first.
        feed: Holds proposals until they are tried.
        quarantine: Configs that ended their process before and are not run.
        thorough: Whether deferred configs are run at the end even if another config has worked.
        worthwhile: The search ends when the searcher expects to gain less than this share of the best's time.
        trials: All trials so far, in order.
        stopped: Why the search ended.
        doubts: What speaks against the verdicts so far.
    """

    space: ConfigSpace
    searcher: Searcher
    budget: RunningBudget
    log: RunLog
    listener: Listener
    default: Config
    feed: Feed
    quarantine: Quarantine = field(default_factory=lambda: Quarantine(None))
    thorough: bool = False
    worthwhile: float = 0.0
    trials: dict[Config, Trial] = field(default_factory=dict)
    stopped: str = "complete"
    _proposed: dict[Config, Origin] = field(default_factory=dict)
    _settled: bool = False
    _best: Trial | None = None

    def __post_init__(self) -> None:
        self.doubts = Doubts(self.default)

    def prepare(self, incumbents: Sequence[Config], known: Iterable[Trial] = ()) -> None:
        """Take over earlier trials and add the first proposals, so that the feed begins to compile them.

        Args:
            incumbents: Winners of earlier runs; they are tried after the default, before the searcher is asked.
            known: Finished trials of an interrupted run; they are not repeated.
        """
        for trial in known:
            self.trials[trial.config] = trial
            self.doubts.tried(trial)
        self._best = self._fastest()
        self._proposed.update(dict.fromkeys(self.trials, Origin.SEARCHER))
        if self.trials:
            self.searcher.tell(list(self.trials.values()))
        # The winner is compared with these configs, so they are run even if they spill.
        self._propose([self.default], Origin.DEFAULT, anyway=True)
        self._propose(incumbents, Origin.INCUMBENT, anyway=True)
        self._fill()

    def run(self, station: TriesConfigs) -> None:
        """Search until nothing is left or the budget is spent; Ctrl-C ends the search and keeps all trials.

        Args:
            station: The station that tries configs.
        """
        try:
            while self.stopped == "complete" and (ready := self._next()) is not None:
                self._finish(ready, station)
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    @property
    def best(self) -> Trial | None:
        """The fastest trial so far by its screening; None until a config ran."""
        return self._best

    def progress(self) -> RunProgress:
        """The progress of the search."""
        default = self.trials.get(self.default)
        measured = default if default is not None and default.ok else None
        failed = sum(trial.failed for trial in self.trials.values())
        return RunProgress(len(self.trials), self.best, measured, self.budget.elapsed_s, failed)

    def _next(self) -> Ready | None:
        """Fill the feed and take its next proposal; None if the search must end."""
        reason = self.budget.spent(len(self.trials)) if self.trials else None
        if reason is not None and self.default not in self.trials:
            return self._default_at_last(reason)
        self._fill(least=0 if reason is None else 1)
        if reason is not None and self.feed.held:
            self.stopped = reason
            return None
        ready = self.feed.next(self.thorough or self.best is None, patient=not self._settled)
        if reason is not None and ready is not None:
            self.stopped = reason
            return None
        if ready is None and self._settled:
            self.stopped = "settled"
        return ready

    def _default_at_last(self, reason: str) -> Ready | None:
        """The default, which is tried in any case, once it is compiled: no winner may be slower than it."""
        while (ready := self.feed.next(run_deferred=True, patient=False)) is not None:
            if ready.config == self.default:
                return ready
        self.stopped = reason
        return None

    def _fill(self, least: int = 0) -> None:
        """Add as many proposals as the feed can use and the budget allows, and `least` of them if none waits."""
        limit = self.budget.budget.trials
        while True:
            room = self.feed.room()
            if limit is not None:
                room = min(room, max(limit - len(self.trials) - self.feed.held, 0 if self.feed.held else least))
            if room < 1 or self._settled:
                return
            gain = expected_gain(self.searcher)
            if not (asked := new_configs(self.searcher, room, self._proposed)):
                return
            if gain < self.worthwhile:
                self._settled = True  # the proposals that are compiled are still tried
                return
            self._propose(asked, Origin.SEARCHER)

    def _propose(self, configs: Iterable[Config], origin: Origin, anyway: bool = False) -> None:
        new = [config for config in dict.fromkeys(configs) if config not in self._proposed]
        self._proposed.update(dict.fromkeys(new, origin))
        for config in new:
            refused = self._refused(config)
            if refused is None:
                self.feed.add([config], anyway)
            else:
                self._end(refused, origin)

    def _finish(self, ready: Ready, station: TriesConfigs) -> None:
        begun_s = self.budget.elapsed_s
        trial = ready.dropped or self._measured(ready, station)
        self.budget.note(self.budget.elapsed_s - begun_s)
        origin = self._proposed.get(trial.config, Origin.SEARCHER)
        if ready.compiled is not None and ready.compiled.deferred and origin is Origin.SEARCHER:
            origin = Origin.DEFERRED
        self._end(trial, origin)
        if trial.measurement is not None:
            self._repeat_others(trial.measurement.mode, station)
        if station.facts.lost is not None:
            self.stopped = "device lost"

    def _end(self, trial: Trial, origin: Origin) -> None:
        """Keep a finished trial, and tell the searcher and the listener."""
        self.quarantine.add(trial)
        self._keep(trial, origin)
        self.searcher.tell([trial])
        self.listener.tried(trial, self.progress())

    def _refused(self, config: Config) -> Trial | None:
        """The finished trial of a config that is not run; None if it may be run."""
        if (reason := self.space.why_not(config)) is not None:
            return Trial(config, Status.CONSTRAINT, error=reason)
        return self.quarantine.held(config)

    def _measured(self, ready: Ready, station: TriesConfigs) -> Trial:
        trial = station.attempt(ready.config, self.best)
        if ready.compiled is None:
            return trial
        return replace(trial, compile_s=ready.compiled.compile_s, resources=ready.compiled.resources or trial.resources)

    def _keep(self, trial: Trial, origin: Origin) -> None:
        self.log.trial(trial, origin)
        self.doubts.tried(trial)
        again = trial.config in self.trials
        self.trials[trial.config] = trial
        if again:  # a repeated measurement may have changed the best trial
            self._best = self._fastest()
        elif trial.ok and (self._best is None or trial.rank < self._best.rank):
            self._best = trial

    def _fastest(self) -> Trial | None:
        return min((t for t in self.trials.values() if t.ok), key=lambda t: t.rank, default=None)

    def _repeat_others(self, mode: str, station: TriesConfigs) -> None:
        """Measure configs of another mode again, since times of different modes are never compared."""
        others = [t.config for t in self.trials.values() if t.measurement is not None and t.measurement.mode != mode]
        for config in others:
            trial = station.attempt(config, None)
            self._keep(trial, Origin.REPEATED)
            self.searcher.tell([trial])
