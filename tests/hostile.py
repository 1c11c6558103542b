"""Candidates that want to deceive or to harm whoever tries them; only processes of trials import this file."""

import contextlib
import ctypes
import gc
import mmap
import os
import pickle
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

import msgspec
import numpy
import torch

LATER_S = 0.3
PRLIMIT_NOFILE = 7


def _refused(act):
    """1 if the system refuses an act, else 0."""
    try:
        act()
    except (OSError, ValueError):
        return 1
    return 0


def _of_libc(name, *words):
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*words) < 0:
        raise OSError(ctypes.get_errno(), name)


def reaches(x, parent):
    """What of the parent's process, its files and the network can be reached: 1 for each attempt that fails."""
    half, place = struct.pack("QQ", x.ctypes.data, 8), Path(f"/proc/{parent}")
    acts = [
        lambda: (place / "mem").open("rb"),
        lambda: (place / "environ").read_bytes(),
        lambda: (place / "maps").read_bytes(),
        lambda: resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2),
        lambda: (place / "mem").open("r+b"),
        lambda: os.open(place / "fd" / "0", os.O_RDONLY),
        lambda: _of_libc("ptrace", 16, parent, 0, 0),  # PTRACE_ATTACH
        lambda: _of_libc("process_vm_readv", parent, half, 1, half, 1, 0),
        lambda: os.kill(parent, 0),
        lambda: os.kill(parent, signal.SIGSTOP),
        lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
        lambda: os.sched_setaffinity(parent, {0}),
        lambda: _of_libc("prlimit", parent, PRLIMIT_NOFILE, struct.pack("QQ", 3, 3), None),
        lambda: _of_libc("syscall", 438, os.pidfd_open(parent), 0, 0),  # pidfd_getfd
        lambda: _of_libc("shmget", 0, mmap.PAGESIZE, 0o1600),
        lambda: _of_libc("semget", 0, 1, 0o1600),
        lambda: _of_libc("msgget", 0, 0o1600),
        lambda: _of_libc("mq_open", b"/planted", os.O_CREAT, 0o600, None),
        lambda: Path("/dev/shm/planted").write_text("x"),
        lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        socket.socket,
        lambda: os.open(__file__, os.O_WRONLY),
        lambda: Path(sys.prefix, "planted").write_text("x"),
        lambda: os.mkdir(Path(__file__).parent / "planted"),  # noqa: PTH102
    ]
    return numpy.array([_refused(act) for act in acts])


def _arenas():
    """The descriptors of files in memory that this process has."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd" in str(entry.readlink()):
                yield int(entry.name)


def shortens(x):
    """Shorten the arenas, and write into those that cannot be written."""
    for descriptor in _arenas():
        for act in (
            lambda each=descriptor: os.ftruncate(each, 0),
            lambda each=descriptor: os.pwrite(each, b"\0" * 64, 0),
        ):
            with contextlib.suppress(OSError):
                act()
    for each in gc.get_objects():
        if isinstance(each, mmap.mmap):
            with contextlib.suppress(OSError, SystemError, ValueError, BufferError):
                each.resize(mmap.PAGESIZE)
    return x + 1


def _answer(content):
    """Write the bytes of an answer into each pipe that takes them."""
    framed = struct.pack("!4sQI", b"\xf1\xd5\x0b\x9e", len(content), zlib.crc32(content)) + content
    for entry in Path("/proc/self/fd").iterdir():
        if int(entry.name) > 2:
            with contextlib.suppress(OSError):
                os.write(int(entry.name), framed)


class _Planted:
    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (self._path,)


def forges_a_pickle(x, path):
    _answer(pickle.dumps(_Planted(path)))
    return x


def forges_garbage(x):
    _answer(b"\xff" * 100)
    return x


def forges(x, library, dtype, shape, strides, at, used):
    """An answer before the results are there, which claims a tensor of any form."""
    leaf = ["leaf", library, dtype, shape, strides, at]
    _answer(msgspec.msgpack.encode({"type": "Taken"}))
    time.sleep(0.5)  # until the results are asked for
    _answer(msgspec.msgpack.encode({"type": "Done", "used": used, "results": [leaf]}))
    time.sleep(60)


def forges_many(x, count, size):
    leaf = ["leaf", "array", "|u1", [size], [1], 0]
    several = ["several", "list", [leaf] * count]
    _answer(msgspec.msgpack.encode({"type": "Taken"}))
    time.sleep(0.5)
    _answer(msgspec.msgpack.encode({"type": "Done", "used": size, "results": [several]}))
    time.sleep(60)


def stops_clocks(x):
    """A candidate in whose process no time passes."""
    time.perf_counter = time.monotonic = time.time = lambda: 0.0
    time.perf_counter_ns = time.monotonic_ns = time.time_ns = lambda: 0
    ctypes.CDLL(None).usleep(100_000)
    return x + 1


class Lazy(torch.Tensor):
    """A tensor that would be computed when it is looked at."""


def lazy(x):
    return x.as_subclass(Lazy)


def writes_later(x):
    """Zeros, into which a thread writes what is right after the return."""
    result = torch.zeros_like(x)
    threading.Timer(LATER_S, lambda: result.copy_(x + 1)).start()
    return result


def views(x, y):
    return x[1:], y, x + y, y.T


def halves(x):
    result = numpy.empty((len(x), 2))
    result[:, 0], result[:, 1] = x, -x
    return result[:, 0], result[:, 1]


def changes(x, y, *, w):
    y += 1
    w.resize_(2, 2)
    return x + 1


def hangs(x):
    time.sleep(3600)


def inherits(x):
    """What this process has from the one that has forked it, and what is its own."""
    return {
        "parent": os.getppid(), "tasks": len([*Path("/proc/self/task").iterdir()]), "folder": tempfile.gettempdir(),
        "files": len([*Path("/proc/self/fd").iterdir()]), "variables": Path("/proc/self/environ").read_text(),
        "seeds": [random.random(), float(numpy.random.rand()), float(torch.rand(1))],
    }  # fmt: skip


def spins(x):
    """A thread that takes time from others after the call."""
    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
    return os.getpid()


def leaves(x, code):
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def exits(x):
    sys.exit(3)


class _UnspeakableError(Exception):
    def __str__(self):
        raise ValueError


def raises(x, text):
    raise ValueError(text) if text else _UnspeakableError


def forks(x, count):
    """Processes that hide: in sessions of their own, without a parent and with an empty environment."""
    pids = []
    for _ in range(count):
        reader, writer = os.pipe()
        if not os.fork():
            with contextlib.suppress(OSError):
                os.setsid()
            if (pid := os.fork()) == 0:
                os.execve("/bin/sleep", ["sleep", "3600"], {})
            os.write(writer, str(pid).encode())
            os._exit(0)
        pids.append(int(os.read(reader, 20)))
        os.wait()
    return numpy.array(pids)


def prints(x, count):
    """Words without an end of a line."""
    part = b"x" * (1 << 20)
    for _ in range(count):
        os.write(1, part)
    subprocess.run(["echo", "more"], check=True)
    return x + 1


def large(x, size):
    return numpy.zeros(size)


def takes_memory(x):
    return [numpy.empty(1 << 26) for _ in range(1 << 16)]


def takes_memory_in_shared_maps(x):
    kept = [mmap.mmap(-1, 1 << 28) for _ in range(12)]
    for each in kept:
        each[:] = bytes(len(each))
    time.sleep(600)


def takes_memory_in_files(x):
    for _ in range(12):
        file = os.memfd_create("kept")
        os.write(file, bytes(1 << 28))
    time.sleep(600)


def takes_memory_in_forks(x):
    for _ in range(12):
        if not os.fork():
            kept = numpy.ones(1 << 25)
            time.sleep(600 * kept[0])
    time.sleep(600)


def takes_memory_in_forks_of_short_calls(x):
    if not os.fork():
        kept = numpy.ones(1 << 25)
        time.sleep(600 * kept[0])
    return x + 1


def takes_memory_of_torch(x):
    return torch.empty(1 << 42)


def other(x, which):
    """Values that are no results."""
    return {
        "sparse": lambda: x.to_sparse(),
        "meta": lambda: x.to("meta"),
        "nested": lambda: torch.nested.nested_tensor([x]),
        "object": lambda: object(),
        "objects": lambda: numpy.array([None, x], dtype=object),
        "matrix": lambda: numpy.asmatrix(numpy.ones(3)),
        "generator": lambda: (each for each in x),
        "huge": lambda: 1 << 80,
        "deep": lambda: _deep(),
        "conjugate": lambda: x.to(torch.complex64).mul(1j).conj(),
        "kinds": lambda: {"a": [1, 2.5, True, None, "x"], "b": (numpy.float64(0.5), numpy.ones(()), x.bfloat16()[::2])},
        "empty": lambda: (x[:0], numpy.empty((3, 0))),
    }[which]()


def _deep():
    value = []
    for _ in range(10_000):
        value = [value]
    return value


def plain(x):
    return x + 1


def run(name, *args, **kwargs):
    """Any of the above, so that one process can run several."""
    return globals()[name](*args, **kwargs)
