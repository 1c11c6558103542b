"""Rows that another process makes one after the other, each within its own limit: one that hangs costs no other.

A kernel that waits for itself never ends, and the process that launched it cannot end it; one that reads the wrong
memory leaves its process without a GPU. So rows are made in a process that can be ended; the next row then begins in a
fresh one. A script has two sides: `rows_apart` asks for rows, and `serve` makes them, in the same script with other
words.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from triton_ops.processes.child import die_with

Task: TypeAlias = list[str]
Row: TypeAlias = dict[str, Any]
START_S = 60.0  # for the imports of a process, and its first use of the GPU
_END_S = 10.0  # for a process that was killed
_READY, _ROW, _LAST = "ready for rows", "row: ", "last row: "


def rows_apart(command: Sequence[str], tasks: Sequence[Task], each_s: float, end: float) -> Iterator[tuple[Task, Row]]:
    """The row of each task, in order; for one that could not be made, `verdict` says why, with the word Error.

    Args:
        command: Starts a process that calls `serve`.
        tasks: What `serve` is to make rows of.
        each_s: Seconds for one row, after which its process is ended.
        end: When no further row begins, by the monotonic clock.
    """
    remaining = list(tasks)
    while remaining and time.monotonic() < end:
        worker = _Worker(command, remaining)
        try:
            worker.wait_until_ready()
            while remaining and time.monotonic() < end:
                yield remaining.pop(0), worker.row(each_s)
                if not worker.alive:
                    break
        finally:
            worker.end()


def serve(make: Callable[[Task], Row], begin: Callable[[], Any]) -> int:
    """In the other process: write the row of each task that is asked for on stdin; returns the exit code.

    Args:
        make: Makes the row of a task.
        begin: Uses the device a little; called before any row's seconds count, and after each row. Where it raises, the
            process can make no more rows.
    """
    die_with(os.getppid())
    tasks = json.load(sys.stdin)
    begin()
    print(f"\n{_READY}", flush=True)
    for task in tasks:
        row = make(task)
        usable = _works(begin)
        print(f"\n{_ROW if usable else _LAST}{json.dumps(row)}", flush=True)
        if not usable:
            return 1
    return 0


def _works(begin: Callable[[], Any]) -> bool:
    try:
        begin()
    except RuntimeError as error:  # what a faulty kernel leaves behind
        print(f"the device cannot be used any more: {error}", file=sys.stderr)
        return False
    return True


class _Worker:
    """A process that makes rows.

    Attributes:
        alive: Whether it may make a further one.
    """

    def __init__(self, command: Sequence[str], tasks: Sequence[Task]) -> None:
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.alive, self._said, self._failed = True, "", ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        with contextlib.suppress(BrokenPipeError):  # it has ended; its rows say how
            assert self._process.stdin is not None
            json.dump(tasks, self._process.stdin)
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put(None)

    def wait_until_ready(self) -> None:
        """Wait until it can make rows, or cannot; its first row then says why."""
        self._failed = self._next((_READY,), START_S)[1]

    def row(self, limit_s: float) -> Row:
        """The next row, or why there is none."""
        line, why = ("", self._failed) if self._failed else self._next((_ROW, _LAST), limit_s)
        self.alive = line.startswith(_ROW)
        return {"verdict": why} if why else dict(json.loads(line.partition(": ")[2]))

    def _next(self, starts: tuple[str, ...], limit_s: float) -> tuple[str, str]:
        """The next line that starts so, or why there is none."""
        end = time.monotonic() + limit_s
        while True:
            try:
                line = self._lines.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                return "", f"Error: ended after {limit_s:g} s"
            if line is None:
                return "", f"Error: its process ended with {self._process.wait()}: {self._said}"[:400]
            if line.startswith(starts):
                return line, ""
            self._said = line or self._said

    def end(self) -> None:
        """End it, with all that it has started."""
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that is stuck must not hold up the others
            self._process.wait(_END_S)
        self._reader.join(_END_S)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()
