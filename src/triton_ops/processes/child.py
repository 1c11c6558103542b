"""Starting child processes: a new interpreter that runs a part of this package, with this process' search path.

The child imports this package and its heavy dependencies with the standard library first on the search path, and only
then takes over the surroundings of its parent: a file `json.py` of the user's, next to the one that holds a kernel,
must not be imported in place of the standard library's.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops._files import code_folder, make_temporary, remove_temporary
from triton_ops._optional import require
from triton_ops.exceptions import DeviceError
from triton_ops.processes.bytecode import folder
from triton_ops.processes.descriptors import close_all
from triton_ops.processes.family import end_family, members

OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that people and systems send: a process that dies of one has not crashed."""

_HOME = str(Path(__file__).parents[2])  # the folder or archive that holds this package
_DIE_WITH_PARENT, _ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER, prctl(2)
# `-c` puts the working folder first on the search path; the program removes it before it imports anything.
_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); import json; sys.path[:] = json.loads(sys.argv[1])['path']; "
    "from {} import main; main()"
)


@dataclass(frozen=True)
class Leftovers:
    """What a process may leave behind, which its guard clears away.

    Attributes:
        family: The mark of all that the process starts, wherever that goes (`family.py`); None if it shares the mark
            with others.
        temporary: The folder of its temporary files; None if it has none of its own.
    """

    family: str | None = None
    temporary: Path | None = None

    @classmethod
    def own(cls) -> Leftovers:
        """In a child, what its parent gave to `command`."""
        given = json.loads(sys.argv[1])
        return cls(given["family"], None if given["temporary"] is None else Path(given["temporary"]))


_NOTHING = Leftovers()
_guards: list[int] = []  # the guard of this process
_marks: list[str] = []  # the mark of its family


def command(module: str, *words: object, leftovers: Leftovers = _NOTHING) -> list[str]:
    """The command line of an interpreter that runs the function `main` of a module.

    `main` must take over the `Surroundings` of this process, which are sent to it by other means, before it loads the
    user's code.

    Args:
        module: Full name of the module.
        *words: Arguments that `main` finds from `sys.argv[2]` on.
        leftovers: What its guard clears away.

    Raises:
        DeviceError: No process can be started here, such as where Python is embedded in another program.
    """
    if not sys.executable or os.name != "posix":
        raise DeviceError("no further Python process can be started here", hint="run it inline")
    entries = dict.fromkeys([*search_path(), _HOME])  # a program may take an entry away after its imports
    path = sorted(entries, key=lambda entry: not _of_python(entry))
    kept = folder()
    manner = {
        "path": path,
        "bytecode": None if kept is None else str(kept),
        "family": leftovers.family,
        "temporary": None if leftovers.temporary is None else str(leftovers.temporary),
    }
    return [sys.executable, "-W", "ignore", "-c", _PROGRAM.format(module), json.dumps(manner), *map(str, words)]


def environment(changes: Mapping[str, str], family: str, temporary: Path | None = None) -> dict[str, str]:
    """The environment for a new process, in which Triton and torch load no code that another user could have written.

    Args:
        changes: Variables by name; a folder of compiled code among them has been judged.
        family: As of `settings.for_child`.
        temporary: As of `settings.for_child`. What `torch.compile` keeps between processes stays where it is.
    """
    folders = settings.code_folders().items()
    judged = {name: str(code_folder(*folder)) for name, folder in folders if name not in changes}
    return settings.for_child({**judged, **changes}, family, temporary)


def import_heavy(packages: Iterable[str], purpose: str) -> None:
    """In a child, import large packages, with the shared folder of bytecode if there is one.

    Args:
        packages: Names of the packages.
        purpose: What the packages are needed for, for the error's text.

    Raises:
        MissingDependencyError: A package is not installed.
    """
    kept, wanted = _folder_of_bytecode(), [name for name in packages if name not in sys.modules]
    if not wanted:
        return
    if kept is not None:
        sys.pycache_prefix, sys.dont_write_bytecode = kept, False
    gc.disable()  # garbage collection takes a seventh of the time of the imports
    for name in wanted:
        require(name, purpose)
    gc.freeze()  # forked processes then do not copy the imported objects
    gc.enable()


@cache
def _folder_of_bytecode() -> str | None:
    """The folder that the parent has named; kept from the first call, since `sys.argv` is the user's afterwards."""
    kept: str | None = json.loads(sys.argv[1])["bytecode"]
    return kept


@dataclass(frozen=True)
class Surroundings:
    """Settings of a process that the user's code depends on, and that a child must take over.

    Attributes:
        path: The search path of modules.
        words: `sys.argv`: a script may take constants of its kernels from there.
        bytecode: `sys.pycache_prefix` and `sys.dont_write_bytecode`.
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
    return [found for entry in path if isinstance(entry, str) and (found := _absolute(entry)) is not None]


def _absolute(entry: str) -> str | None:
    """The folder of an entry: of a relative one that in which Python found modules, wherever this process went since.

    It is None where the current folder is gone.
    """
    if entry.startswith("/"):
        return entry
    found: str | None = getattr(sys.path_importer_cache.get(entry), "path", None)
    here = settings.current_folder()
    return found if found is not None or here is None else str(Path(here, entry))


def _of_python(entry: str) -> bool:
    """Whether an entry of the search path is the standard library's folder, its extension modules, or its archive."""
    home = Path(sysconfig.get_path("stdlib"))
    archive = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return Path(entry) in (home, home / "lib-dynload", Path(sysconfig.get_path("platstdlib")), home.parent / archive)


def die_with(parent: int, leftovers: Leftovers = _NOTHING) -> None:
    """Arrange that this process and its children end when the parent ends, however it ends.

    On Linux the kernel kills this process when its parent dies, and a guard process kills the rest of the process
    group, such as an assembler that does not end. On other systems a thread watches the parent; user code that holds
    the interpreter can keep that thread from running. To be called first, in a process that leads a process group.

    Args:
        parent: The parent's process id.
        leftovers: What is cleared away when this process has ended, however it ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    )  # core dumps take seconds
    guarded(leftovers)
    if sys.platform == "linux":
        _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def expendable() -> None:
    """Where memory runs out, Linux is to end this process and not its parent."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def guarded(leftovers: Leftovers) -> None:
    """Fork the guard of this process on Linux, and make the folder of its temporary files.

    The guard sleeps until this process is gone, kills everything in its process group and its family, and removes the
    folder of its temporary files. It has a process group of its own, so that it outlives a kill of the whole group by a
    moment. A guard that fails while this process lives ends alone.

    What a member of the family leaves without a parent becomes a child of this process, so that it is found there even
    if it hides its mark.
    """
    me = os.getpid()
    guard = os.fork() if sys.platform == "linux" and os.getpgrp() == me else None
    if guard != 0:
        _marks.extend([] if leftovers.family is None else [leftovers.family])
        _guards.extend([] if guard is None else [guard])
        if leftovers.family is not None and sys.platform == "linux":
            _prctl(_ADOPT_ORPHANS, 1)
        if leftovers.temporary is not None and not make_temporary(leftovers.temporary):  # by now the guard removes it
            settings.set_folder("TMPDIR", str(leftovers.temporary.parent))
        return
    try:
        os.setpgid(0, 0)
        close_all()  # an open end in the guard would keep pipes open
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        _prctl(_DIE_WITH_PARENT, signal.SIGTERM)
        if os.getppid() == me:
            signal.sigwait({signal.SIGTERM})
        with contextlib.suppress(OSError):
            os.killpg(me, signal.SIGKILL)  # no other group can have this number while one of its processes lives
        if leftovers.family is not None:
            end_family(leftovers.family)
        if leftovers.temporary is not None:
            remove_temporary(leftovers.temporary)
    finally:
        os._exit(0)


def strays() -> set[int]:
    """In a child, the processes that it has started and that still run, wherever they went, without its guard."""
    return {pid for mark in _marks for pid in members(mark)} - {*_guards}


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value)


def _watch(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(0.5)
    os.killpg(0, signal.SIGKILL)
