"""The other hosts that compile for the pools of this process, and which of them are used no more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger("triton_ops")


@dataclass(frozen=True, kw_only=True, eq=False)
class OtherHost:
    """A host that compiles for this one.

    Attributes:
        name: The host's name.
        cpus: How many configs it compiles at a time for this process.
        ask: Calls a method of its `CompileHost`, by name and with arguments, and returns at once. The exception of the
            future is what the method raises, or says that the host is gone.
    """

    name: str
    cpus: int
    ask: Callable[..., Future[Any]]


class OtherHosts:
    """Hosts that compile for the pools of this process, one pool after the other; safe among threads.

    Args:
        hosts: The hosts.
        tell: Is told in one line of each host that is used no more, and why; None logs a warning.
    """

    def __init__(self, hosts: Iterable[OtherHost], tell: Callable[[str], object] | None = None) -> None:
        self._hosts = list(hosts)
        self._tell = tell or _log.warning
        self._lock = threading.Lock()

    def usable(self) -> list[OtherHost]:
        """The hosts that are not dropped."""
        with self._lock:
            return list(self._hosts)

    def drop(self, host: OtherHost, why: str) -> None:
        """Ask a host no more, from now on and for every pool."""
        with self._lock:
            if host not in self._hosts:
                return
            self._hosts.remove(host)
        self._tell(f"{host.name} compiles nothing more for this run: {why}")
