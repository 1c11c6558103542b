"""The loop: ask the searcher, try what the feed has ready, tell the searcher, until the search or the budget ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from triton_ops.evaluation import KeepsEach, TriesAtOnce, TriesConfigs, at_once
from triton_ops.records import Quarantine, RunLog, TrialOrigin
from triton_ops.request import RunningBudget
from triton_ops.search import Searcher, expected_gain, new_configs
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner.doubts import Doubts
from triton_ops.tuner.progress import Listener, RunProgress
from triton_ops.tuner.proposals import Feed, Ready
from triton_ops.values import Status, Trial


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
    _proposed: dict[Config, TrialOrigin] = field(default_factory=dict)
    _under_way: dict[Config, tuple[Ready, float]] = field(default_factory=dict)  # with the seconds when each began
    _written: dict[Config, Trial] = field(default_factory=dict)  # under way, and in the log by another thread
    _settled: bool = False
    _best: Trial | None = None
    _began: bool = False  # whether this run has begun a trial of its own
    _failed: int = 0  # trials; counted as they end, since a listener is told after each of thousands
    _modes: set[str] = field(default_factory=set)  # of measurements so far

    def __post_init__(self) -> None:
        self.doubts = Doubts(self.default)

    def prepare(self, incumbents: Sequence[Config], known: Iterable[Trial] = (), nearby: Sequence[Config] = ()) -> None:
        """Take over earlier trials and add the first proposals, so that the feed begins to compile them.

        Args:
            incumbents: Winners of earlier runs; they are tried after the default, before the searcher is asked.
            known: Finished trials of an interrupted run; they are not repeated.
            nearby: Winners for problems nearby; they are tried next.
        """
        for trial in known:
            self._count(trial)
            self.doubts.tried(trial)
        self._best = self._fastest()
        self._proposed.update(dict.fromkeys(self.trials, TrialOrigin.SEARCHER))
        if self.trials:
            self.searcher.tell(list(self.trials.values()))
        # The winner is compared with these configs, so they are run even if they spill.
        self._propose([self.default], TrialOrigin.DEFAULT, anyway=True)
        self._propose(incumbents, TrialOrigin.INCUMBENT, anyway=True)
        self._propose(nearby, TrialOrigin.NEARBY)
        self._fill()

    def run(self, station: TriesConfigs) -> None:
        """Search until nothing is left or the budget is spent; Ctrl-C ends the search and keeps all trials.

        Args:
            station: The station that tries configs, several at a time if it can.
        """
        tries = at_once(station)
        if isinstance(station, KeepsEach):
            station.keep_with(self._write)
        try:
            while (begun := self._begin(tries)) or self._under_way:
                if not begun:
                    self._finish_all(tries.take(self._could_begin), station)
            while self._try_again(tries.again(self.trials.values()), station):
                pass  # others may be finalists now
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
        return RunProgress(len(self.trials), self.best, measured, self.budget.elapsed_s, self._failed)

    def _begin(self, tries: TriesAtOnce) -> bool:
        """Begin to try the next proposal, or end one that is not to be run; False if nothing can be begun now."""
        if self.stopped != "complete" or tries.room < 1 or (ready := self._next()) is None:
            return False
        if ready.dropped is not None:
            self.budget.note(0.0)
            self._end(ready.dropped, self._origin(ready))
            return True
        self._began = True
        self._under_way[ready.config] = ready, self.budget.elapsed_s
        tries.begin(ready.config, self.best, None if ready.compiled is None else ready.compiled.launch)
        return True

    def _could_begin(self) -> bool:
        """Whether a proposal is ready to be begun beside what is under way."""
        return self.stopped == "complete" and self.feed.held > 0 and self.feed.ready

    def _next(self) -> Ready | None:
        """Fill the feed and take its next proposal; None if the search must end, or wait for what is under way."""
        begun = len(self.trials) + len(self._under_way)
        reason = self.budget.spent(begun)
        if reason == "seconds" and not self._began:
            reason = None  # one trial is made in any case: a tune that goes on with others comes to its end
        if reason is not None and self.default not in self.trials and self.default not in self._under_way:
            return self._default_at_last(reason)
        self._fill(least=0 if reason is None else 1)
        if self._under_way and not (self.feed.held and self.feed.ready):
            return None  # whether what was deferred is run, and what is asked for next, depends on it
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
                begun = len(self.trials) + len(self._under_way) + self.feed.held
                room = min(room, max(limit - begun, 0 if self.feed.held else least))
            if room < 1 or self._settled:
                return
            gain = expected_gain(self.searcher)
            if not (asked := new_configs(self.searcher, room, self._proposed)):
                return
            if gain < self.worthwhile:
                self._settled = True  # the proposals that are compiled are still tried
                return
            self._propose(asked, TrialOrigin.SEARCHER)

    def _propose(self, configs: Iterable[Config], origin: TrialOrigin, anyway: bool = False) -> None:
        new = [config for config in dict.fromkeys(configs) if config not in self._proposed]
        self._proposed.update(dict.fromkeys(new, origin))
        for config in new:
            refused = self._refused(config)
            if refused is None:
                self.feed.add([config], anyway)
            else:
                self._end(refused, origin)

    def _finish_all(self, found: Sequence[Trial], station: TriesConfigs) -> None:
        """Keep trials that have finished at one time: they reach the disk together, since each wait takes its time."""
        for left, trial in zip(range(len(found) - 1, -1, -1), found, strict=True):
            self._finish(trial, station, durable=not left)

    def _finish(self, found: Trial, station: TriesConfigs, durable: bool) -> None:
        """Keep the trial of a proposal that was under way."""
        written = self._written.pop(found.config, None)
        trial = written or self._whole(found)
        ready, begun_s = self._under_way.pop(found.config)
        self.budget.note(self.budget.elapsed_s - begun_s, (ready.compiled and ready.compiled.compile_s) or 0.0)
        self._end(trial, self._origin(ready), durable if written is None else None)
        if found.measurement is not None:
            self._repeat_others(found.measurement.mode, station)
        if station.facts.lost is not None:
            self.stopped = "device lost"

    def _whole(self, found: Trial) -> Trial:
        """The trial of a proposal that is under way, with what its compilation has shown."""
        compiled = self._under_way[found.config][0].compiled
        if compiled is None:
            return found
        return replace(found, compile_s=compiled.compile_s, resources=compiled.resources or found.resources)

    def _write(self, found: Trial) -> None:
        """Write the trial of a proposal that is under way, in a thread that is about to begin with the next one."""
        if found.config in self._under_way:
            whole = self._whole(found)
            self.log.trial(whole, self._origin(self._under_way[found.config][0]))
            self._written[found.config] = whole

    def _origin(self, ready: Ready) -> TrialOrigin:
        origin = self._proposed.get(ready.config, TrialOrigin.SEARCHER)
        deferred = ready.compiled is not None and ready.compiled.deferred
        return TrialOrigin.DEFERRED if deferred and origin is TrialOrigin.SEARCHER else origin

    def _end(self, trial: Trial, origin: TrialOrigin, durable: bool | None = False) -> None:
        """Keep a finished trial, and tell the searcher and the listener.

        One of a config that was not run reaches the disk with the next that was. With None it is in the log already.
        """
        self.quarantine.add(trial)
        self._keep(trial, origin, durable)
        self.searcher.tell([trial])
        self.listener.tried(trial, self.progress())

    def _refused(self, config: Config) -> Trial | None:
        """The finished trial of a config that is not run; None if it may be run."""
        if (reason := self.space.why_not(config)) is not None:
            return Trial(config, Status.CONSTRAINT, error=reason)
        return self.quarantine.held(config)

    def _keep(self, trial: Trial, origin: TrialOrigin, durable: bool | None = True) -> None:
        if durable is not None:
            self.log.trial(trial, origin, durable)
        self.doubts.tried(trial)
        again = trial.config in self.trials
        self._count(trial)
        if again:  # a repeated measurement may have changed the best trial
            self._best = self._fastest()
        elif trial.ok and (self._best is None or trial.rank < self._best.rank):
            self._best = trial

    def _count(self, trial: Trial) -> None:
        """Keep a trial in place of an earlier one of its config."""
        before = self.trials.get(trial.config)
        self._failed += trial.failed - (before is not None and before.failed)
        self.trials[trial.config] = trial
        if trial.measurement is not None:
            self._modes.add(trial.measurement.mode)

    def _fastest(self) -> Trial | None:
        return min((t for t in self.trials.values() if t.ok), key=lambda t: t.rank, default=None)

    def _repeat_others(self, mode: str, station: TriesConfigs) -> None:
        """Measure configs of another mode again, since times of different modes are never compared."""
        if self._modes <= {mode}:
            return
        others = [t.config for t in self.trials.values() if t.measurement is not None and t.measurement.mode != mode]
        for config in others:
            self._repeat(config, None, station)
        self._modes = {t.measurement.mode for t in self.trials.values() if t.measurement is not None}

    def _try_again(self, configs: Sequence[Config], station: TriesConfigs) -> bool:
        """Try configs once more, where the last trial counts; False if there are none, or the time is over."""
        for config in configs:
            if self.stopped == "device lost" or self.budget.spent(0) is not None:
                return False
            self._repeat(config, self.best, station)
        return bool(configs)

    def _repeat(self, config: Config, best: Trial | None, station: TriesConfigs) -> None:
        trial = station.attempt(config, best)
        self._keep(trial, TrialOrigin.REPEATED)
        self.searcher.tell([trial])
