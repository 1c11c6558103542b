"""Configs compiled ahead, in parallel, by processes that have no GPU; the launching process finds them in the cache.

Each process leads a group of its own, so that a compiler that hangs dies with the process that waits for it, and a
Ctrl-C in the terminal reaches only the process that tunes. They are started as programs, not as copies of this one:
the user's script is not run a second time, and no GPU context is ever theirs.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops._hashing import fingerprint
from triton_ops.analysis import Compiled, Verdict, foresee
from triton_ops.backend import Arguments, TritonKernel, is_tensor
from triton_ops.backend.offline import StandIn, compiler_environment
from triton_ops.backend.source import unwrap
from triton_ops.exceptions import KernelTypeError, TargetError, TritonKernelError
from triton_ops.hardware import Target
from triton_ops.runner.compile_worker import Start, working
from triton_ops.runner.locate import Location, locate_in
from triton_ops.runner.queue import Job, Queue
from triton_ops.space import Config
from triton_ops.trial import Status

TIMEOUT_S = 60.0
_START_TIMEOUT_S = 120.0  # imports, on a machine whose disk is cold and whose cores are all taken
_PROGRAM = "import sys; del sys.path[0]; from triton_ops.runner.compile_worker import main; main()"
_REASON_BYTES = 400
_DYING_S = 2.0  # a connection may end a moment before its process does


class CompilePool:
    """Compiles configs of one kernel for one target into Triton's disk cache. Use it in a `with` statement.

    Args:
        kernel: Its JIT function must stand in a module or script: other processes load it from there.
        arguments: The caller's own, or specs in place of tensors; only dtypes, strides, alignments and scalars are
            sent, so a process needs no memory for them.
        target: What to compile for; need not be here.
        workers: Processes; None takes one for each CPU that this process may use.
        timeout_s: Most seconds for one config; a compiler that takes longer is killed.

    Raises:
        KernelTypeError: There is nothing to compile, as under `TRITON_INTERPRET`.
        TargetError: The kernel's function or its arguments cannot be sent to another process.

    Cost: processes start with the first configs, and need a second or two for imports.
    """

    def __init__(
        self,
        kernel: TritonKernel,
        arguments: Arguments,
        target: Target,
        *,
        workers: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if working:
            raise TargetError("a module that is imported to compile its kernel compiles kernels while it is imported")
        self._kernel, self._arguments, self._target = kernel, arguments, target
        self._timeout_s = timeout_s
        self._start = Start(_located(kernel), _pickled(arguments), target)
        self.workers = workers or usable_cpus()
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="triton-ops compile")
        self._queue = Queue(max(1, self.workers - 1))
        self._own = threading.local()
        self._processes: set[_Process] = set()
        self._lock = threading.Lock()
        self._closed = False

    def foresee(self, config: Config) -> Verdict | None:
        """What the free rules say of a config; None if nothing. Costs some microseconds."""
        return foresee(self._kernel, config, self._arguments, self._target)

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, after those submitted before it; a config that a rule refuses or defers is not compiled.

        The future never holds a failure that is the config's: those are statuses. It holds a `TargetError` if no
        process can load the kernel.

        Args:
            config: Tunables and launch options.
            anyway: Compile it even if a rule defers it.
            spare: Compile it when nothing else waits, and never in all processes at once, so that what is submitted
                meanwhile finds one. Submitted again without this it comes in its turn, and is compiled once.
        """
        verdict = self.foresee(config)
        if verdict is None or (verdict.deferred and anyway):
            future = self._queue.add(config, spare)
            self._threads.submit(self._work)
            return future
        done: Future[Compiled] = Future()
        done.set_result(Compiled(config, verdict.status, verdict.reason, deferred=verdict.deferred))
        return done

    def close(self) -> None:
        """End all processes at once; what was not begun is cancelled, and what was begun ends as `crash`."""
        self._queue.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()  # its thread, if it waits for it, sees the connection end
        self._threads.shutdown(wait=True)
        while self._processes:
            self._processes.pop().close()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, no process of the pool, and nothing it has started, runs."""
        with self._lock:
            held = list(self._processes)
        for process in held:
            process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in held:
                process.signal(signal.SIGCONT)

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        """Compile what is next in the queue until nothing is; one thread's part."""
        while (job := self._queue.take()) is not None:
            self._do(job)
            self._queue.done(job)

    def _do(self, job: Job) -> None:
        try:
            job.future.set_result(self._compiled(job.config))
        except Exception as error:  # noqa: BLE001 - whoever waits for the future is told
            job.future.set_exception(error)

    def _launch(self, found: Compiled) -> str | None:
        """The name of all that a launch is; None where it is not known."""
        made = found.resources
        if not found.ok or made is None or made.binary is None:
            return None
        told = self._kernel.launch_key(found.config, self._arguments)
        return None if told is None else fingerprint([made.binary, made.shared_bytes, repr(told)])

    def _compiled(self, config: Config) -> Compiled:
        process = self._process()
        begun = time.perf_counter()
        try:
            answer = process.ask(config, self._timeout_s)
        except (TimeoutError, EOFError, OSError) as error:
            late = isinstance(error, TimeoutError)
            said = f"compiling took over {self._timeout_s:g} s" if late else process.last_words()
            self._forget(process)
            status = Status.TIMEOUT if late else Status.CRASH
            return Compiled(config, status, said, None, time.perf_counter() - begun)
        found: Compiled = answer
        return replace(found, launch=self._launch(found))

    def _process(self) -> _Process:
        """This thread's process; a new one if there is none, or the last one died."""
        process: _Process | None = getattr(self._own, "process", None)
        if process is None:
            with self._lock:
                if self._closed:
                    raise TargetError("the compile pool is closed")
                process = _Process()
                self._processes.add(process)
            try:
                refused = process.ask(self._start, _START_TIMEOUT_S)
            except (TimeoutError, EOFError, OSError) as error:
                refused = TargetError(f"a compiling process did not start: {process.last_words() or error!r}")
            if refused is not None:
                self._forget(process)
                raise refused
            self._own.process = process
        return process

    def _forget(self, process: _Process) -> None:
        process.close()
        with self._lock:
            self._processes.discard(process)
        self._own.process = None


class _Process:
    """One compiling process with its connection."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                env=settings.for_child({**compiler_environment(), "PYTHONPATH": _search_path()}),
                start_new_session=True,
            )

    def ask(self, question: Any, timeout_s: float) -> Any:
        """The process' answer.

        Raises:
            TimeoutError: It did not come in time.
            EOFError, OSError: The process is gone.
        """
        self._errors.seek(0)
        self._errors.truncate()
        self._connection.send(question)
        if not self._connection.poll(timeout_s):
            raise TimeoutError
        return self._connection.recv()

    def last_words(self) -> str:
        """How a process that is gone ended: its signal or exit code, and the last line it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_DYING_S)
        self.kill()
        code = self._child.returncode
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += ", as the system does when memory runs out"
        size = self._errors.seek(0, io.SEEK_END)
        self._errors.seek(max(0, size - _REASON_BYTES))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the compiler's process {how}" + (f": {lines[-1].strip()}" if lines else "")

    def signal(self, number: int) -> None:
        """Send it, and everything that it started, a signal."""
        with contextlib.suppress(ProcessLookupError):
            if self._child.poll() is None:
                os.killpg(self._child.pid, number)

    def kill(self) -> None:
        """End it with everything that it started."""
        self.signal(signal.SIGKILL)
        self._child.wait()

    def close(self) -> None:
        """End it, and give back what it held here."""
        self.kill()
        self._connection.close()
        self._errors.close()


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity, and its control group's quota."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cpus, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or no quota: the word `max`
        return cpus


def _located(kernel: TritonKernel) -> Location:
    if type(kernel.function).__name__ == "InterpretedFunction":
        raise KernelTypeError(
            f"{kernel.name} is interpreted, so there is nothing to compile", hint="unset TRITON_INTERPRET"
        )
    module = unwrap(kernel.function).__module__
    found = locate_in(module, kernel.function)
    if found is None:
        raise TargetError(
            f"{kernel.name} is no variable of a module or script, so other processes cannot load it",
            hint="define it at the top level of a file",
        )
    return found


class _Pickler(pickle.Pickler):
    """Sends of a tensor, wherever it is, only what specialisation sees of it."""

    def reducer_override(self, obj: Any) -> Any:
        """Of a tensor the call that makes its stand-in; else what pickle would do."""
        if is_tensor(obj):
            return StandIn.tensor, (StandIn.of(obj),)
        return NotImplemented


def _pickled(arguments: Arguments) -> bytes:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(arguments)
    except TritonKernelError:
        raise
    except Exception as error:
        raise TargetError(f"the arguments cannot be sent to another process: {error}") from error
    return buffer.getvalue()


def _search_path() -> str:
    return os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
