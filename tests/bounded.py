"""A Python process of a test that has so many seconds, and is ended with whatever it has started.

`subprocess.run` with a limit is not enough for programs that start others: it reads pipes that these keep open, and
waits for them after it has ended the program. What is printed goes to files here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """What became of a process: its exit code, None if its seconds were over, and what it has printed."""

    code: int | None
    printed: str
    told: str


def bounded(*words, limit_s, env=None):
    """Run `python WORDS` in a session of its own; it has `limit_s` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        with out.open("wb") as printed, err.open("wb") as told:
            process = subprocess.Popen([sys.executable, *words], env=env, stdin=subprocess.DEVNULL, stdout=printed,
                                       stderr=told, start_new_session=True)  # fmt: skip
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):  # all have ended
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return Ended(code, out.read_text(errors="replace"), err.read_text(errors="replace"))
