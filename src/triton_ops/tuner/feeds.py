"""Proposals of a searcher, and feeds that hold them until they are tried, and mostly have them compiled meanwhile.

Compiled proposals are given in the searcher's order, but a proposal that compiles slowly does not delay those after it.
A proposal that cannot be launched is given as dropped, with its numbers. One that can be launched but spills is
deferred.

A searcher that `UsesPreviews` names configs for these, and gets each result as soon as it is known. A config that is
proposed after its preview is not compiled again. Proposals come first: a preview begins only when no
proposal waits to be compiled, and previews take at most half of the processes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from triton_ops.base import warn
from triton_ops.device import Machine
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.request import Effort
from triton_ops.search import Searcher, UsesPreviews
from triton_ops.space import Config
from triton_ops.values import Compiled, Trial

_BATCH = 8  # proposals asked for at a time, where nothing is compiled


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
            # Those of an effort that compiles first are all waited for.
            most = min(effort.previews, pool.workers) if effort.compiled_first else effort.previews
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
                warn("nothing is compiled ahead: %s", error.message)
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
