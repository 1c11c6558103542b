"""What foreign code of a process can reach: neither the user's variables nor a network, nor other processes.

The filter of system calls is that of Linux, seccomp(2), and the rules for files and signals are those of Landlock,
landlock(7), from Linux 5.13 on. Both need no rights, hold for threads and processes that start later, and cannot be
taken off. Files stay readable: those of the user can be read by code that the user's lint or check runs.

Where both hold, the code opens no socket, makes no memory that outlives it, changes no mode, owner or time of a file,
reads and changes no memory and no descriptor of a process that is not confined with it, sends it no signal, and changes
neither its priority, its CPUs and its limits nor the clock. What it starts stays in its process group, so that one
signal reaches all of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

from triton_ops import settings

_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", settings.FAMILY)
_FAMILIES = ("LC_", "PYTHON", "TRITON_")
# By machine: the number of the architecture in linux/audit.h, that of seccomp; then those of
# - socket, ptrace, process_vm_readv, process_vm_writev, setpriority, ioprio_set, and settimeofday, clock_settime,
#   adjtimex and clock_adjtime, which set clocks; shmget, semget, msgget and mq_open, whose objects outlive processes;
# - sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr and prlimit64, of another process;
# - setsid and setpgid; chmod, fchmod, fchmodat, chown, fchown, lchown, fchownat, utime, utimes, futimesat, utimensat
#   and six for extended attributes, for which Landlock has no rule: aarch64 lacks some.
_MACHINES = {
    "x86_64": (
        0xC000003E, 317, (41, 101, 310, 311, 141, 251, 164, 227, 159, 305, 29, 64, 68, 240), (142, 144, 203, 314, 302),
        (112, 109, 90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199),
    ),
    "aarch64": (
        0xC00000B7, 277, (198, 117, 270, 271, 140, 30, 170, 112, 171, 266, 194, 190, 186, 180),
        (118, 119, 122, 274, 261), (157, 154, 52, 53, 55, 54, 88, 5, 6, 7, 14, 15, 16),
    ),
}  # fmt: skip
_EVERYWHERE = (425, 438)  # io_uring_setup, which opens sockets too, and pidfd_getfd, which takes those of others
_PRETENDED_EVERYWHERE = (452, 463, 466, 469)  # fchmodat2, setxattrat, removexattrat and file_setattr
_OTHER_CALLS = 0x40000000  # from here on x86 has the same calls under other numbers
# Of linux/bpf_common.h: LD|W|ABS, JMP|JEQ|K, JMP|JGE|K and RET|K; of linux/seccomp.h: RET_ALLOW, and RET_ERRNO with its
# number, where 0 is a success that does nothing, SECCOMP_SET_MODE_FILTER and SECCOMP_FILTER_FLAG_TSYNC; of
# linux/prctl.h: PR_SET_NO_NEW_PRIVS.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _PRETEND = 0x7FFF0000, 0x00050000 | errno.EACCES, 0x00050000
_NO_NEW_PRIVILEGES, _FILTER, _ALL_THREADS = 38, 1, 1
# Of landlock(7): the calls, which have one number everywhere; the flag that asks for the version; the kind of a rule;
# the rights to write to files and folders, by the version that knows them; TCP; abstract sockets and signals.
_CREATE, _ADD, _RESTRICT, _ASK_VERSION, _BENEATH = 444, 445, 446, 1, 1
_WRITES, _OF_FILES = {1: 0x1FF2, 2: 0x2000, 3: 0x4000}, 0x4002
_TCP, _SCOPES = 3, 3
# Of capabilities(7), which root alone has: the form of the call, and the right to files of other users, as a folder of
# the user's in a container has. It is kept where it is there; with others the variables of any process can be read.
_CAPABILITIES, _OVERRIDE = 0x20080522, 1 << 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def confine(writable: Iterable[str | Path] | None = None, families: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Confine this process, with all threads and processes that it starts from now on.

    Threads that it has already are kept from system calls alone, not from files and signals.
    Of the files only those `writable`, folders with all below them, can be written; None leaves files as they are.
    Variables whose names begin with one of `families` stay. Gives what this system cannot keep from the code, in words.
    """
    left = settings.leave_variables(_VARIABLES, (*_FAMILIES, *families))
    with contextlib.suppress(OSError, ValueError, IndexError):  # not on Linux
        # Fields 50 and 51 of proc(5) are env_start and env_end; the name before the bracket may hold blanks.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[47]), int(fields[48])  # what /proc/self/environ shows
        text = b"".join(f"{name}={value}\0".encode("utf-8", "surrogateescape") for name, value in left.items())
        ctypes.memmove(begin, text[: end - begin].ljust(end - begin, b"\0"), end - begin)
    linux = platform.system() == "Linux"
    threads = len(os.listdir("/proc/self/task")) if linux and _give_up() else 1  # noqa: PTH208 - numbers alone
    calls = linux and platform.machine() in _MACHINES and _refuse(*_MACHINES[platform.machine()])
    version = _rule(writable) if linux else 0
    return (
        *(() if threads == 1 else ("what threads do that it has already",)),
        *(() if calls else ("sockets, and priorities and clocks of others",)),
        *(() if version >= 1 else ("the memory of others",)),
        *(() if version >= 3 or writable is None else ("changes of files",)),
        *(() if version >= 6 else ("signals to others",)),
    )


def _give_up() -> bool:
    """Give up the capabilities of root, but for one; tell whether the system does so."""
    capset, header = ctypes.CDLL(None).capset, struct.pack("=Ii", _CAPABILITIES, 0)
    return any(capset(header, struct.pack("=6I", own, own, 0, 0, 0, 0)) == 0 for own in (_OVERRIDE, 0))


def _refuse(
    architecture: int, seccomp: int, calls: tuple[int, ...], of_others: tuple[int, ...], pretended: tuple[int, ...]
) -> bool:
    """Have these system calls fail in all threads, and all of another architecture; tell whether the system does so.

    Those `of_others` fail if their first argument, a process, is not 0, and those `pretended` do nothing.
    """
    # `seccomp_data` has the call's number at 0, its architecture at 4 and the first argument at 16. The two numbers
    # before a step's last one say how many steps are passed over: where a test holds, and where it does not.
    own, pretend, refuse = 1, 4, 5  # places among the last six steps
    tests = [(call, refuse) for call in (*calls, *_EVERYWHERE)]
    tests += [*((call, pretend) for call in (*pretended, *_PRETENDED_EVERYWHERE)), *((call, own) for call in of_others)]
    count = len(tests)
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 0, count + 7, architecture), (_LOAD, 0, 0, 0)]
    steps += [(_AT_LEAST, count + 5, 0, _OTHER_CALLS)]
    steps += [(_EQUAL, count - at - 1 + place, 0, call) for at, (call, place) in enumerate(tests)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 16), (_EQUAL, 0, 2, 0)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _PRETEND), (_RETURN, 0, 0, _REFUSE)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    library = ctypes.CDLL(None, use_errno=True)
    # The kernel takes a filter of a process without rights only after this.
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return bool(library.syscall(seccomp, _FILTER, _ALL_THREADS, ctypes.byref(_Program(len(steps), code))) == 0)


def _rule(writable: Iterable[str | Path] | None) -> int:
    """Begin a domain of Landlock; the version that this system has, or 0 without one."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    version = max(0, library.syscall(_CREATE, None, 0, _ASK_VERSION))
    writes = 0 if writable is None else sum(rights for since, rights in _WRITES.items() if version >= since)
    handled = (writes, _TCP, _SCOPES)[: 1 + (version >= 4) + (version >= 6)]
    form = struct.pack(f"{len(handled)}Q", *handled)
    if version == 0 or (domain := library.syscall(_CREATE, form, len(form), 0)) < 0:
        return 0
    for path in writable or ():
        with contextlib.suppress(OSError):  # it is not there
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = writes if Path(path).is_dir() else writes & _OF_FILES
            library.syscall(_ADD, domain, _BENEATH, struct.pack("=Qi", rights, place), 0)
            os.close(place)
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    confined = library.syscall(_RESTRICT, domain, 0) == 0
    os.close(domain)
    return version if confined else 0
