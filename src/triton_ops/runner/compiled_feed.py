"""The feed that compiles ahead: while one config is measured, the next ones are compiled by processes without a GPU.

Proposals that are compiled come out in the searcher's order; one that compiles slowly does not hold up those after it.
What cannot be launched comes out as dropped, with its numbers. What can be launched but spills is deferred.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager

from triton_ops.backend import Arguments, CompilesAhead
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.hardware import machine_of, target_of
from triton_ops.runner.feed import DirectFeed, Feed, Ready
from triton_ops.runner.previews import Previews
from triton_ops.search import Searcher, UsesPreviews
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.task.task import CopiedArguments, Task
from triton_ops.trial import Compiled, Trial

_log = logging.getLogger("triton_ops")

_AHEAD = 1.5  # proposals per compiling process: none is idle, and few are asked for before others are measured
_LEAST_AHEAD = 8
_AHEAD_WITH_PREVIEWS = 8  # previews keep the compilers busy: what is proposed late is proposed with more knowledge
_PARTS = 2  # of what is held that are asked for at a time: what is learned meanwhile is used, and not asked one by one


class CompiledFeed:
    """Proposals that come out compiled.

    Args:
        pool: Compiles them.
        ahead: How many proposals to hold.
        previews: Of the searcher; None if it uses none.
    """

    def __init__(self, pool: CompilePool, ahead: int, previews: Previews | None = None) -> None:
        self.waited_s = 0.0
        self._pool, self._ahead, self._previews = pool, ahead, previews
        self._waiting: deque[tuple[Config, Future[Compiled]]] = deque()
        self._to_run: set[Config] = set()  # even if they are of a kind that is deferred
        self._deferred: list[Compiled] = []
        self._last: deque[Ready] = deque()  # deferred proposals that come out now
        self._warned = False

    @property
    def held(self) -> int:
        """How many proposals wait; deferred ones are not counted."""
        return len(self._waiting) + len(self._last)

    def room(self) -> int:
        """As many as the compilers could begin soon; none as long as these are few, since a question has its price.

        None either before the searcher was told of its first preview: what it proposes then, it proposes knowing more.
        """
        if self._previews is not None:
            self._previews.update()
            if self._previews.under_way and not self._previews.told:
                return 0
        free = self._ahead - len(self._waiting)
        return free if free >= self._ahead // _PARTS else 0

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:
        """Have them compiled, after those before them."""
        for config in configs:
            if anyway:
                self._to_run.add(config)
            self._waiting.append((config, self._pool.submit(config, anyway=anyway)))

    def next(self, run_deferred: bool) -> Ready | None:
        """The first that is compiled; once there is none, what was deferred, in the order proposed."""
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

    def _first_done(self) -> tuple[Config, Future[Compiled]]:
        start = time.monotonic()
        wait([future for _, future in self._waiting], return_when=FIRST_COMPLETED)
        self.waited_s += time.monotonic() - start
        place = next(place for place, (_, future) in enumerate(self._waiting) if future.done())
        found = self._waiting[place]
        del self._waiting[place]
        return found

    def _taken(self, config: Config, future: Future[Compiled]) -> Ready | None:
        """A proposal that is compiled; None if it is deferred."""
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
            if found.resources is None:  # a rule has deferred it before it was compiled
                self.add([found.config], anyway=True)
            else:
                self._last.append(Ready(found.config, found))
        self._deferred = []


def _dropped(found: Compiled, reason: str) -> Ready:
    """A proposal that is not run."""
    trial = Trial(found.config, found.status, error=reason, resources=found.resources, compile_s=found.compile_s)
    return Ready(found.config, found, dropped=trial)


@contextmanager
def open_feed(
    task: Task, effort: Effort, searcher: Searcher, log: Callable[[Compiled], None] = lambda _: None
) -> Iterator[Feed]:
    """The feed for a task: compiled ahead for a kernel that can be, on a GPU; direct for anything else.

    When the block ends, the processes behind it have ended. `log` takes every preview.
    """
    pool = _pool_for(task, effort)
    if pool is None:
        yield DirectFeed()
        return
    with pool:
        previews = None
        if isinstance(searcher, UsesPreviews) and effort.previews > 0 and pool.workers > 1:
            previews = Previews(searcher, pool, effort.previews, machine_of(task.device), log)
            previews.update()
        if previews is None or not previews.under_way:  # small spaces are tried whole, without previews
            yield CompiledFeed(pool, max(_LEAST_AHEAD, int(_AHEAD * pool.workers)), previews)
        else:
            yield CompiledFeed(pool, _AHEAD_WITH_PREVIEWS, previews)


def _pool_for(task: Task, effort: Effort) -> CompilePool | None:
    """What compiles ahead for a task; None if nothing can, with a warning where that is a surprise."""
    kernel = task.kernel.compiled_ahead if isinstance(task.kernel, CompilesAhead) else None
    if task.device.kind == "cpu" or kernel is None:
        return None
    arguments = task.arguments.given if isinstance(task.arguments, CopiedArguments) else Arguments(
        keyword=dict(task.problem.arguments))  # fmt: skip
    try:
        return CompilePool(
            kernel, arguments, target_of(task.device), timeout_s=effort.patience.compile_s, launches=True
        )
    except (TargetError, KernelTypeError) as error:
        _log.warning("nothing is compiled ahead: %s", error.message)
        return None
