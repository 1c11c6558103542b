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
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from triton_ops.base.texts import warn_once
from triton_ops.exceptions import INSTALL, MissingDependencyError, nearest
from triton_ops.settings import colours, openmp_threads, progress

_LOGS = r"(?s)Invalid log settings: (.*?), must be.*Valid settings:\s*(.*)"
_failures: dict[str, tuple[str, str]] = {}
"""Why torch could not be imported, and what to do. A process that has tried cannot try again: torch registers its
operators before it fails, and the second attempt fails because they are registered."""


def require(name: str, purpose: str) -> ModuleType:
    """Import an optional package; the MissingDependencyError holds `purpose`, the reason and how to install it."""
    package = name.partition(".")[0]
    try:
        if _is_lost(package):
            raise ImportError(package)
        return import_in_order(name)
    except (Exception, SystemExit) as error:
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
    for end, letter in enumerate(name):
        if letter == ".":
            importlib.import_module(name[:end])
    return importlib.import_module(name)


def base_class(module: str, name: str, purpose: str) -> Any:
    """The class `name` of the optional module `module`, to derive from; where there is none, a stand-in.

    A class that derives from the stand-in can be imported and named. To make an object of it raises the
    `MissingDependencyError` of `require`.
    """
    try:
        return getattr(require(module, purpose), name)
    except MissingDependencyError as error:
        message, hint = error.message, error.hint

        def refuse(*_: object, **__: object) -> Any:
            raise MissingDependencyError(message, hint=hint)

        return type(name, (), {"__new__": refuse})


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


class Host:
    """The CPUs and the memory of this machine, as far as this process may use them."""

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
        """CPUs that it may use: the CPUs of its affinity, or its control group's quota if that is smaller."""
        cpus = cls.affinity_cpus()
        try:
            quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
            return max(1, min(cpus, -(-int(quota) // int(period))))
        except (OSError, ValueError):  # there is no such file, or it says `max`, which means no quota
            return cpus

    @classmethod
    def cpu_threads(cls) -> int:
        """Threads that a computation may use: torch's if imported, else OpenMP's, else one for each CPU."""
        torch = sys.modules.get("torch")
        threads_of_torch = getattr(torch, "get_num_threads", None)  # absent while another thread is importing torch
        if threads_of_torch is not None:
            return int(threads_of_torch())
        return openmp_threads() or cls.affinity_cpus()

    @staticmethod
    def available_bytes() -> int | None:
        """The memory that programs can still take; None where that is not told."""
        lines = _read("meminfo").splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith(b"MemAvailable:")), None)


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
    def ended(self) -> bool:
        """True if it is gone, or waits for its parent to take note of its end."""
        fields = self._fields()
        return not fields or fields[0] in b"ZX"

    @property
    def open_files(self) -> Iterator[str]:
        """The paths of the files that it has open; none if it is gone, or another user's."""
        folder = f"{self.PLACE}/{self.pid}/fd"
        try:
            numbers = os.listdir(folder)  # noqa: PTH208 - no path objects for what is read for every process
        except OSError:
            return
        for number in numbers:
            with contextlib.suppress(OSError):  # closed meanwhile
                yield os.readlink(f"{folder}/{number}")  # noqa: PTH115

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

    def _fields(self) -> list[bytes]:
        return _read(f"{self.pid}/stat").rpartition(b")")[2].split()


def _read(what: str) -> bytes:
    """A file; empty if its process is gone, or hides it."""
    try:
        with open(f"{Process.PLACE}/{what}", "rb", buffering=0) as file:  # noqa: PTH123 - a fifth of `Path`'s time
            return file.read()
    except OSError:
        return b""
