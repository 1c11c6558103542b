"""The two ends of a worker process: a handle that asks one question at a time, each with time limits, and its child.

The worker is a new interpreter with its own imports. `multiprocessing` would run the caller's script again in it, and
most scripts tune at their top level. The worker has a process group of its own, so that Ctrl-C reaches only the caller,
which then ends the worker; and it dies with its caller, however the caller ends (`Child`).

Linux ends a child that asks for it together with the thread that started it, not with the process. A tune in a thread
of the user's, or of a run of many problems, would take the process that it leaves to the next tune with it. So the
thread that starts a worker lasts as long as that, and reads its output meanwhile.
"""

from __future__ import annotations

import contextlib
import io
import math
import mmap
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from triton_ops import settings
from triton_ops.base import OwnFile, TemporaryFolder
from triton_ops.exceptions import DeviceError
from triton_ops.processes import child
from triton_ops.processes.apart import Apart
from triton_ops.processes.channel import PICKLES, AwakeClock, Channel, ChildsEnd, GarbledError, Reader
from triton_ops.processes.confined import confine
from triton_ops.processes.fork_server import Fork, ForkServer

_Handle: TypeAlias = subprocess.Popen[bytes] | Apart | Fork
_LINES = 20  # of a worker's output that are kept
_PART = 1 << 16  # characters that are read at once: a line may never end
_NOTHING: Mapping[str, str] = MappingProxyType({})
_TAKES_S = 60.0  # for a message to be read
_EXIT_S = 2.0  # waited for a process that closed its pipe to end
_LINES_S = 0.05  # until the last lines of a copy that has ended are read


@dataclass(frozen=True)
class StepStarted:
    """A worker's message that a step begins; a step may have a time limit of its own."""

    step: str


@dataclass(frozen=True)
class CopyEnded:
    """A worker's message that the copy of it that should have answered has ended with this code."""

    code: int


class WorkerLostError(Exception):
    """The worker, or its copy that should have answered, ended without an answer during the step announced last.

    `hung` is whether it did not answer in time, and was killed; `outside`, whether a signal that people and systems
    send ended it, rather than a crash.
    """

    def __init__(self, message: str, during: str, *, hung: bool = False, outside: bool = False) -> None:
        super().__init__(message)
        self.during, self.hung, self.outside = during, hung, outside


class Child:
    """This process as the program of a worker, which answers questions until the pipe is closed.

    It is made before anything else, and dies with its parent from then on. `packages` are to be imported, and `device`
    is the one to be readied. One that is `early` was started for a task that may never come. `write` makes bytes of its
    messages.
    """

    def __init__(self, write: Callable[[Any], bytes] = pickle.dumps) -> None:
        questions, answers, parent = (int(word) for word in sys.argv[2:5])
        # An early one is given no parent: that is its keeper, whose number nobody knew when the words were written.
        self.die_with(parent or os.getppid())
        self.early = child.Leftovers.own().kept
        self.device, self.packages = sys.argv[5], tuple(sys.argv[6:])
        self._pid, self._end = os.getpid(), ChildsEnd(questions, answers, write)
        self.receive, self.messages = self._end.receive, self._end.messages

    step = StepStarted  # the message that a step begins
    confine = staticmethod(confine)  # this process, before code runs in it that may be a stranger's

    @staticmethod
    def die_with(parent: int) -> None:
        """Have this process and all that it starts end with its parent; where memory runs out it ends first."""
        child.die_with(parent, child.Leftovers.own(), expendable=True)

    @staticmethod
    def start(module: str, *words: object, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        """Start another program, whose `main` finds this process's id and `words`, with a pipe as its input.

        Raises `OSError` or `DeviceError` where no process can be started.
        """
        return subprocess.Popen(
            child.command(module, os.getpid(), *words), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, pass_fds=pass_fds, start_new_session=True,
            env=settings.for_child({}, child.new_mark()),
        )  # fmt: skip

    def await_task(self) -> bool:
        """Wait for the task of an early one, and take over its environment; False if the pipe is closed instead."""
        with contextlib.suppress(EOFError):
            if self.early:
                settings.restore_environment(self.receive())
            return True
        return False

    def send(self, message: object) -> None:
        """Send a message; a copy of this process, which code of the user's has forked, ends here."""
        if os.getpid() != self._pid:
            os._exit(1)
        self._end.send(message)

    def send_from_copy(self, answer: Callable[[], object]) -> None:
        """Have a copy of this process make an answer and send it: what that runs changes and ends only the copy."""
        answered = mmap.mmap(-1, 1)  # shared, since the user's code may end the copy with any code, 0 too
        parent, pid = os.getpid(), os.fork()
        if not pid:
            try:
                child.die_with(parent, expendable=True)
                self._pid = os.getpid()
                self.send(answer())
                answered[0] = True
            except BaseException:  # noqa: BLE001 - whatever it is, the copy ends here and does not go on as its parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(not answered[0])
        status = os.waitpid(pid, 0)[1]
        if not answered[0]:
            self.send(CopyEnded(os.waitstatus_to_exitcode(status)))


class WorkerProcess:
    """A worker process that answers questions; `step` is the one that it announced last.

    It imports packages before the first question, since that takes seconds, and readies a GPU meanwhile, `cuda` or
    `cuda:N`; no other device is readied. It runs the `main` of the module `program`, with `changes` of its environment,
    or is forked by the server of a program. One that is `duplex` is not asked: each side sends messages when it likes.
    It has the `files` open under their numbers, and `reader` makes messages of its bytes.
    `DeviceError` if no process can be started here.

    With `early_s` it is early, for a question that may never come: it is no child of this process, no thread of this
    process looks after it, it ends after so many seconds, and has the environment only once it is to `stay`.
    """

    def __init__(
        self, imports: Sequence[str] = (), device: str = "", *, program: str | ForkServer, files: Sequence[int] = (),
        changes: Mapping[str, str] = _NOTHING, duplex: bool = False, early_s: float = 0.0, reader: Reader = PICKLES,
    ) -> None:  # fmt: skip
        self._family, self._temporary = child.new_mark(), TemporaryFolder()
        self._listener: threading.Thread | None = None
        self._unheard: OwnFile | None = None  # the output of an early one
        hint = "end other processes or close files, or run it inline"
        failures = (OSError, RuntimeError, EOFError)  # no thread can be started, the fork server is gone
        with DeviceError.when("no process can be started", hint, *failures), contextlib.ExitStack() as undo:
            undo.callback(self._temporary.remove)
            ends = self._start(undo, program, device, imports, changes, early_s, files)
            self._channel = Channel(*ends, duplex=duplex, reader=reader)
            undo.pop_all()
        self.equipment = tuple(imports), device
        self._question_begun: Any = None
        self.step = ""

    def _start(
        self, undo: contextlib.ExitStack, program: str | ForkServer, device: str, imports: Sequence[str],
        changes: Mapping[str, str], early_s: float, files: Sequence[int],
    ) -> tuple[OwnFile, OwnFile]:  # fmt: skip
        """Start the process, and the thread that reads its output; the files of its connection.

        `undo` has what a failure is to undo.

        Raises `OSError`, `EOFError` or `RuntimeError` where a file, a process or a thread cannot be had.
        """
        with contextlib.ExitStack() as theirs:
            answers, answers_in = _pipe(undo, theirs)
            questions_out, questions = _pipe(theirs, undo, large=True)
            lines, lines_in = _pipe(undo, theirs)
            there, output = (questions_out.fileno(), answers_in.fileno()), lines_in.fileno()
            passed = (*there, *files)
            leftovers = child.Leftovers(self._family, self._temporary.path)
            words = (*there, os.getpid() if isinstance(program, str) and not early_s else 0, device, *imports)
            # On a GPU torch need not look for further backends among all packages.
            own = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if device.startswith("cuda") else {}
            environment = partial(child.environment, {**own, **changes}, self._family, self._temporary.path)
            self._lines: deque[str] = deque(maxlen=_LINES)
            if isinstance(program, ForkServer):
                given = (*passed, 1, 2), child.command("", *words, leftovers=leftovers)
                self._listen(lines, lambda: program.start(given, (*passed, output, output)))
            elif early_s:
                self._process: _Handle = Apart(
                    program, *words, leftovers=leftovers, life_s=early_s, output=output, files=passed,
                    env=environment(starting=True),
                )  # fmt: skip
                self._unheard, self._environment = lines, environment
            else:
                command = child.command(program, *words, leftovers=leftovers)
                self._listen(lines, lambda: subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=passed,
                    env=environment(), start_new_session=True,
                ))  # fmt: skip
        # The last callback is called first: the process is killed, and then waited for.
        undo.callback(self._process.wait)
        undo.callback(self._process.kill)
        return answers, questions

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Tell whether the worker runs, and can be asked.

        It is not reaped here, so that its process group keeps its number.
        """
        if self._process.returncode is not None or not self._channel.held:
            return False
        if not isinstance(self._process, subprocess.Popen):
            return self._process.poll() is None
        try:
            if not hasattr(os, "waitid"):  # macOS, before Python 3.13
                return self._process.poll() is None
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
        except ChildProcessError:  # the user's program waits for all its children, so another one may have the number
            self._process.poll()  # notes the end, so that `kill` signals nobody
            return False

    @property
    def has_written(self) -> bool:
        """Tell whether something of the worker waits to be read, as its answer to what was begun, or its end."""
        return self._channel.arrives(0)

    def stay(self) -> bool:
        """Have an early worker stay for its task, in the environment of this process now; it is killed if it cannot."""
        process, lines = self._process, self._unheard
        if not isinstance(process, Apart) or lines is None:
            return True
        with contextlib.suppress(WorkerLostError):
            if process.stay():
                self._unheard = None
                self._listen(lines, lambda: process)
                self._send(self._environment(), AwakeClock(), _TAKES_S)
                return True
        self.kill()
        return False

    def begin(self, question: Any) -> None:
        """Send the beginning of a question, so that the worker can take it up as soon as its imports are done.

        A short question is sent whole. The next question that is asked must be this one. That the worker is gone is
        told by `ask`.
        """
        try:
            self._channel.begin(question)
        except (OSError, GarbledError):
            return
        self._question_begun = question

    def ask(
        self, question: Any, whole_s: float, limits_s: Mapping[str, float], step: str,
        fits: Callable[[Any], bool] = lambda _: True, watch: Callable[[], object] | None = None,
    ) -> Any:  # fmt: skip
        """The worker's answer to a question, which is pickled; seconds in which this process was paused do not count.

        It must be there after `whole_s` seconds; `limits_s` has the seconds for each step that has a limit of its own,
        and under an empty text for each other step. An infinite one is of a step in which others are waited for, whose
        seconds do not count. The worker is at `step` until it announces another. `fits` tells whether a message answers
        the question: the code that is tried may have written it. `watch` is called 20 times a second; what it raises is
        raised.

        Raises:
            WorkerLostError: The worker died, did not answer in time, or wrote what is no answer and was killed.
        """
        clock = AwakeClock(watch=watch)
        self.step = step
        self._send(question, clock, whole_s)
        since_s = 0.0
        while True:
            limit_s = limits_s.get(self.step, limits_s.get("", whole_s))
            waits = limit_s == math.inf
            answer = self._answer(clock, since_s + limit_s, limit_s, limit_s if waits else whole_s)
            if waits:
                clock.go_back(since_s)
            if isinstance(answer, StepStarted) and isinstance(answer.step, str):
                self.step, since_s = answer.step, clock.now()
            elif isinstance(answer, CopyEnded):
                time.sleep(_LINES_S)
                raise WorkerLostError(_ending(answer.code, self.step, self._last_line()), self.step)
            elif isinstance(answer, StepStarted) or not fits(answer):
                raise self._garbled_error(GarbledError.other(answer), outside=False)
            else:
                self._lines.clear()  # they say nothing of how the next question may end
                return answer

    def tell(self, message: Any) -> None:
        """Send a message that is no question, while another thread may `hear`; `WorkerLostError` as `ask`."""
        self._send(message, AwakeClock(), _TAKES_S)

    def hear(self, seconds: float) -> Any:
        """The next message of the process, or None if there is none in so many seconds; `WorkerLostError` as `ask`."""
        return self._answer(AwakeClock(), _TAKES_S, _TAKES_S, _TAKES_S) if self._channel.arrives(seconds) else None

    def pause(self, paused: bool) -> None:
        """Stop the processes of the group of a forked worker, or have them go on."""
        if isinstance(self._process, Fork):
            self._process.signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def kill(self) -> None:
        """Kill the worker and the processes that it has started."""
        if self._process.returncode is None:  # not yet waited for, so no other process can have its number
            child.end_family(self._family)
            if not isinstance(self._process, subprocess.Popen):
                self._process.kill()
            else:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()
        self._temporary.remove()
        if self._listener is not None:
            self._listener.join(_EXIT_S)
        elif self._unheard is not None:
            self._unheard.close()

    def _send(self, question: Any, clock: AwakeClock, whole_s: float) -> None:
        question_begun, self._question_begun = self._question_begun, None
        assert question_begun is None or question_begun is question
        try:
            if question_begun is None:
                self._channel.begin(question)
            self._channel.finish(clock, whole_s)
        except TimeoutError as error:
            self.kill()
            raise WorkerLostError(f"it did not take its task within {whole_s:g} s", self.step, hung=True) from error
        except GarbledError as error:  # by what ran before this question, so that nothing of it is to blame
            raise self._garbled_error(error, outside=True) from error
        except OSError as error:
            raise self._dead(self.step) from error

    def _answer(self, clock: AwakeClock, own_until_s: float, own_s: float, whole_s: float) -> Any:
        try:
            return self._channel.receive(clock, min(own_until_s, whole_s))
        except TimeoutError as error:
            self.kill()
            what, limit_s = (self.step, own_s) if own_until_s <= whole_s else ("trial", whole_s)
            raise WorkerLostError(f"its {what} did not end within {limit_s:g} s", self.step, hung=True) from error
        except GarbledError as error:
            raise self._garbled_error(error, outside=False) from error
        except (EOFError, OSError) as error:
            raise self._dead(self.step) from error

    def _garbled_error(self, error: GarbledError, outside: bool) -> WorkerLostError:
        self.kill()
        message = f"its process wrote {error} into its connection during its {self.step}, and was ended"
        return WorkerLostError(message, self.step, outside=outside)

    def _dead(self, step: str) -> WorkerLostError:
        clock = AwakeClock()
        while (was_alive := self.alive) and clock.now() <= _EXIT_S:
            time.sleep(0.005)
        self.kill()
        killed_here = was_alive and self._process.returncode == -signal.SIGKILL
        code = None if killed_here else self._process.returncode  # of one that was about to end by itself, too
        ending = _ending(code, step, self._last_line())
        return WorkerLostError(ending, step, outside=code is not None and -code in child.OUTSIDE)

    def _last_line(self) -> str:
        return next((line for line in reversed(self._lines) if line), "")

    def _listen(self, lines: OwnFile, start: Callable[[], _Handle]) -> None:
        """Have a thread start the worker, and keep the last lines of its output: a full pipe would stop it."""
        started: Future[_Handle] = Future()
        self._listener = threading.Thread(target=self._read, args=(start, started, lines), daemon=True)
        self._listener.start()
        self._process = started.result()

    def _read(self, start: Callable[[], _Handle], started: Future[_Handle], lines: OwnFile) -> None:
        child.Threads.settle(started, start)
        if started.exception() is not None:  # whoever waits for the worker raises it
            return
        text = io.TextIOWrapper(io.BufferedReader(lines), encoding="utf-8", errors="replace")
        with text, contextlib.suppress(BrokenPipeError):  # closed by the program
            for line in iter(partial(text.readline, _PART), ""):
                self._lines.append(" ".join(line.split())[:200])
        with contextlib.suppress(AttributeError, ChildProcessError):  # macOS before Python 3.13; it has been waited for
            os.waitid(os.P_PID, started.result().pid, os.WEXITED | os.WNOWAIT)  # its output may end before it


def _pipe(
    reader: contextlib.ExitStack, writer: contextlib.ExitStack, *, large: bool = False
) -> tuple[OwnFile, OwnFile]:
    reader_end, writer_end = child.pipe(large=large)
    return reader.enter_context(reader_end), writer.enter_context(writer_end)


def _ending(code: int | None, step: str, last: str) -> str:
    if code is None:
        how = "stopped answering"
    elif code < 0:
        how = f"was killed by {child.signal_name(-code)}"
    else:
        how = f"exited with code {code}"
    return f"its process {how} during its {step}" + (f": {last}" if last else "")
