"""The loop of a search: ask the searcher, try what the feed has ready, tell the searcher, until one of them ends."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from triton_ops.base import warn
from triton_ops.device import Machine
from triton_ops.evaluation import TriesConfigs
from triton_ops.processes import Threads
from triton_ops.records import Quarantine, RunLog, TrialOrigin
from triton_ops.request import Effort
from triton_ops.search import Search, Searcher, chance_within_1pct
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner.budget import RunningBudget, rounds_s
from triton_ops.tuner.feeds import CompiledFeed, Compiles, DirectFeed, Ready, Wait, new_configs, wait_for_one
from triton_ops.tuner.gate import Gate
from triton_ops.tuner.progress import Listener, RunProgress, Silent
from triton_ops.tuner.trials import Trials
from triton_ops.tuner.wrong_results import Doubts, TileProof
from triton_ops.values import Status, Trial

_Attempt: TypeAlias = Callable[[], Trial]


class _TrialThread:
    """A thread that makes attempts in order, in its maker's context: a restarted worker finds Triton's allocator."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[_Attempt, Future[Trial]] | None] = SimpleQueue()
        self._closed = False
        name = f"{threading.current_thread().name}, trials"  # a run of many problems has a thread for each
        self._thread = threading.Thread(target=partial(copy_context().run, self._serve), name=name, daemon=True)
        Threads.begin(self._thread)

    def begin(self, attempt: _Attempt) -> _Attempt:
        """Make an attempt after those before it; what this returns waits for its trial."""
        future: Future[Trial] = Future()
        self._queue.put((attempt, future))
        return future.result

    def close(self) -> None:
        """Wait for the attempt under way, and make no other; one that does not end in half a minute is left behind."""
        # Before the end mark, so that attempts that still wait in the queue are not made.
        self._closed = True
        self._queue.put(None)
        self._thread.join(Gate.GRACE_S)
        if self._thread.is_alive():
            warn("a trial has not ended %.0f s after its tune: its thread is left behind", Gate.GRACE_S)

    def _serve(self) -> None:
        while (entry := self._queue.get()) is not None and not self._closed:
            attempt, future = entry
            Threads.settle(future, attempt)


@dataclass(frozen=True)
class _UnderWay:
    ready: Ready
    begun_s: float
    trial: _Attempt  # waits for its trial, or makes it


@dataclass(kw_only=True)
class TuningLoop:
    """The loop of one search.

    `pool` compiles proposals ahead; None compiles nothing. `wait` waits for one of its futures, and `machine` is the
    device's. Configs in `quarantine` ended their process before and are not run. The run began at `start` by `clock`;
    None is now. `check` raises before a trial if the tune is to end. `derived` makes configs of the trials, which are
    tried when the searcher has no more.
    """

    space: ConfigSpace
    searcher: Searcher
    effort: Effort
    log: RunLog = field(default_factory=RunLog)
    listener: Listener = field(default_factory=Silent)
    pool: Compiles | None = None
    machine: Machine | None = None
    wait: Wait = wait_for_one
    quarantine: Quarantine = field(default_factory=lambda: Quarantine(None))
    start: float | None = None
    clock: Callable[[], float] = time.monotonic
    check: Callable[[], None] = lambda: None
    proof: TileProof = field(default_factory=TileProof)
    derived: Callable[[Collection[Trial]], Iterable[Config]] = lambda _trials: ()

    def __post_init__(self) -> None:
        self.default = self.space.default_config
        self.feed: DirectFeed = DirectFeed()
        if self.pool is not None:
            log = self.log.preview
            self.feed = CompiledFeed.over(self.pool, self.machine, self.effort, self.searcher, log, self.wait)
        self.budget = RunningBudget(self.effort.budget, self.clock, start=self.start, reserve_s=self.effort.final_s)
        self.doubts = Doubts(self.default)
        self.trials = Trials(self.default)
        self.stopped = "complete"
        self._proposed: dict[Config, TrialOrigin] = {}
        self._under_way: deque[_UnderWay] = deque()
        # Without a thread an attempt is made when its trial is asked for.
        self._begin_attempt: Callable[[_Attempt], _Attempt] = lambda attempt: attempt
        self._settled = False
        self._little_from: int | None = None  # trials from which on the searcher expects too little
        self._began = False  # whether this run has begun a trial of its own

    def prepare(
        self, incumbents: Sequence[Config], earlier: Iterable[Trial] = (), nearby: Sequence[Config] = ()
    ) -> None:
        """Take over earlier trials and add the first proposals, so that the feed begins to compile them.

        First comes the default, then the incumbents, which calls run now, then winners for problems nearby, then the
        searcher is asked. The trials of an interrupted run are not repeated.
        """
        for trial in earlier:
            self._keep(trial)
        # Configs with a trial count as proposed: neither the default nor an incumbent is tried twice.
        self._proposed.update(dict.fromkeys(self.trials, TrialOrigin.SEARCHER))
        if self.trials:
            self.searcher.tell(list(self.trials.values()))
        # The winner is compared with these configs, so they are run even if they spill.
        self._propose([self.default], TrialOrigin.DEFAULT, anyway=True)
        self._propose(incumbents, TrialOrigin.INCUMBENT, anyway=True)
        self._propose(nearby, TrialOrigin.NEARBY)
        self._fill()

    def run(self, station: TriesConfigs, *, overlaps: bool = False) -> None:
        """Search until nothing is left or the budget is spent; Ctrl-C ends the search and keeps all trials.

        With `overlaps` a thread begins with the next config before the search knows of the trial before; Ctrl-C waits
        for it.
        """
        with closing(_TrialThread()) if overlaps else nullcontext() as thread:
            if thread is not None:
                self._begin_attempt = thread.begin
            most = 1 if thread is None else 2  # one that is tried, and one to follow it
            try:
                if self.effort.compiled_first:
                    self._compile_first()
                while (progressing := len(self._under_way) < most and self._begin(station)) or self._under_way:
                    if not progressing:
                        self._finish(self._under_way.popleft(), station)
            except KeyboardInterrupt:
                self.stopped = "interrupted"

    def chance_within_1pct(self, *, modelled: bool, noise: float = 0.0) -> float | None:
        """The chance that nothing is faster than what was found by more than 1 %; None where it is unknown.

        `modelled` says whether the searcher has a model of the work, and `noise` is that of the last comparison.
        """
        if self.effort.search != "auto":
            return None
        trials, configs = list(self.trials.values()), self.space.size.valid
        return chance_within_1pct(trials, configs, modelled=modelled, noise=noise)

    def progress(self) -> RunProgress:
        """The progress of the search."""
        trials = self.trials
        return RunProgress(len(trials), trials.best, trials.default, self.budget.elapsed_s, trials.failed)

    def _compile_first(self) -> None:
        """Wait for what the searcher wants to see of the compiler, and for the proposals that it then makes."""
        self.feed.settle()
        self._fill()
        self.feed.settle()
        self.budget.begin()

    def _begin(self, station: TriesConfigs) -> bool:
        """Begin to try the next proposal, or end one that is not to be run; False if nothing can be begun now."""
        if self.stopped != "complete" or (ready := self._next()) is None:
            return False
        if ready.dropped is not None:
            self.budget.note(0.0)
            self._end(ready.dropped, self._origin(ready))
            return True
        self._began = True
        attempt = partial(self._attempt, ready, self.trials.best, station)
        self._under_way.append(_UnderWay(ready, self.budget.elapsed_s, self._begin_attempt(attempt)))
        return True

    def _next(self) -> Ready | None:
        """Fill the feed and take its next proposal; None if the search must end, or wait for what is under way."""
        reason = self.budget.spent(len(self.trials) + len(self._under_way))
        if reason == "seconds" and not self._began:
            reason = None  # one trial is made in any case: a tune that goes on with others comes to its end
        default_began = any(each.ready.config == self.default for each in self._under_way)
        if reason is not None and self.default not in self.trials and not default_began:
            return self._default_at_last(reason)
        self._fill(least=0 if reason is None else 1)
        if self._under_way and not (self.feed.held and self.feed.ready):
            return None  # whether what was deferred is run, and what is asked for next, depends on it
        if reason is not None and (self.feed.held or self._from_feed() is not None):
            self.stopped = reason
            return None
        ready = None if reason is not None else self._from_feed()
        if ready is None and reason is None:
            self._propose(self.derived(self.trials.values()), TrialOrigin.SEARCHER)
            ready = self._from_feed()
        if ready is None and self._settled:
            self.stopped = "settled"
        return ready

    def _from_feed(self) -> Ready | None:
        return self.feed.next(self.effort.thorough or self.trials.best is None, patient=not self._settled)

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
                count = len(self.trials) + len(self._under_way) + self.feed.held
                room = min(room, max(limit - count, 0 if self.feed.held else least))
            if room < 1 or self._settled:
                return
            gain = Search.expected_gain(self.searcher)
            if not (configs := new_configs(self.searcher, room, self._proposed)):
                return
            if self._little_is_left(gain):
                self._settled = True  # the proposals that are compiled are still tried
                return
            self._propose(configs, TrialOrigin.SEARCHER)

    def _little_is_left(self, gain: float) -> bool:
        """Whether the searcher has expected too little for as many trials as the effort asks for."""
        if gain >= self.effort.worthwhile:
            self._little_from = None
            return False
        self._little_from = self._little_from or len(self.trials)
        return len(self.trials) >= (1 + self.effort.persistence) * self._little_from

    def _propose(self, configs: Iterable[Config], origin: TrialOrigin, anyway: bool = False) -> None:
        new = [config for config in dict.fromkeys(configs) if config not in self._proposed]
        self._proposed.update(dict.fromkeys(new, origin))
        for config in new:
            if (refused := self._refused(config)) is None:
                self.feed.add([config], anyway)
            else:
                self._end(refused, origin)

    def _attempt(self, ready: Ready, best: Trial | None, station: TriesConfigs) -> Trial:
        """Try a proposal, and write its trial, with what its compilation has shown, before the next one begins."""
        self.check()
        trial = station.attempt(ready.config, best)
        if (compiled := ready.compiled) is not None:
            trial = replace(trial, compile_s=compiled.compile_s, resources=compiled.resources or trial.resources)
        self._write(trial, self._origin(ready))
        return trial

    def _finish(self, under_way: _UnderWay, station: TriesConfigs) -> None:
        trial, compiled = under_way.trial(), under_way.ready.compiled
        self.budget.note(self.budget.elapsed_s - under_way.begun_s, (compiled and compiled.compile_s) or 0.0)
        self._take(trial)
        if trial.measurement is not None:
            for config in self.trials.of_other_modes(trial.measurement.mode):
                self._repeat(config, station)
        if station.lost is not None:
            self.stopped = "device lost"

    def _origin(self, ready: Ready) -> TrialOrigin:
        origin = self._proposed.get(ready.config, TrialOrigin.SEARCHER)
        deferred = ready.compiled is not None and ready.compiled.deferred
        return TrialOrigin.DEFERRED if deferred and origin is TrialOrigin.SEARCHER else origin

    def _end(self, trial: Trial, origin: TrialOrigin) -> None:
        """Keep the trial of a config that is not run, which reaches the disk with the next one that was."""
        self._write(trial, origin, durable=False)
        self._take(trial)

    def _write(self, trial: Trial, origin: TrialOrigin, durable: bool = True) -> None:
        self.quarantine.add(trial)
        self.log.trial(trial, origin, durable)

    def _take(self, trial: Trial) -> None:
        self._keep(trial)
        self.searcher.tell([trial])
        self.listener.tried(trial, self.progress())

    def _refused(self, config: Config) -> Trial | None:
        if (reason := self.space.why_not(config) or self.proof.refusal(config)) is not None:
            return Trial(config, Status.CONSTRAINT, error=reason)
        return self.quarantine.held(config)

    def _keep(self, trial: Trial) -> None:
        self.trials.add(trial)
        self.doubts.tried(trial)
        self.proof.tried(trial)
        if self.proof.dispute:
            self.stopped = "disputed"
        self.budget.reserve_s = max(self.effort.final_s, rounds_s([each.median_ms for each in self.trials.pair]))

    def _repeat(self, config: Config, station: TriesConfigs) -> None:
        """Measure a config again whose times were taken in another mode, since those are never compared."""
        trial = self._begin_attempt(partial(station.attempt, config, None))()
        self.log.trial(trial, TrialOrigin.REPEATED)
        self._keep(trial)
        self.searcher.tell([trial])
