"""The compile pool: processes without a device compile configs ahead, and a launch finds on the disk what they made.

Each process leads a process group of its own, so that it can be killed together with a compiler that hangs, and so that
Ctrl-C in the terminal reaches only the process that tunes. The processes are forked from a separate program, `main`
here, and not from the process that tunes: they run no script of the user's and never have a GPU context. What compilers
print to stdout is discarded.

A thread that has compiled asks for the next turn at once. If whoever comes first took it, a pool that has all CPUs
would keep them as long as it has configs, and the problem on another GPU would wait for its end. A turn is therefore
given to a thread that waits, and that one alone is woken: a hundred that look whether it is their turn keep the
interpreter from those that measure.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from triton_ops import kernel_ir
from triton_ops.backend import CandidateError, Compiler, CompilerNeeds, PackedCompiler
from triton_ops.base import Host
from triton_ops.device import Target, probe
from triton_ops.exceptions import CacheError, TargetError, TritonKernelError
from triton_ops.processes import (
    ForkedProcess,
    ForkRequests,
    ForkServer,
    GarbledError,
    Surroundings,
    Threads,
    fork_servers,
)
from triton_ops.space import Config
from triton_ops.values import Compiled, Status

_COMPILER_BYTES = 1 << 28  # room for one; one of a product of matrices takes 0.1 GB
_NICENESS = 5  # compilers give way to the process that measures
compiles_for: list[int] = []
"""The id of the process for which this process compiles; empty in a process that does not compile for another one."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """The first message to a compiling process, which imports its own modules before it takes over the surroundings."""

    packed: PackedCompiler
    surroundings: Surroundings


@dataclass(frozen=True)
class LaunchRequest:
    """The question to make launches ready; `config` is one that was compiled, and serves for all of the kernel."""

    config: Config


@dataclass(frozen=True)
class WorkRequest:
    """The question for the work of a config's launches, as of `CompilePool.read`."""

    config: Config
    contents: Mapping[str, Sequence[int]]

    def answer(self, compiler: Compiler) -> kernel_ir.KernelWork:
        """What the compiler says."""
        return compiler.work(self.config, self.contents)


@dataclass(frozen=True)
class ClassRequest:
    """The question for the class of a compiled config, as of `CompilePool.bit_class`."""

    config: Config

    def answer(self, compiler: Compiler) -> kernel_ir.BitClass:
        """What the compiler says."""
        return compiler.bit_class(self.config)


_READING = (WorkRequest, ClassRequest)
"""Questions whose answer may be a text: why it cannot be told."""


def main() -> None:
    """The program of the fork server: ready what compilers need, then answer questions until the socket is closed."""
    requests = ForkRequests()
    compiles_for.append(requests.parent)
    os.nice(_NICENESS)
    pickle.loads(bytes.fromhex(sys.argv[4])).ready()
    gc.freeze()  # forked processes then do not copy the imported objects
    requests.answer(serve)


def serve(connection: Any) -> None:
    """Load the compiler, of which the first answer tells: None, or why it cannot be; then answer each question."""
    start: Start = connection.receive()
    start.surroundings.take()
    try:
        compiler = start.packed.load()
    except TritonKernelError as error:
        # One type, by which the pool tells this answer from others.
        connection.send(error if isinstance(error, TargetError) else TargetError(error.message, hint=error.hint))
        return
    connection.send(None)
    for question in connection.messages():
        connection.send(_answer(question, compiler))


def _answer(question: Config | LaunchRequest | WorkRequest | ClassRequest, compiler: Compiler) -> Any:
    if isinstance(question, LaunchRequest):
        with suppress(Exception):  # the process that launches meets the same error, and reports it
            compiler.ready_launch(question.config)
        return None
    try:
        if isinstance(question, _READING):
            return question.answer(compiler)
        return compiler.compile(question)
    except (CacheError, TargetError) as error:
        return error.message if isinstance(question, _READING) else error
    except Exception as error:  # noqa: BLE001 - a front end may raise anything: no crash of its process
        failure = CandidateError.of(error, Status.COMPILE)
        return Compiled(question, failure.status, str(failure)) if isinstance(question, Config) else str(failure)


class Queue:
    """Jobs that take their turn, and spare jobs, which run while no other job waits; safe to share among threads.

    At most `spares` spare jobs run at a time.
    """

    @dataclass(eq=False)
    class Job:
        """One config to be compiled; a spare one only while nothing else waits, as a preview."""

        config: Config
        spare: bool
        future: Future[Compiled] = field(default_factory=Future)

    def __init__(self, spares: int) -> None:
        self._spares, self._running_spare = spares, 0
        self._now: deque[Queue.Job] = deque()
        self._later: dict[Config, Queue.Job] = {}
        self._begun_jobs: dict[Config, Queue.Job] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add(self, config: Config, spare: bool) -> Future[Compiled]:
        """The future of `config`: that of an earlier spare job of the same config, if there is one, else a new one."""
        with self._lock:
            if (spare_job := self._begun_jobs.get(config)) is not None:
                return spare_job.future
            job = self._later.get(config) or Queue.Job(config, spare)
            if spare:
                self._later[config] = job
            else:
                if self._later.pop(config, None) is not None:
                    job.spare = False
                    self._begun_jobs[config] = job
                self._now.append(job)
            if self._closed:
                job.future.cancel()
            return job.future

    def hurried(self) -> bool:
        """Tell whether a job waits that is not spare."""
        return bool(self._now)

    def take(self) -> Queue.Job | None:
        """The next job, which the caller later gives to `done`; None if none may begin now."""
        with self._lock:
            while not self._closed:
                if (job := self._first()) is None:
                    return None
                # A job whose future was cancelled meanwhile is passed over.
                if job.future.set_running_or_notify_cancel():
                    self._running_spare += job.spare
                    return job
        return None

    def done(self, job: Queue.Job) -> None:
        """Note that `job` does not run any more."""
        with self._lock:
            self._running_spare -= job.spare

    def close(self) -> None:
        """Cancel every job that has not begun."""
        with self._lock:
            self._closed = True
            for job in (*self._now, *self._later.values()):
                job.future.cancel()

    def _first(self) -> Queue.Job | None:
        if self._now:
            return self._now.popleft()
        if not self._later or self._running_spare >= self._spares:
            return None
        job = self._later.pop(next(iter(self._later)))
        self._begun_jobs[job.config] = job
        return job


class SharedCpus:
    """A number of compilations that may run at a time, over all pools that share these CPUs; safe among threads.

    Of these, `spared` are left to pools that are first. `tell_idle` is called with the number that is idle, at once and
    when that has changed, one call after the other.
    """

    def __init__(self, most: int, spared: int = 0, tell_idle: Callable[[int], object] = lambda _: None) -> None:
        self.most, self._lent = max(1, most), 0
        self._spared = min(spared, self.most - 1)
        self._tell_idle, self._idle, self._telling = tell_idle, -1, threading.Lock()
        self._running: Counter[CompilePool] = Counter()
        self._waiting: dict[CompilePool, deque[Future[bool]]] = {}
        self._guard = threading.Lock()
        self._closed = False
        self._tell()

    @contextmanager
    def turn(self, member: CompilePool) -> Iterator[bool]:
        """Wait for a CPU, and hold it inside the block; gives True, or False once this or the pool is closed."""
        waiter: Future[bool] = Future()
        with self._guard:
            self._waiting.setdefault(member, deque()).append(waiter)
            self._give()
        self._tell()
        begins = waiter.result()
        try:
            yield begins
        finally:
            if begins:
                with self._guard:
                    self._running[member] -= 1
                    member.turns += 1
                    self._give()
                self._tell()

    def lend(self, count: int) -> None:
        """Let so many more run at a time, until this is called again: others leave their CPUs idle."""
        self._lent = count
        self.look()

    def look(self) -> None:
        """Look again whose turn it is: a pool is first now, or was closed, and its threads wait no more."""
        with self._guard:
            self._give()

    def close(self) -> None:
        """Let nothing more begin; whoever waits is told."""
        self._closed = True
        self.look()

    def _give(self) -> None:
        """Give the CPUs that are free to those whose turn it is, and have the threads of closed pools go on."""
        for over in [each for each in self._waiting if self._closed or each.closed]:
            for waiter in self._waiting.pop(over):
                waiter.set_result(False)
        while (member := self._next()) is not None:
            self._running[member] += 1
            waiting = self._waiting[member]
            waiting.popleft().set_result(True)
            if not waiting:
                del self._waiting[member]
        self._running += Counter()  # forgets pools of which nothing runs

    def _next(self) -> CompilePool | None:
        """Whose turn it is: pools that are first before others, those with proposals before others.

        Of the first ones the one with the fewest CPUs comes; of others the one that has compiled most, so that their
        problems are ready one after the other, and those that compile quickly do not wait for the rest.
        """
        free = self.most + self._lent - self._running.total()
        able = [each for each in self._waiting if free > (0 if each.first else self._spared)]
        turns = {each: self._running[each] if each.first else -each.turns for each in able}
        return min(able, key=lambda each: (not each.first, not each.hurried(), turns[each]), default=None)

    def _tell(self) -> None:
        """Tell how many of the own CPUs are idle, outside of the guard, which whoever lends needs meanwhile."""
        with self._telling:
            with self._guard:
                before, self._idle = self._idle, 0 if self._waiting else max(0, self.most - self._running.total())
            if self._idle != before:
                self._tell_idle(self._idle)


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


def compiler_server(needs: Hashable) -> ForkServer:
    """A fork server of compiling processes with these needs."""
    return ForkServer("triton_ops.compilation.pool", pickle.dumps(needs).hex(), changes=CompilerNeeds.environment())


_ANSWERS: dict[type, Callable[[], tuple[type, ...]]] = {
    Start: lambda: (type(None), TargetError), LaunchRequest: lambda: (type(None),),
    WorkRequest: lambda: (kernel_ir.KernelWork, str),  # its import takes NumPy
    ClassRequest: lambda: (kernel_ir.BitClass, str),
    Config: lambda: (Compiled, CacheError, TargetError),
}  # fmt: skip


def _ask(process: ForkedProcess, question: Any, timeout_s: float) -> Any:
    """The answer of a process; as of `ForkedProcess.ask`, and `GarbledError` for an answer to another question."""
    answer = process.ask(question, timeout_s)
    if not isinstance(answer, _ANSWERS[type(question)]()):
        raise GarbledError.other(answer)
    return answer


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
        self._queue = Queue(max(1, self.workers // _SPARE_PART))
        self._one = partial(WaitingProcesses().one, self._load)
        self._processes: set[ForkedProcess] = set()
        self._fork_server: ForkServer | None = None
        self._lock = threading.Lock()
        self.closed = False
        self._launch_due = launches
        self._reuse, self._ending, self._ends_apart = reuse, threading.Lock(), False
        self._part_with: Callable[[ForkServer], None] = fork_servers.give_back if reuse else lambda it: it.close()
        self._shared_cpus = shared_cpus or SharedCpus(self.workers)
        self.first, self.hurried, self.turns = shared_cpus is None, self._queue.hurried, 0

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
            self.closed = True
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
        self.first = True
        self._shared_cpus.look()

    def _work(self) -> None:
        while True:
            with self._shared_cpus.turn(self) as has_cpu:
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
                _ask(process, LaunchRequest(compiled.config), self._timeout_s)
            except _GONE:
                self._forget(process)

    def _read(self, request: WorkRequest | ClassRequest) -> Any:
        try:
            with self._one() as process:
                try:
                    answer = _ask(process, request, _READ_S)
                except _GONE as error:
                    late = isinstance(error, TimeoutError)
                    answer = f"reading it took over {_READ_S:g} s" if late else _ended(process)
                    self._forget(process)
        except TargetError as error:
            answer = error.message
        return _ANSWERS[type(request)]()[0](silent=answer) if isinstance(answer, str) else answer

    def _compile(self, config: Config, last: bool = False) -> Compiled:
        """The result of a config; once more if a signal from outside ended the process, and this is not the `last`."""
        with self._one() as process:
            start = time.perf_counter()
            try:
                answer: Compiled | CacheError | TargetError = _ask(process, config, self._timeout_s)
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
                if not (late or last or self.closed) and process.ended_from_outside:
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
            refused = _ask(process, self._start, _START_TIMEOUT_S)
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
            if not self.closed:
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
            if self.closed:
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
