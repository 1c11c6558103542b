"""Fork servers that compile pools of this process share, and leave idle for the next pools if they follow soon.

Pools that are open at the same time and need the same packages and target fork from one server. It is idle when the
last of them has given it back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from operator import methodcaller
from typing import TypeAlias

from triton_ops.compilation.fork_server import ForkServer
from triton_ops.device import Target
from triton_ops.processes import IdleProcesses

ServerNeeds: TypeAlias = tuple[str, Target]  # what it imports beside Triton, and what it compiles for

_MOST = 2  # such as one with torch and one without
_idle: IdleProcesses[ForkServer] = IdleProcesses(methodcaller("close"), _MOST)
holds, drop_idle_servers = _idle.holds, _idle.drop


@dataclass(eq=False)
class _Loan:
    """A fork server that pools use now; `pools` is their number."""

    server: ForkServer
    needs: ServerNeeds
    inherited: Hashable
    pools: int = 1


_guard = threading.Lock()
_loans: list[_Loan] = []


def borrow(needs: ServerNeeds, make: Callable[[], ForkServer]) -> ForkServer:
    """A fork server with these needs: one that other pools use, or one that was left, or else a new one.

    Args:
        needs: What the pool needs.
        make: Makes a new one.
    """
    here = _idle.inherited()
    with _guard:
        for each in _loans:
            if (each.needs, each.inherited) == (needs, here) and each.server.alive:
                each.pools += 1
                return each.server
        server = _idle.take(needs)
        if server is not None and not server.alive:
            server.close()
            server = None
        server = server or make()
        _loans.append(_Loan(server, needs, here))
        return server


def give_back(server: ForkServer) -> None:
    """A pool needs a server no more; after the last one, it is left to the next pool, or closed if it has ended."""
    with _guard:
        loan = next((each for each in _loans if each.server is server), None)
        if loan is None:
            return
        loan.pools -= 1
        if loan.pools:
            return
        _loans.remove(loan)
    if server.alive:
        _idle.put(server, loan.needs, loan.needs)
    else:
        server.close()


def is_shared(server: ForkServer) -> bool:
    """Tell whether several pools use a server now."""
    with _guard:
        return any(each.server is server and each.pools > 1 for each in _loans)


def _forget() -> None:
    """Forget the servers, in a forked child, whose parent's they are."""
    global _guard, _loans
    _guard, _loans = threading.Lock(), []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
