"""Programs and workers that begin with torch and Triton imported: the imports take seconds of a CPU for each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.program_process import PARENT
from triton_ops.processes import copies

_PROCESS = Path(__file__).with_name("program_process.py")


class Programs:
    """Starts the process that programs are forked from once one is needed.

    For programs whose own imports are not what a test is about. Each is a process of its own, with its environment,
    folder, search path and streams, is the main module of its process, and ends as any other. What a test starts is a
    small process that waits for it: that ends as the program does, and the program ends where that is killed.

    Args:
        imports: What programs find imported beside torch and Triton.
        other: The programs one of which is the process with these imports.
    """

    def __init__(self, imports=(), other=None):
        self._imports, self._other, self._folder, self._process = imports, other, None, None

    @property
    def command(self):
        """The words that begin a command in place of `python`, before `-c TEXT`, `-m MODULE` or a file."""
        return self._with_files([]) if hasattr(os, "pidfd_open") else [sys.executable]

    def begin_worker(self, words, streams, files, env, role):
        """As `begin` of the package's copies."""
        if not hasattr(os, "pidfd_open"):
            return copies.begin(words, streams, files, env, role)
        own = [PARENT if word == str(os.getpid()) else word for word in words[1:]]
        return subprocess.Popen(
            [*self._with_files(files), *own], stdin=subprocess.DEVNULL, stdout=streams[0], stderr=streams[1],
            pass_fds=files, env=env, start_new_session=True,
        )  # fmt: skip

    def close(self):
        """End the process; programs that run go on, and workers end."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(30)
            self._folder.cleanup()

    def _with_files(self, files):
        if self._process is None:
            self._begin()
        return [sys.executable, "-I", "-S", str(_PROCESS), "ask", self._address, ",".join(map(str, files))]

    def _begin(self):
        self._folder = tempfile.TemporaryDirectory()  # tests' own are too deep for the address of a socket
        self._address = f"{self._folder.name}/programs"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen(64)
            files = [listener.fileno()]
            python = self._other._with_files(files) if self._other else [sys.executable]
            self._process = subprocess.Popen(
                [*python, _PROCESS, "serve", str(listener.fileno()), *self._imports],
                env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHONP", "TRITON"))},
                stdin=subprocess.PIPE, pass_fds=files,
            )  # fmt: skip
