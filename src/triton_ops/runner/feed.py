"""What is tried next: proposals in the searcher's order, or those of them that are ready first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from triton_ops.space import Config
from triton_ops.trial import Trial

_BATCH = 8  # proposals asked for at a time


@dataclass(frozen=True)
class Ready:
    """A proposal that can be tried.

    Attributes:
        config: What was proposed.
        trial: Its trial if that is known without running it: dropped with its reason; else None.
        twin: A config whose machine code is the same; its measurement serves for this one. None if there is none.
    """

    config: Config
    trial: Trial | None = None
    twin: Config | None = None


class Feed(Protocol):
    """Holds proposals until they are tried."""

    @property
    def room(self) -> int:
        """How many further proposals it could use now."""

    def add(self, configs: Iterable[Config]) -> None:
        """Take proposals."""

    def next(self) -> Ready | None:
        """What to try now; waits if nothing is ready yet; None if nothing is held."""


class DirectFeed:
    """Everything is ready at once, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Config] = deque()

    @property
    def room(self) -> int:
        """A batch when nothing is left."""
        return 0 if self._waiting else _BATCH

    def add(self, configs: Iterable[Config]) -> None:
        """Take proposals."""
        self._waiting.extend(configs)

    def next(self) -> Ready | None:
        """The first."""
        return Ready(self._waiting.popleft()) if self._waiting else None
