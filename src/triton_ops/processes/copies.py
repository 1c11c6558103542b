"""Copies of a program, forked before it uses a GPU, that become its first worker and the fork server of its compilers.

The imports of torch and Triton are most of the time that these take to start; a copy of a program that has imported
them needs none. It is made where no fork does harm: of one thread, without an open device, and with the settings of
torch and Triton as in a new process. Libraries that end their threads before a fork, as OpenBLAS does, do no harm;
OpenMP would wait in the copy for threads that are not there.

A copy waits until it is needed, for a minute, as long as the program lives, and until that forks: whoever waits for
all of its children would wait for copies too. It forgets the program: what is open leads nowhere, handlers are as in a
new process, and modules of the user's, or whose import has not ended, are imported anew. What it has forgotten is never
freed: an object that goes may remove a folder.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context
from pathlib import Path
from types import ModuleType
from typing import Any

from triton_ops import settings
from triton_ops.processes.child import run_forked, socket_pair

_LIFE_S = 60.0  # a program that asks for tunes may first load a model
_MOST_BYTES = 1 << 30  # of the program's own memory: a fork takes 20 ms for so much
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/infiniband")
_ROLES = ("worker", "fork server")
_RIGHTS = ("Umask:", "Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:")
_copies: dict[tuple[int, str], tuple[Forked, socket.socket]] = {}  # a program may fork others
_programs: set[int] = set()  # that have forked copies, even if these had to end at once
_forgotten: list[Any] = []


class Forked(subprocess.Popen[bytes]):
    """The handle of a process that was forked, whose number is the only word, as of one that was started."""

    def _execute_child(self, words: Sequence[str], *_: object) -> None:
        self.pid, self._child_created = int(words[0]), True


def fork_copies(keeps: Callable[[str], bool]) -> bool:
    """Fork copies, once in a process, if that is safe; returns whether some wait.

    `keeps` tells of a module by name whether a copy keeps it.

    Cost: 25 ms of a CPU in a program that has imported torch, at most 60.
    """
    program = os.getpid()
    if program in _programs or not _may_fork():
        return waits(_ROLES[0])
    with contextlib.suppress(OSError, RuntimeError):  # of limits, and of audit hooks that allow no fork
        _copies.update({(program, role): _forked(keeps) for role in _ROLES})
        os.register_at_fork(before=_end_copies)
        atexit.register(_end_copies)
    _programs.add(program)
    if len([*Path("/proc/self/task").iterdir()]) > 1:
        _end_copies()
    return waits(_ROLES[0])


def waits(role: str) -> bool:
    """Tell whether a copy of this program waits for a role: it has imported torch."""
    return (os.getpid(), role) in _copies


def _end_copies() -> None:
    for role in _ROLES:
        if (waiting := _copies.pop((os.getpid(), role), None)) is not None:
            with waiting[1], contextlib.suppress(PermissionError):  # then it ends with the connection
                waiting[0].kill()
            waiting[0].wait()


def _forked(keeps: Callable[[str], bool]) -> tuple[Forked, socket.socket]:
    ours, theirs = socket_pair()
    with theirs, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, for which is looked elsewhere
        if not (pid := os.fork()):
            run_forked(lambda: Context().run(_live, theirs, keeps))
    return Forked([str(pid)]), ours


def _may_fork() -> bool:
    torch: Any = sys.modules.get("torch")
    if (
        torch is None or sys.platform != "linux" or threading.active_count() > 1 or os.fork.__module__ != "posix"
        or sys.gettrace() or sys.getprofile()
        or (sys.version_info >= (3, 12) and any(map(sys.monitoring.get_tool, range(6))))
    ):  # fmt: skip
        return False
    with contextlib.suppress(AttributeError, OSError, RuntimeError):  # of another version of torch, or without /proc
        resident, shared = map(int, Path("/proc/self/statm").read_text(encoding="utf-8").split()[1:3])
        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        return (
            (resident - shared) * os.sysconf("SC_PAGE_SIZE") < _MOST_BYTES
            and torch.get_default_dtype() is torch.float32 and torch.get_float32_matmul_precision() == "highest"
            and all((torch.is_grad_enabled(), cudnn.enabled, cudnn.allow_tf32, cuda.flash_sdp_enabled(),
                     cuda.math_sdp_enabled(), cuda.mem_efficient_sdp_enabled(),
                     cuda.matmul.allow_bf16_reduced_precision_reduction))
            and not any((torch.is_autocast_enabled(), torch.is_anomaly_enabled(), cudnn.benchmark, cudnn.deterministic,
                         torch.are_deterministic_algorithms_enabled(), torch._C._len_torch_function_stack()))
            and not any(os.path.realpath(each).startswith(_DEVICES) for each in Path("/proc/self/fd").iterdir())
            and {"torch", "triton", "triton_ops"}.isdisjoint(_loading()) and not [*_knobs()]
        )  # fmt: skip
    return False


def _knobs() -> Iterator[object]:
    """Settings and hooks that the program has given to Triton."""
    knobs: Any = sys.modules.get("triton.knobs")
    for group in (each for each in vars(knobs).values() if isinstance(each, knobs.base_knobs)) if knobs else ():
        yield from (*vars(group), *(call for each in vars(type(group)).values() for call in getattr(each, "calls", ())))


def _loading() -> set[str]:
    specs = {name: getattr(module, "__spec__", None) for name, module in tuple(sys.modules.items())}
    return {name.partition(".")[0] for name, spec in specs.items() if getattr(spec, "_initializing", False)}


def begin(
    words: Sequence[str], streams: tuple[int, int], files: Sequence[int], env: Mapping[str, str], role: str
) -> subprocess.Popen[bytes]:
    """Begin a program of `command`, whose first words are `files`: in the copy for this role, if it waits.

    It is else a new process, as for an empty role. The streams are its stdout and stderr, or `DEVNULL`.
    """
    if (waiting := _copies.pop((os.getpid(), role), None)) is not None:
        copy, connection = waiting
        with contextlib.suppress(OSError):  # it has ended
            if _rights(copy.pid) == _rights(os.getpid()):
                socket.send_fds(connection, [b"f"], [*(each for each in streams if each >= 0), *files])
                connection.sendall(pickle.dumps((words, streams, env, settings.current_folder() or ".")))
                connection.close()
                return copy
        _copies[os.getpid(), role] = waiting
        _end_copies()
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=streams[0], stderr=streams[1], pass_fds=files, env=env,
        start_new_session=True,
    )  # fmt: skip


def _rights(process: int) -> list[object]:
    """Who a process is, and what it may do: a copy is not changed with its program."""
    status, limits = (Path(f"/proc/{process}/{name}").read_text(encoding="utf-8") for name in ("status", "limits"))
    lines = [line for line in status.splitlines() if line.startswith(_RIGHTS)]
    return [*lines, limits, os.getpriority(os.PRIO_PROCESS, process)]


def _live(connection: socket.socket, keeps: Callable[[str], bool]) -> None:
    gc.freeze()
    gc.enable()
    _forget_files(connection.fileno())
    _forget_handlers()
    if not select.select([connection], [], [], _LIFE_S)[0]:
        return
    _forget_modules(keeps)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 4, socket.MSG_CMSG_CLOEXEC)
    with connection, connection.makefile("rb") as stream:
        words, streams, env, folder = pickle.load(stream)  # or an error, if the program has ended
    for number in (number for number, each in enumerate(streams, start=1) if each >= 0):
        os.dup2(descriptors[0], number)
        os.close(descriptors.pop(0))
    os.chdir(folder)
    settings.restore_environment(env)
    _show_family(env[settings.FAMILY])
    sys.argv[:] = ["-c", words[5], *map(str, descriptors), *words[6 + len(descriptors) :]]
    exec(words[4], vars(sys.modules["__main__"]))


def _forget_files(connection: int) -> None:
    """Have every other descriptor lead nowhere; its number stays taken, since an object of the program may close it."""
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in {0, 1, 2, *(int(each.name) for each in Path("/proc/self/fd").iterdir())} - {connection, nowhere}:
        os.dup2(nowhere, descriptor, inheritable=descriptor < 3)
    _forgotten.extend((sys.stdin, sys.stdout, sys.stderr))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - these are open as long as the process
    sys.stdout = sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _forget_handlers() -> None:
    handled = [number for number in signal.valid_signals() if callable(signal.getsignal(number))]
    _forgotten.extend(signal.signal(number, signal.SIG_DFL) for number in handled)
    for log in (logging.root, *logging.root.manager.loggerDict.values()):
        _forgotten.append(vars(log).get("handlers"))
        vars(log)["handlers"] = []
    warnings.simplefilter("ignore")
    tempfile.tempdir = None  # a worker has a folder of its own


def _forget_modules(keeps: Callable[[str], bool]) -> None:
    _forgotten.append(modules := dict(sys.modules))
    packages = _loading()
    for name in modules:
        if not keeps(name) or name.partition(".")[0] in packages:
            del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")


def _show_family(mark: str) -> None:
    """Have `/proc` show whose this process is: it shows the environment of the program as it was started."""
    start, end = map(int, Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[47:49])
    text = f"{settings.FAMILY}={mark}".encode()[: end - start]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
