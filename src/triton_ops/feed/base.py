"""The role of a feed, which holds proposals between the searcher and the station, and the simplest feed."""

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
        config: The config that was proposed.
        compiled: The compiler's result; None if the process that runs the config compiles it.
        dropped: The finished trial of a proposal that is not to be run; None if it is to be run.
    """

    config: Config
    compiled: Compiled | None = None
    dropped: Trial | None = None


class Feed(Protocol):
    """Holds proposals until they are tried, and gives each one once, to be run or as dropped."""

    @property
    def held(self) -> int:
        """The number of proposals that wait, without deferred ones."""

    @property
    def ready(self) -> bool:
        """Whether `next` need not wait."""

    @property
    def waited_s(self) -> float:
        """Seconds in which nothing could be tried because nothing was ready."""

    def room(self) -> int:
        """The number of further proposals that the feed could use now.

        The loop calls this before it asks the searcher, so that the searcher is told of compiled previews first.
        """

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:
        """Take proposals. With `anyway` they are run even if they are of a kind that is deferred."""

    def next(self, run_deferred: bool, patient: bool = True) -> Ready | None:
        """The proposal to try next, waiting until one is ready; None if no proposal is left.

        Args:
            run_deferred: Whether deferred proposals are run when nothing else is left; otherwise they are dropped.
            patient: Whether to wait for proposals that are not ready; otherwise they are forgotten, except those that
                are run anyway.
        """


class DirectFeed:
    """A feed that compiles nothing: every proposal is ready at once, in order."""

    waited_s = 0.0
    ready = True

    def __init__(self) -> None:
        self._waiting: deque[Config] = deque()

    @property
    def held(self) -> int:
        """The number of proposals that wait; none is ever deferred."""
        return len(self._waiting)

    def room(self) -> int:
        """A whole batch once no proposal waits, else 0."""
        return 0 if self._waiting else _BATCH

    def add(self, configs: Iterable[Config], anyway: bool = False) -> None:  # noqa: ARG002 - nothing is deferred
        """Take proposals; all of them are run."""
        self._waiting.extend(configs)

    def next(self, run_deferred: bool, patient: bool = True) -> Ready | None:  # noqa: ARG002 - all are ready
        """The proposal that has waited longest."""
        return Ready(self._waiting.popleft()) if self._waiting else None
