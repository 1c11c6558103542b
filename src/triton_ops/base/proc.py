"""Facts of Linux about processes, CPUs, memory.

Elsewhere nothing is told, and a process of another user keeps the most to itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from triton_ops.settings import openmp_threads


def usable_cpus() -> int:
    """CPUs that this process may use: the CPUs of its affinity, or its control group's quota if that is smaller."""
    cpus = affinity_cpus()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cpus, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # there is no such file, or it says `max`, which means no quota
        return cpus


def cpu_threads() -> int:
    """Threads that a computation on the CPU may use: torch's if imported, else OpenMP's, else one for each CPU."""
    torch = sys.modules.get("torch")
    threads_of_torch = getattr(torch, "get_num_threads", None)  # absent while another thread is still importing torch
    if threads_of_torch is not None:
        return int(threads_of_torch())
    return openmp_threads() or affinity_cpus()


def affinity_cpus() -> int:
    """CPUs on which this process may run: all of the machine's where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


PLACE = "/proc"


def environment(pid: int) -> bytes:
    """The environment that a process was started with; empty if it is gone, or hides it."""
    return _read(f"{pid}/environ")


def name(pid: int) -> str:
    """The name of a process's program; empty if it is gone."""
    return _read(f"{pid}/comm").decode(errors="replace").strip()


def parent(pid: int) -> int:
    """The parent of a process; 0 if the process is gone."""
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def ancestors(pid: int) -> Iterator[int]:
    """The parent of a process, its parent, and so on."""
    while (pid := parent(pid)) > 0:
        yield pid


def ended(pid: int) -> bool:
    """True if a process is gone, or waits for its parent to take note of its end."""
    fields = _fields(pid)
    return not fields or fields[0] in b"ZX"


def own_descriptors() -> list[int]:
    """The descriptors that this process has open; none where that is not told."""
    try:
        return list(map(int, os.listdir(f"{PLACE}/self/fd")))  # noqa: PTH208 - numbers
    except OSError:
        return []


def is_own() -> bool:
    """True if what is told of process ids is of the ids that this process can send signals to.

    In a namespace of process ids that was made without a `/proc` of its own, the ids there are those outside.
    """
    try:
        return os.readlink(f"{PLACE}/self") == str(os.getpid())  # noqa: PTH115
    except OSError:
        return False


def open_files(pid: int) -> Iterator[str]:
    """The paths of the files that a process has open; none if it is gone, or another user's."""
    folder = f"{PLACE}/{pid}/fd"
    try:
        numbers = os.listdir(folder)  # noqa: PTH208 - no path objects for what is read for every process
    except OSError:
        return
    for number in numbers:
        with contextlib.suppress(OSError):  # closed meanwhile
            yield os.readlink(f"{folder}/{number}")  # noqa: PTH115


def available_bytes() -> int | None:
    """The memory that programs can still take on this machine; None where that is not told."""
    lines = _read("meminfo").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(b"MemAvailable:")), None)


def _fields(pid: int) -> list[bytes]:
    return _read(f"{pid}/stat").rpartition(b")")[2].split()


def _read(what: str) -> bytes:
    """A file; empty if its process is gone, or hides it."""
    try:
        with open(f"{PLACE}/{what}", "rb", buffering=0) as file:  # noqa: PTH123 - a fifth of `Path`'s time
            return file.read()
    except OSError:
        return b""
