"""Looks: the compilers' spare time goes into configs that a search would like to see before it proposes any of them.

The searcher says what it wants to see (`search/base.py`, `Scout`); what comes of it is told to it as soon as it is
there, and lies in Triton's cache for a later proposal. Proposals come first: a look begins only when no proposal waits
to be compiled, and half of the processes are kept free of looks.
"""

from __future__ import annotations

from concurrent.futures import Future

from triton_ops.analysis import with_residents
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.hardware import Machine
from triton_ops.search import Scout
from triton_ops.space import Config
from triton_ops.trial import Compiled

_AHEAD = 8  # looks per compiling process that wait or run: as long as a trial takes, none is idle


class Lookout:
    """Has configs compiled that a searcher wants to see. Never waits.

    Args:
        scout: The searcher.
        pool: Compiles.
        most: Looks in all.
        machine: The device; None leaves untold how many blocks of a config it holds at a time.
    """

    def __init__(self, scout: Scout, pool: CompilePool, most: int, machine: Machine | None) -> None:
        self._scout, self._pool, self._left, self._machine = scout, pool, most, machine
        self._ahead = _AHEAD * pool.workers
        self._waiting: dict[Config, Future[Compiled]] = {}
        self.looks = 0

    @property
    def waits(self) -> bool:
        """Whether anything that it has had compiled is not told yet."""
        return bool(self._waiting)

    def attend(self) -> None:
        """Tell the searcher what was compiled since, and have compiled what it wants to see next."""
        self._tell([config for config, future in self._waiting.items() if future.done()])
        room = min(self._ahead - len(self._waiting), self._left)
        if room > 0:
            wanted = self._scout.wanted(room)
            self._left -= len(wanted)
            self._waiting.update((config, self._pool.submit(config, spare=True)) for config in wanted)

    def saw(self, found: Compiled) -> None:
        """Tell the searcher of a proposal that was compiled."""
        self._waiting.pop(found.config, None)
        self._scout.looked([with_residents(found, self._machine)])

    def _tell(self, done: list[Config]) -> None:
        futures = [self._waiting.pop(config) for config in done]
        if any(future.exception() is not None for future in futures):  # none can load the kernel: the feed says so
            self._left = 0
        found = [with_residents(future.result(), self._machine) for future in futures if future.exception() is None]
        self.looks += len(found)
        if found:
            self._scout.looked(found)
