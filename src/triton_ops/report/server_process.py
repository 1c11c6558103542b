"""The process that serves the report of a tune: of the lowest priority, so that it never takes time from measuring.

Its input gives it the token and then stays open until the tune has ended.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

from triton_ops.processes import Child
from triton_ops.report.live import GrowingReport
from triton_ops.terminal import PageServer

GOODBYE_S = 3.0  # that pages which are open are given to fetch the last state
DRAIN_S = 0.5
_LOWEST = 19
_LOOK_S = 0.1


def main() -> None:
    """Serve a run log until the input ends."""
    parent, descriptor = int(sys.argv[2]), int(sys.argv[3])
    Child.die_with(parent)
    os.nice(_LOWEST)
    token = sys.stdin.readline().strip()
    growing = GrowingReport(Path(sys.argv[4]))
    server = PageServer(socket.socket(fileno=descriptor), token, growing.answer)
    threading.Thread(target=server.serve_forever, args=(_LOOK_S,), daemon=True).start()
    sys.stdin.read()
    growing.end()
    if growing.followed.is_set():
        growing.told_the_end.wait(GOODBYE_S)
    server.shutdown()
    server.drain(DRAIN_S)
