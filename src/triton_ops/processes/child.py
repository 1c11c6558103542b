"""Starting child processes: a new interpreter that runs a part of this package, with this process' search path.

The child imports this package and its heavy dependencies with the standard library first on the search path, and only
then takes over the surroundings of its parent: a file `json.py` of the user's, next to the one that holds a kernel,
must not be imported in place of the standard library's.

In a program that has closed its standard streams, as a daemon does, new files get the numbers 0, 1 and 2. A child would
lose them to its own standard streams, and what this program prints would be written into them.

A process that this package starts has a mark in its environment, which its children, and theirs, inherit. Whoever ends
the process ends all that have its mark, and their children. What has emptied its environment and left its parent is a
child of the process that was started here, as long as that lives. All of this needs Linux's `/proc`, of
the namespace that this process is in; elsewhere only the process group ends.

Containers are often built without bytecode (PYTHONDONTWRITEBYTECODE, pip's --no-compile, uv's default), and some have
no folder that it could be written to. Every process then compiles the thousand modules of torch again. Children of this
package write what they import into a folder of their own instead, and later children read it from there: they start in
half the time (benchmarks/launch/start_up.py).

The folder belongs to this user alone, unlike the folder of records, which may be shared: bytecode is code, and code of
other users must not be run. The folder only saves time, so a failure to use it is no error and gives no warning.

A process must not keep rights that its program has given up. So its guard looks at the program again and again, and
ends the process once the program has another user, other capabilities, filters of system calls, namespaces or another
root. What waits for a task that may never come is no child of the program either, which may wait for all its children.

SIGTERM ends a tune as Ctrl-C does, with everything cleaned up, and then ends the process as usual.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec, source_hash
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import platformdirs

from triton_ops import settings
from triton_ops.base import CodeFolder, Folder, OwnFile, Process, TemporaryFolder, fingerprint, require
from triton_ops.exceptions import DeviceError

with contextlib.suppress(ImportError):  # not on Windows, where no process is started
    import fcntl
    import resource
_HEAVY = "torch"  # the only dependency so large that a folder of bytecode saves time
_HEADER = struct.Struct("<4sIII")  # magic number, flags, then time and size of the source or a hash of it
_HASHED, _CHECKED, _WORD = 1, 2, 0xFFFF_FFFF


def folder() -> Path | None:
    """The folder in which child processes keep bytecode; None where Python keeps it, or no folder can be made."""
    if not hasattr(os, "fork"):
        return None
    try:
        spec = find_spec(_HEAVY)
        origin = None if spec is None else spec.origin
        if origin is None or _python_keeps(origin):
            return None
        home = Path(platformdirs.user_cache_dir("triton-ops-bytecode")).absolute()  # others may share `triton-ops`
        path = CodeFolder(home / fingerprint([origin, version(_HEAVY)])).private()  # each installed torch has its own
        return path if Folder(path).writable else None
    except (ImportError, OSError, RuntimeError, ValueError):  # no home folder, or torch without an installed version
        return None


def _python_keeps(origin: str) -> bool:
    """Tell whether Python has valid bytecode of a module, or will write it on the first import."""
    if sys.flags.optimize:
        return True  # each level of optimisation has files of its own, which are not kept here
    cached = Path(cache_from_source(origin))
    nearest = next(path for path in cached.parents if path.is_dir())
    return _is_fresh(cached, Path(origin)) or (not sys.dont_write_bytecode and Folder(nearest).writable)


def _is_fresh(cached: Path, source: Path) -> bool:
    """Tell whether Python accepts the bytecode at `cached` as that of `source`, by its header of 16 bytes (PEP 552).

    An environment that was copied without the times of its files has bytecode everywhere, and Python accepts none of
    it.
    """
    if not cached.exists():
        return False
    with cached.open("rb") as file:
        magic, flags, first, second = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
    if magic != MAGIC_NUMBER:
        return False
    if flags & _HASHED:
        own_hash: bytes = first.to_bytes(4, "little") + second.to_bytes(4, "little")
        return not flags & _CHECKED or own_hash == source_hash(source.read_bytes())
    status = source.stat()
    return bool((first, second) == (int(status.st_mtime) & _WORD, status.st_size & _WORD))


Made = TypeVar("Made")


class Threads(ThreadPoolExecutor):
    """An executor whose `submit` raises `DeviceError` where the system has no thread left."""

    @staticmethod
    def begin(thread: threading.Thread) -> None:
        """Start a thread; `DeviceError` where the system has no thread left."""
        try:
            thread.start()
        except RuntimeError as error:
            raise _no_thread(error) from error

    @staticmethod
    def settle(future: Future[Made], make: Callable[[], Made]) -> None:
        """Give a future what is made, or what is raised meanwhile, which whoever asks for the result raises."""
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - as above
            future.set_exception(error)

    def submit(self, fn: Callable[..., Made], /, *args: Any, **kwargs: Any) -> Future[Made]:
        """As of the class above."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if "new thread" not in str(error):  # it is shut down
                raise
            raise _no_thread(error) from error


def _no_thread(error: RuntimeError) -> DeviceError:
    hint = "end other processes, or raise their limit: ulimit -u"
    return DeviceError(f"no thread can be started: {error}", hint=hint)


_FIRST = 3
MOST = 65_536  # descriptors: a process that has just begun has few
_PIPE_BYTES = 1 << 20  # the most that Linux gives to every user


def _check_system() -> None:
    if not hasattr(os, "fork"):
        message = "processes of their own, for configs, compilers and the lint, are for Linux and macOS"
        raise DeviceError(message, hint="a tune runs configs inline: isolate=False, --inline")


def pipe(*, large: bool = False) -> tuple[OwnFile, OwnFile]:
    """A pipe to a new process: a file to read from, and one to write to; `large` for tensors.

    With the usual 64 KiB two processes take turns thousands of times for tensors of some hundred MB: 140 MB took 1.3 s
    on a virtual machine that is slow to wake a process. Linux gives a user 64 MiB of pipes, and then tiny ones.
    """
    _check_system()
    reader, writer = _move(*os.pipe())
    with contextlib.suppress(AttributeError, OSError):  # no Linux, or this user has many pipes
        if large:
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer


def socket_pair() -> list[OwnFile]:
    """Two sockets that are connected with each other."""
    _check_system()
    ours, theirs = socket.socketpair()
    return _move(ours.detach(), theirs.detach())


def file_without_a_name() -> OwnFile:
    """A temporary file that is gone when it is closed."""
    with tempfile.TemporaryFile() as file:
        return _other(file.fileno())


def _move(*descriptors: int) -> list[OwnFile]:
    """The same files in place of these descriptors, under numbers of which none is a standard stream's."""
    try:
        with contextlib.ExitStack() as undo:
            copies = [undo.enter_context(_other(descriptor)) for descriptor in descriptors]
            undo.pop_all()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return copies


def place(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Have the files of these descriptors open under these numbers, and beside the first three no others."""
    free = max(numbers) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD, free) for each in descriptors]
    os.closerange(_FIRST, free)
    for each, number in zip(moved, numbers, strict=True):
        os.dup2(each, number)
    os.closerange(free, MOST)


def _other(descriptor: int) -> OwnFile:
    return OwnFile(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST))


_MOST_S = 2.0  # waited for processes that were killed to be gone
_LOOK_S = 0.005


def signal_name(number: int) -> str:
    """A signal's name, such as SIGABRT, or its number where Python has none, as for most real-time signals."""
    return {each.value: each.name for each in signal.Signals}.get(number, f"signal {number}")


def new_mark() -> str:
    """A mark that no other process has, with the number of this one, as `settings.starters` reads it."""
    return f"{os.urandom(8).hex()}.{os.getpid()}"


def end_family(mark: str) -> None:
    """Kill all processes with a mark and their children, but not this process, until there is none.

    10 µs for each process of this user, twice.
    """
    until = time.monotonic() + _MOST_S
    # Again and again, since one of them may start another between the look and its end.
    while (pids := members(mark)) and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def members(mark: str) -> set[int]:
    """The processes with a mark and their children, without this one and without those that have ended."""
    processes, sought = _own_processes(), mark.encode()
    pids = further = {pid for pid in processes if sought in Process(pid).environment} - {os.getpid()}
    if pids:
        parents = {pid: Process(pid).parent for pid in processes}
        while further:
            further = {pid for pid, parent in parents.items() if parent in further} - pids - {os.getpid()}
            pids |= further
    return {pid for pid in pids if not Process(pid).ended}


def held_bytes(group: int) -> int:
    """The memory that the processes of a group hold together; 0 where the system does not tell it. It takes 10 ms."""
    held: dict[object, int] = {}
    for pid in _own_processes():
        with contextlib.suppress(ProcessLookupError):
            for what, size in Process(pid).memory if os.getpgid(pid) == group else ():
                held[what] = max(size, held.get(what, 0))
    return sum(held.values())


def _own_processes() -> list[int]:
    if not Process.numbers_are_own():
        return []
    me = os.geteuid()
    try:
        with os.scandir(Process.PLACE) as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit() and _belongs_to(entry, me)]
    except OSError:
        return []


def _belongs_to(entry: os.DirEntry[str], user: int) -> bool:
    try:
        return entry.stat().st_uid == user
    except OSError:
        return False


OUTSIDE = frozenset(getattr(signal, name, 0) for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"))
"""Signals that people and systems send: a process that dies of one has not crashed."""

WATCH_S = 0.25  # between two looks at the program
_LONG_S = 3600.0
_HOME = str(Path(__file__).parents[2])  # the folder or archive that holds this package
_DIE_WITH_PARENT, _ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER, prctl(2)
# `-c` puts the working folder first on the search path; the program removes it before it imports anything.
_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); import json; sys.path[:] = json.loads(sys.argv[1])['path']; "
    "from {} import main; main()"
)
KEEPER = "triton_ops.processes.apart"
_APART = "import os; os.fork() and os._exit(0); "  # before the imports, since this process waits for it


class Program:
    """The program that has started this process, by its number and by its rights of that time."""

    def __init__(self, pid: int, rights: Mapping[str, str]) -> None:
        self._process, self._rights = Process(pid), rights
        self._told = [name for name, value in self._process.rights.items() if value]  # others may be hidden from here

    @staticmethod
    def here() -> tuple[int, dict[str, str]]:
        """This process as the arguments for those that it starts."""
        return os.getpid(), Process(os.getpid()).rights if Process.numbers_are_own() else {}

    @property
    def changed(self) -> bool:
        """True if it has ended or has other rights; never where nothing was told of it."""
        rights = self._process.rights if self._rights else {}
        return any(rights[name] != self._rights[name] for name in self._told if rights)


@dataclass(frozen=True)
class Leftovers:
    """The things that a process may leave behind, which its guard clears away.

    `family` is the mark of all that it starts, wherever that goes; None if it shares the mark with others. `temporary`
    is the folder of its temporary files; None if it has none of its own. The guard ends the process when the `program`
    changes; a process that is `kept` has its guard already.
    """

    family: str | None = None
    temporary: Path | None = None
    program: tuple[int, Mapping[str, str]] | None = None
    kept: bool = False

    @classmethod
    def own(cls) -> Leftovers:
        """The leftovers that the parent of this child gave to `command`."""
        manner = json.loads(sys.argv[1])
        temporary = None if manner["temporary"] is None else Path(manner["temporary"])
        return cls(manner["family"], temporary, manner["program"], manner["keeper"] is not None)

    def clear_away(self, leader: int) -> None:
        """Kill the group that a process has led and its family, and remove the folder of its temporary files."""
        with contextlib.suppress(OSError):
            os.killpg(leader, signal.SIGKILL)  # no other group can have this number while one of its processes lives
        if self.family is not None:
            end_family(self.family)
        if self.temporary is not None:
            TemporaryFolder.discard(self.temporary)


_NOTHING = Leftovers()
_guards: list[int] = []  # the guard of this process
_marks: list[str] = []  # the mark of its family


def strays() -> set[int]:
    """The processes that this child has started and that still run, wherever they went, without its guard."""
    return {pid for mark in _marks for pid in members(mark)} - {*_guards}


def command(
    module: str, *words: object, leftovers: Leftovers = _NOTHING, keeper: tuple[int, float] | None = None
) -> list[str]:
    """The command line of an interpreter that runs the function `main` of a module; with a `keeper` as `Apart` does.

    `main` finds `words` from `sys.argv[2]` on, and must take over the `Surroundings` of this process, which are sent to
    it by other means, before it loads the user's code. Raises `DeviceError` where no process can be started, as where
    Python is embedded in another program.
    """
    if not sys.executable:
        raise DeviceError("no further Python process can be started here", hint="run it inline")
    entries = dict.fromkeys([*search_path(), _HOME])  # a program may take an entry away after its imports
    home, archive = Path(sysconfig.get_path("stdlib")), f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    own = (home, home / "lib-dynload", Path(sysconfig.get_path("platstdlib")), home.parent / archive)
    path = sorted(entries, key=lambda entry: Path(entry) not in own)  # Python's own modules are found first
    bytecode = folder()
    manner = {
        "path": path,
        "bytecode": None if bytecode is None else str(bytecode),
        "family": leftovers.family,
        "temporary": None if leftovers.temporary is None else str(leftovers.temporary),
        "program": Program.here(),
        "keeper": keeper and (*keeper, module),
    }
    text = _PROGRAM.format(module) if keeper is None else _APART + _PROGRAM.format(KEEPER)
    return [sys.executable, "-W", "ignore", "-c", text, json.dumps(manner), *map(str, words)]


def take_over(command: Sequence[str]) -> None:
    """Give a forked process the words, the mark and the folder that this command line would give it."""
    sys.argv[1:] = command[5:]  # after the interpreter, its options and the text
    own = Leftovers.own()
    settings.restore_environment(settings.for_child({}, str(own.family), own.temporary))
    tempfile.tempdir = None


def environment(
    changes: Mapping[str, str], family: str, temporary: Path | None = None, *, starting: bool = False
) -> dict[str, str]:
    """The environment for a new process, in which Triton and torch load no code that another user could have written.

    A folder of compiled code among the `changes` has been judged. What `torch.compile` keeps between processes stays
    where it is; else as `settings.for_child`.
    """
    folders = ((name, *folder) for name, folder in settings.code_folders().items() if name not in changes)
    code_folders = {name: str(CodeFolder(path).trusted(other)) for name, path, other in folders}
    return settings.for_child({**code_folders, **changes}, family, temporary, starting=starting)


def import_heavy(packages: Iterable[str], purpose: str) -> None:
    """Import large packages in a child, with the shared folder of bytecode if there is one.

    Raises `MissingDependencyError`, which names the purpose, where a package is not installed.
    """
    bytecode, names = _folder_of_bytecode(), [name for name in packages if name not in sys.modules]
    if not names:
        return
    if bytecode is not None:
        sys.pycache_prefix, sys.dont_write_bytecode = bytecode, False
    gc.disable()  # garbage collection takes a seventh of the time of the imports
    try:
        for name in names:
            require(name, purpose)
        gc.freeze()  # forked processes then do not copy the imported objects
    finally:
        gc.enable()


@cache
def _folder_of_bytecode() -> str | None:
    """The folder that the parent has named; kept from the first call, since `sys.argv` is the user's afterwards."""
    path: str | None = json.loads(sys.argv[1])["bytecode"]
    return path


@dataclass(frozen=True)
class Surroundings:
    """Settings of a process that the user's code depends on, and that a child must take over.

    The words are `sys.argv`: a script may take constants of its kernels from there. The bytecode's are
    `sys.pycache_prefix` and `sys.dont_write_bytecode`.
    """

    path: tuple[str, ...]
    words: tuple[str, ...]
    bytecode: tuple[str | None, bool]

    @classmethod
    def here(cls) -> Surroundings:
        """The surroundings of this process."""
        return cls(tuple(search_path()), tuple(sys.argv), (sys.pycache_prefix, sys.dont_write_bytecode))

    def take(self) -> None:
        """Make these the settings of this process."""
        sys.path[:], sys.argv[:] = self.path, self.words
        sys.pycache_prefix, sys.dont_write_bytecode = self.bytecode


def search_path() -> list[str]:
    """The search path of this process with absolute folders; entries that are no text are left out, as Python does."""
    path: list[Any] = list(sys.path)
    folders = (_absolute(entry) for entry in path if isinstance(entry, str))
    return [each for each in folders if each is not None]


def _absolute(entry: str) -> str | None:
    """The folder of an entry: of a relative one that in which Python found modules, wherever this process went since.

    It is None where the current folder is gone.
    """
    if entry.startswith("/"):
        return entry
    origin: str | None = getattr(sys.path_importer_cache.get(entry), "path", None)
    here = settings.current_folder()
    return origin if origin is not None or here is None else str(Path(here, entry))


def die_with(parent: int, leftovers: Leftovers = _NOTHING, *, expendable: bool = False) -> None:
    """Arrange that this process and its children end when the parent ends, however it ends.

    On Linux the kernel kills this process when its parent dies, and a guard process kills the rest of the process
    group, such as an assembler that does not end. On other systems a thread watches the parent; user code that holds
    the interpreter can keep that thread from running. To be called first, in a process that leads a process group.
    Linux ends an `expendable` process, and not its parent, where memory runs out.
    """
    # A terminal sends Ctrl-C to all; the caller answers it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # core dumps take seconds
    guarded(leftovers)
    if sys.platform == "linux":
        _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    # A parent that ended before the request sends no signal: prctl(2), PR_SET_PDEATHSIG.
    if os.getppid() != parent:
        os._exit(1)
    if expendable:
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def run_forked(work: Callable[[], object]) -> NoReturn:
    """Run a forked process to its end, as a session of its own, so that it never returns to what has forked it."""
    code = 1
    try:
        os.setsid()
        work()
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Not `sys.exit`: handlers that run at an exit are those of the process that has forked this one.
        os._exit(code)


def guarded(leftovers: Leftovers) -> None:
    """Fork the guard of this process on Linux, and make the folder of its temporary files.

    The guard sleeps until this process is gone, kills everything in its process group and its family, and removes the
    folder of its temporary files. It does so, too, when the program that has started this process ends or changes. It
    has a process group of its own, so that it outlives a kill of the whole group by a moment. A guard that fails while
    this process lives ends alone. A process that has a keeper has no other guard.

    What a member of the family leaves without a parent becomes a child of this process, so that it is found there even
    if it hides its mark.
    """
    me = os.getpid()
    can_fork = sys.platform == "linux" and os.getpgrp() == me
    program = Program(*leftovers.program) if can_fork and leftovers.program else None  # before the first answer
    guard = os.getppid() if leftovers.kept else os.fork() if can_fork else None
    if guard != 0:
        _marks.extend([] if leftovers.family is None else [leftovers.family])
        _guards.extend([] if guard is None else [guard])
        if leftovers.family is not None and sys.platform == "linux":
            _prctl(_ADOPT_ORPHANS, 1)
        temporary = leftovers.temporary  # by now the guard removes it
        if temporary is not None and not TemporaryFolder.make(temporary):
            settings.set_variable("TMPDIR", str(temporary.parent))
        return
    try:
        os.setpgid(0, 0)
        os.closerange(0, MOST)  # an open end in the guard would keep pipes open
        # Blocked, the signal of the parent's end is waited for below, and does not end the guard.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        _prctl(_DIE_WITH_PARENT, signal.SIGTERM)
        # The parent may have ended before the request, so that no signal comes.
        while os.getppid() == me and not (program and program.changed):
            if signal.sigtimedwait({signal.SIGTERM}, WATCH_S if program else _LONG_S):
                break
        leftovers.clear_away(me)
    finally:
        os._exit(0)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value)


def _watch(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(0.5)
    os.killpg(0, signal.SIGKILL)


class TerminatedError(BaseException):
    """SIGTERM has arrived. The class is not an `Exception`, so that no handler of candidates' failures catches it."""

    @classmethod
    @contextmanager
    def cleaned_up(cls) -> Iterator[None]:
        """While the context is open, SIGTERM unwinds the stack before the process ends: workers end, locks are freed.

        Nothing is changed where the caller has a handler for SIGTERM, or outside of the main thread, which alone may
        set handlers.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            yield
            return

        def unwind(*_: object) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the cleaning short
            raise cls

        signal.signal(signal.SIGTERM, unwind)
        try:
            yield
        except cls:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            raise
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
