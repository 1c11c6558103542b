"""The machine that a process runs on: its CPUs and memory, its processes, and the packages that are installed.

Facts of processes, CPUs and memory are those of Linux. Elsewhere nothing is told, and a process of another user keeps
the most to itself. Optional packages, which only some functions need, are imported at the moment of their use.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, ClassVar

from triton_ops.base.texts import warn_once
from triton_ops.exceptions import INSTALL, MissingDependencyError, nearest
from triton_ops.settings import colours, openmp_threads, progress

_threaded: list[int] = []
"""The process that has forked this one, or was about to, if it had threads of GNU's OpenMP."""

# The message of torch 2.13, whose import fails by it: pytorch/pytorch#151055.
_LOGS = r"(?s)Invalid log settings: (.*?), must be.*Valid settings:\s*(.*)"
_failures: dict[str, tuple[str, str]] = {}
"""Why torch could not be imported, and what to do. A process that has tried cannot try again: torch registers its
operators before it fails, and the second attempt fails because they are registered."""


def note_threads() -> None:
    """Note, before a fork, whether there are threads of GNU's OpenMP, with which torch 2.13 computes.

    It believes in a child that they are still there, and waits for them for ever; other libraries, such as OpenBLAS,
    begin new ones.
    """
    # pytorch/pytorch#41197 has the hang.
    tasks = Process(os.getpid()).tasks
    _threaded[:] = [os.getpid()] if tasks > threading.active_count() and _has_openmp_threads() else []


def _has_openmp_threads() -> bool:
    """Tell whether some thread waits in GNU's OpenMP; one that runs, or about which nothing is told, may be its own."""
    lines = [line.split() for line in _read("self/maps").splitlines() if b"gomp" in line]
    # `syscall` of a waiting thread ends in the address of its instruction; that of a running one is one word.
    library = [range(*(int(end, 16) for end in places.split(b"-"))) for places, *_ in lines]
    own = {thread.native_id for thread in threading.enumerate()}
    tasks = (place.name for place in Path(Process.PLACE, "self", "task").iterdir())
    others = [task for task in tasks if int(task) not in own]
    calls = [_read(f"self/task/{task}/syscall").split() for task in others] if library else []
    return any(len(call) < 2 or any(int(call[-1], 16) in part for part in library) for call in calls)


def require(name: str, purpose: str) -> ModuleType:
    """Import an optional package; the MissingDependencyError holds `purpose`, the reason and how to install it."""
    package = name.partition(".")[0]
    try:
        if _is_lost(package):
            raise ImportError(package)
        return import_in_order(name)
    except (Exception, SystemExit) as error:  # whatever the package's own code raises
        why, how = _failures[package] if _is_lost(package) else _failure(package, error)
        raise MissingDependencyError(f"{name} is needed for {purpose}, and {why}", hint=how) from error


def _is_lost(package: str) -> bool:
    """True if this process has tried to import a package that it cannot try again."""
    return package in _failures and package not in sys.modules


def _failure(package: str, error: BaseException) -> tuple[str, str]:
    how = INSTALL.get(package, f"pip install {package}")
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package:
        return "is not installed", how
    reason = f"cannot be imported: {type(error).__name__}: {error}", f"install {package} again: {how}"
    if package == "torch" and package not in sys.modules:  # where it is, a part of it could not be imported
        if (logs := re.search(_LOGS, str(error))) is not None:
            reason = _wrong_logs(logs[1], [word.strip() for word in logs[2].split(",")])
        _failures[package] = reason
    return reason


def _wrong_logs(setting: str, logs: list[str]) -> tuple[str, str]:
    """Reason and next step of a `TORCH_LOGS` with which torch refuses to be imported."""
    wrong = [word for word in (part.strip().lstrip("+-") for part in setting.split(",")) if word not in logs]
    close = ", ".join(near[0] for word in wrong if (near := nearest(word, logs)))
    reason = f"cannot be imported: TORCH_LOGS is {setting!r}, and torch has no log {', '.join(map(repr, wrong))}"
    return reason, f"correct TORCH_LOGS{f'; close are {close}' if close else ': TORCH_LOGS=help lists logs'}"


def import_in_order(name: str) -> ModuleType:
    """Import a module after the packages that hold it, the outermost first, so that several threads may do so at once.

    A thread that imports `a.b` while another one is still importing `a` waits for `a` in the middle of `a.b`. Where `a`
    then takes something from `a.b`, Python ends the circle by giving it the half of `a.b` that is there, and it fails.
    """
    # Python locks `a.b` before `a`: python/cpython#83065.
    for end, letter in enumerate(name):
        if letter == ".":
            importlib.import_module(name[:end])
    return importlib.import_module(name)


def bar_console(console: Any = None) -> Any:
    """The console for a progress bar, by default rich's of stderr, where messages are printed above the bar.

    None if it is no terminal, if progress is switched off, or without rich, which is said once.
    """
    if console is None:
        if not sys.stderr.isatty() or not progress():  # no progress bar in a log file, even if FORCE_COLOR is set
            return None
        try:
            rich = require("rich.console", "a progress bar")
        except MissingDependencyError as error:
            warn_once(str(error))
            return None
        console = rich.Console(
            stderr=True, highlight=False, emoji=False, soft_wrap=True, force_terminal=True,
            color_system="auto" if colours() else None,
        )  # fmt: skip
    return console if console.is_terminal else None


def available(name: str) -> bool:
    """True if the package `name` is installed; it is not imported."""
    return importlib.util.find_spec(name) is not None


@lru_cache(maxsize=64)
def installed_version(name: str) -> str | None:
    """The version that an installer noted of a package; None of a copy that no installer has made; read once."""
    from importlib import metadata  # reads mail headers: 10 ms, and a launch from a record asks for no version

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=4)
def is_as_published(name: str) -> bool:
    """True if a package came from an index, with the files that its installer has noted: Python's by content.

    It is False for a copy that no installer has made, and for one of a folder, a repository or a file.

    Cost: 15 ms for Triton, once in a process.
    """
    from importlib import metadata  # as above

    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    files = [file for file in installed.files or () if file.parts[0] == name and file.hash is not None]
    return bool(files) and installed.read_text("direct_url.json") is None and all(map(_is_as_noted, files))


def _is_as_noted(file: Any) -> bool:
    import base64  # the two take 15 ms, and quick commands need neither
    import hashlib

    try:
        content = file.locate().read_bytes() if file.suffix == ".py" else b""
        if file.size not in (None, len(content) or file.locate().stat().st_size):
            return False
    except OSError:
        return False
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return not content or file.hash.mode != "sha256" or digest == file.hash.value


class Host:
    """The CPUs and the memory of this machine, as far as this process may use them."""

    GROUPS: ClassVar[Path] = Path("/sys/fs/cgroup")

    @staticmethod
    def versions() -> dict[str, str]:
        """Versions of Python, this package, torch and Triton; read once in a process."""
        installed = {name: installed_version(name) for name in ("triton-ops", *filter(available, ("torch", "triton")))}
        return {"python": sys.version.split()[0], **{name: text for name, text in installed.items() if text}}

    @staticmethod
    def affinity_cpus() -> int:
        """CPUs on which this process may run: all of the machine's where the system does not tell."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @classmethod
    def usable_cpus(cls) -> int:
        """CPUs that it may use: those of its affinity, or the quota of a control group around it if that is smaller."""
        cpus = [cls.affinity_cpus()]
        for group in cls._groups("cpu"):
            quota, period = _numbers(group / "cpu.max") or _numbers(
                group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us"
            ) or (-1, 1)  # fmt: skip
            cpus += [-(-quota // period)] if quota > 0 and period > 0 else []  # the quota is -1 where there is none
        return max(1, min(cpus))

    @classmethod
    def cpu_threads(cls) -> int:
        """Threads that a computation may use: torch's if imported, else OpenMP's, else one for each CPU.

        In a child whose parent had threads of GNU's OpenMP torch is set to one, since it may wait for those.
        """
        torch = sys.modules.get("torch")
        threads_of_torch = getattr(torch, "get_num_threads", None)  # absent while another thread is importing torch
        if threads_of_torch is not None:
            if threads_of_torch() > 1 and _threaded not in ([], [os.getpid()]):
                require("torch", "computing in a child").set_num_threads(1)
                warn_once("this process was forked while OpenMP had threads, which it lacks: it computes in one thread")
            return int(threads_of_torch())
        return openmp_threads() or cls.affinity_cpus()

    @classmethod
    def available_bytes(cls) -> int | None:
        """The memory that programs can still take, here and in the control groups around it; None if not told."""
        lines = _read("meminfo").splitlines()
        left = [1024 * int(line.split()[1]) for line in lines if line.startswith(b"MemAvailable:")]
        for group in cls._groups("memory"):
            numbers = _numbers(group / "memory.max", group / "memory.current") or _numbers(
                group / "memory.limit_in_bytes", group / "memory.usage_in_bytes"
            )
            if numbers:
                most, used = numbers
                left.append(max(0, most - used + _inactive_bytes(group)))
        return min(left, default=None)

    @staticmethod
    def own_bytes() -> tuple[int, int]:
        """The memory of this process now and at most so far, without that of files; zeros where it is not told."""
        words = [line.split() for line in _read("self/status").splitlines() if line.startswith((b"Vm", b"Rss"))]
        told = {words[0]: 1024 * int(words[1]) for words in words}
        files = told.get(b"RssFile:", 0)
        return max(told.get(b"VmRSS:", 0) - files, 0), max(told.get(b"VmHWM:", 0) - files, 0)

    @classmethod
    def _groups(cls, controller: str) -> Iterator[Path]:
        """Where the limits of a controller may stand for this process: its control groups and all around them."""
        for line in _read("self/cgroup").decode(errors="replace").splitlines() or ["0::/"]:
            controllers, _, path = line.partition(":")[2].partition(":")
            if not controllers or controller in controllers.split(","):  # of version 2, or of version 1
                own = PurePath(path.lstrip("/"))
                # Controllers of version 1 may share a folder, such as `cpu,cpuacct`, with links of their own names.
                # Version 2 is mounted at `unified` where version 1 is in use, too.
                for top in (controllers, controller) if controllers else ("", "unified"):
                    yield from dict.fromkeys(cls.GROUPS / top / group for group in (own, *own.parents))


_NAMESPACES = tuple(f"ns/{name}" for name in (
    "cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts",
))  # fmt: skip


def _numbers(*files: Path) -> tuple[int, int] | None:
    """The two numbers of one file or of two files; None without them, as where `max` says that there is no limit."""
    try:
        first, second = (int(word) for file in files for word in file.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return first, second


def _inactive_bytes(group: Path) -> int:
    """The memory of a control group that holds files and is given back when it is needed; 0 where it is not told."""
    try:
        words = (group / "memory.stat").read_text(encoding="ascii").split()
        named = dict(zip(words[::2], map(int, words[1::2]), strict=False))
    except (OSError, ValueError):
        return 0
    # In version 1 only `total_` counts the groups below, as version 2 always does.
    return named.get("total_inactive_file", named.get("inactive_file", 0))


class Process:
    """A process of this machine by its number, which may be gone."""

    PLACE: ClassVar[str] = "/proc"

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def environment(self) -> bytes:
        """The environment that it was started with; empty if it is gone, or hides it."""
        return _read(f"{self.pid}/environ")

    @property
    def name(self) -> str:
        """The name of its program; empty if it is gone."""
        return _read(f"{self.pid}/comm").decode(errors="replace").strip()

    @property
    def parent(self) -> int:
        """The number of its parent; 0 if it is gone."""
        fields = self._fields()
        return int(fields[1]) if fields else 0

    @property
    def ancestors(self) -> Iterator[int]:
        """The numbers of its parent, of that one's parent, and so on."""
        pid = self.pid
        while (pid := Process(pid).parent) > 0:
            yield pid

    @property
    def memory(self) -> Iterator[tuple[object, int]]:
        """The bytes that it holds, each with what it is of: itself, or a file without a name that it maps or has open.

        Of pages that it shares with its copies it has a part.
        """
        for line in _read(f"{self.pid}/smaps_rollup").splitlines():
            if line.startswith((b"Pss_Anon:", b"SwapPss:")):
                yield (self.pid, line[:4]), 1024 * int(line.split()[1])
        for line in _read(f"{self.pid}/maps").splitlines():
            span, rights, offset, _, number = line.split()[:5]
            if rights.endswith(b"s") and line.endswith(b"(deleted)"):  # as of all shared memory
                begin, end = (int(part, 16) for part in span.split(b"-"))
                yield int(number), int(offset, 16) + end - begin
        for link, path in self._opened():
            with contextlib.suppress(OSError):  # closed meanwhile
                if path.endswith("(deleted)"):
                    file = os.stat(link)  # noqa: PTH116
                    yield file.st_ino, 512 * file.st_blocks

    @property
    def tasks(self) -> int:
        """The number of its threads; 0 if that is not told."""
        fields = self._fields()
        return int(fields[17]) if fields else 0

    @property
    def ended(self) -> bool:
        """True if it is gone, or waits for its parent to take note of its end."""
        fields = self._fields()
        return not fields or fields[0] in b"ZX"

    @property
    def rights(self) -> dict[str, str]:
        """When it began, who it is, and what it may do and reach; a text is empty if it is gone, or hides that.

        Landlock's rules are not among them: only a change of NoNewPrivs tells of the first.
        """
        start = b"".join(self._fields()[19:20]).decode()
        status = self._lines("Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp")
        places = {name: _place(Path(self.PLACE, str(self.pid), name)) for name in (*_NAMESPACES, "root")}
        return {"start": start, "status": status, **places}

    @property
    def bequest(self) -> tuple[str, bytes, bytes]:
        """What a process that it starts inherits of it beside its rights: umask, CPUs, limits and priority."""
        return self._lines("Umask:", "Cpus_allowed:"), _read(f"{self.pid}/limits"), b"".join(self._fields()[16:17])

    @property
    def open_files(self) -> Iterator[str]:
        """The paths of the files that it has open; none if it is gone, or another user's."""
        yield from (path for _, path in self._opened())

    def _opened(self) -> Iterator[tuple[str, str]]:
        folder = f"{self.PLACE}/{self.pid}/fd"
        try:
            numbers = os.listdir(folder)  # noqa: PTH208 - no path objects for what is read for every process
        except OSError:
            return
        for number in numbers:
            with contextlib.suppress(OSError):  # closed meanwhile
                yield f"{folder}/{number}", os.readlink(f"{folder}/{number}")  # noqa: PTH115

    @classmethod
    def numbers_are_own(cls) -> bool:
        """True if what is told of process numbers is of those that this process can send signals to.

        In a namespace of process numbers that was made without a `/proc` of its own, the numbers there are those
        outside.
        """
        try:
            return os.readlink(f"{cls.PLACE}/self") == str(os.getpid())  # noqa: PTH115
        except OSError:
            return False

    def _lines(self, *beginnings: str) -> str:
        """The lines of its status that begin so."""
        lines = _read(f"{self.pid}/status").decode(errors="replace").splitlines()
        return "\n".join(line for line in lines if line.startswith(beginnings))

    def _fields(self) -> list[bytes]:
        """The fields of `stat` from the third on, by the numbers of proc(5) less 3."""
        # The second one, the program's name, may hold blanks and parentheses.
        return _read(f"{self.pid}/stat").rpartition(b")")[2].split()


def _place(path: Path) -> str:
    """The device and number of what a link of the system leads to; empty if its process is gone, or hides it."""
    try:
        place = path.stat()
    except OSError:
        return ""
    return f"{place.st_dev}:{place.st_ino}"


def _read(what: str) -> bytes:
    """A file; empty if its process is gone, or hides it."""
    try:
        with open(f"{Process.PLACE}/{what}", "rb", buffering=0) as file:  # noqa: PTH123 - a fifth of `Path`'s time
            return file.read()
    except OSError:
        return b""
