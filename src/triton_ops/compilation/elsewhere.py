"""Compiling on other hosts for one pool: what they make is put into Triton's disk cache, where a launch finds it.

A host is sent the packed kernel once, and then configs. It answers with Triton's names of what it has made, and is
asked for those that this host has not. Each of them is then looked up here by Triton itself: only if that finds it
under the same name has the host compiled the config. Whatever else happens, the config is compiled here.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.backend import Entry, disk_cache, entry_binary, has_entry, write_entry
from triton_ops.compilation.compiler import PackedKernel
from triton_ops.compilation.made import Made, versions_here
from triton_ops.compilation.other_hosts import OtherHost, OtherHosts
from triton_ops.compilation.queue import CompileJob, Queue
from triton_ops.exceptions import CacheError
from triton_ops.processes import AwakeClock
from triton_ops.space import Config
from triton_ops.values import Compiled, Status

_LOOK_S = 0.5  # between two looks at the clock
_ON_THE_WAY_S = 30.0  # over what a config may take, for a question and its answer
_SURE = (Status.RESOURCES, Status.CONSTRAINT)  # failures that do not depend on the host


@dataclass(frozen=True)
class Waiting:
    """What waits in a compile pool, for those that compile it elsewhere.

    Attributes:
        packed: The kernel.
        queue: The configs.
        timeout_s: Seconds for one config.
        disk_cache: The folder in place of Triton's disk cache, if any.
        again: Is called when a job was given back to the queue; a RuntimeError says that the pool is closed.
        keys: Triton's names, on this host, of what its disk cache holds of a config, which is compiled if it is not
            there; None if they cannot be told.
    """

    packed: PackedKernel
    queue: Queue
    timeout_s: float
    disk_cache: str | None
    again: Callable[[], object]
    keys: Callable[[Config], Sequence[str] | None]


class Elsewhere:
    """Has configs of one pool compiled by other hosts.

    Args:
        waiting: What waits in the pool.
        hosts: The hosts; None has none.

    Attributes:
        cpus: How many configs are compiled at a time once all hosts are ready.
    """

    def __init__(self, waiting: Waiting, hosts: OtherHosts | None) -> None:
        self._waiting, self._token = waiting, secrets.token_hex(16)
        self._hosts = hosts or OtherHosts(())
        usable = self._hosts.usable()
        folder = Path(waiting.disk_cache) if waiting.disk_cache else (disk_cache() if usable else None)
        usable, self._folder = (usable, folder) if folder is not None else ([], Path())
        self.cpus, self._compiled = sum(host.cpus for host in usable), 0
        self._asked_to_load = usable
        self._free: deque[OtherHost] = deque()  # once for each CPU
        self._refused: set[OtherHost] = set()
        self._stopped: Future[None] = Future()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(max(self.cpus, len(usable), 1), thread_name_prefix="triton-ops elsewhere")
        self._checks = ThreadPoolExecutor(1, thread_name_prefix="triton-ops check")  # one process looks entries up
        for host in usable:
            self._threads.submit(self._open, host)

    @property
    def notes(self) -> tuple[str, ...]:
        """How many configs other hosts have compiled, in words; nothing if they have compiled none."""
        count = self._compiled
        return (f"{count} config{'s were' if count > 1 else ' was'} compiled by other hosts",) if count else ()

    def wake(self) -> None:
        """Look whether there is something to be compiled: a job was added."""
        if self._free:
            self._threads.submit(self._work)

    def stop(self) -> None:
        """Wait for no answer any more, and let the hosts forget the kernel."""
        with self._lock:
            if self._stopped.done():
                return
            self._stopped.set_result(None)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._checks.shutdown(wait=False, cancel_futures=True)
        for host in self._asked_to_load:
            with contextlib.suppress(Exception):  # it is gone, and forgets by itself
                host.ask("close", self._token)

    def close(self) -> None:
        """After `stop`, wait for the threads."""
        self._threads.shutdown(wait=True)
        self._checks.shutdown(wait=True)

    def _open(self, host: OtherHost) -> None:
        """Have a host load the kernel, for as long as that takes: until then it gets no config."""
        try:
            waiting = self._waiting
            asked = host.ask("open", self._token, waiting.packed, versions_here(), host.cpus, waiting.timeout_s)
            refused = self._answer(asked)
        except Exception as error:  # noqa: BLE001 - whatever it is, this host is not needed
            self._drop(host, error)
            return
        if not refused:
            self._free.extend([host] * host.cpus)
            for _ in range(host.cpus):
                with contextlib.suppress(RuntimeError):  # the pool is closed meanwhile
                    self._threads.submit(self._work)

    def _work(self) -> None:
        """Have a host compile jobs of the queue until this host can begin what is left."""
        again = True
        while again:
            try:
                host = self._free.popleft()
            except IndexError:
                return
            while self._usable(host) and (job := self._waiting.queue.take(elsewhere=True)) is not None:
                self._do(host, job)
            if self._usable(host):
                self._free.append(host)
            again = self._waiting.queue.overflows  # who has added something meanwhile has found no free host

    def _usable(self, host: OtherHost) -> bool:
        return host not in self._refused and host in self._hosts.usable()

    def _do(self, host: OtherHost, job: CompileJob) -> None:
        found = None
        try:
            found = self._found(host, job.config)
        except (OSError, CacheError):
            pass  # of this host's disk: compiling here says so
        except Exception as error:  # noqa: BLE001 - whatever it is, the config is compiled here
            self._drop(host, error)
        if found is not None:
            job.future.set_result(found)
            self._waiting.queue.done(job)
        elif self._waiting.queue.give_back(job):
            with contextlib.suppress(RuntimeError):  # the queue is closed as well
                self._waiting.again()
        else:
            job.future.set_result(Compiled(job.config, Status.CRASH, "the compile pool was closed"))

    def _drop(self, host: OtherHost, error: Exception) -> None:
        """Ask a host no more; what fails once the pool is closed says nothing of it."""
        if not self._stopped.done():
            lines = str(error).strip().splitlines()
            self._hosts.drop(host, lines[0] if lines else type(error).__name__)

    def _found(self, host: OtherHost, config: Config) -> Compiled | None:
        """What a host has made of a config; None if it is to be compiled here.

        Raises:
            _StoppedError: The pool is closed meanwhile.
            OSError, CacheError: What it has made cannot be written here.
            Exception: The host is gone, or has sent what it cannot have made.
        """
        made = self._asked(host, self._waiting.timeout_s + _ON_THE_WAY_S, "compile", self._token, config)
        if made is None:  # the host has closed the kernel
            self._refused.add(host)
            return None
        if not isinstance(made, Made) or made.compiled.config != config:
            raise ValueError("it has sent what is no answer")
        if not made.compiled.launchable:
            return made.compiled if made.compiled.status in _SURE else None
        if not self._installed(host, made):
            return None
        with self._lock:
            self._compiled += 1
        return made.compiled

    def _installed(self, host: OtherHost, made: Made) -> bool:
        """Whether Triton finds here what a host has made, which is sent unless it is here already."""
        folder, config = self._folder, made.compiled.config
        missing = [key for key in made.keys if not has_entry(folder, key)]
        if missing:
            sent = self._asked(host, _ON_THE_WAY_S, "fetch", self._token, missing)
            entries = {entry.key: entry for entry in sent if isinstance(entry, Entry)}
            if all(key in entries for key in missing):
                self._check(made, [entries[key] for key in missing])
                for key in missing:
                    write_entry(folder, entries[key])
        # Another config may have the same entry, which is sent once, and be about to write it.
        return all(has_entry(folder, key) for key in made.keys) and self._same_here(host, config, made.keys)

    def _check(self, made: Made, entries: Sequence[Entry]) -> None:
        resources = made.compiled.resources
        if len(entries) == len(made.keys) and (resources is None or entry_binary(entries) != resources.binary):
            raise ValueError("it has sent another binary than the one that it has compiled")

    def _same_here(self, host: OtherHost, config: Config, keys: Sequence[str]) -> bool:
        here = self._answer(self._checks.submit(self._waiting.keys, config))
        if here is not None and tuple(here) != tuple(keys):
            self._hosts.drop(host, "its Triton names binaries differently, as with another ptxas or TRITON_ setting")
        return here is not None and tuple(here) == tuple(keys)

    def _asked(self, host: OtherHost, limit_s: float, *question: Any) -> Any:
        """The answer of a host.

        Raises:
            _StoppedError: The pool is closed meanwhile.
            Exception: What the host's method has raised; that the host is gone, or does not answer in time.
        """
        try:
            return self._answer(host.ask(*question), limit_s)
        except (OSError, CacheError) as error:  # this host's own are told apart by their kind
            raise _HostError(str(error) or type(error).__name__) from error

    def _answer(self, asked: Future[Any], limit_s: float | None = None) -> Any:
        clock = AwakeClock()
        while not wait((asked, self._stopped), _LOOK_S, FIRST_COMPLETED).done:
            if clock.now() >= (float("inf") if limit_s is None else limit_s):
                raise TimeoutError(f"it has not answered for {limit_s:g} s")
        if not asked.done():
            raise _StoppedError
        return asked.result()


class _HostError(Exception):
    """A host is gone, or cannot read or write its files."""


class _StoppedError(Exception):
    """Ends the wait for an answer."""
