"""The role between a searcher, which proposes configs, and a station, which tries them; and its simplest player."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from triton_ops.space import Config
from triton_ops.trial import Compiled, Trial

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
    """Holds proposals until they are tried. Each one that was added comes out once, to be run or as dropped."""

    @property
    def held(self) -> int:
        """How many proposals wait; deferred ones are not counted."""

    @property
    def waited_s(self) -> float:
        """Seconds in which nothing could be tried because nothing was ready."""

    def room(self) -> int:
        """How many further proposals the feed could use now.

        To be called before a searcher is asked: by then it knows of every preview that was compiled.
        """

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:
        """Take proposals; with `anyway`, such as are to be run even if they are of a kind that is deferred."""

    def next(self, run_deferred: bool) -> Ready | None:
        """What to try now; waits if nothing is ready yet; None if nothing is held and nothing was deferred.

        Args:
            run_deferred: What to do with deferred proposals once nothing else is left: run them, or drop them.
        """


class DirectFeed:
    """A feed that compiles nothing: every proposal is ready at once, in order."""

    waited_s = 0.0

    def __init__(self) -> None:
        self._waiting: deque[Config] = deque()

    @property
    def held(self) -> int:
        """How many proposals wait."""
        return len(self._waiting)

    def room(self) -> int:
        """A batch when nothing is left."""
        return 0 if self._waiting else _BATCH

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:  # noqa: ARG002 - nothing is deferred
        """Take proposals."""
        self._waiting.extend(configs)

    def next(self, run_deferred: bool) -> Ready | None:  # noqa: ARG002 - nothing is deferred
        """The first that waits."""
        return Ready(self._waiting.popleft()) if self._waiting else None
