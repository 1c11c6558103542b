"""Compile ahead: while one config is measured, the next ones are compiled by processes without a GPU.

What is ready goes on in the searcher's order; one that compiles slowly does not hold up those after it. What cannot
run is dropped with its numbers; what can run but spills is deferred.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any

from triton_ops.analysis import Compiled
from triton_ops.backend import Arguments, CompilesAhead
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.evaluation.finals import Final
from triton_ops.evaluation.station import Station, StationFacts
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.hardware import machine_of, target_of
from triton_ops.runner.feed import DirectFeed, Feed, Ready
from triton_ops.runner.lookout import Lookout
from triton_ops.search import Scout, Searcher
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.task.task import Copies, Task
from triton_ops.trial import Status, Trial

_log = logging.getLogger("triton_ops")

_AHEAD = 1.5  # proposals per compiling process: none is idle, and few are asked for before others are measured
_LEAST_AHEAD = 8
_AHEAD_SEEING = 8  # where looks keep the compilers busy: what is proposed late is proposed with more knowledge
_PARTS = 2  # of what is held that are asked for at a time: what is learned meanwhile is used, and not asked one by one


class CompiledFeed:
    """Proposals that come out compiled.

    Args:
        pool: Compiles them.
        ahead: How many proposals to hold.
    """

    def __init__(self, pool: CompilePool, ahead: int) -> None:
        self.waited_s = 0.0
        self._pool, self._ahead = pool, ahead
        self._waiting: deque[tuple[Config, Future[Compiled]]] = deque()
        self._deferred: list[Compiled] = []
        self._never_deferred: set[Config] = set()
        self._last: deque[Ready] = deque()
        self._run_all = False
        self._refused = False

    @property
    def held(self) -> int:
        """How many wait."""
        return len(self._waiting) + len(self._last)

    @property
    def room(self) -> int:
        """As many as the compilers could begin soon; none as long as it is few, since a question has its price."""
        free = self._ahead - len(self._waiting)
        return free if free >= self._ahead // _PARTS else 0

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:
        """Have them compiled, after those before them."""
        for config in configs:
            if anyway:
                self._never_deferred.add(config)
            self._waiting.append((config, self._pool.submit(config, anyway=anyway or self._run_all)))

    def next(self) -> Ready | None:
        """The first that is compiled."""
        while self._waiting:
            config, future = self._first_done()
            try:
                found = future.result()
            except TargetError as error:
                if not self._refused:
                    _log.warning("nothing is compiled ahead: %s", error.message)
                self._refused = True
                return Ready(config)
            if found.deferred and not self._run_all and config not in self._never_deferred:
                self._deferred.append(found)
            else:
                return self._ready(found)
        return self._last.popleft() if self._last else None

    def bring_back(self, run: bool) -> None:
        """What spills comes next, in the order proposed: to be run, or as dropped."""
        self._run_all = self._run_all or run
        deferred, self._deferred = self._deferred, []
        for found in deferred:
            if not run:
                self._last.append(
                    Ready(found.config, found, dropped=_dropped(found, f"deferred, and others worked: {found.reason}"))
                )
            elif found.resources is None:  # a rule has deferred it before it was compiled
                self.add([found.config])
            else:
                self._last.append(self._ready(found))

    def _ready(self, found: Compiled) -> Ready:
        if not found.ok:
            return Ready(found.config, found, dropped=_dropped(found, found.reason))
        return Ready(found.config, found)

    def _first_done(self) -> tuple[Config, Future[Compiled]]:
        start = time.monotonic()
        wait([future for _, future in self._waiting], return_when=FIRST_COMPLETED)
        self.waited_s += time.monotonic() - start
        place = next(place for place, (_, future) in enumerate(self._waiting) if future.done())
        found = self._waiting[place]
        del self._waiting[place]
        return found


class Quiet:
    """A station during whose trials the compilers stand still.

    Args:
        station: What tries configs.
        pool: What to hold.
    """

    def __init__(self, station: Station, pool: CompilePool) -> None:
        self._station, self._pool = station, pool

    @property
    def facts(self) -> StationFacts:
        """The station's."""
        return self._station.facts

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The station's, undisturbed."""
        with self._pool.paused():
            return self._station.attempt(config, best)

    def finals(self, final: Final) -> Any:
        """The station's; nothing is compiled then."""
        return self._station.finals(final)

    def close(self) -> None:
        """Close the station."""
        self._station.close()


@contextmanager
def open_feed(
    task: Task, effort: Effort, searcher: Searcher
) -> Iterator[tuple[Feed, CompilePool | None, Lookout | None]]:
    """The feed for a task: compiled ahead for a Triton kernel on a GPU, as long as the block lasts; direct else.

    With it come the pool behind it, and the lookout of a searcher that wants to see what the compiler makes of configs.
    """
    kernel = task.kernel.compiled_ahead if isinstance(task.kernel, CompilesAhead) else None
    if task.device.kind == "cpu" or kernel is None:
        yield DirectFeed(), None, None
        return
    arguments = task.arguments.given if isinstance(task.arguments, Copies) else Arguments(
        keyword=dict(task.problem.arguments))  # fmt: skip
    try:
        pool = CompilePool(
            kernel, arguments, target_of(task.device), timeout_s=effort.patience.compile_s, launches=True
        )
    except (TargetError, KernelTypeError) as error:
        _log.warning("nothing is compiled ahead: %s", error.message)
        yield DirectFeed(), None, None
        return
    with pool:
        lookout = None
        if isinstance(searcher, Scout) and effort.previews > 0 and pool.workers > 1:
            lookout = Lookout(searcher, pool, effort.previews, machine_of(task.device))
            lookout.attend()
        seeing = lookout is not None and lookout.waits  # small spaces are tried whole: nothing is looked at
        ahead = _AHEAD_SEEING if seeing else max(_LEAST_AHEAD, int(_AHEAD * pool.workers))
        yield CompiledFeed(pool, ahead), pool, lookout


def _dropped(found: Compiled, reason: str) -> Trial:
    """The trial of what is not run; what was deferred for its spills has asked for more registers than there are."""
    status = Status.RESOURCES if found.ok else found.status
    return Trial(found.config, status, error=reason, resources=found.resources, compile_s=found.compile_s)
