"""What is compiled of a problem before its device is free, and when that is enough to begin with.

A device tries some dozens of configs a second, and the compilers make as many of quick kernels, but a few of slow ones.
A problem is therefore ready once so many configs are compiled that the device is busy while the others are.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future

from triton_ops.compile_pool.compiles import Compiles
from triton_ops.search import Searcher, new_configs
from triton_ops.space import Config
from triton_ops.trial import Compiled

_WORKERS = 8  # for which there are previews: 64, more than a tune of little effort tries
_LEAST = 8  # compiled configs, however quickly the others follow
_TRIED, _A_SECOND = 40, 30.0  # configs that a tune of little effort tries, and how many of them in a second on a GPU
_PROPOSALS = 32  # of a searcher without previews, which proposes most of a small space


class FirstConfigs:
    """A compile pool as the first configs of a problem are submitted to it, which are counted.

    Args:
        pool: The pool.

    Attributes:
        workers: How many configs are compiled at a time, from which the number of previews follows.
        enough: Is done once enough of all that was submitted is compiled, whatever became of it.
        whole: Is done once all of it is.
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
        """Submit the first proposals of a searcher, and nothing more.

        Args:
            searcher: The searcher, which is asked for nothing else later.
        """
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
        """How many compiled configs are enough: more, the less the compilers make in a second."""
        if not self._submitted:
            return math.inf
        mean_s = max(self._compile_s / max(self._ended, 1), 1e-3)
        return max(_LEAST, math.ceil(_TRIED * (1 - self._pool.workers / mean_s / _A_SECOND)))
