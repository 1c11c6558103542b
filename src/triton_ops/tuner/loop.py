"""The loop of a search: ask the searcher, try what the feed has ready, tell the searcher, until one of them ends.

A fault makes results wrong by much more than rounding at most tiles. Errors of a few times what rounding costs, in the
default config or in many, rather mean that the reference computes more precisely than the kernel is meant to. That is
said while the tune goes on, since a search over the few configs that are left finds a poor winner.
"""

from __future__ import annotations

import logging
import math
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
from typing import Any, Protocol, TypeAlias

from triton_ops.evaluation import StationFacts
from triton_ops.exceptions import SettingsError, SpaceError
from triton_ops.processes import Threads
from triton_ops.records import Quarantine, RunLog, TrialOrigin
from triton_ops.request import Effort
from triton_ops.search import Search, Searcher
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.tuner.budget import RunningBudget
from triton_ops.tuner.progress import Listener, RunProgress
from triton_ops.values import Compiled, Status, Trial

_log = logging.getLogger("triton_ops")

_SHARE = 0.25  # of the configs that ran
_FEWEST_RAN = 4  # configs that ran, before a share of them means anything


class Doubts:
    """Follows the trials of a tune, and warns once of each doubt."""

    def __init__(self, default: Config) -> None:
        self._default = default
        self._ran: set[Config] = set()
        self._little: dict[Config, Trial] = {}
        self._warned: set[Callable[[], str]] = set()

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        if not trial.status.facts.compared:
            return
        self._ran.add(trial.config)
        self._little.pop(trial.config, None)
        if trial.excess is not None and trial.excess <= Trial.LITTLE:
            self._little[trial.config] = trial
        for doubt in (self._of_default, self._of_many):
            if doubt not in self._warned and (note := doubt()):
                self._warned.add(doubt)
                _log.warning("%s", note)

    @property
    def notes(self) -> tuple[str, ...]:
        """The doubts as they stand, for the result."""
        return tuple(filter(None, (self._of_default(), self._of_many())))

    def _of_default(self) -> str:
        if (trial := self._little.get(self._default)) is None:
            return ""
        return f"the default config is wrong by little, {_numbers(trial)}; {_advice(trial.excess)}"

    def _of_many(self) -> str:
        if len(self._ran) < _FEWEST_RAN or len(self._little) <= _SHARE * len(self._ran):
            return ""
        worst = max(self._little.values(), key=lambda trial: trial.excess or 0.0)
        return (
            f"{len(self._little)} of {len(self._ran)} configs are wrong by little, at most ({worst.config}) "
            f"{_numbers(worst)}; {_advice(worst.excess)}"
        )


def _numbers(trial: Trial) -> str:
    return f"by {trial.excess:.2g} times what is allowed: {trial.error}"


def _advice(excess: float | None) -> str:
    times = math.ceil((excess or 1.0) * 1.2)
    return (
        f"if such an error is right for this kernel, say so with tolerance=Tolerance(times={times}) or a check; "
        "else the kernel or its reference has a fault"
    )


class TileProof:
    """Follows the trials of a tune over a space; where somebody has listed its values there is nothing to show.

    Nobody has listed the values of a space whose tiles were read from a kernel. Configs that differ from the default in
    one tile, by one step, are tried first. Where all of them that ran are wrong, and no other value of the tile was
    right, the tile is part of the result, and stays as the default has it. That holds as far as somebody stands behind
    the default: its author, or a reference. A default that was made up may be the one that is wrong; then nobody can
    tell which value is right.

    `first` are the configs to be tried first. `judged` says that a reference decides which results are right, `notes`
    tell what is part of the result, and `dispute` says why a made-up default cannot be gone on with.
    """

    def __init__(self, space: ConfigSpace | None = None, *, judged: bool = False) -> None:
        self._default, self._made_up, self._probes = Config(), False, dict[str, list[Config]]()
        self.first: tuple[Config, ...] = ()
        if isinstance(space, UnlistedSpace):
            self._default, self._made_up = space.default_config, space.made_up and not judged
            near = list(space.neighbours(self._default, steps_only=True))
            self._probes = {name: [one for one in near if one[name] != self._default[name]] for name in space.tiles}
            self.first = (*space.seeds, *(one for probes in self._probes.values() for one in probes))
        self._trials: dict[Config, Trial] = {}
        self.notes: dict[str, str] = {}  # by the tile
        self.dispute = ""

    def tried(self, trial: Trial) -> None:
        """A trial has finished."""
        self._trials[trial.config] = trial
        default = self._trials.get(self._default)
        if default is not None and default.status is Status.WRONG and self._made_up:
            self.dispute = f"the config ({self._default}), which was made up, is wrong by itself: {default.error}"
        for name, probes in self._probes.items() if default is not None and default.ok else ():
            right = any(each.ok and each.config[name] != self._default[name] for each in self._trials.values())
            trials = [self._trials[config] for config in probes if config in self._trials]
            wrong = [each for each in trials if each.status is Status.WRONG and not _rounded(each)]
            if wrong and len(trials) == len(probes) and not right and name not in self.notes:
                self._conclude(name, wrong)

    def refusal(self, config: Config) -> str | None:
        """The reason why a config is not tried: a tile that is part of the result differs; None if it may be."""
        return next((why for name, why in self.notes.items() if config[name] != self._default[name]), None)

    def end(self) -> None:
        """Raise SpaceError where nothing agrees with a default that was made up."""
        agree = [trial.config for trial in self._trials.values() if trial.ok or _rounded(trial)]
        tiles = {tuple(config[name] for name in self._probes) for config in agree}
        if self._made_up and self.first and len(tiles) < 2 and not self.dispute:
            names = ", ".join(self._probes)
            self.dispute = f"the config ({self._default}) was made up, and none of another {names} agrees with it"
        if self.dispute:
            hint = "give the constant in the call, or a default in the kernel's signature, or a reference"
            raise SpaceError(self.dispute, hint=f"{hint}, or more seconds")

    def _conclude(self, name: str, wrong: list[Trial]) -> None:
        others = " and ".join(repr(each.config[name]) for each in wrong)
        reason = f"{name} is part of the result: with {others} in place of {self._default[name]!r} it is another one"
        reason = f"{reason}, {wrong[0].error}"
        if self._made_up:
            self.dispute = reason
        else:
            self.notes[name] = reason
            _log.warning("%s", reason)


def _rounded(trial: Trial) -> bool:
    """Tell whether a result is off by little: sums in another order are no other result."""
    return trial.excess is not None and trial.excess <= Trial.LITTLE


_ROUNDS, _FAR_ROUNDS = 12.0, 6.0  # eight rounds, or four of one that takes more than twice the best's time, and checks


def rounds_s(times_ms: Sequence[float]) -> float:
    """Seconds that the search leaves for rounds of the default and the best, whose times these are."""
    return sum(ms * (_FAR_ROUNDS if ms > 2.0 * min(times_ms) else _ROUNDS) for ms in times_ms) / 1e3


GRACE_S = 30.0
"""Seconds that a step which has begun may take after its tune is to end; a launch that hangs takes 20 s until then."""
_BATCH = 8  # proposals asked for at a time


@dataclass(frozen=True)
class Ready:
    """A proposal whose turn has come; `dropped` is its finished trial if it is not to be run."""

    config: Config
    compiled: Compiled | None = None
    dropped: Trial | None = None


class DirectFeed:
    """Holds proposals until they are tried, and gives each one once, to be run or as dropped.

    This one compiles nothing: every proposal is ready at once, in order. The loop asks for its room before it asks the
    searcher, so that a searcher is told of compiled previews first.
    """

    waited_s = 0.0

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()

    @property
    def held(self) -> int:
        """The number of proposals that wait; none is ever deferred."""
        return len(self._waiting)

    @property
    def ready(self) -> bool:
        """True if no proposal has to be waited for."""
        return True

    def room(self) -> int:
        """A whole batch once no proposal waits, else 0."""
        return 0 if self._waiting else _BATCH

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:  # noqa: ARG002 - nothing is deferred
        """Take proposals; all of them are run."""
        self._waiting.extend(configs)

    def settle(self) -> None:
        """Wait until all that is compiled ahead is compiled; here nothing is."""

    def next(self, run_deferred: bool, patient: bool = True) -> Ready | None:  # noqa: ARG002 - all are ready
        """The proposal that has waited longest."""
        return Ready(self._waiting.popleft()) if self._waiting else None


_REPEATED_ANSWERS = 100  # after so many answers in a row without a new config, the searcher counts as exhausted


def new_configs(searcher: Searcher, count: int, proposed: Collection[Config]) -> list[Config]:
    """Up to `count` configs from `searcher` that are not in `proposed`; an empty list when no new config comes.

    A searcher that repeats configs is asked again: it may continue an interrupted run without a memory of the trials.
    Raises SettingsError if it proposes an object that is no config.
    """
    for _ in range(_REPEATED_ANSWERS):
        answer: Sequence[Any] = searcher.ask(count)  # the searcher may be a user's, so its answer is checked
        if wrong := [config for config in answer if not isinstance(config, Config)]:
            message = f"{type(searcher).__qualname__}.ask returned {wrong[0]!r}, which is no Config"
            hint = "return configs of the space, or make one with triton_ops.Config(BLOCK=128)"
            raise SettingsError(message, hint=hint)
        if fresh := [config for config in dict.fromkeys(answer) if config not in proposed]:
            return fresh
        if not answer:
            break
    return []


_Attempt: TypeAlias = Callable[[], Trial]


class TriesConfigs(Protocol):
    """The part of a station that a search needs."""

    @property
    def facts(self) -> StationFacts:
        """The facts so far."""

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config`; its screening ends early if it is much slower than `best`, the best trial so far."""


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
        self._closed = True
        self._queue.put(None)
        self._thread.join(GRACE_S)
        if self._thread.is_alive():
            _log.warning("a trial does not end: it is left behind")

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

    Configs in `quarantine` ended their process before and are not run. The run began at `start` by `clock`; None is
    now. `check` raises before a trial if the tune is to end. `derived` makes configs of the trials, which are tried
    when the searcher has no more.
    """

    space: ConfigSpace
    searcher: Searcher
    effort: Effort
    log: RunLog
    listener: Listener
    feed: DirectFeed = field(default_factory=DirectFeed)
    quarantine: Quarantine = field(default_factory=lambda: Quarantine(None))
    start: float | None = None
    clock: Callable[[], float] = time.monotonic
    check: Callable[[], None] = lambda: None
    proof: TileProof = field(default_factory=TileProof)
    derived: Callable[[Collection[Trial]], Iterable[Config]] = lambda _trials: ()
    trials: dict[Config, Trial] = field(default_factory=dict)
    stopped: str = "complete"
    best: Trial | None = None  # by its screening, so far
    _proposed: dict[Config, TrialOrigin] = field(default_factory=dict)
    _under_way: deque[_UnderWay] = field(default_factory=deque)
    _begin_attempt: Callable[[_Attempt], _Attempt] = lambda attempt: attempt  # made when its trial is asked for
    _settled: bool = False
    _began: bool = False  # whether this run has begun a trial of its own
    _failed: int = 0  # trials; counted as they end, since a listener is told after each of thousands
    _modes: set[str] = field(default_factory=set)  # of measurements so far

    def __post_init__(self) -> None:
        self.default = self.space.default_config
        self.budget = RunningBudget(self.effort.budget, self.clock, start=self.start, reserve_s=self.effort.final_s)
        self.doubts = Doubts(self.default)

    def prepare(
        self, incumbents: Sequence[Config], earlier: Iterable[Trial] = (), nearby: Sequence[Config] = ()
    ) -> None:
        """Take over earlier trials and add the first proposals, so that the feed begins to compile them.

        First comes the default, then the incumbents, which calls run now, then winners for problems nearby, then the
        searcher is asked. The trials of an interrupted run are not repeated.
        """
        for trial in earlier:
            self._count(trial)
        self.best = self._fastest()
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

    def progress(self) -> RunProgress:
        """The progress of the search."""
        default = self.trials.get(self.default)
        measured = default if default is not None and default.ok else None
        return RunProgress(len(self.trials), self.best, measured, self.budget.elapsed_s, self._failed)

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
        attempt = partial(self._attempt, ready, self.best, station)
        self._under_way.append(_UnderWay(ready, self.budget.elapsed_s, self._begin_attempt(attempt)))
        return True

    def _next(self) -> Ready | None:
        """Fill the feed and take its next proposal; None if the search must end, or wait for what is under way."""
        count = len(self.trials) + len(self._under_way)
        reason = self.budget.spent(count)
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
        return self.feed.next(self.effort.thorough or self.best is None, patient=not self._settled)

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
            if gain < self.effort.worthwhile:
                self._settled = True  # the proposals that are compiled are still tried
                return
            self._propose(configs, TrialOrigin.SEARCHER)

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
            self._repeat_others(trial.measurement.mode, station)
        if station.facts.lost is not None:
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
        again = trial.config in self.trials
        self._count(trial)
        if again:  # a repeated measurement may have changed the best trial
            self.best = self._fastest()
        elif trial.ok and (self.best is None or trial.rank < self.best.rank):
            self.best = trial
        pair = {each.config: each.median_ms for each in (self.best, self.trials.get(self.default)) if each and each.ok}
        self.budget.reserve_s = max(self.effort.final_s, rounds_s(list(pair.values())))

    def _count(self, trial: Trial) -> None:
        before = self.trials.get(trial.config)
        self._failed += trial.failed - (before is not None and before.failed)
        self.trials[trial.config] = trial
        self.doubts.tried(trial)
        self.proof.tried(trial)
        if self.proof.dispute:
            self.stopped = "disputed"
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
            trial = self._begin_attempt(partial(station.attempt, config, None))()
            self.log.trial(trial, TrialOrigin.REPEATED)
            self._keep(trial)
            self.searcher.tell([trial])
        self._modes = {t.measurement.mode for t in self.trials.values() if t.measurement is not None}
