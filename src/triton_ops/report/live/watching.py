"""`watched`: while a tune runs, a process of its own serves the growing report, and ends with the tune."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from triton_ops import settings
from triton_ops.exceptions import DeviceError, SettingsError
from triton_ops.processes.child import command
from triton_ops.processes.family import new_mark
from triton_ops.progress.events import Listener, RunPlan, RunProgress
from triton_ops.trial import Trial, TuningResult

HOST = "127.0.0.1"
_TOKEN_BYTES = 24
_END_S = 4.0  # that the process is given to answer pages that are open
_LARGEST_PORT = 65_535


@contextmanager
def watched(listener: Listener, port: int, tell: Callable[[str], None]) -> Iterator[Listener]:
    """A listener for one tune, which passes everything on, and has the run's report served until the context ends.

    Args:
        listener: The listener that hears of the run.
        port: The port on 127.0.0.1; 0 takes one that is free.
        tell: Is given the address of the page, or why there is none.

    Raises:
        SettingsError: The port is out of range or taken; raised before anything is tuned.

    Cost: half a second of a CPU to start, by a process of the lowest priority, and at most a tenth of a CPU then.
    """
    with _listening(port) as bound:
        watch = _Watch(listener, bound, tell)
        try:
            yield watch
        finally:
            watch.end()
        if not watch.begun:
            tell("--watch: the winner was known and nothing was tuned, so there is nothing to watch; --force tunes")


def _listening(port: int) -> socket.socket:
    if not 0 <= port <= _LARGEST_PORT:
        raise SettingsError(f"--watch-port {port} is no port", hint=f"give 1 to {_LARGEST_PORT}, or 0 for a free one")
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
        found.listen()
    except OSError as error:
        found.close()
        raise SettingsError(
            f"port {port} of {HOST} cannot be used: {error.strerror or error}", hint="leave --watch-port out"
        ) from error
    return found


class _Watch:
    """A listener that has the report served from the moment when the run has a log.

    Attributes:
        begun: Whether a run has started.
    """

    def __init__(self, listener: Listener, bound: socket.socket, tell: Callable[[str], None]) -> None:
        self._listener = listener
        self._bound = bound
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self.begun = False

    def started(self, plan: RunPlan) -> None:
        """Serve the run's log, and tell where."""
        self.begun = True
        if plan.log is None:
            self._tell("--watch: this run keeps no log, so that there is nothing to watch")
        else:
            self._serve(plan.log)
        self._listener.started(plan)

    def tried(self, trial: Trial, progress: RunProgress) -> None:
        """Pass it on."""
        self._listener.tried(trial, progress)

    def ended(self, result: TuningResult | None) -> None:
        """Pass it on; the log gets its last lines after this."""
        self._listener.ended(result)

    def end(self) -> None:
        """Have the process give the last state to pages that are open, and end."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _serve(self, log: Path) -> None:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        try:
            self._process = subprocess.Popen(
                command("triton_ops.report.live.process", os.getpid(), self._bound.fileno(), log.absolute()),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(self._bound.fileno(),), start_new_session=True, env=settings.for_child({}, new_mark()),
            )  # fmt: skip
            assert self._process.stdin is not None
            self._process.stdin.write(f"{token}\n".encode())  # not an argument, which other users could read
            self._process.stdin.flush()
        except (OSError, DeviceError) as error:
            self._tell(f"--watch: no process can be started for it: {error}")
            return
        self._tell(f"watch this run at http://{HOST}:{self._bound.getsockname()[1]}/{token}/ while it goes on")
