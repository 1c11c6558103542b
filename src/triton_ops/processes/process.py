"""A worker process, seen from the process that started it: one question at a time, each with its time limits.

The worker is a new interpreter that imports what it needs. `multiprocessing` would run the caller's script again in
it, which tunes at its top level more often than not. It gets a process group of its own, so that a Ctrl-C reaches the
caller only, who decides; and it dies with its caller, however that ends (`triton_ops.evaluation.worker`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from triton_ops import settings
from triton_ops.processes.child import OUTSIDE, command

FRAME = struct.Struct("!Q")
"""Before each question: how many bytes it takes, pickled."""
_WORDS = 20  # lines of what a worker wrote to stderr that are kept
_GOODBYE_S = 2.0


@dataclass(frozen=True)
class Began:
    """A worker's word that something begins, which has a time limit of its own."""

    what: str


class WorkerDiedError(Exception):
    """The process ended without an answer.

    Attributes:
        during: What it had begun.
        outside: Whether it was a signal that people and systems send, rather than a crash.
    """

    def __init__(self, said: str, during: str, outside: bool) -> None:
        super().__init__(said)
        self.during = during
        self.outside = outside


class WorkerHungError(Exception):
    """The process did not answer in time, and was killed.

    Attributes:
        during: What it had begun.
    """

    def __init__(self, said: str, during: str) -> None:
        super().__init__(said)
        self.during = during


class WorkerProcess:
    """A process that answers questions.

    Attributes:
        begun: What it said last that it had begun.

    Args:
        imports: Packages that it imports before it is asked anything, as they take seconds.
        device: The GPU that it readies meanwhile, `cuda` or `cuda:N`; nothing is done for others.

    Raises:
        DeviceError: No process can be started here.
    """

    def __init__(self, imports: Sequence[str] = (), device: str = "") -> None:
        here, there = _pipes()
        words_out, words_in = os.pipe()
        try:
            self._process = subprocess.Popen(
                command("triton_ops.evaluation.worker", *there, os.getpid(), device, *imports),
                stdin=subprocess.DEVNULL,
                stdout=words_in,
                stderr=words_in,
                pass_fds=there,
                start_new_session=True,
                env=_environment(device),
            )
        except BaseException:
            for descriptor in (*here, words_out):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (*there, words_in):
                os.close(descriptor)
        self._in, self._out = Connection(here[0], writable=False), here[1]
        os.set_blocking(self._out, False)
        self.begun = ""
        self._words: deque[str] = deque(maxlen=_WORDS)
        self._listener = threading.Thread(target=self._listen, args=(words_out,), daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, question: Any, whole_s: float, limits_s: Mapping[str, float], begun: str) -> Any:
        """The worker's answer.

        Args:
            question: What is asked.
            whole_s: Seconds for all of it.
            limits_s: Seconds for what the worker says it has begun; other things have no limit of their own.
            begun: What it is at until it says otherwise.

        Raises:
            WorkerDiedError: It died; the process is cleaned up.
            WorkerHungError: It did not answer in time; it is killed.
        """
        start = since = time.monotonic()
        self.begun = begun
        try:
            self._send(question, whole_s, begun)
            while True:
                own, whole = since + limits_s.get(begun, whole_s), start + whole_s
                if not self._in.poll(max(0.0, min(own, whole) - time.monotonic())):
                    limit = limits_s.get(begun, whole_s) if own <= whole else whole_s
                    self.kill()
                    what = begun if own <= whole else "trial"
                    raise WorkerHungError(f"its {what} did not end within {limit:g} s", begun)
                answer = self._in.recv()
                if not isinstance(answer, Began):
                    return answer
                self.begun = begun = answer.what
                since = time.monotonic()
        except (EOFError, OSError) as error:
            raise self._dead(begun) from error

    def kill(self) -> None:
        """End it and all that it has started, now."""
        if self._process.returncode is None:  # not yet waited for, so its number is nobody else's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            self._in.close()
        if self._out >= 0:
            os.close(self._out)
            self._out = -1
        self._listener.join(_GOODBYE_S)

    def _send(self, question: Any, whole_s: float, begun: str) -> None:
        """Send it: a pipe holds little, so a worker that does not read is ended when the time is over."""
        if self._out < 0:
            raise BrokenPipeError("it was ended before")
        content = pickle.dumps(question)
        left, end = memoryview(FRAME.pack(len(content)) + content), time.monotonic() + whole_s
        room = select.poll()
        room.register(self._out, select.POLLOUT)
        while left:
            if not room.poll(max(0.0, end - time.monotonic()) * 1e3):
                self.kill()
                raise WorkerHungError(f"it did not take its task within {whole_s:g} s", begun)
            left = left[os.write(self._out, left) :]

    def _dead(self, begun: str) -> WorkerDiedError:
        ended = self._await_end()
        self.kill()
        code = self._process.returncode if ended else None
        last = next((line for line in reversed(self._words) if line), "")
        return WorkerDiedError(_ending(code, begun, last), begun, code is not None and -code in OUTSIDE)

    def _await_end(self) -> bool:
        """Whether it ends within a moment; it stays to be waited for, so that its group can still be named."""
        end = time.monotonic() + _GOODBYE_S
        while self._process.returncode is None:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def _listen(self, descriptor: int) -> None:
        """Keep the last lines; a pipe that nobody reads would stop the worker."""
        with open(descriptor, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self._words.append(" ".join(line.split())[:200])


def _environment(device: str) -> dict[str, str] | None:
    """Without torch's search for backends of others, for which it reads what every installed package says of itself."""
    return settings.for_child({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) if device.startswith("cuda") else None


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Descriptors to read and to write: ours, and the worker's."""
    answers_out, answers_in = os.pipe()
    questions_out, questions_in = os.pipe()
    return (answers_out, questions_in), (questions_out, answers_in)


def _ending(code: int | None, begun: str, last: str) -> str:
    if code is None:
        how = "stopped answering"
    elif code < 0:
        how = f"was killed by {_signal_name(-code)}"
    else:
        how = f"exited with code {code}"
    return f"its process {how} during its {begun}" + (f": {last}" if last else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
