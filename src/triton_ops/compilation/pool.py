"""The compile pool: configs are compiled ahead onto the disk, where a launch finds what it needs."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

from triton_ops import kernel_ir
from triton_ops.backend import Compiler
from triton_ops.base import Host
from triton_ops.compilation.compiler_process import (
    ANSWERS,
    ClassRequest,
    LaunchRequest,
    Start,
    WorkRequest,
    ask,
    compiler_server,
    compiles_for,
)
from triton_ops.compilation.turns import Queue, SharedCpus
from triton_ops.device import Target, probe
from triton_ops.exceptions import CacheError, TargetError, TritonKernelError
from triton_ops.processes import ForkedProcess, ForkServer, GarbledError, Surroundings, Threads, fork_servers
from triton_ops.space import Config
from triton_ops.values import Compiled, Status

_COMPILER_BYTES = 1 << 28  # room for one; one of a product of matrices takes 0.1 GB


class WaitingProcesses:
    """Processes that wait for their next question; safe among threads."""

    def __init__(self) -> None:
        self._waiting: deque[ForkedProcess] = deque()

    @contextmanager
    def one(self, make: Callable[[], ForkedProcess]) -> Iterator[ForkedProcess]:
        """A process that nobody else uses inside of the block: the one that was used last, else a new one.

        Unless it was closed, it then waits for the next question: a pool has no more processes than it uses at a time.
        """
        try:
            process = self._waiting.pop()
        except IndexError:
            process = make()
        try:
            yield process
        finally:
            if not process.closed:
                self._waiting.append(process)


def _ended(process: ForkedProcess) -> str:
    return f"the compiler's process {process.last_words()}"


_START_TIMEOUT_S = 120.0  # what the kernel refers to may import many modules
_READ_S = 10.0
_GONE = (EOFError, OSError, GarbledError)  # of a process that is asked; a limit that has passed is an OSError too
_CLOSED = "the compile pool is closed"
_SPARE_PART = 2  # previews take at most half of a pool: what imports, measures or is measured next needs CPUs
_STARTS = 3  # of a process or its fork server, where others end it


class CompilePool(AbstractContextManager["CompilePool"]):
    """Compiles configs of one kernel for one target onto the disk; for use in a `with` statement.

    The compiling processes get the kernel's code, so that they import no module of the user's and run no script again.
    Of the arguments only dtypes, strides, alignments and scalars are sent, so that a process needs no memory for
    tensors. They start with the first configs, and need a second or two for imports.

    There are `workers` of them; None takes one for each CPU, or as many as are worth it of those that are shared. A
    compiler is killed after `timeout_s` for one config. If compiled configs are going to be launched on this machine,
    the first that can be is made ready for it. With `reuse` a fork server of other pools may serve, and is left to the
    next for some seconds.

    Raises:
        KernelTypeError: There is nothing to compile, as under `TRITON_INTERPRET`.
        TargetError: The kernel's function or its arguments cannot be sent to another process.
    """

    TIMEOUT_S: ClassVar[float] = 60.0

    def __init__(
        self,
        compiler: Compiler,
        *,
        workers: int | None = None,
        timeout_s: float = TIMEOUT_S,
        launches: bool = False,
        reuse: bool = False,
        shared_cpus: SharedCpus | None = None,
    ) -> None:
        if compiles_for:
            raise TargetError("a module that is imported to compile its kernel compiles kernels while it is imported")
        self._compiler, self._timeout_s = compiler, timeout_s
        self._start = Start(packed=compiler.pack(), surroundings=Surroundings.here())
        self.workers = workers or (self.usual_workers() if shared_cpus is None else shared_cpus.most)
        self._threads = Threads(self.workers, thread_name_prefix="triton-ops compile")
        self._queue = Queue(max(1, self.workers // _SPARE_PART), first=shared_cpus is None)
        self._one = partial(WaitingProcesses().one, self._load)
        self._processes: set[ForkedProcess] = set()
        self._fork_server: ForkServer | None = None
        self._lock = threading.Lock()
        self._launch_due = launches
        self._reuse, self._ending, self._ends_apart = reuse, threading.Lock(), False
        self._part_with: Callable[[ForkServer], None] = fork_servers.give_back if reuse else lambda it: it.close()
        self._shared_cpus = shared_cpus or SharedCpus(self.workers)

    @staticmethod
    def usual_workers() -> int:
        """Processes that compile at a time: as many as have a CPU and the memory."""
        cpus, available = Host.usable_cpus(), Host.available_bytes()
        return cpus if available is None else max(1, min(cpus, available // _COMPILER_BYTES))

    @staticmethod
    def start_server(needs_on: Callable[[Target], Hashable], device: str) -> None:
        """Start a server of processes that compile for a device, for a pool that follows soon."""
        with suppress(TritonKernelError, OSError):  # the pool says why
            needs = needs_on(Target.of(probe(device)))
            fork_servers.give_back(fork_servers.borrow(needs, partial(compiler_server, needs)))

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, after those submitted before it, unless a rule refuses it or its result is known.

        A failure of the config is the status of the result and never an exception of the future, which raises
        `TargetError` if no process can load the kernel, and `CacheError` if the compiler cannot write its files. With
        `anyway` a config is compiled even if a rule defers it. A `spare` one is compiled only while nothing else waits,
        and never in all processes at once; submitted again without `spare`, it takes its turn, and is compiled once.
        """
        early_result = self._compiler.recalled(config) or self._compiler.objection(config)
        if early_result is None or (anyway and early_result.deferred and early_result.resources is None):
            # One look into the queue for each config: a thread that finds nothing to begin ends.
            future = self._queue.add(config, spare)
            self._threads.submit(self._work)
        else:
            future = Future()
            future.set_result(early_result)
        return future

    def read(self, config: Config, contents: Mapping[str, Sequence[int]] | None = None) -> Future[kernel_ir.KernelWork]:
        """The work of a config's launches, as of `Compiler.work`; 20 to 50 ms of one process for each.

        The future raises nothing: whatever goes wrong is the reason in its result why the work is not known.
        """
        return self._threads.submit(self._read, WorkRequest(config, contents or {}))

    def bit_class(self, config: Config) -> Future[kernel_ir.BitClass]:
        """The class of a config that was compiled, as of `Compiler.bit_class`; 10 to 60 ms of one process a launch.

        The future raises nothing, as that of `read`.
        """
        return self._threads.submit(self.read_class, config)

    def read_class(self, config: Config) -> kernel_ir.BitClass:
        """The same in the calling thread, such as that which has compiled the config."""
        found: kernel_ir.BitClass = self._read(ClassRequest(config))
        return found

    def stop(self) -> None:
        """Kill all processes without waiting for their end, and leave the fork server, which the next problem may take.

        Compilations that have not begun are cancelled; the others end with the status `crash`.
        """
        self._queue.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for process in self._processes:
                process.signal(signal.SIGKILL)  # the connection ends for a thread that waits for an answer
            server, self._fork_server = self._fork_server, None
            if server is not None and not self._processes:
                fork_servers.kill_unshared(server)  # it may still be at its imports
        self._shared_cpus.look()
        if server is not None:
            self._part_with(server)

    def close(self) -> None:
        """Kill all processes and wait for their end; they free their memory at the same time, which takes a moment."""
        self.stop()
        with self._ending:  # whoever comes second waits for the first
            self._threads.shutdown(wait=True)
            while self._processes:
                self._processes.pop().close()

    def end(self) -> None:
        """Kill all processes as `stop` does; a thread waits for their end, and the end of the block does not."""
        self.stop()
        with suppress(RuntimeError):  # the system has no thread left: the end of the block waits
            threading.Thread(target=self.close, name="triton-ops end of compilers").start()
            self._ends_apart = True

    def __exit__(self, *_: object) -> None:
        if not self._ends_apart:  # their end may take seconds, in which the next problem can be measured
            self.close()

    def go_first(self) -> None:
        """From now on this pool's configs go before those of other pools on its shared CPUs."""
        self._queue.first = True
        self._shared_cpus.look()

    def _work(self) -> None:
        while True:
            with self._shared_cpus.turn(self._queue) as has_cpu:
                job = self._queue.take() if has_cpu else None
                if job is None:
                    return
                self._do(job)
                self._queue.done(job)

    def _do(self, job: Queue.Job) -> None:
        try:
            compiled = self._compile(job.config)
        except Exception as error:  # noqa: BLE001 - the future raises it where its result is taken
            job.future.set_exception(error)
            return
        self._compiler.remember(compiled)
        job.future.set_result(compiled)
        if not compiled.launchable:
            return
        with self._lock:
            due, self._launch_due = self._launch_due, False
        if not due:  # once, in the first thread that comes here
            return
        # A failure is none of the config, which is compiled; the next compilation meets that error, and reports it.
        with suppress(TargetError), self._one() as process:
            try:
                ask(process, LaunchRequest(compiled.config), self._timeout_s)
            except _GONE:
                self._forget(process)

    def _read(self, request: WorkRequest | ClassRequest) -> Any:
        try:
            with self._one() as process:
                try:
                    answer = ask(process, request, _READ_S)
                except _GONE as error:
                    late = isinstance(error, TimeoutError)
                    answer = f"reading it took over {_READ_S:g} s" if late else _ended(process)
                    self._forget(process)
        except TargetError as error:
            answer = error.message
        return ANSWERS[type(request)]()[0](silent=answer) if isinstance(answer, str) else answer

    def _compile(self, config: Config, last: bool = False) -> Compiled:
        """The result of a config; once more if a signal from outside ended the process, and this is not the `last`."""
        with self._one() as process:
            start = time.perf_counter()
            try:
                answer: Compiled | CacheError | TargetError = ask(process, config, self._timeout_s)
            except GarbledError as error:
                status = Status.CRASH
                message = f"the compiler's process wrote {error} into its connection, and was ended"
                self._forget(process)
            except _GONE as error:
                # LLVM ends its process at some configs, by an abort that no handler sees: triton-lang/triton#6803.
                late = isinstance(error, TimeoutError)
                status = Status.TIMEOUT if late else Status.CRASH
                message = f"compiling took over {self._timeout_s:g} s" if late else _ended(process)
                self._forget(process)
                if not (late or last or self._queue.closed) and process.ended_from_outside:
                    return self._compile(config, last=True)
            else:
                if isinstance(answer, (CacheError, TargetError)):
                    raise answer
                return answer
            return Compiled(config, status, message, compile_s=time.perf_counter() - start)

    def _load(self, starts: int = _STARTS) -> ForkedProcess:
        """A new process that has loaded the kernel, or another one if somebody else has ended it meanwhile."""
        process, again = self._fork(), False
        try:
            refused = ask(process, self._start, _START_TIMEOUT_S)
        except _GONE as error:
            refused = TargetError(f"a compiling process did not start: {_ended(process)}")
            gone = isinstance(error, (EOFError, BrokenPipeError, ConnectionResetError))
            again = gone and process.ended_from_outside and starts > 1
        if refused is None:
            return process
        self._forget(process)
        if not again:
            raise refused
        return self._load(starts - 1)

    def _fork(self) -> ForkedProcess:
        process = self._start_process()
        with self._lock:
            if not self._queue.closed:
                self._processes.add(process)  # which `stop` ends
                return process
        process.close()
        raise TargetError(_CLOSED)

    def _start_process(self, starts: int = _STARTS) -> ForkedProcess:
        """A process of the fork server, or of another one if this one was ended by somebody else."""
        server: ForkServer | None = None
        try:
            server = self._forking()
            return server.fork()
        except (OSError, EOFError) as error:  # the fork server is gone, or there are too many open files
            again = server is not None and server.ended_from_outside and starts > 1
            reason = self._last_line() or error
            if not again:
                raise TargetError(f"no compiling process can be started: {reason}") from error
        return self._start_process(starts - 1)

    def _forking(self) -> ForkServer:
        with self._lock:
            if self._queue.closed:
                raise TargetError(_CLOSED)
            if self._fork_server is None:
                needs = self._start.packed.needs
                make = partial(compiler_server, needs)
                self._fork_server = fork_servers.borrow(needs, make) if self._reuse else make()
            return self._fork_server

    def _last_line(self) -> str:
        """The last line of a fork server that is gone, which is closed, so that the next process starts a new one."""
        with self._lock:
            if (server := self._fork_server) is None or server.alive:
                return ""
            self._fork_server = None
        line = server.last_line()
        self._part_with(server)
        return line

    def _forget(self, process: ForkedProcess) -> None:
        process.close()
        with self._lock:
            self._processes.discard(process)
