"""The feed that compiles ahead: while one config is measured, the next ones are compiled by processes without a GPU.

Compiled proposals are given in the searcher's order, but a proposal that compiles slowly does not delay those after it.
A proposal that cannot be launched is given as dropped, with its numbers. One that can be launched but spills is
deferred.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import TypeAlias

from triton_ops.compile_pool.compiles import Compiles
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.compile_pool.shared_cpus import SharedCpus
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.feed.base import DirectFeed, Feed, Ready
from triton_ops.feed.previews import Previews
from triton_ops.hardware import Machine
from triton_ops.search import Searcher, UsesPreviews
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.task.task import Task
from triton_ops.trial import Compiled, Trial

_log = logging.getLogger("triton_ops")

_AHEAD = 1.5  # proposals per compiling process: no process is idle, and few proposals precede measurements
_LEAST_AHEAD = 8
_AHEAD_WITH_PREVIEWS = 8  # previews keep the compilers busy, and the searcher knows more when it proposes later
_PARTS = 2  # half of the places must be free before the searcher is asked: each question takes time


Wait: TypeAlias = "Callable[[Sequence[Future[Compiled]]], None]"


def until_one_is_done(futures: Sequence[Future[Compiled]]) -> None:
    """Wait until one of some futures is done."""
    wait(futures, return_when=FIRST_COMPLETED)


class CompiledFeed:
    """A feed whose proposals are compiled when they are given.

    Args:
        pool: The processes that compile.
        ahead: The number of proposals to hold, 8 at most once there are previews.
        previews: The searcher's previews; None if it uses none.
        wait: Waits until one of some futures is done.
    """

    def __init__(
        self, pool: Compiles, ahead: int, previews: Previews | None = None, wait: Wait = until_one_is_done
    ) -> None:
        self.waited_s = 0.0
        self._wait = wait
        self._pool, self._ahead, self._previews = pool, ahead, previews
        self._waiting: deque[tuple[Config, Future[Compiled]]] = deque()
        self._to_run: set[Config] = set()  # configs that are not deferred, whatever their kind
        self._deferred: list[Compiled] = []
        self._last: deque[Ready] = deque()  # deferred proposals that are given now
        self._warned = False

    @property
    def held(self) -> int:
        """The number of proposals that wait, without deferred ones."""
        return len(self._waiting) + len(self._last)

    @property
    def ready(self) -> bool:
        """Whether a proposal is compiled, or none is left to wait for."""
        return not self._waiting or any(future.done() for _, future in self._waiting)

    def room(self) -> int:
        """The number of proposals that the compilers could begin soon; 0 for a few, since each question takes time.

        Where no proposal is ready to be tried, that time is free.
        It is also 0 until the searcher was told of its first preview, since the searcher then knows more.
        """
        if self._previews is not None:
            self._previews.update()
            if self._previews.under_way and not self._previews.told:
                return 0
        begun = self._previews is not None and self._previews.begun  # small spaces are tried whole, without previews
        ahead = min(self._ahead, _AHEAD_WITH_PREVIEWS) if begun else self._ahead
        free = ahead - len(self._waiting)
        idle = not self._last and not any(future.done() for _, future in self._waiting)
        return max(free, 0) if free >= ahead // _PARTS or idle else 0

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:
        """Have proposals compiled, after those that were added earlier."""
        for config in configs:
            if anyway:
                self._to_run.add(config)
            self._waiting.append((config, self._pool.submit(config, anyway=anyway)))

    def next(self, run_deferred: bool, patient: bool = True) -> Ready | None:
        """The first proposal that is compiled; when none is left, the deferred proposals in the order of proposal."""
        if not patient:
            self._forget()
        while self._waiting or self._last or self._deferred:
            if self._waiting:
                ready = self._taken(*self._first_done())
                if ready is not None:
                    return ready
            elif self._last:
                return self._last.popleft()
            elif run_deferred:
                self._run_deferred()
            else:
                self._last.extend(_dropped(found, f"others worked: {found.reason}") for found in self._deferred)
                self._deferred = []
        return None

    def _forget(self) -> None:
        """Forget the proposals that are not compiled, except those that are run anyway."""
        self._waiting = deque(one for one in self._waiting if one[1].done() or one[0] in self._to_run)

    def _first_done(self) -> tuple[Config, Future[Compiled]]:
        start = time.monotonic()
        self._wait([future for _, future in self._waiting])
        self.waited_s += time.monotonic() - start
        place = next(place for place, (_, future) in enumerate(self._waiting) if future.done())
        found = self._waiting[place]
        del self._waiting[place]
        return found

    def _taken(self, config: Config, future: Future[Compiled]) -> Ready | None:
        """A compiled proposal as the feed gives it; None if it is deferred."""
        try:
            found = future.result()
        except TargetError as error:
            if not self._warned:
                _log.warning("nothing is compiled ahead: %s", error.message)
            self._warned = True
            return Ready(config)
        if self._previews is not None:
            self._previews.tell(found)
        if found.deferred and config not in self._to_run:
            self._deferred.append(found)
            return None
        return Ready(config, found) if found.launchable else _dropped(found, found.reason)

    def _run_deferred(self) -> None:
        for found in self._deferred:
            if found.resources is None:  # a rule deferred the config before it was compiled
                self.add([found.config], anyway=True)
            else:
                self._last.append(Ready(found.config, found))
        self._deferred = []


def _dropped(found: Compiled, reason: str) -> Ready:
    """A proposal that is not run, with its finished trial."""
    trial = Trial(
        found.config, found.status, error=reason, resources=found.resources, compile_s=found.compile_s,
        trace=found.trace,
    )  # fmt: skip
    return Ready(found.config, found, dropped=trial)


@contextmanager
def open_pool(
    task: Task, effort: Effort, *, reuse: bool = False, shared_cpus: SharedCpus | None = None
) -> Iterator[CompilePool | None]:
    """The compile pool for a task; None for a kernel that is not compiled ahead, or where there is no GPU.

    When the block ends, the compiling processes have ended. With `reuse` the process that starts them may be that of
    other tunes, and is left to the next. `shared_cpus` are those that the pool shares with the pools of other tunes.
    """
    pool = _pool_for(task, effort, reuse, shared_cpus)
    if pool is None:
        yield None
        return
    with pool:
        yield pool


def feed_over(
    pool: Compiles | None,
    machine: Machine | None,
    effort: Effort,
    searcher: Searcher,
    log: Callable[[Compiled], None] = lambda _: None,
    wait: Wait = until_one_is_done,
) -> Feed:
    """The feed for a search: `CompiledFeed` over a pool, else `DirectFeed`.

    Args:
        pool: What compiles; None if nothing is compiled ahead.
        machine: The device's limits; None where they are not known.
        effort: How many previews there may be.
        searcher: Proposes configs.
        log: Takes every preview.
        wait: Waits until one of some futures is done.
    """
    if pool is None:
        return DirectFeed()
    previews = None
    if isinstance(searcher, UsesPreviews) and effort.previews > 0 and pool.workers > 1:
        previews = Previews(searcher, pool, effort.previews, machine, log)
        previews.update()
    return CompiledFeed(pool, max(_LEAST_AHEAD, int(_AHEAD * pool.workers)), previews, wait)


def _pool_for(task: Task, effort: Effort, reuse: bool, shared_cpus: SharedCpus | None) -> CompilePool | None:
    """The compile pool for a task; None if there can be none, with a warning if its start failed."""
    try:
        ahead = task.ahead_of_time()
        if ahead is None:
            return None
        return CompilePool(
            ahead, timeout_s=effort.patience.compile_s, launches=True, reuse=reuse, shared_cpus=shared_cpus
        )
    except (TargetError, KernelTypeError) as error:
        _log.warning("nothing is compiled ahead: %s", error.message)
        return None
