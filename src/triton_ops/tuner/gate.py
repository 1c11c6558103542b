"""The gate between what a tune does without its device, such as compiling, and what it measures there.

A tune of one problem has no gate. Where many problems are tuned, the next one is compiled while one is measured, and
waits at its gate; and a tune in a thread of its own, which Ctrl-C does not reach, is ended at its gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from triton_ops.evaluation import FinalRequest, Outcome, Station, StationFacts
from triton_ops.space import Config
from triton_ops.values import Trial

_LOOK_S = 0.2  # between two looks whether the tune is to end, while compilers are waited for


@dataclass(frozen=True)
class Leave:
    """The terms on which a tune gets its device.

    It became the tune's at `since_s`, by `time.monotonic()`: what was prepared before, beside another tune, its budget
    does not count. `limit_s` is a further limit for the tune. With `overlaps` a trial may begin in another process
    before the search and the listener know of the one before, which is on disk; Ctrl-C then waits for the trial.
    """

    since_s: float = 0.0
    limit_s: float | None = None
    overlaps: bool = False


@dataclass(frozen=True)
class Preparation:
    """The progress of a tune that waits for its device.

    `enough` is done once measuring hardly has to wait for the rest, `whole` once nothing more is prepared until the
    device is the tune's.
    """

    enough: Future[None]
    whole: Future[None]


class Gate(Protocol):
    """Lets one tune have its device, and says when it is to end, by a `KeyboardInterrupt` of each method."""

    def wait(self, prepared: Preparation | None = None) -> Leave:
        """Wait until the device is this tune's; `prepared` tells when enough is prepared, and None that all is."""

    def check(self) -> None:
        """Do nothing, as long as the tune may go on."""


class Stoppable:
    """A station that measures nothing more once its tune is to end."""

    def __init__(self, station: Station, gate: Gate) -> None:
        self._station, self._gate = station, gate

    @property
    def facts(self) -> StationFacts:
        """The facts of the station that measures."""
        return self._station.facts

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config`."""
        self._gate.check()
        return self._station.attempt(config, best)

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison."""
        self._gate.check()
        return self._station.finals(final)

    def close(self) -> None:
        """Close the station that measures."""
        self._station.close()


def wait_for_one(gate: Gate, futures: Sequence[Future[Any]]) -> None:
    """Wait until one of some futures is done, unless the tune is to end."""
    while not wait(futures, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done:
        gate.check()


def nothing_yet(gate: Gate) -> bool:
    """Answer that nothing could be measured yet, unless the tune is to end."""
    gate.check()
    return False
