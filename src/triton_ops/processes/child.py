"""A new interpreter that runs a part of this package, and then finds modules where this process finds them.

It imports the package and its heavy dependencies with the standard library before everything else, and only then
takes over this process' surroundings: a file of the user's called `json.py`, beside the one that holds a kernel, must
not take the place of what Python itself imports.
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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops._optional import require
from triton_ops.exceptions import DeviceError
from triton_ops.processes.bytecode import folder

OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that people and systems send: whoever dies of one has not crashed."""

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG, prctl(2)
# `-c` puts the working folder first, unless Python is told not to; it goes before anything is imported.
_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); import json; sys.path[:] = json.loads(sys.argv[1])['path']; "
    "from {} import main; main()"
)


def command(module: str, *words: object) -> list[str]:
    """The command line of an interpreter that runs `main` of `module`; it finds `words` from `sys.argv[2]` on.

    `main` takes over the `Surroundings` of this process, sent as it likes, before it loads anything of the user's.

    Raises:
        DeviceError: No process can be started here, as where Python is a part of another program.
    """
    if not sys.executable or os.name != "posix":
        raise DeviceError("no further Python process can be started here", hint="run it inline")
    path = sorted(search_path(), key=lambda entry: not _of_python(entry))
    manner = json.dumps({"path": path, "bytecode": None if (kept := folder()) is None else str(kept)})
    return [sys.executable, "-W", "ignore", "-c", _PROGRAM.format(module), manner, *map(str, words)]


def import_heavy(packages: Iterable[str], purpose: str) -> None:
    """In a child, import what takes its time, with the bytecode that is kept for it.

    Raises:
        MissingDependencyError: A package is not installed; says what it is needed for (`purpose`).
    """
    if kept := json.loads(sys.argv[1])["bytecode"]:
        sys.pycache_prefix, sys.dont_write_bytecode = kept, False
    gc.disable()  # looking for garbage in what is being imported takes a seventh of the time
    for name in packages:
        require(name, purpose)
    gc.freeze()  # what is forked from this process does not copy it
    gc.enable()


@dataclass(frozen=True)
class Surroundings:
    """What the user's code sees of a process beside its own text; a child must see the same.

    Attributes:
        path: Where modules are found.
        words: `sys.argv`: a script may take constants of its kernels from there.
        bytecode: Where Python keeps bytecode, `sys.pycache_prefix`, and whether it does not.
    """

    path: tuple[str, ...]
    words: tuple[str, ...]
    bytecode: tuple[str | None, bool]

    @classmethod
    def here(cls) -> Surroundings:
        """This process'."""
        return cls(tuple(search_path()), tuple(sys.argv), (sys.pycache_prefix, sys.dont_write_bytecode))

    def take(self) -> None:
        """Make them this process'."""
        sys.path[:], sys.argv[:] = self.path, self.words
        sys.pycache_prefix, sys.dont_write_bytecode = self.bytecode


def search_path() -> list[str]:
    """Where this process looks for modules, from any working folder; what is no text Python passes over, too."""
    path: list[Any] = list(sys.path)
    return [entry or str(Path.cwd()) for entry in path if isinstance(entry, str)]


def _of_python(entry: str) -> bool:
    """Whether the standard library is there: its folder, what it has compiled, or its archive."""
    home = Path(sysconfig.get_path("stdlib"))
    archive = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return Path(entry) in (home, home / "lib-dynload", Path(sysconfig.get_path("platstdlib")), home.parent / archive)


def die_with(parent: int) -> None:
    """End with the parent, however that ends, whatever this process is doing then, with all that it has started.

    Linux kills a process when its parent dies, if asked; what that leaves behind, such as an assembler that does not
    end, is killed by a guard. Elsewhere a thread watches, which user code that holds the interpreter can keep from
    running. To be called first of all, in a process that leads a group of its own.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # they take seconds
    if sys.platform == "linux":
        _guarded()
        _signalled_at_death_of_parent(signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _guarded() -> None:
    """Fork the guard: it sleeps until this process is gone, and then ends everything in its group."""
    me = os.getpid()
    if os.getpgrp() != me or os.fork():
        return
    try:
        for descriptor in list(Path("/proc/self/fd").iterdir()):  # the ends of pipes are for their owner alone to hold
            with contextlib.suppress(OSError):
                os.close(int(descriptor.name))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        _signalled_at_death_of_parent(signal.SIGTERM)
        if os.getppid() == me:
            signal.sigwait({signal.SIGTERM})
    finally:
        os.killpg(0, signal.SIGKILL)


def _signalled_at_death_of_parent(number: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, number)


def _watch(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(0.5)
    os.killpg(0, signal.SIGKILL)
