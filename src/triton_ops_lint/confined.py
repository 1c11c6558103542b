"""What the code of a file that is read can reach: an environment without the user's variables, and no network.

The filter of system calls is that of Linux, seccomp(2), which needs no rights, holds for children too, and cannot be
taken off. Files stay readable: those of the user, `/proc` included, can be read by code that the user's lint runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import platform
import struct
from pathlib import Path

from triton_ops import settings

_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", settings.FAMILY)
_FAMILIES = ("LC_", "PYTHON", "TRITON_")
_MACHINES = {  # the number of the architecture in linux/audit.h; those of socket, ptrace and process_vm_writev
    "x86_64": (0xC000003E, (41, 101, 311)),
    "aarch64": (0xC00000B7, (198, 117, 271)),
}
_EVERYWHERE = (425, 438)  # io_uring_setup, which opens sockets too, and pidfd_getfd, which takes those of others
_OTHER_CALLS = 0x40000000  # from here on x86 has the same calls under other numbers
# Of linux/bpf_common.h: LD|W|ABS, JMP|JEQ|K, JMP|JGE|K and RET|K; of linux/seccomp.h: RET_ALLOW, and RET_ERRNO with its
# number; of linux/prctl.h: PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP and SECCOMP_MODE_FILTER.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def confine() -> None:
    """Leave this process and its children without the user's variables and, where the kernel allows it, sockets."""
    left = settings.leave_variables(_VARIABLES, _FAMILIES)
    with contextlib.suppress(OSError, ValueError, IndexError):  # not on Linux
        # Fields 50 and 51 of proc(5) are env_start and env_end; the name before the bracket may hold blanks.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[47]), int(fields[48])  # what /proc/self/environ shows
        text = b"".join(f"{name}={value}\0".encode("utf-8", "surrogateescape") for name, value in left.items())
        ctypes.memmove(begin, text[: end - begin].ljust(end - begin, b"\0"), end - begin)
    if platform.system() == "Linux" and platform.machine() in _MACHINES:
        _refuse(*_MACHINES[platform.machine()])


def _refuse(architecture: int, calls: tuple[int, ...]) -> None:
    """Have these system calls fail, and all of another architecture."""
    refused = (*calls, *_EVERYWHERE)
    # `seccomp_data` has the call's number at 0 and its architecture at 4. The two numbers before a step's last one say
    # how many steps are passed over: where a test holds, and where it does not.
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(refused) + 3, architecture), (_LOAD, 0, 0, 0)]
    steps += [(_AT_LEAST, len(refused) + 1, 0, _OTHER_CALLS)]
    steps += [(_EQUAL, len(refused) - at, 0, call) for at, call in enumerate(refused)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    library = ctypes.CDLL(None, use_errno=True)
    # The kernel takes a filter of a process without rights only after this.
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    library.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(steps), code)), 0, 0)
