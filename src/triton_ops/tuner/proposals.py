"""The feed that compiles ahead: while one config is measured, the next ones are compiled by processes without a device.

Compiled proposals are given in the searcher's order, but a proposal that compiles slowly does not delay those after it.
A proposal that cannot be launched is given as dropped, with its numbers. One that can be launched but spills is
deferred.

A searcher that `UsesPreviews` names configs for these, and gets each result as soon as it is known. A config that is
proposed after its preview is not compiled again. Proposals come first: a preview begins only when no
proposal waits to be compiled, and previews take at most half of the processes.

A device tries some dozens of configs a second, and the compilers make as many of quick kernels, but a few of slow ones.
A problem is therefore ready once so many configs are compiled that the device is busy while the others are.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import ClassVar, Protocol, TypeAlias

from triton_ops.device import Machine
from triton_ops.exceptions import TargetError
from triton_ops.request import Effort
from triton_ops.search import Searcher, UsesPreviews
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.tuner.loop import GRACE_S, DirectFeed, Ready, new_configs
from triton_ops.values import Compiled, Key, Trial


class Compiles(Protocol):
    """Compiles `workers` configs side by side: the compile pool, and what stands for it where nothing is compiled."""

    workers: int

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, as `CompilePool.submit`."""


_PREVIEWS_AHEAD = 8  # previews per compiling process that wait or run: enough that no process is idle during a trial


class Previews:
    """Submits a searcher's previews to the compile pool, and tells the searcher the results. No method waits.

    `most` is the limit in one run. `machine` None leaves out the number of resident blocks. `told_count` counts
    proposals too.
    """

    def __init__(
        self, searcher: UsesPreviews, pool: Compiles, most: int, machine: Machine | None,
        log: Callable[[Compiled], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._searcher, self._pool, self._budget, self._machine = searcher, pool, most, machine
        self._ahead, self._log = _PREVIEWS_AHEAD * pool.workers, log
        self._waiting: dict[Config, Future[Compiled]] = {}
        self.told_count = 0
        self.has_begun = False

    @property
    def under_way(self) -> Collection[Future[Compiled]]:
        """The previews that are not compiled yet, or that the searcher was not told of."""
        return self._waiting.values()

    def update(self) -> None:
        """Tell the searcher of newly compiled previews, and submit those that it wants next."""
        self._tell([self._waiting.pop(config) for config in [c for c, f in self._waiting.items() if f.done()]])
        room = min(self._ahead - len(self._waiting), self._budget)
        if room > 0:
            configs = self._searcher.wanted_previews(room)
            self._budget -= len(configs)
            self.has_begun |= bool(configs)
            self._waiting.update((config, self._pool.submit(config, spare=True)) for config in configs)

    def tell(self, compiled: Compiled) -> None:
        """Tell the searcher the compiler's result for a proposal."""
        self._waiting.pop(compiled.config, None)
        self._take([compiled])

    def _tell(self, futures: list[Future[Compiled]]) -> None:
        if any(future.exception() is not None for future in futures):  # no process can load the kernel: the feed warns
            self._budget = 0
        results = [future.result() for future in futures if future.exception() is None]
        for one in results:
            self._log(one)
        self._take(results)

    def _take(self, results: list[Compiled]) -> None:
        self.told_count += len(results)
        if results:
            self._searcher.take_previews([one.with_residents(self._machine) for one in results])


_WORKERS = 8  # for which there are previews: 64, more than a tune of little effort tries
_LEAST = 8  # compiled configs, however quickly the others follow
_TRIED, _A_SECOND = 40, 30.0  # configs that a tune of little effort tries, and how many of them in a second on a GPU
_PROPOSALS = 32  # of a searcher without previews, which proposes most of a small space


class FirstConfigs:
    """A compile pool as the first configs of a problem are submitted to it, which are counted.

    `enough` is done once enough of all that was submitted is compiled, whatever became of it; `whole` once all of it
    is.
    """

    def __init__(self, pool: Compiles) -> None:
        self.workers = min(pool.workers, _WORKERS)
        self.enough: Future[None] = Future()
        self.whole: Future[None] = Future()
        self._pool = pool
        self._futures: dict[Config, Future[Compiled]] = {}
        self._guard = threading.Lock()
        self._due = [(self.enough, self._needed), (self.whole, lambda: math.inf)]
        self._submitted, self._ended, self._compile_s = False, 0, 0.0  # the seconds of those that have ended

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, as the pool does."""
        future = self._pool.submit(config, anyway=anyway, spare=spare)
        if config not in self._futures:
            self._futures[config] = future
            future.add_done_callback(self._count)
        return future

    def complete(self, searcher: Searcher) -> None:
        """Submit the first proposals of a searcher, and nothing more."""
        if len(self._futures) < _PROPOSALS:
            for config in new_configs(searcher, _PROPOSALS, self._futures):
                self.submit(config, spare=True)
        with self._guard:
            self._submitted = True
        self._tell()

    def _count(self, future: Future[Compiled]) -> None:
        compiled = not future.cancelled() and future.exception() is None
        with self._guard:
            self._ended += 1
            self._compile_s += (future.result().compile_s or 0.0) if compiled else 0.0
        self._tell()

    def _tell(self) -> None:
        with self._guard:
            most = len(self._futures) if self._submitted else math.inf
            reached = [future for future, least in self._due if self._ended >= min(least(), most)]
            self._due = [each for each in self._due if each[0] not in reached]
        for future in reached:
            future.set_result(None)

    def _needed(self) -> float:
        """The number of compiled configs that is enough: more, the less the compilers make in a second."""
        if not self._submitted:
            return math.inf
        mean_s = max(self._compile_s / max(self._ended, 1), 1e-3)
        return max(_LEAST, math.ceil(_TRIED * (1 - self._pool.workers / mean_s / _A_SECOND)))


_log = logging.getLogger("triton_ops")

_AHEAD = 1.5  # proposals per compiling process: no process is idle, and few proposals precede measurements
_LEAST_AHEAD = 8
_AHEAD_WITH_PREVIEWS = 8  # previews keep the compilers busy, and the searcher knows more when it proposes later
_PARTS = 2  # half of the places must be free before the searcher is asked: each question takes time


_LOOK_S = 0.2  # between two looks whether the tune is to end, while compilers are waited for
Wait: TypeAlias = "Callable[[Sequence[Future[Compiled]]], None]"


def wait_for_one(futures: Sequence[Future[Compiled]], check: Callable[[], None] = lambda: None) -> None:
    """Wait until one of some futures is done; `check` raises meanwhile if the tune is to end."""
    while not wait(futures, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done:
        check()


class CompiledFeed(DirectFeed):
    """A feed whose proposals are compiled when they are given; few wait once there are previews."""

    def __init__(self, pool: Compiles, ahead: int, previews: Previews | None = None, wait: Wait = wait_for_one) -> None:
        self.waited_s = 0.0
        self._wait = wait
        self._pool, self._ahead, self._previews = pool, ahead, previews
        self._waiting: deque[tuple[Config, Future[Compiled]]] = deque()
        self._to_run: set[Config] = set()  # configs that are not deferred, whatever their kind
        self._deferred: list[Compiled] = []
        self._last: deque[Ready] = deque()  # deferred proposals that are given now
        self._warned = False

    @classmethod
    def over(
        cls, pool: Compiles, machine: Machine | None, effort: Effort, searcher: Searcher,
        log: Callable[[Compiled], None] = lambda _: None, wait: Wait = wait_for_one,
    ) -> CompiledFeed:  # fmt: skip
        """The feed of a search over a pool; `log` takes every preview."""
        previews = None
        if isinstance(searcher, UsesPreviews) and effort.previews > 0 and pool.workers > 1:
            most = effort.previews
            if effort.compiled_first:  # all of them are waited for
                most = min(most, pool.workers)
            previews = Previews(searcher, pool, most, machine, log)
            previews.update()
        return cls(pool, max(_LEAST_AHEAD, int(_AHEAD * pool.workers)), previews, wait)

    @property
    def held(self) -> int:
        """The number of proposals that wait, without deferred ones."""
        return len(self._waiting) + len(self._last)

    @property
    def ready(self) -> bool:
        """True if a proposal is compiled, or none is left to wait for."""
        return not self._waiting or any(future.done() for _, future in self._waiting)

    def room(self) -> int:
        """The number of proposals that the compilers could begin soon; 0 for a few, since each question takes time.

        Where no proposal is ready to be tried, that time is free. It is also 0 until the searcher was told of its first
        preview, since the searcher then knows more.
        """
        if self._previews is not None:
            self._previews.update()
            if self._previews.under_way and not self._previews.told_count:
                return 0
        # Small spaces are tried whole, without previews.
        previewing = self._previews is not None and self._previews.has_begun
        idle = not self._last and not any(future.done() for _, future in self._waiting)
        most = _AHEAD_WITH_PREVIEWS if not idle else max(_AHEAD_WITH_PREVIEWS, self._pool.workers)
        ahead = min(self._ahead, most) if previewing else self._ahead
        free = ahead - len(self._waiting)
        return max(free, 0) if free >= ahead // _PARTS or idle else 0

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:
        """Have proposals compiled, after those that were added earlier."""
        for config in configs:
            if anyway:
                self._to_run.add(config)
            self._waiting.append((config, self._pool.submit(config, anyway=anyway)))

    def settle(self) -> None:
        """Wait until all proposals, and all previews that are under way, are compiled."""
        previews = () if self._previews is None else self._previews.under_way
        futures = [*(future for _, future in self._waiting), *previews]
        while pending := [future for future in futures if not future.done()]:
            self._wait(pending)

    def next(self, run_deferred: bool, patient: bool = True) -> Ready | None:
        """The first proposal that is compiled; when none is left, the deferred ones, or else these as dropped.

        Without `patient`, proposals that are not ready are forgotten, except those that are run anyway.
        """
        if not patient:
            self._waiting = deque(one for one in self._waiting if one[1].done() or one[0] in self._to_run)
        while self._waiting or self._last or self._deferred:
            if self._waiting:
                if (ready := self._ready_of(*self._first_done())) is not None:
                    return ready
            elif self._last:
                return self._last.popleft()
            elif run_deferred:
                self._run_deferred()
            else:
                self._last.extend(_dropped(each, f"others worked: {each.reason}") for each in self._deferred)
                self._deferred = []
        return None

    def _first_done(self) -> tuple[Config, Future[Compiled]]:
        start = time.monotonic()
        self._wait([future for _, future in self._waiting])
        self.waited_s += time.monotonic() - start
        place = next(place for place, (_, future) in enumerate(self._waiting) if future.done())
        entry = self._waiting[place]
        del self._waiting[place]
        return entry

    def _ready_of(self, config: Config, future: Future[Compiled]) -> Ready | None:
        try:
            compiled = future.result()
        except TargetError as error:
            if not self._warned:
                _log.warning("nothing is compiled ahead: %s", error.message)
            self._warned = True
            return Ready(config)
        if self._previews is not None:
            self._previews.tell(compiled)
        if compiled.deferred and config not in self._to_run:
            self._deferred.append(compiled)
            return None
        return Ready(config, compiled) if compiled.launchable else _dropped(compiled, compiled.reason)

    def _run_deferred(self) -> None:
        for compiled in self._deferred:
            if compiled.resources is None:  # a rule deferred the config before it was compiled
                self.add([compiled.config], anyway=True)
            else:
                self._last.append(Ready(compiled.config, compiled))
        self._deferred = []


def _dropped(compiled: Compiled, reason: str) -> Ready:
    trial = Trial(
        compiled.config, compiled.status, error=reason, resources=compiled.resources, compile_s=compiled.compile_s,
        trace=compiled.trace,
    )  # fmt: skip
    return Ready(compiled.config, compiled, dropped=trial)


class Gate:
    """The gate of one tune: closed while it is prepared, open when the device is its own, or locked for good.

    `ready` is called when enough of the tune is prepared, and when all is, which its argument tells; in any thread.
    A tune that is to end hears of it by a `KeyboardInterrupt` of each method that it calls.

    A tune of one problem has no gate. Where many problems are tuned, the next one is compiled while one is measured,
    and waits at its gate; and a tune in a thread of its own, which Ctrl-C does not reach, is ended at its gate.

    The device became the tune's at `since_s`, by `time.monotonic()`, None before: what was prepared by then, beside
    another tune, its budget does not count. `limit_s` is a further limit for the tune. With `overlaps` a trial may
    begin in another process before the search and the listener know of the one before, which is on disk; Ctrl-C then
    waits for the trial.
    """

    GRACE_S: ClassVar[float] = GRACE_S

    def __init__(self, ready: Callable[[bool], None] = lambda _: None) -> None:
        self._changed, self._ready = threading.Condition(), ready
        self.since_s: float | None = None
        self.limit_s: float | None = None
        self._ended, self.overlaps = False, True

    def wait(self, prepared: FirstConfigs | None = None) -> None:
        """Wait until the tune is let in, which may be before enough is prepared; None says that all is."""
        if prepared is None:
            self._ready(True)
        else:
            prepared.enough.add_done_callback(lambda _: self._ready(False))
            prepared.whole.add_done_callback(lambda _: self._ready(True))
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self.since_s is not None)
            self.check()

    def hold(self, seconds: float) -> None:
        """Wait for so many seconds, or until the tune is let in or is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self.since_s is not None, timeout=seconds)

    def check(self) -> None:
        """Do nothing, as long as the tune may go on."""
        if self._ended:
            raise KeyboardInterrupt

    def nothing_yet(self) -> bool:
        """Answer that nothing could be measured yet, unless the tune is to end."""
        self.check()
        return False

    def let_in(self, limit_s: float | None) -> None:
        """Let the tune have the device, for at most so many seconds."""
        with self._changed:
            self.since_s, self.limit_s = time.monotonic(), limit_s
            self._changed.notify_all()

    def end(self) -> None:
        """Have the tune end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


_LIMITED, _MOST_LIMITED = 2, 8  # fastest configs whose limits are tried at a time, and limits in a tune


def limited_registers(space: ConfigSpace, machine: Machine | None, trials: Collection[Trial]) -> list[Config]:
    """The fastest configs of trials with other limits of registers; none of a space that leaves no limit open.

    ptxas settles by itself for few registers where more loads could be under way, and for many where one block more
    would fit. Limits are tried last, since only what was compiled says which of them have a use.
    """
    if machine is None or not isinstance(space, UnlistedSpace) or not space.limits_registers:
        return []
    room = _MOST_LIMITED - sum("maxnreg" in trial.config for trial in trials)
    known = [trial for trial in trials if trial.ok and trial.resources and trial.resources.registers]
    fastest = sorted(known, key=lambda trial: (trial.rank, trial.config.text))[:_LIMITED]
    return [config for trial in fastest for config in _beside(trial, machine)][: max(room, 0)]


def _beside(trial: Trial, machine: Machine) -> Iterator[Config]:
    """The config of a trial with the limits of registers beside those that it has."""
    warps, resources = trial.config.get("num_warps", 4), trial.resources
    if resources is not None and resources.registers is not None and isinstance(warps, int):
        for limit in machine.limits.register_limits(resources.registers, resources.shared_bytes or 0, warps):
            yield Config({**trial.config, "maxnreg": limit})


_tuning: set[tuple[int, str]] = set()  # threads, with the ids of what they tune; contexts may outlive a tune


@contextmanager
def not_within_itself(key: Key) -> Iterator[None]:
    """The time of a tune; TargetError if one of the same key has called it, which would wait for itself."""
    place = threading.get_ident(), key.id
    if place in _tuning:
        name = f"the tune of {key.kernel} {key.label}".rstrip()
        hint = "let these call what is not tuned, such as the `fn` of a decorated kernel"
        raise TargetError(f"{name} has called itself, by the function or its reference", hint=hint)
    _tuning.add(place)
    try:
        yield
    finally:
        _tuning.discard(place)
