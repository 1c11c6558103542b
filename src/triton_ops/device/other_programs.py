"""Other programs that use a GPU while this process measures on it.

The driver tells which processes have worked on a GPU, with the share of its multiprocessors' time. Not counted are this
process, those that started it, and processes of this package that take turns with it. A process number says something
only where the driver counts processes as this system does: in a container it may tell the host's numbers, or none. So
nobody is named before this process has been seen at work under its own number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from triton_ops.base import proc as _proc
from triton_ops.device.turns import takes_turns
from triton_ops.device.vendor import ProcessUse
from triton_ops.exceptions import DeviceError

_LEAST_SHARE = 0.05  # a desktop draws its windows with a few percent
_EACH_S = 0.1  # the driver takes a sample six times a second at most
_HIDDEN = "the driver does not show this process under its own number, as in a container: others cannot be told from it"


@runtime_checkable
class TellsProcesses(Protocol):
    """Sensors that tell which processes work on the GPU."""

    def used_by(self, since_us: int) -> tuple[ProcessUse, ...]:
        """The processes that have worked on the GPU in samples later than `since_us`, by the clock of `time.time`.

        Raises:
            DeviceError: The GPU does not tell.
        """


class Others:
    """The use of one GPU by other processes; not safe to share among threads.

    Args:
        sensors: The sensors of the GPU. Those that tell nothing of processes leave the use unknown.
        since_s: From when on others count, seconds since 1970; None is now.
        clock: Seconds since 1970.
        is_ours: Whether a process is one that this one started, or one that takes turns with it.
    """

    def __init__(
        self, sensors: object, since_s: float | None = None, *, clock: Callable[[], float] = time.time,
        is_ours: Callable[[int], bool] | None = None,
    ) -> None:  # fmt: skip
        self._source = sensors if isinstance(sensors, TellsProcesses) else None
        self._clock, self._is_ours = clock, is_ours or _is_ours
        self._unknown = _HIDDEN if self._source is not None else "its sensors do not tell which processes use it"
        self._early: dict[int, ProcessUse] = {}  # told, and not yet asked for
        self.begin(since_s)

    @property
    def unknown(self) -> str:
        """The reason why nothing is known of others so far; empty if it is known."""
        return self._unknown

    def begin(self, since_s: float | None = None) -> None:
        """Count from now on, or from a moment before."""
        self._asked_s = self._clock() if since_s is None else since_s
        self._since_us = int(self._asked_s * 1e6)
        self._early.clear()

    def seen(self) -> tuple[ProcessUse, ...]:
        """The other processes that have worked on the GPU since this was asked before, the busiest first.

        A process that has ended by now is left out: it cannot be told from a tune that has given its turn away.

        Cost: one question to the driver, ten times a second at most.
        """
        now_s = self._clock()
        if self._source is None or now_s - self._asked_s < _EACH_S:
            return ()
        self._asked_s = now_s
        try:
            samples = self._source.used_by(self._since_us)
        except DeviceError as error:
            self._source, self._unknown = None, error.message
            return ()
        self._since_us = max([self._since_us, *(sample.at_us for sample in samples)])
        if any(sample.pid == os.getpid() for sample in samples):
            self._unknown = ""
        for sample in samples:
            before = self._early.get(sample.pid)
            if sample.share >= _LEAST_SHARE and (before is None or before.share < sample.share):
                self._early[sample.pid] = sample
        if self._unknown:
            return ()
        uses = [use for pid, use in self._early.items() if not self._is_ours(pid)]
        self._early.clear()
        return tuple(sorted(uses, key=lambda use: -use.share))

    def in_words(self) -> str:
        """As `seen`, in words: `process 4711 (python3) used 40% of the GPU`; empty for none."""
        each = [
            f"process {use.pid} ({_proc.name(use.pid) or 'of another user'}) used {use.share:.0%}"
            for use in self.seen()
        ]
        return f"{' and '.join(each)} of the GPU" if each else ""


def _is_ours(pid: int) -> bool:
    """Check whether a process is this one, has started it, has ended, or takes turns with it."""
    return pid == os.getpid() or pid in _proc.ancestors(os.getpid()) or _proc.ended(pid) or takes_turns(pid)
