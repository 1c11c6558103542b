"""Logs of NVIDIA's assembler: registers, stack frame and spills of kernels, and why it refused one.

Text of `ptxas -v`, by itself or among other lines: `TRITON_DUMP_PTXAS_LOG=1` has Triton print it, `-Xptxas -v`
nvcc. Its form is that of CUDA 11 to 13.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from triton_ops.base import read_file
from triton_ops.exceptions import ProfileError
from triton_ops.values import WASTEFUL_SPILL_BYTES

SPILLS, FRAME, REFUSED, FITS = "spills", "frame", "refused", "fits"
"""The verdicts on a kernel."""
_LARGEST_BYTES = 1 << 28
_MOST_REGISTERS = 255
_ENTRY = re.compile(r"Compiling entry function '([^']+)'(?: for '([^']+)')?")
_OF = re.compile(r"Function properties for '?([^'\s]+)'?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_REFUSED = re.compile(r"ptxas\s+(?:error|fatal)\s*:\s*(.+)")
_SERIALISED = re.compile(r"wgmma\.mma_async instructions are serialized.*'([^']+)'")
_NAMED = re.compile(r"(?:[Ff]unction|in) '([^']+)'|in function ([\w$]+)")
_ABORTED = "aborted due to errors"
_FOR = re.compile(r"--gpu-name[= ](\w+)")
_HINT = "give what ptxas -v printed: run with TRITON_DUMP_PTXAS_LOG=1 and TRITON_ALWAYS_COMPILE=1, or nvcc -Xptxas -v"


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """The assembler's figures of one kernel.

    Attributes:
        arch: What it was compiled for; empty if that was not said.
        registers: Of a thread; None if that was not said, as of a kernel that was refused.
        stack_bytes: Of a thread's frame in local memory.
        store_bytes: That a thread's spills store, each instruction run once.
        load_bytes: That they load.
        shared_bytes: Static shared memory; Triton's is dynamic, and not told here.
        serialised: Whether products of warp groups wait for each other.
        refused: The assembler's error; empty if there is none.
    """

    kernel: str
    arch: str = ""
    registers: int | None = None
    stack_bytes: int = 0
    store_bytes: int = 0
    load_bytes: int = 0
    shared_bytes: int = 0
    serialised: bool = False
    refused: str = ""

    @property
    def verdict(self) -> str:
        """`refused`, `spills`, `frame` (local memory without spilled registers), or `fits`."""
        if self.refused:
            return REFUSED
        if self.stack_bytes <= WASTEFUL_SPILL_BYTES:
            return FITS
        return SPILLS if self.store_bytes + self.load_bytes else FRAME

    @property
    def next(self) -> str:
        """The next step; empty if there is none."""
        if self.verdict == REFUSED and "register" in self.refused:
            return "a smaller tile, or fewer warps: each thread of many warps has few registers"
        if self.verdict == REFUSED:
            return "a smaller tile, or fewer stages: what does not fit does not run"
        if self.verdict == SPILLS:
            full = ", all that there are" if self.registers == _MOST_REGISTERS else ""
            return f"{self.registers} registers{full}: triton-ops spills TARGET tries tiles, warps and stages"
        if self.verdict == FRAME:
            return "a local array with an index that is known at run time alone lies there; nothing is spilled"
        if self.serialised:
            return "fewer registers: a smaller tile or more warps, so that products run beside each other"
        return ""


def read_ptxas(path: str | Path) -> tuple[Assembled, ...]:
    """The kernels in a file with the assembler's words, in their order.

    A kernel that was assembled several times, as for several configs, is there with each of its results.

    Raises:
        ProfileError: The file cannot be read, or says nothing of a kernel.
    """
    try:
        text = read_file(path, _LARGEST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}", hint="name another file") from error
    kernels = parse_ptxas(text)
    if not kernels:
        raise ProfileError(f"{path} says nothing of a kernel that ptxas has assembled", hint=_HINT)
    return kernels


def parse_ptxas(text: str) -> tuple[Assembled, ...]:
    """As `read_ptxas`, of a text."""
    kernels: list[Assembled] = []
    early: set[str] = set()  # kernels that are spoken of before their own lines
    of = ""
    for line in text.splitlines():
        if (match := _SERIALISED.search(line)) is not None:
            early.add(match[1])
        elif (match := _ENTRY.search(line)) is not None:
            of = match[1]
            kernels.append(Assembled(kernel=of, arch=match[2] or "", serialised=of in early))
            early.discard(of)
        elif (match := _REFUSED.search(line)) is not None:
            _refuse(kernels, match[1].strip())
        elif (match := _OF.search(line)) is not None:
            of = match[1]
        elif kernels and kernels[-1].refused:
            target = _FOR.search(line)  # in Triton's line with the command
            kernels[-1] = replace(kernels[-1], arch=target[1]) if target else kernels[-1]
        elif kernels and of == kernels[-1].kernel:
            kernels[-1] = _with(kernels[-1], line)
    return tuple(dict.fromkeys(kernels))


def _refuse(kernels: list[Assembled], reason: str) -> None:
    """Add an error to the kernel under way, or as a kernel of its own, whose lines it came before."""
    last = kernels[-1] if kernels else Assembled(kernel="")
    if _ABORTED in reason and last.refused:
        return  # what was wrong has been said
    match = _NAMED.search(reason)
    name = (match[1] or match[2]) if match else last.kernel
    under_way = name == last.kernel and last.registers is None and not last.refused
    if under_way and kernels:
        kernels[-1] = replace(last, refused=reason)
    elif name:
        kernels.append(Assembled(kernel=name, arch=last.arch, refused=reason))


def _with(one: Assembled, line: str) -> Assembled:
    if (frame := _FRAME.search(line)) is not None:
        stack, stores, loads = map(int, frame.groups())
        one = replace(one, stack_bytes=stack, store_bytes=stores, load_bytes=loads)
    if (usage := _USED.search(line)) is not None:
        shared = _SHARED.search(line)
        one = replace(one, registers=int(usage[1]), shared_bytes=int(shared[1]) if shared else 0)
    return one
