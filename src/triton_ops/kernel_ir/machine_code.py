"""The machine code and the assembly of a compiled kernel, read without a driver or a tool.

A kernel's PTX starts products (`wgmma.mma_async`) in groups, each behind one `wgmma.fence`, and they run beside the
loads of later steps. Where ptxas cannot keep the registers of a group apart, it makes every product wait for the one
before: it puts a fence of its own before each. It tells so on the screen alone ("Potential Performance Loss"), and the
same tile can be affected in one kernel and not in another.

In the machine code a fence is WARPGROUP.ARRIVE. An instruction is 16 bytes: its lowest 12 bits are 0x9c5 in fences and
waits, of which bit 47 is set in waits; in products they are 0x9f0 to 0x9f3, or 0xdf0 to 0xdf3 where the left factor is
in registers, as `nvdisasm -hex` of CUDA 12.8 shows. Of 250 kernels for sm_90 (ptxas 12.8) the 45 with ptxas' warning
are those with more fences than their PTX has.

NVIDIA: the ELF section `.nv.info` of a cubin has records of a format byte, an attribute byte and, for format 4, a
16-bit size with a payload; `REGCOUNT` and `FRAME_SIZE` have a symbol and a number of 32 bits each. The numbers equal
those of `ptxas -v` and `cuobjdump -res-usage` on sm_80, sm_90 and sm_100. AMD: the metadata at the end of the assembly
text; see LLVM's "User Guide for AMDGPU Backend", code object metadata.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from triton_ops.kernel_ir.shared_memory import WarpRegisters
from triton_ops.kernel_ir.ttir_syntax import UntoldError

_ELF64_LITTLE = b"\x7fELF\x02\x01"


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of every section; raises ValueError for no 64-bit little-endian ELF file."""
    if elf[: len(_ELF64_LITTLE)] != _ELF64_LITTLE:
        raise ValueError(f"no 64-bit little-endian ELF file: it starts with {elf[:6]!r}")
    # Of the ELF header: e_shoff; then e_shentsize, e_shnum and e_shstrndx.
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    # Of a section header: sh_name, sh_type, sh_flags, sh_addr, sh_offset and sh_size.
    headers = [struct.unpack_from("<IIQQQQ", elf, table + number * size) for number in range(count)]
    names = headers[names_at][4]
    for name, _kind, _flags, _address, offset, length in headers:
        end = elf.index(b"\0", names + name)
        yield elf[names + name : end].decode(), elf[offset : offset + length]


_SIZED = 4  # the format of records with a payload
_REGCOUNT = 0x2F
_FRAME_SIZE = 0x11
_VGPR_BYTES = 4


def binary_facts(language: str, binary: bytes, assembly: str) -> dict[str, Any]:
    """The usage and the features of a compiled kernel with assembly of this language, and whether its products wait.

    Raises as `cubin_usage` and `amdgcn_usage`.
    """
    usage = cubin_usage(binary) if language == "ptx" else amdgcn_usage(assembly)
    serialised = serialised_products(binary, assembly) if language == "ptx" else None
    return {**usage, **features(language, assembly), "serialised": serialised}


def cubin_usage(cubin: bytes) -> dict[str, int]:
    """The resources of one thread of the kernel in an NVIDIA cubin, device functions included; it takes 0.1 ms.

    The frame of a Triton kernel holds spilled registers alone.

    Raises ValueError for no 64-bit little-endian ELF file with a section `.nv.info`.
    """
    if (section := next((content for name, content in sections(cubin) if name == ".nv.info"), None)) is None:
        raise ValueError("the ELF file has no section .nv.info")
    at, numbers = 0, {_REGCOUNT: 0, _FRAME_SIZE: 0}
    while at + 4 <= len(section):
        form, attribute, size = struct.unpack_from("<BBH", section, at)
        at += 4
        if form == _SIZED and attribute in numbers:
            numbers[attribute] = max(numbers[attribute], struct.unpack_from("<II", section, at)[1])
        at += size if form == _SIZED else 0
    frame = numbers[_FRAME_SIZE]
    return {"registers": numbers[_REGCOUNT], "stack_bytes": frame, "spill_bytes": frame}


def amdgcn_usage(assembly: str) -> dict[str, int]:
    """As `cubin_usage`, of amdgcn assembly text; raises ValueError if it has no kernel metadata."""
    frame = _field(assembly, "private_segment_fixed_size")
    spilled = _field(assembly, "vgpr_spill_count") * _VGPR_BYTES
    return {"registers": _field(assembly, "vgpr_count"), "stack_bytes": frame, "spill_bytes": spilled}


def _field(assembly: str, name: str) -> int:
    if (match := re.search(rf"^\s*(?:- )?\.{name}:\s+(\d+)", assembly, re.MULTILINE)) is None:
        raise ValueError(f"the assembly's metadata has no .{name}")
    return int(match[1])


_FENCE = re.compile(r"\bwgmma\.fence\.")
_PRODUCT = re.compile(r"\bwgmma\.mma_async\.")
_OPERATION = 0xFFF
_GROUP = 0x9C5
_WAIT = 1 << 47
_PRODUCTS = frozenset((*range(0x9F0, 0x9F4), *range(0xDF0, 0xDF4)))


def serialised_products(cubin: bytes, ptx: str) -> bool | None:
    """Check whether ptxas made each product of a warp group wait for the one before; None without such products.

    Raises ValueError for no 64-bit little-endian ELF file. Cost: a millisecond.
    """
    products_asked = len(_PRODUCT.findall(ptx))
    if not products_asked:
        return None
    asked_fences = len(_FENCE.findall(ptx))
    fences = products = 0
    for word in _instructions(cubin):
        operation = word & _OPERATION
        fences += operation == _GROUP and not word & _WAIT
        products += operation in _PRODUCTS
    # Both are counted, because ptxas may leave out code that is never reached, and may repeat a loop's body.
    return fences > asked_fences and fences * products_asked > asked_fences * products


def _instructions(cubin: bytes) -> Iterator[int]:
    """The lower half of each instruction of a cubin."""
    for name, code in sections(cubin):
        if name.startswith(".text."):
            yield from (word for word, _ in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]))


def contraction(cubin: bytes, ptx: str) -> str:
    """How the assembler fused products of float32 with sums, in words; empty if it fused all that were left to it.

    A share of them, which is the same where a thread has more elements that are treated alike.

    Raises UntoldError where products of another type are left to it.
    """
    left, before = PtxText(ptx).left_to_fuse()
    if others := ", ".join(sorted({*left} - {"f32"})):
        raise UntoldError(f"the assembler may fuse products of {others} with sums, and it is not read whether it does")
    # Without any, other instructions than these are of quotients and functions that the assembler writes out.
    fused = sum(word & _OPERATION in _FUSED for word in _instructions(cubin)) - before if left else 0
    if fused == left["f32"]:
        return ""
    return f"{Fraction(fused, left['f32'])} of the products in sums that are left to the assembler fused"


_MMA = {
    "ptx": {"tcgen05": "tcgen05.mma", "wgmma": "wgmma.mma_async", "mma.sync": "mma.sync"},
    "amdgcn": {"mfma": "v_mfma_", "wmma": "v_wmma_"},
}
_PTX_MOVE = re.compile(r"\b(ld|st)\.global(?:\.[\w:]+)*?(?:\.v(\d))?\.[bfsu](8|16|32|64|128)\b")
_PTX_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\S*\s+\[[^]]*\],\s*\[[^]]*\],\s*(0x[0-9a-fA-F]+|\d+)")
_PTX_SHARED = re.compile(r"\b((?:ld|st|ldmatrix|stmatrix|cp\.async\.c[ag]|atom|red)\.\S*?shared\S*)\s([^;]*);")
_AMD_LOAD = re.compile(r"\b(?:global|buffer|flat)_load_(dwordx?[234]?|[us]?short|[us]byte|[bui]\d+)")
_AMD_BYTES = {
    "dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "ushort": 2, "sshort": 2, "short": 2, "ubyte": 1,
    "sbyte": 1, "b128": 16, "b96": 12, "b64": 8, "b32": 4, "u16": 2, "i16": 2, "u8": 1, "i8": 1,
}  # fmt: skip


def features(language: str, assembly: str) -> dict[str, Any]:
    """The instructions that matter for speed.

    `mma` is the instruction of the matrix products: `tcgen05`, `wgmma`, `mma.sync`, `mfma`, `wmma`, or `none`;
    `load_bytes` the width of the most frequent load, of equally frequent loads the narrower, None without loads.
    """
    # A kernel may have an older instruction beside a newer one, which stands first in the table.
    mma = next((kind for kind, mark in _MMA[language].items() if mark in assembly), "none")
    widths = load_widths(language, assembly)
    return {"mma": mma, "load_bytes": min(widths, key=lambda width: (-widths[width], width), default=None)}


def load_widths(language: str, assembly: str) -> Counter[int]:
    """Bytes that one thread loads at once from global memory, each with the number of such instructions.

    Copies by the tensor memory accelerator, which move whole tiles, are left out.
    """
    if language != "ptx":
        return Counter(_AMD_BYTES[name] for name in _AMD_LOAD.findall(assembly) if name in _AMD_BYTES)
    return Counter(width for key, widths in PtxText(assembly).widths().items() if key[0] == "load" for width in widths)


_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_PLACE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_FRAME = re.compile(r"([^\s@\[\]/]+):(\d+):\d+")
TRITONS = "/triton/language/"
_TARGET = re.compile(r"^\.target\s+(sm_\d+)", re.MULTILINE)
# Each architecture adds up another number of products at a time; no vendor says that tables of functions stay equal.
_OWN = re.compile(r"\btcgen05\.mma|\bw?g?mma\S*\.(?:b?f16|tf32|f64|e\dm\d)\b|\.approx\b|\bdiv\.full\b")
_FLOAT = re.compile(
    r"\s*(?:@\S+\s+)?(fma|mul|add|sub|div)\.(?:\w+\.)*?(f64|f32x2|f32|f16x2|bf16x2|f16|bf16)\s+([^;]*);"
)
_FUSED = frozenset(mode << 8 | 0x23 for mode in range(0x2, 0x10, 2))  # FFMA


class PtxText(str):
    """A PTX text, whose instructions belong to the innermost function that is not Triton's own."""

    def _located(self) -> Iterator[tuple[str, tuple[str, int]]]:
        """Each line with its file's name and its line in the source."""
        files = {number: (name or folder, folder) for number, folder, name in _FILE.findall(self)}
        names = {number: name.rpartition("/")[2] for number, (name, _) in files.items()}
        tritons = {names[number] for number, both in files.items() if any(TRITONS in f"{part}/" for part in both)}
        here = ("", 0)
        for line in self.splitlines():
            if (place := _PLACE.match(line)) is not None:
                frames = [(names.get(place[1], ""), int(place[2]))]
                frames += [(name, int(number)) for name, number in _FRAME.findall(line.partition("@[")[2])]
                here = next((frame for frame in frames if frame[0] not in tritons), frames[-1])
            yield line, here

    def widths(self) -> dict[tuple[str, str, int], list[int]]:
        """Bytes that one thread moves at once from or to global memory, by `load` or `store`, file name and line.

        Copies by the tensor memory accelerator move whole tiles and are left out.
        """
        by_line: dict[tuple[str, str, int], list[int]] = {}
        for line, here in self._located():
            if (move := _PTX_MOVE.search(line)) is not None:
                width = int(move[3]) // 8 * int(move[2] or 1)
                by_line.setdefault(("load" if move[1] == "ld" else "store", *here), []).append(width)
            elif (copy := _PTX_COPY.search(line)) is not None:
                by_line.setdefault(("load", *here), []).append(int(copy[1], 0))
        return by_line

    @property
    def hardware(self) -> str:
        """The architecture, such as `sm_90`, where it multiplies matrices or approximates; else an empty text."""
        target = _TARGET.search(self) if _OWN.search(self) else None
        return target[1] if target is not None else ""

    def left_to_fuse(self) -> tuple[Counter[str], int]:
        """By type, the sums with a product or a quotient, which the assembler may fuse; and the fused ones of float32.

        A text has one instruction for each register, but in loops.
        """
        made, left, fused = set[str](), Counter[str](), 0
        for operation, kind, operands in _FLOAT.findall(self):
            result, *given = (one.strip() for one in operands.split(","))
            if operation in ("mul", "div"):
                made.add(result)
            elif operation == "fma":
                fused += kind == "f32"
            elif made.intersection(given):
                left[kind] += 1
        return left, fused

    def bank_waits(self) -> dict[tuple[str, int], int | None]:
        """Further steps of the banks of shared memory that each turn of loops takes for a warp, by file name and line.

        They are those of the first warp in the first turn; None where it is not known which banks a line asks.
        """
        in_loops, registers = loop_lines(self), WarpRegisters()
        waits: dict[tuple[str, int], int | None] = {}
        for at, (line, here) in enumerate(self._located()):
            if at in in_loops and (access := _PTX_SHARED.search(line)) is not None:
                more, before = registers.further_steps(access[1], access[2]), waits.get(here, 0)
                waits[here] = None if more is None or before is None else before + more
            registers.follow(line, at in in_loops)
        return waits


_LABEL = re.compile(r"\s*([.$]L\w+):")
_BRANCH = re.compile(r"\b(?:BRA\S*|bra\S*|s_c?branch\w*)\s.*?([.$]L\w+)")


def loop_lines(assembly: str) -> set[int]:
    """The lines of PTX, SASS or amdgcn that are in loops: between a label and a later branch back to it."""
    labels: dict[str, int] = {}
    inside: set[int] = set()
    for at, line in enumerate(assembly.splitlines()):
        if (match := _LABEL.match(line)) is not None:
            labels[match[1]] = at
        elif (match := _BRANCH.search(line)) is not None and match[1] in labels:
            inside.update(range(labels[match[1]] + 1, at))
    return inside
