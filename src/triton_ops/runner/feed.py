"""What is tried next: proposals in the searcher's order, or those of them that are ready first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from triton_ops.analysis import Compiled
from triton_ops.space import Config
from triton_ops.trial import Trial

_BATCH = 8  # proposals asked for at a time


@dataclass(frozen=True)
class Ready:
    """A proposal whose turn has come.

    Attributes:
        config: What was proposed.
        compiled: What the compiler made of it; None if that is left to the process that runs it.
        dropped: Its trial, if it is not to be run; else None.
    """

    config: Config
    compiled: Compiled | None = None
    dropped: Trial | None = None


class Feed(Protocol):
    """Holds proposals until they are tried.

    Attributes:
        waited_s: Seconds in which nothing could be tried because nothing was ready.
    """

    waited_s: float

    @property
    def held(self) -> int:
        """How many proposals wait, but for the deferred ones."""

    @property
    def room(self) -> int:
        """How many further proposals it could use now."""

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:
        """Take proposals; `anyway` those that would otherwise be deferred as well."""

    def next(self) -> Ready | None:
        """What to try now; waits if nothing is ready yet; None if nothing is held but deferred ones."""

    def bring_back(self, run: bool) -> None:
        """What was deferred comes next: to be run, or as dropped."""


class DirectFeed:
    """Everything is ready at once, in order."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._waiting: deque[Config] = deque()

    @property
    def held(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def room(self) -> int:
        """A batch when nothing is left."""
        return 0 if self._waiting else _BATCH

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:  # noqa: ARG002 - nothing is deferred
        """Take proposals."""
        self._waiting.extend(configs)

    def next(self) -> Ready | None:
        """The first."""
        return Ready(self._waiting.popleft()) if self._waiting else None

    def bring_back(self, run: bool) -> None:
        """Nothing is deferred."""
