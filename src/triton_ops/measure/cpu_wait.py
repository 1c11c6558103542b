"""The time that a thread was ready to run and waited, because other programs had its CPU.

Linux counts it for every thread. On a host with more work than CPUs, a call of 2 ms takes 2 ms or 6 ms, depending on
whether the thread loses its CPU meanwhile; without that wait it takes 2 ms each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

_FILE = "/proc/thread-self/schedstat"  # nanoseconds on a CPU, nanoseconds ready and waiting, number of time slices
_LENGTH = 96
_ALONE = 0.02  # other threads of this process that worked for a larger share of a sample may have caused the wait


@dataclass(frozen=True)
class Counts:
    """The counters of a thread and its process at one moment, in nanoseconds since each began.

    Attributes:
        waited_ns: The thread was ready and waited for a CPU.
        others_ns: CPU time of the process's other threads.
    """

    waited_ns: int = 0
    others_ns: int = 0


class Counters(Protocol):
    """Reads the counters of one thread."""

    def __call__(self) -> Counts:
        """The counters now."""


@contextmanager
def thread_counters() -> Iterator[Counters]:
    """The counters of the calling thread; they stay at 0 where the system does not count.

    Cost: 10 microseconds, and 5 for each reading.
    """
    try:
        file = os.open(_FILE, os.O_RDONLY)
    except OSError:
        yield Counts
        return
    try:
        yield lambda: _read(file)
    finally:
        os.close(file)


@contextmanager
def no_counters() -> Iterator[Counters]:
    """Counters that stay at 0, for clocks that do not run with the host's."""
    yield Counts


def waited_ns(before: Counts, after: Counts, took_ns: int) -> int:
    """For how much of a sample the thread waited for a CPU that another process had.

    A sample during which other threads of this process worked counts whole: they may have caused the wait, and a
    callable that uses more threads than there are CPUs pays for it.

    Args:
        before: The counters before the sample.
        after: The counters after the sample.
        took_ns: The wall time of the sample.
    """
    if after.others_ns - before.others_ns > _ALONE * took_ns:
        return 0
    return min(after.waited_ns - before.waited_ns, took_ns)


def _read(file: int) -> Counts:
    own, waited, _ = os.pread(file, _LENGTH, 0).split()
    return Counts(int(waited), time.process_time_ns() - int(own))
