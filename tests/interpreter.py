"""A process in which Triton's kernels run as Python: tests send it functions of their own, and get what they return.

Triton reads TRITON_INTERPRET when it is imported, and it must not stay behind in the tests' own process. One process
serves all tests of a session, since its imports cost two seconds.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import traceback


class Interpreter:
    """Calls functions in a process where `TRITON_INTERPRET` is set."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interpreter"],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __call__(self, function, *args, **kwargs):
        """What a function at the top of a test's module returns there; an error there is an assertion's here."""
        pickle.dump((function.__module__, function.__qualname__, args, kwargs), self._process.stdin)
        self._process.stdin.flush()
        right, found = pickle.load(self._process.stdout)
        assert right, found
        return found

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def serve(questions, answers):
    """Answer until the other side closes."""
    while True:
        try:
            module, name, args, kwargs = pickle.load(questions)
        except EOFError:
            return
        try:
            answer = True, getattr(importlib.import_module(module), name)(*args, **kwargs)
        except BaseException:  # noqa: BLE001 - whatever it is, it is the other side's
            answer = False, traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the functions print is no answer
    serve(sys.stdin.buffer, own)
