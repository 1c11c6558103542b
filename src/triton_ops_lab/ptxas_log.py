"""The words of NVIDIA's assembler on kernels: registers, spills and errors, by themselves or among other lines.

`TRITON_DUMP_PTXAS_LOG=1` has Triton print them, `-Xptxas -v` nvcc; XLA logs a warning for each kernel that spills. The
form is that of CUDA 3 to 13, names demangled or not, with what MSVC, ninja, loggers and web pages make of a line.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path

from triton_ops.base import NamedFile
from triton_ops.exceptions import ProfileError
from triton_ops.values import Resources

SPILLS, FRAME, REFUSED, FITS, UNKNOWN = "spills", "frame", "refused", "fits", "unknown"
"""The verdicts on a kernel."""
_LARGEST_BYTES = 1 << 28
_MOST_REGISTERS = 255
_NAMED = 3  # lines that are not understood and are named; the others are counted
_BUILD = re.compile(  # MSVC numbers the projects that it builds beside each other, launchers name their processes
    r"\s*(?:\x1b\[[\d;]*m)*(\d+[>:]|\[(?:rank|default)?[\d,]+\](?:<\w+>)?:|\([^()]*\bpid=\d+[^()]*\)|[\w.-]+-\d+ +\|)"
)
_END = re.compile(r"[\r\n]+|\\n(?=\s|ptxas |`|$)")  # also as the representation of an exception has it
_SAYS = re.compile(
    r"ptxas\s+(?:(?P<file>(?!\w+\s+:)\S(?:(?!ptxas ).)*?), line (?P<line>\d+)\s*;\s*)?"
    r"(?P<kind>info|warning|error|fatal)\s*:\s*"
    r"(?P<what>.*?)(?=\s+ptxas|$)"
)
_QUOTES = str.maketrans("\u2018\u2019\u00a0", "'' ")
_ENTRY = re.compile(r"Compiling entry function '(.+?)'(?: for '([^']+)'|\s*$)")
_OF = re.compile(r"Function properties for '?(.+?)'?(?=\\n|\x1b|<br|</|\"|\s+ptxas\s|\s*$)")
_LINKED = re.compile(r"\bnvlink (?:info|warning|error|fatal)\s*:")
_FRAME = re.compile(r"(?<!\d)(\d+) bytes stack frame, (-?\d+) bytes spill stores, (-?\d+) bytes spill loads")
_SPILLED = re.compile(
    r"spilled to local memory in function '([^']+)', (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(?<!\d)(\d+)(?:\+(\d+))? bytes smem")
_LOCAL = re.compile(r"(?<!\d)(\d+)(?:\+(\d+))? bytes lmem")  # CUDA 3 says no more of spills
_SERIALISED = re.compile(r"wgmma\.mma_async instructions are serialized.*'([^']+)'")
_NAMED_IN = re.compile(r"(?:[Ff]unction|in) '([^']+)'|(?:in function|for entry) ([\w$]+)")
_ABORTED = "aborted due to errors"
_FOR = re.compile(r"--gpu-name[= ](\w+)")
_WITHOUT_FIGURES = re.compile(
    r"bytes gmem|^\d+ bytes cmem|Compile time|Overriding maximum register|Potential Performance Loss|maxrregcount|"
    r"minnctapersm|is deprecated"
)
_HINT = "give what ptxas -v printed: run with TRITON_DUMP_PTXAS_LOG=1 and TRITON_ALWAYS_COMPILE=1, or nvcc -Xptxas -v"


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """The assembler's figures of one kernel, None where it did not say them.

    Sizes are in bytes of a thread, each spill instruction run once.
    """

    kernel: str  # empty if an error does not tell
    arch: str = ""  # empty if that was not said
    registers: int | None = None
    stack_bytes: int | None = None  # the frame in local memory
    store_bytes: int | None = None
    load_bytes: int | None = None
    shared_bytes: int = 0  # static, of a block; Triton's is dynamic, and not told here
    serialised: bool = False  # products of warp groups wait for each other
    refused: str = ""  # the assembler's first error; empty if there is none

    @property
    def verdict(self) -> str:
        """`refused`, `spills`, `frame` (local memory without spilled registers), `fits`, or `unknown`."""
        if self.refused:
            return REFUSED
        spilled = (self.store_bytes or 0) + (self.load_bytes or 0) > 0  # what shared memory takes is subtracted
        if self.stack_bytes is None:
            return SPILLS if spilled else UNKNOWN
        if self.stack_bytes <= Resources.WASTEFUL_SPILL_BYTES:
            return FITS
        return SPILLS if spilled else FRAME

    @property
    def next(self) -> str:
        """The next step; empty if there is none."""
        if self.verdict == REFUSED and ".target" in self.refused:
            return "another dtype or instruction: this architecture does not have it"
        if self.verdict == REFUSED and "register" in self.refused:
            return "a smaller tile, or fewer warps: each thread of many warps has few registers"
        if self.verdict == REFUSED and ("shared" in self.refused or "too much" in self.refused):
            return "a smaller tile, or fewer stages: what does not fit does not run"
        if self.verdict == SPILLS:
            full = ", all that there are" if self.registers == _MOST_REGISTERS else ""
            registers = "" if self.registers is None else f"{self.registers} registers{full}: "
            return f"{registers}triton-ops explain spills TARGET tries tiles, warps and stages"
        if self.verdict == FRAME and self.store_bytes is None:
            return "a local array or spilled registers lie there: this version of ptxas does not tell which"
        if self.verdict == FRAME:
            return "a local array with an index that is known at run time alone lies there; its own code spills nothing"
        if self.verdict == UNKNOWN:
            return "its figures are missing: the text is cut, or two compilations are mixed"
        return "fewer registers: a smaller tile or more warps, so that products run beside each other" * self.serialised


@dataclass(frozen=True)
class PtxasLog:
    """The kernels of a log in their order, with called functions that spill, and notes for who reads it."""

    kernels: tuple[Assembled, ...]
    notes: tuple[str, ...]


def read_ptxas(path: str | Path) -> PtxasLog:
    """The kernels in a file with the assembler's words; `ProfileError` if there are none."""
    with ProfileError.when(f"{path} cannot be read", hint="name another file"):
        text = NamedFile(Path(path)).text(_LARGEST_BYTES)
    log = parse_ptxas(text)
    if not log.kernels:
        notes = f": {'; '.join(log.notes)}" if log.notes else ""
        raise ProfileError(f"{path} says nothing of a kernel that ptxas has assembled{notes}", hint=_HINT)
    return log


def parse_ptxas(text: str) -> PtxasLog:
    """The kernels in a text with the assembler's words."""
    reader = _Reader()
    for line in _END.split(unescape(text).translate(_QUOTES)):
        reader.take(line)
    return reader.log()


class _Reader:
    """Reads line by line. A build that runs beside others has a number, and kernels under way of its own."""

    def __init__(self) -> None:
        self._kernels: list[Assembled] = []
        self._warned: list[tuple[int, Assembled]] = []  # of kernels that spill, with their places
        self._serialised: set[str] = set()  # kernels that are spoken of before their own lines
        self._of: dict[str, str] = {}  # by build: the function that is spoken of
        self._open: dict[str, list[int]] = {}  # by build: kernels without figures yet
        self._strange: Counter[str] = Counter()
        self._linked = 0  # lines of the linker
        self._further = 0  # errors after the first one of a kernel
        self._aborted = False  # the assembler has ended since the last error

    def log(self) -> PtxasLog:
        """Everything that was read."""
        with_figures = {one.kernel for one in self._kernels if one.registers is not None}
        kernels = list(self._kernels)
        for at, one in reversed(self._warned):
            if one.kernel not in with_figures:
                kernels.insert(at, one)
        notes = [f"{self._further} further errors follow the first of a kernel"] if self._further else []
        if self._strange:
            some = "; ".join(list(self._strange)[:_NAMED])
            notes.append(f"{self._strange.total()} lines of ptxas are not understood: {some}")
        notes += [f"{self._linked} lines are of nvlink, and not read"] if self._linked else []
        return PtxasLog(tuple(dict.fromkeys(kernels)), tuple(notes))

    def take(self, line: str) -> None:
        """Read a line."""
        words, numbered = _SAYS.search(line), _BUILD.match(line)
        build = numbered[1] if numbered else ""
        if _LINKED.search(line):
            self._linked += 1
        elif words is not None and words["kind"] in ("error", "fatal"):
            self._refuse(build, words)
        elif (match := _SERIALISED.search(line)) is not None:
            self._serialised.add(match[1])
        elif (match := _ENTRY.search(line)) is not None:
            self._of[build] = match[1]
            self._open.setdefault(build, []).append(len(self._kernels))
            serialised = match[1] in self._serialised
            self._kernels.append(Assembled(kernel=match[1], arch=match[2] or "", serialised=serialised))
            self._serialised.discard(match[1])
        elif (match := _SPILLED.search(line)) is not None:
            one = Assembled(kernel=match[1], store_bytes=int(match[2]), load_bytes=int(match[3]))
            self._warned.append((len(self._kernels), one))
        elif (match := _OF.search(line)) is not None:
            self._of[build] = match[1]
        elif not self._take_figures(build, line) and words is not None and not _WITHOUT_FIGURES.search(words["what"]):
            self._strange[words["what"].strip()] += 1

    def _take_figures(self, build: str, line: str) -> bool:
        """Return True for a line with figures, or with the target of a kernel that was refused."""
        frame, usage = _FRAME.search(line), _USED.search(line)
        under_way = [at for at in self._open.get(build, []) if self._kernels[at].kernel == self._of.get(build)]
        if frame is not None:
            stack, stores, loads = map(int, frame.groups())
            if not under_way and stores + loads > 0:  # a function that kernels call
                under_way = [len(self._kernels)]
                self._kernels.append(Assembled(kernel=self._of.get(build, "")))
            for at in under_way[-1:]:
                self._change(at, stack_bytes=stack, store_bytes=stores, load_bytes=loads)
            return True
        if usage is not None:
            opened = self._open.pop(build, [])
            if sum(self._kernels[at].stack_bytes is not None for at in opened) > 1:
                return False  # compilations are mixed, and nothing tells whose registers these are
            for at in (under_way or opened)[-1:]:
                self._use(at, int(usage[1]), line)
                self._open[build] = [other for other in opened if other != at]
            return bool(opened)
        if self._kernels and self._kernels[-1].refused and (target := _FOR.search(line)):  # in Triton's own line
            self._change(len(self._kernels) - 1, arch=target[1])
        return False

    def _use(self, at: int, registers: int, line: str) -> None:
        shared, local = _bytes_in(_SHARED.search(line)), _LOCAL.search(line)
        self._change(at, registers=registers, shared_bytes=shared)
        before_fermi = re.fullmatch(r"sm_1\d", self._kernels[at].arch)  # where no local memory is said, there is none
        if self._kernels[at].stack_bytes is None and (local or before_fermi):
            self._change(at, stack_bytes=_bytes_in(local))

    def _refuse(self, build: str, words: re.Match[str]) -> None:
        """Add an error to the kernel under way, or as a kernel of its own, whose lines it came before."""
        what = words["what"].strip()
        last = self._kernels[-1] if self._kernels else None
        if _ABORTED in what:
            self._aborted = True
            if last is None or not last.refused:
                self._strange[what] += 1
            return
        reason = f"line {words['line']}: {what}" if words["line"] else what
        match = _NAMED_IN.search(what)
        name = (match[1] or match[2]) if match else ""
        under_way = [at for at in self._open.get(build, []) if self._kernels[at].kernel == (name or self._of[build])]
        follows = last is not None and last.refused and last.kernel == (name or words["file"] or last.kernel)
        if under_way:
            self._change(under_way[-1], refused=reason)
            self._open[build].remove(under_way[-1])
        elif follows and not self._aborted:
            self._further += 1
        else:
            arch = last.arch if last is not None and last.kernel == name else ""
            self._aborted = False
            self._kernels.append(Assembled(kernel=name or words["file"] or "", arch=arch, refused=reason))

    def _change(self, at: int, **figures: int | str) -> None:
        self._kernels[at] = replace(self._kernels[at], **figures)  # type: ignore[arg-type]


def _bytes_in(match: re.Match[str] | None) -> int:
    """The bytes of a match, whose parts ptxas counts by themselves; 0 without one."""
    return sum(int(part or 0) for part in (match.groups() if match else ()))
