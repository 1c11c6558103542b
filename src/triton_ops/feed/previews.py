"""Previews: in the compilers' spare time, configs are compiled only for the searcher to see the compiler's results.

The searcher names these configs (`search/base.py`, `UsesPreviews`), and gets each result as soon as it is known. A
config that is proposed after its preview is not compiled again. Proposals come first: a preview begins only when no
proposal waits to be compiled, and previews take at most half of the processes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from triton_ops.analysis import with_residents
from triton_ops.compile_pool.compiles import Compiles
from triton_ops.hardware import Machine
from triton_ops.search import UsesPreviews
from triton_ops.space import Config
from triton_ops.trial import Compiled

_AHEAD = 8  # previews per compiling process that wait or run: enough that no process is idle during a trial


class Previews:
    """Submits a searcher's previews to the compile pool, and tells the searcher the results. No method waits.

    Args:
        searcher: The searcher that wants previews.
        pool: The processes that compile.
        most: The limit of previews in one run.
        machine: The device's limits, from which the number of resident blocks of a config follows; None leaves that
            number out.
        log: Takes every preview, for the run log.

    Attributes:
        told: The number of configs of which the searcher was told, proposals included.
        begun: Whether the searcher has wanted any.
    """

    def __init__(
        self,
        searcher: UsesPreviews,
        pool: Compiles,
        most: int,
        machine: Machine | None,
        log: Callable[[Compiled], None] = lambda _: None,
    ) -> None:
        self._searcher, self._pool, self._left, self._machine = searcher, pool, most, machine
        self._ahead, self._log = _AHEAD * pool.workers, log
        self._waiting: dict[Config, Future[Compiled]] = {}
        self.told = 0
        self.begun = False

    @property
    def under_way(self) -> bool:
        """Whether some previews are not compiled yet, or the searcher was not told of them."""
        return bool(self._waiting)

    def update(self) -> None:
        """Tell the searcher of newly compiled previews, and submit those that it wants next."""
        self._tell([self._waiting.pop(config) for config in [c for c, f in self._waiting.items() if f.done()]])
        room = min(self._ahead - len(self._waiting), self._left)
        if room > 0:
            wanted = self._searcher.wanted_previews(room)
            self._left -= len(wanted)
            self.begun |= bool(wanted)
            self._waiting.update((config, self._pool.submit(config, spare=True)) for config in wanted)

    def tell(self, found: Compiled) -> None:
        """Tell the searcher the compiler's result for a proposal."""
        self._waiting.pop(found.config, None)
        self._take([found])

    def _tell(self, done: list[Future[Compiled]]) -> None:
        if any(future.exception() is not None for future in done):  # no process can load the kernel: the feed warns
            self._left = 0
        found = [future.result() for future in done if future.exception() is None]
        for one in found:
            self._log(one)
        self._take(found)

    def _take(self, found: list[Compiled]) -> None:
        self.told += len(found)
        if found:
            self._searcher.take_previews([with_residents(one, self._machine) for one in found])
