"""A fork server that a compile pool has left idle, for the next pool of this process if it follows soon."""

from __future__ import annotations

from typing import TypeAlias

from triton_ops.compile_pool.fork_server import ForkServer
from triton_ops.hardware import Target
from triton_ops.processes.idle import IdleSlot

ServerNeeds: TypeAlias = tuple[str, Target]  # what it imports beside Triton, and what it compiles for

_slot: IdleSlot[ForkServer] = IdleSlot(ForkServer.close)
holds, drop_idle_server = _slot.holds, _slot.drop


def take(needs: ServerNeeds) -> ForkServer | None:
    """The fork server that was left, if there is one with these needs, and nobody has ended it meanwhile."""
    server = _slot.take(needs)
    if server is None or server.alive:
        return server
    server.close()
    return None


def keep(server: ForkServer, needs: ServerNeeds) -> None:
    """Leave a fork server to the next pool; one that has ended is closed."""
    if server.alive:
        _slot.put(server, needs)
    else:
        server.close()
