"""Previews: the compilers' spare time goes into configs that a searcher would like to see before it proposes any.

The searcher says which (`search/base.py`, `UsesPreviews`), and is told what became of each as soon as it is known. A
config that is proposed after its preview is not compiled again. Proposals come first: a preview begins only when no
proposal waits to be compiled, and half of the processes are kept free of previews.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from triton_ops.analysis import with_residents
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.hardware import Machine
from triton_ops.search import UsesPreviews
from triton_ops.space import Config
from triton_ops.trial import Compiled

_AHEAD = 8  # previews per compiling process that wait or run: as long as a trial takes, no process is idle


class Previews:
    """Has configs compiled that a searcher wants to see. Never waits.

    Args:
        searcher: Says what it wants to see, and is told.
        pool: Compiles.
        most: Previews in all.
        machine: The device; None leaves untold how many blocks of a config it holds at a time.
        log: Takes every preview, for the run log.

    Attributes:
        told: How many configs the searcher was told of, proposals included.
    """

    def __init__(
        self,
        searcher: UsesPreviews,
        pool: CompilePool,
        most: int,
        machine: Machine | None,
        log: Callable[[Compiled], None] = lambda _: None,
    ) -> None:
        self._searcher, self._pool, self._left, self._machine = searcher, pool, most, machine
        self._ahead, self._log = _AHEAD * pool.workers, log
        self._waiting: dict[Config, Future[Compiled]] = {}
        self.told = 0

    @property
    def under_way(self) -> bool:
        """Whether the searcher was not yet told of some of its previews."""
        return bool(self._waiting)

    def update(self) -> None:
        """Tell the searcher what was compiled since the last time, and have compiled what it wants to see next."""
        self._tell([self._waiting.pop(config) for config in [c for c, f in self._waiting.items() if f.done()]])
        room = min(self._ahead - len(self._waiting), self._left)
        if room > 0:
            wanted = self._searcher.wanted_previews(room)
            self._left -= len(wanted)
            self._waiting.update((config, self._pool.submit(config, spare=True)) for config in wanted)

    def tell(self, found: Compiled) -> None:
        """Tell the searcher what became of a proposal."""
        self._waiting.pop(found.config, None)
        self._take([found])

    def _tell(self, done: list[Future[Compiled]]) -> None:
        if any(future.exception() is not None for future in done):  # no process can load the kernel: the feed says so
            self._left = 0
        found = [future.result() for future in done if future.exception() is None]
        for one in found:
            self._log(one)
        self._take(found)

    def _take(self, found: list[Compiled]) -> None:
        self.told += len(found)
        if found:
            self._searcher.take_previews([with_residents(one, self._machine) for one in found])
