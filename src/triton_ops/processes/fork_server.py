"""Processes that outlast a tune: fork servers, and the places where processes wait idle for the next one.

A fork server never runs the user's code and has one thread when it forks. Each process that it forks leads a process
group of its own, and has a connection to its user and a file for its stderr. When the fork server is gone, however it
ended, such a process ends itself and whatever it has started. The fork server's own program makes `ForkRequests`; that
of `WorkerProcess`es is `main` here.

Users that are there at the same time and need the same fork from one server. It is idle when the last of them has given
it back.

What is kept idle must do for the next tune as a new one would: it is taken only for what it has, and only while the
program has the environment, folder, rights and limits with which it was put there. It is ended if no tune follows soon.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import operator
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from triton_ops import base, settings
from triton_ops.base import OwnFile, TemporaryFolder, at_fork
from triton_ops.exceptions import DeviceError
from triton_ops.processes import child
from triton_ops.processes.channel import AwakeClock, Channel, ChildsEnd


class _Ending(Protocol):
    """What may wait: a process that may end meanwhile."""

    @property
    def alive(self) -> bool: ...


Process = TypeVar("Process", bound=_Ending)


@dataclass(eq=False)
class _Place(Generic[Process]):
    """One process that waits: what it has and has inherited, whose place it takes, its timer, its thread of rest.

    Neither the timer nor the thread of an early one is started.
    """

    process: Process
    equipment: Hashable
    around: Hashable
    where: Hashable
    timer: threading.Timer
    rest_thread: threading.Thread
    early: bool


class IdleProcesses(Generic[Process]):
    """Some processes that wait; safe to share among threads. They are ended with this process at the latest.

    Of `most` at a time, the oldest gives its place to a further one. `serves` tells whether what a process has, its
    first argument, does for what is needed.
    """

    IDLE_S: ClassVar[float] = 15.0

    def __init__(
        self, end: Callable[[Process], object], most: int, serves: Callable[[Any, Any], bool] = operator.eq
    ) -> None:
        self._end, self._most, self._serves = end, most, serves
        self._guard = threading.Lock()
        self._places: list[_Place[Process]] = []
        self._closed = False
        atexit.register(self.close)
        at_fork(self.abandon)

    @staticmethod
    def inherited(*, early: bool = False) -> Hashable:
        """What a process that began now would inherit: environment, folder, rights, limits.

        Of the environment the name of pytest's test does not count, and where it is early only what starts read.
        """
        here = base.Process(os.getpid())
        rights = (tuple(here.rights.items()), here.bequest) if base.Process.numbers_are_own() else None
        own = settings.starting_environment() if early else settings.users_environment("PYTEST_CURRENT_TEST")
        return own, settings.current_folder(), rights

    def put(
        self, process: Process, equipment: Hashable, where: Hashable, rest: Callable[[], bool] = lambda: True,
        idle_s: float = IDLE_S, *, early: bool = False,
    ) -> None:  # fmt: skip
        """Keep a process for a while, in place of another one there, or of the oldest if there are too many.

        Its equipment is what it has, such as packages that it has imported; `where` is what only one idle process is to
        occupy, such as a device. `rest` has it give up what it holds, in a thread of its own; it is ended if the answer
        is False, and after `idle_s` seconds. An `early` one holds nothing and ends by itself: no thread is started.
        """
        rest_thread = threading.Thread(target=self._rest, args=(process, rest), name="triton-ops rest", daemon=True)
        timer = threading.Timer(idle_s, self._late, args=(process,))
        timer.daemon = True
        place = _Place(process, equipment, self.inherited(early=early), where, timer, rest_thread, early)
        ended = [process]
        with self._guard:
            if not self._closed:
                over = [each for each in self._places if each.where == where]
                if len(self._places) - len(over) >= self._most:
                    over.append(next(each for each in self._places if each not in over))
                for each in over:
                    self._empty(each)
                ended = [each.process for each in over]
                try:
                    for thread in () if early else (timer, rest_thread):
                        thread.start()
                    self._places.append(place)
                except RuntimeError:  # the system has no thread left, and nothing would end it
                    timer.cancel()
                    ended.append(process)
        # Outside of the guard: to end a process takes a while, in which other threads put and take theirs.
        for gone in ended:
            self._end(gone)

    def take(self, needs: Hashable) -> Process | None:
        """The process that serves these needs, once it rests; None without one, or if it has ended meanwhile."""
        with self._guard:
            place = self._place_for(needs)
        if place is None:
            return None
        if not place.early:
            place.rest_thread.join()
        with self._guard:
            process = self._empty(place)
        if process is None or process.alive:
            return process
        self._end(process)
        return None

    def holds(self, process: Process) -> bool:
        """Tell whether this process waits here."""
        return any(each.process is process for each in tuple(self._places))

    def waits(self, needs: Hashable) -> bool:
        """Tell whether a process waits here that `take` would give."""
        return self._place_for(needs) is not None

    def _place_for(self, needs: Hashable) -> _Place[Process] | None:
        able = [each for each in tuple(self._places) if self._serves(each.equipment, needs) and each.process.alive]
        return next((each for each in able if each.around == self.inherited(early=each.early)), None)

    def drop(self) -> None:
        """End all processes that wait."""
        with self._guard:
            processes = [self._empty(each) for each in tuple(self._places)]
        for process in filter(None, processes):
            self._end(process)

    def close(self) -> None:
        """End all processes that wait, and from now on each that is put here: this process is about to end."""
        with self._guard:
            self._closed = True
        self.drop()

    def abandon(self) -> None:
        """Forget the processes, which are the parent's: in a forked child."""
        # A new lock: another thread, which is not in this child, may have held the old one when the parent forked.
        self._guard = threading.Lock()
        self._places = []

    def _rest(self, process: Process, rest: Callable[[], bool]) -> None:
        if not rest():
            self._late(process)

    def _late(self, process: Process) -> None:
        with self._guard:
            place = next((each for each in self._places if each.process is process), None)
            abandoned = None if place is None else self._empty(place)
        if abandoned is not None:
            self._end(abandoned)

    def _empty(self, place: _Place[Process]) -> Process | None:
        """The process of a place that is given up; None if somebody was faster. The guard is held."""
        if place not in self._places:
            return None
        self._places.remove(place)
        place.timer.cancel()
        return place.process


_FORK, _CODE = b"f", b"c"
"""The two questions: fork a process, which gets the descriptors sent along; tell the exit code of a process."""
_QUESTION, _ANSWER = struct.Struct("<cq"), struct.Struct("<q")
"""A question with the id of a process, or with `_FORK` the bytes of its words, which follow as JSON; and its answer,
the id of the new process or the exit code."""
_RUNNING = 1 << 20  # the answer in place of an exit code while a process runs; no exit code is so large
_START_TIMEOUT_S = 120.0  # the first answer waits for the imports, on a slow disk and with all cores busy
_EXIT_S = 2.0  # a connection may be closed a moment before its process ends
_KILLED_S = 30.0  # a process that was killed frees its memory first, and is not reaped before that
_EXIT_CHECK_S = 0.005  # between two questions for the exit code of a process that is about to end
_PARENT_CHECK_S = 0.25  # the parent may end while another process still holds the other end of the socket


class ForkServer:
    """The handle of a fork server, whose program `module` finds `words` from `sys.argv[4]` on; safe among threads.

    With `starting` it has only the variables that starts read. `OSError` or `DeviceError` if no process can be started.
    Its users say what its `equipment` is.
    """

    equipment: Any = None

    def __init__(self, module: str, *words: str, changes: Mapping[str, str], starting: bool = False) -> None:
        self._lock = threading.Lock()
        self._family = child.new_mark()
        self._ended_here = False
        with contextlib.ExitStack() as undo:
            self._temporary = TemporaryFolder()  # of all that it forks
            undo.callback(self._temporary.remove)
            self._errors = undo.enter_context(child.file_without_a_name())
            ours, theirs = child.socket_pair()
            self._socket = undo.enter_context(ours)
            leftovers = child.Leftovers(self._family, self._temporary.path)
            with theirs:
                self._process = subprocess.Popen(
                    child.command(module, theirs.fileno(), os.getpid(), *words, leftovers=leftovers),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors.fileno(),
                    pass_fds=(theirs.fileno(),), start_new_session=True,
                    env=child.environment(changes, self._family, self._temporary.path, starting=starting),
                )  # fmt: skip
            undo.pop_all()

    def start(self, words: Sequence[Any], descriptors: Sequence[int]) -> Fork:
        """A new process, which gets these words and copies of these descriptors; raises as `fork`."""
        return Fork(self, self._ask(_FORK, 0, json.dumps(words).encode(), descriptors))

    def fork(self) -> ForkedProcess:
        """A new process, which waits for questions on its connection; `OSError` if no more files can be opened.

        `EOFError` if the fork server is gone, or has not finished its imports in time; `last_line` tells more.
        """
        with contextlib.ExitStack() as undo:
            errors = undo.enter_context(child.file_without_a_name())
            here, there = map(undo.enter_context, child.socket_pair())
            with there:
                pid = self.start((), (there.fileno(), errors.fileno())).pid
            undo.pop_all()
        return ForkedProcess(self, pid, Channel(here, here), errors)

    def code_of(self, pid: int) -> int | None:
        """The exit code of a process, or minus the number of the signal that ended it; None while it runs."""
        answer = self._ask(_CODE, pid)
        return None if answer == _RUNNING else answer

    def last_line(self) -> str:
        """The last line that the fork server itself wrote to stderr; empty if it wrote nothing."""
        return _last_line(self._errors)

    def kill(self) -> None:
        """Kill the fork server and wait until it is gone; the processes that it has forked end a moment later.

        A question that is under way ends with EOFError.
        """
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                self._ended_here = True
                child.end_family(self._family)  # what hides its mark is found below the process only while that lives
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Kill the fork server with all that it has started; close its socket, and remove its files."""
        self.kill()
        child.end_family(self._family)
        self._temporary.remove()
        with self._lock:  # a thread that waits for an answer first learns that there is none
            self._socket.close()
            self._errors.close()

    @property
    def alive(self) -> bool:
        """Tell whether the fork server runs, and can be asked."""
        return self._process.poll() is None and self._socket.held

    @property
    def ended_from_outside(self) -> bool:
        """Tell whether a signal of people and systems has ended the fork server."""
        return not self._ended_here and -(self._process.poll() or 0) in child.OUTSIDE

    def _ask(self, question: bytes, about: int, text: bytes = b"", descriptors: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                # A copy of the descriptor, since a socket object closes the one that it was given.
                with socket.socket(fileno=os.dup(self._socket.fileno())) as connection:
                    socket.send_fds(connection, [_QUESTION.pack(question, len(text) or about) + text], descriptors)
                return self._answer()
            except TimeoutError:
                self.kill()  # a late answer must not be taken for the answer to the next question
            except (OSError, EOFError):
                with contextlib.suppress(subprocess.TimeoutExpired):  # how it ended is asked for later
                    self._process.wait(_EXIT_S)
                self.kill()
        raise EOFError("the process that forks others is gone")

    def _answer(self) -> int:
        """The answer to the question that was sent; `TimeoutError` if it is late, else `EOFError` or `OSError`."""
        if not AwakeClock().wait(partial(self._socket.ready, select.POLLIN), _START_TIMEOUT_S):
            raise TimeoutError
        answer = os.read(self._socket.fileno(), _ANSWER.size)
        if len(answer) < _ANSWER.size:
            raise EOFError
        return int(_ANSWER.unpack(answer)[0])


class Fork:
    """A process that a fork server has forked, with what its user needs of a `Popen`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid, self._fork_server = pid, server
        self.returncode: int | None = None
        self._lost = False  # whether the fork server was found to be gone, with which its processes end

    def poll(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it runs.

        It is that of a kill, which is not kept, if the fork server is gone and cannot tell.
        """
        if self.returncode is None and not self._lost:
            try:
                self.returncode = self._fork_server.code_of(self.pid)
            except EOFError:
                self._lost = True
        return -signal.SIGKILL if self._lost else self.returncode

    def wait(self, seconds: float = _KILLED_S) -> int | None:
        """Wait for its end, so many seconds at most; its exit code, or minus the number of the signal that ended it.

        None if it still runs, or if the fork server is gone and cannot tell.
        """
        clock = AwakeClock()
        while self.poll() is None and clock.now() < seconds:
            time.sleep(_EXIT_CHECK_S)
        return self.returncode

    def signal(self, number: int) -> None:
        """Send a signal to the process and to everything that it has started; to nothing once its end is known.

        It ends with its fork server, after which its number may be another's.
        """
        if self.returncode is None and not self._lost and self._fork_server.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the process with everything that it has started, and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait()


class ForkedProcess(Fork):
    """The handle of one process that a fork server has forked, which answers one question at a time."""

    def __init__(self, server: ForkServer, pid: int, channel: Channel, errors: OwnFile) -> None:
        super().__init__(server, pid)
        self.closed = False
        self._channel, self._errors = channel, errors
        self._ended_here = False  # whether it ran on without a connection, and this handle has killed it

    def ask(self, question: Any, timeout_s: float) -> Any:
        """The answer of the process to a question; seconds in which this process was paused do not count.

        Raises `GarbledError` for what is no answer, `TimeoutError` for one that does not come in time, and `EOFError`
        or `OSError` where the process is gone.
        """
        # What it wrote before says nothing of how it may end now.
        os.ftruncate(self._errors.fileno(), 0)
        os.lseek(self._errors.fileno(), 0, os.SEEK_SET)
        clock = AwakeClock()
        self._channel.begin(question)
        self._channel.finish(clock, timeout_s)
        return self._channel.receive(clock, timeout_s)

    def last_words(self) -> str:
        """The end of the process in words: its signal or exit code, and the last line it wrote to stderr."""
        is_late = self.wait(_EXIT_S) is None
        self.kill()
        self._ended_here |= is_late and self.returncode == -signal.SIGKILL
        code = None if self._ended_here else self.returncode
        if code is None:
            how = "is gone"
        else:
            how = f"ended by {child.signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += ", as the system does when memory runs out"
        line = _last_line(self._errors)
        return how + (f": {line}" if line else "")

    @property
    def ended_from_outside(self) -> bool:
        """Tell whether a signal of people or systems ended the process, or its fork server: no crash of its own."""
        return self._lost or (not self._ended_here and -(self.wait(0) or 0) in child.OUTSIDE)

    def close(self) -> None:
        """Kill the process, and close its connection and its file here."""
        self.closed = True
        self.kill()
        self._channel.close()
        self._errors.close()


def _last_line(output: OwnFile, most_bytes: int = 400) -> str:
    content = b""
    with contextlib.suppress(OSError):  # it is closed, maybe by the program
        size = os.fstat(output.fileno()).st_size
        content = os.pread(output.fileno(), most_bytes, max(0, size - most_bytes))
    lines = content.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _serves(equipment: Any, needs: Any) -> bool:
    """Tell whether a server with this equipment does for these needs, which may be those of another program."""
    return type(equipment) is type(needs) and bool(equipment >= needs)


class ForkRequests:
    """The questions to a fork server, in its own program, which makes this before anything else."""

    def __init__(self) -> None:
        self._questions, self.parent = socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
        self._forked: set[int] = set()  # those whose end nobody has asked for yet
        child.guarded(child.Leftovers.own())

    def answer(self, run: Callable[[ChildsEnd], None]) -> None:
        """Answer questions until the socket is closed or the parent is gone; each forked process calls `run`."""
        self.fork_for(partial(_serve, os.getpid(), run))

    def fork_for(self, work: Callable[..., None]) -> None:
        """The same, where each forked process gives `work` its words, and then its descriptors.

        This is not `die_with`: on Linux that ends a process with the thread that started it, which may end early.
        """
        arrived = select.poll()  # the program may have had more files open than `select` knows
        arrived.register(self._questions, select.POLLIN)
        while os.getppid() == self.parent:
            if arrived.poll(_PARENT_CHECK_S * 1000) and not self._answer_one(work):
                return
            self._reap_adopted()

    def _reap_adopted(self) -> None:
        """Reap what forked processes have left, as their guards, which count as processes of the user until then."""
        with contextlib.suppress(AttributeError, ChildProcessError):  # macOS before 3.13, which adopts none; no child
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in self._forked:  # it keeps its number until it is asked for, and may be signalled
                    return
                os.waitpid(ended.si_pid, 0)

    def _answer_one(self, work: Callable[..., None]) -> bool:
        content, descriptors, _, _ = socket.recv_fds(self._questions, _QUESTION.size, 16)
        if len(content) < _QUESTION.size:
            return False
        what, pid = _QUESTION.unpack(content)
        if what == _FORK:
            words = json.loads(self._questions.recv(pid, socket.MSG_WAITALL))
            if not (answer := os.fork()):
                # The copy of the child: while one is open, the socket does not end for the one who asks.
                self._questions.close()
                child.run_forked(partial(work, words, *descriptors))
            self._forked.add(answer)
            # The copies that came with the question: an open one here would keep the connection from ending.
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended_pid else _RUNNING
            self._forked.discard(ended_pid)
        self._questions.sendall(_ANSWER.pack(answer))
        return True


def _serve(fork_server: int, run: Callable[[ChildsEnd], None], _words: object, connection: int, errors: int) -> None:
    os.dup2(errors, 2)
    child.die_with(fork_server)
    run(ChildsEnd(connection, connection))


def main() -> None:
    """The program of a fork server of workers: it imports their program, `sys.argv[4]`, and the packages after it."""
    requests = ForkRequests()
    child.import_heavy(sys.argv[5:], "forking processes")
    requests.fork_for(partial(_work, importlib.import_module(sys.argv[4]).main))


def _work(program: Callable[[], None], words: tuple[list[int], list[str]], *descriptors: int) -> None:
    """Run a program as a new interpreter would: the words are the numbers of its files, and its command line."""
    child.place(descriptors, words[0])
    child.take_over(words[1])
    torchs = getattr(sys.modules.get("torch"), "default_generator", None)
    for generator in filter(None, (torchs, sys.modules.get("numpy.random"))):
        generator.seed()  # Python's own module does so by itself
    program()


_MOST = 2  # idle servers, such as one with torch and one without


class SharedForkServers:
    """The fork servers that users of this process share, and those that they have left; safe among threads."""

    def __init__(self) -> None:
        self._idle: IdleProcesses[ForkServer] = IdleProcesses(methodcaller("close"), _MOST, _serves)
        self.holds, self.drop_idle = self._idle.holds, self._idle.drop
        self._forget()
        at_fork(self._forget)

    def borrow(self, needs: Hashable, make: Callable[[], ForkServer]) -> ForkServer:
        """A fork server that has these needs or more (`>=`): others use it, or it was left, or else it is new."""
        around = self._idle.inherited()
        with self._guard:
            for server, loan in self._loans.items():
                if loan == around and _serves(server.equipment, needs) and server.alive:
                    self._users[server] += 1
                    return server
            if (idle := self._idle.take(needs)) is None:
                idle = make()
                idle.equipment = needs
            self._loans[idle], self._users[idle] = around, 1
            return idle

    def borrow_for(self, program: str, imports: Sequence[str]) -> ForkServer:
        """A fork server of the workers of a program, which has imported packages; `DeviceError` if there can be none.

        It has no code of the user's, and few of the user's variables.
        """
        changes = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # of others' code, which may start threads
        make = partial(ForkServer, __name__, program, *imports, changes=changes, starting=True)
        with DeviceError.when("no process can be started", "end other processes or close files"):
            return self.borrow(frozenset((program, *imports)), make)

    def give_back(self, server: ForkServer) -> None:
        """Need a server no more; after the last user, it is left to the next one, or closed if it has ended."""
        with self._guard:
            if server not in self._loans:
                return
            self._users[server] -= 1
            if self._users[server]:
                return
            del self._loans[server]
        if server.alive:
            self._idle.put(server, server.equipment, server.equipment)
        else:
            server.close()

    def kill_unshared(self, server: ForkServer) -> None:
        """Kill a server unless others use it too; who borrows one meanwhile waits, and gets another."""
        with self._guard:
            if self._users[server] <= 1:
                server.kill()

    def _forget(self) -> None:
        """Forget the servers, in a forked child, whose parent's they are."""
        self._guard = threading.Lock()
        self._loans: dict[ForkServer, Hashable] = {}  # the environment of those in use
        self._users: Counter[ForkServer] = Counter()


fork_servers = SharedForkServers()
