"""The gate at which a tune waits for its device, and what is compiled until then.

A device tries some dozens of configs a second, and the compilers make as many of quick kernels, but a few of slow ones.
A problem is therefore ready once so many configs are compiled that the device is busy while the others are.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import ClassVar

from triton_ops.exceptions import TargetError
from triton_ops.search import Searcher
from triton_ops.space import Config
from triton_ops.tuner.feeds import Compiles, new_configs
from triton_ops.values import Compiled, Key

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
        # Outside of the lock: what waits for these futures is called here, and may submit further configs.
        for future in reached:
            future.set_result(None)

    def _needed(self) -> float:
        """The number of compiled configs that is enough: more, the less the compilers make in a second."""
        if not self._submitted:
            return math.inf
        mean_s = max(self._compile_s / max(self._ended, 1), 1e-3)
        return max(_LEAST, math.ceil(_TRIED * (1 - self._pool.workers / mean_s / _A_SECOND)))


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

    GRACE_S: ClassVar[float] = 30.0
    """Seconds that a step may take after its tune is to end; a launch that hangs takes 20 s until then."""

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
        self.hold(None)
        self.check()

    def hold(self, seconds: float | None) -> None:
        """Wait for so many seconds, None for no limit, or until the tune is let in or is to end."""
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
