"""Configs compiled ahead, in parallel, by processes that have no GPU; the launching process finds them in the cache.

Each process leads a group of its own, so that a compiler that hangs dies with the process that waits for it, and a
Ctrl-C in the terminal reaches only the process that tunes. They are forked from a program of their own
(`fork_server.py`), not copies of this one: the user's script is not run again, and they never have a GPU context.
"""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from triton_ops._cpus import usable_cpus
from triton_ops.analysis import Objection, foresee
from triton_ops.backend.offline import AheadOfTime
from triton_ops.compile_pool.compiler import Launcher, Start, working
from triton_ops.compile_pool.fork_server import ForkServer, last_line
from triton_ops.compile_pool.packed_kernel import PackedKernel
from triton_ops.compile_pool.queue import CompileJob, Queue
from triton_ops.exceptions import CacheError, TargetError
from triton_ops.processes.child import OUTSIDE, Surroundings
from triton_ops.space import Config
from triton_ops.trial import Compiled, Status

TIMEOUT_S = 60.0
_START_TIMEOUT_S = 120.0  # the modules of the kernel may import a lot
_CLOSED = "the compile pool is closed"
_SPARE_PART = 2  # half of the processes are kept free of previews: who imports or measures needs CPUs too
_DYING_S = 2.0  # a connection may end a moment before its process does


class CompilePool:
    """Compiles configs of one kernel for one target into Triton's disk cache. Use it in a `with` statement.

    Args:
        ahead: What is compiled. Other processes get the kernel's code, so that they import no module of the user's and
            run no script again. Of the arguments only dtypes, strides, alignments and scalars are sent, so a process
            needs no memory for them.
        workers: Processes; None takes one for each CPU that this process may use.
        timeout_s: Most seconds for one config; a compiler that takes longer is killed.
        launches: Whether a process here is going to launch what is compiled.

    Raises:
        KernelTypeError: There is nothing to compile, as under `TRITON_INTERPRET`.
        TargetError: The kernel's function or its arguments cannot be sent to another process.

    Cost: processes start with the first configs, and need a second or two for imports.
    """

    def __init__(
        self,
        ahead: AheadOfTime,
        *,
        workers: int | None = None,
        timeout_s: float = TIMEOUT_S,
        launches: bool = False,
    ) -> None:
        if working:
            raise TargetError("a module that is imported to compile its kernel compiles kernels while it is imported")
        self._ahead = ahead
        self._timeout_s = timeout_s
        self._start = Start(PackedKernel.of(ahead), Surroundings.here())
        self.workers = workers or usable_cpus()
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="triton-ops compile")
        self._queue = Queue(max(1, self.workers // _SPARE_PART))
        self._own = threading.local()
        self._processes: set[_Process] = set()
        self._fork_server: ForkServer | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._launcher_due = launches

    def foresee(self, config: Config) -> Objection | None:
        """What the free rules say of a config; None if nothing. Costs some microseconds."""
        return foresee(self._ahead, config)

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, after those submitted before it; a config that a rule refuses or defers is not compiled.

        The future never holds a failure that is the config's: those are statuses. It holds a `TargetError` if no
        process can load the kernel, and a `CacheError` if the compiler cannot write its files.

        Args:
            config: Tunables and launch options.
            anyway: Compile it even if a rule defers it.
            spare: Compile it when nothing else waits, and never in all processes at once, so that what is submitted
                meanwhile finds one. Submitted again without this it comes in its turn, and is compiled once.
        """
        objection = self.foresee(config)
        if objection is None or (objection.deferred and anyway):
            future = self._queue.add(config, spare)
            self._threads.submit(self._work)
            return future
        done: Future[Compiled] = Future()
        done.set_result(Compiled(config, objection.status, objection.reason))
        return done

    def stop(self) -> None:
        """End all processes without waiting for that; what was not begun is cancelled, what was ends as `crash`."""
        self._queue.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.signal(signal.SIGKILL)  # its thread, if it waits for it, sees the connection end
            if self._fork_server is not None and not self._processes:
                self._fork_server.kill()  # still at its imports

    def close(self) -> None:
        """End all processes and wait for that: each takes a moment to give back its memory, all at the same time."""
        self.stop()
        self._threads.shutdown(wait=True)
        while self._processes:
            self._processes.pop().close()
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        """Compile what is next in the queue until nothing is; one thread's part."""
        while (job := self._queue.take()) is not None:
            self._do(job)
            self._queue.done(job)

    def _do(self, job: CompileJob) -> None:
        try:
            found = self._compiled(job.config)
        except Exception as error:  # noqa: BLE001 - whoever waits for the future is told
            job.future.set_exception(error)
            return
        job.future.set_result(found)
        if found.launchable and self._takes_launcher():
            self._have_launcher(found.config)

    def _takes_launcher(self) -> bool:
        """Whether the launcher is still to be built, which is then this thread's to do."""
        with self._lock:
            due, self._launcher_due = self._launcher_due, False
        return due

    def _have_launcher(self, config: Config) -> None:
        """Have the launcher built, in a turn of its own: what goes wrong there is no config's fault."""
        try:
            self._process().ask(Launcher(config), self._timeout_s)
        except (TimeoutError, EOFError, OSError):
            self._forget(self._own.process)
        except TargetError:
            pass  # whoever compiles next says so

    def _compiled(self, config: Config) -> Compiled:
        found = self._once(config)
        if found is None:  # its process was killed by somebody else
            found = self._once(config, last=True)
            assert found is not None
        return found

    def _once(self, config: Config, last: bool = False) -> Compiled | None:
        """What became of a config; None if a signal from outside ended its process, unless this is the last chance."""
        process = self._process()
        begun = time.perf_counter()
        try:
            found: Compiled | CacheError = process.ask(config, self._timeout_s)
        except (TimeoutError, EOFError, OSError) as error:
            late = isinstance(error, TimeoutError)
            said = f"compiling took over {self._timeout_s:g} s" if late else process.last_words()
            self._forget(process)
            if not (late or last or self._closed) and process.ended_from_outside:
                return None
            status = Status.TIMEOUT if late else Status.CRASH
            return Compiled(config, status, said, compile_s=time.perf_counter() - begun)
        if isinstance(found, CacheError):
            raise found
        return found

    def _process(self) -> _Process:
        """This thread's process; a new one if there is none, or the last one died."""
        process: _Process | None = getattr(self._own, "process", None)
        if process is None:
            process = self._forked()
            try:
                refused = process.ask(self._start, _START_TIMEOUT_S)
            except (TimeoutError, EOFError, OSError) as error:
                refused = TargetError(f"a compiling process did not start: {process.last_words() or error!r}")
            if refused is not None:
                self._forget(process)
                raise refused
            self._own.process = process
        return process

    def _forked(self) -> _Process:
        """A new process; the first one asked for waits for the imports of all."""
        try:
            server = self._forking()
            process = _Process(server)
        except (OSError, EOFError) as error:  # it is gone, or there are too many open files
            said = self._last_line() or error
            raise TargetError(f"no compiling process can be started: {said}") from error
        if not self._admitted(process):
            process.close()
            raise TargetError(_CLOSED)
        return process

    def _forking(self) -> ForkServer:
        with self._lock:
            if self._closed:
                raise TargetError(_CLOSED)
            self._fork_server = self._fork_server or ForkServer(
                "torch" if self._start.packed.needs_torch else "", self._ahead.target
            )
            return self._fork_server

    def _admitted(self, process: _Process) -> bool:
        with self._lock:
            if not self._closed:
                self._processes.add(process)
            return not self._closed

    def _last_line(self) -> str:
        """What a fork server that is gone said last; the next process comes from another one."""
        with self._lock:
            server = self._fork_server
            if server is None or server.alive:
                return ""
            self._fork_server = None
        said = server.last_line()
        server.close()
        return said

    def _forget(self, process: _Process) -> None:
        process.close()
        with self._lock:
            self._processes.discard(process)
        self._own.process = None


class _Process:
    """One compiling process with its connection."""

    def __init__(self, server: ForkServer) -> None:
        self._child = server.fork()

    def ask(self, question: Any, timeout_s: float) -> Any:
        """The process' answer.

        Raises:
            TimeoutError: It did not come in time.
            EOFError, OSError: The process is gone.
        """
        self._child.errors.seek(0)
        self._child.errors.truncate()
        self._child.connection.send(question)
        if not self._child.connection.poll(timeout_s):
            raise TimeoutError
        return self._child.connection.recv()

    def last_words(self) -> str:
        """How a process that is gone ended: its signal or exit code, and the last line it wrote."""
        code = self._child.wait(_DYING_S)
        self.kill()
        if code is None:
            how = "is gone"
        else:
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += ", as the system does when memory runs out"
        line = last_line(self._child.errors)
        return f"the compiler's process {how}" + (f": {line}" if line else "")

    @property
    def ended_from_outside(self) -> bool:
        """Whether a signal that people and systems send has ended it; once it is gone."""
        return -(self._child.wait(0) or 0) in OUTSIDE

    def signal(self, number: int) -> None:
        """Send it, and everything that it started, a signal."""
        self._child.signal(number)

    def kill(self) -> None:
        """End it with everything that it started."""
        self.signal(signal.SIGKILL)
        self._child.wait(_DYING_S)

    def close(self) -> None:
        """End it, and give back what it held here."""
        self.kill()
        self._child.connection.close()
        self._child.errors.close()
