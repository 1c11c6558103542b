"""A question to a new process that answers once: a pickled request on its stdin, bytes on its stdout."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from triton_ops.processes.child import Leftovers, command, die_with, environment
from triton_ops.processes.family import end_family, new_mark


def asked(
    module: str, request: Any, changes: Mapping[str, str], limit_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """What the `main` of a module answered in a process of its own, which has ended with all that it has started.

    Args:
        module: Full name of the module; its `main` begins with `question`.
        request: What it is asked.
        changes: Changes of the environment, by name.
        limit_s: Seconds after which the process is ended; None waits for as long as it takes.

    Raises:
        DeviceError: No process can be started here.
        subprocess.TimeoutExpired: The limit has passed.
    """
    mark = new_mark()
    words = command(module, os.getpid(), leftovers=Leftovers(mark))
    try:
        return subprocess.run(
            words, input=pickle.dumps(request), capture_output=True, env=environment(changes, mark), timeout=limit_s,
            check=False, start_new_session=True,
        )  # fmt: skip
    finally:
        end_family(mark)


def question() -> tuple[Any, int]:
    """In the process that is asked: the request, and where `answer` writes to; what user code prints goes to stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    die_with(int(sys.argv[2]), Leftovers.own())
    return pickle.load(sys.stdin.buffer), kept


def answer(where: int, content: bytes) -> None:
    """Write the whole answer."""
    left = memoryview(content)
    while left:
        left = left[os.write(where, left) :]
