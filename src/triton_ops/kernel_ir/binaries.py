"""Registers and stack of a compiled kernel, read from its binary without a driver or a tool.

NVIDIA: the ELF section `.nv.info` of a cubin has records of a format byte, an attribute byte and, for format 4, a
16-bit size with a payload; `REGCOUNT` and `FRAME_SIZE` have a symbol and a number of 32 bits each. The numbers equal
those of `ptxas -v` and `cuobjdump -res-usage` on sm_80, sm_90 and sm_100. AMD: the metadata at the end of the assembly
text; see LLVM's "User Guide for AMDGPU Backend", code object metadata.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ELF64_LITTLE = b"\x7fELF\x02\x01"


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of every section.

    Raises:
        ValueError: It is no 64-bit little-endian ELF file.
    """
    if elf[: len(_ELF64_LITTLE)] != _ELF64_LITTLE:
        raise ValueError(f"no 64-bit little-endian ELF file: it starts with {elf[:6]!r}")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + number * size) for number in range(count)]
    names = headers[names_at][4]
    for name, _kind, _flags, _address, offset, length in headers:
        end = elf.index(b"\0", names + name)
        yield elf[names + name : end].decode(), elf[offset : offset + length]


_SIZED = 4  # the format of records with a payload
_REGCOUNT = 0x2F
_FRAME_SIZE = 0x11
_VGPR_BYTES = 4


@dataclass(frozen=True)
class Usage:
    """The resources of one thread.

    Attributes:
        stack_bytes: Size of the thread's frame in local memory.
        spill_bytes: Part of the frame for spilled registers. Triton's kernels have nothing else in an NVIDIA frame.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int


def usage_of(kind: str, binary: bytes, assembly: str) -> Usage:
    """The usage of a compiled kernel, of a target of this kind; raises as `cubin_usage` and `amdgcn_usage`."""
    return cubin_usage(binary) if kind == "cuda" else amdgcn_usage(assembly)


def cubin_usage(cubin: bytes) -> Usage:
    """The usage of the kernel in an NVIDIA cubin, device functions included.

    Cost: a tenth of a millisecond.

    Raises:
        ValueError: `cubin` is no 64-bit little-endian ELF file with a section `.nv.info`.
    """
    numbers: dict[int, int] = {}
    for attribute, payload in _records(_section(cubin, ".nv.info")):
        if attribute in (_REGCOUNT, _FRAME_SIZE):
            _, number = struct.unpack_from("<II", payload)
            numbers[attribute] = max(numbers.get(attribute, 0), number)
    frame = numbers.get(_FRAME_SIZE, 0)
    return Usage(numbers.get(_REGCOUNT, 0), frame, frame)


def amdgcn_usage(assembly: str) -> Usage:
    """The usage of the kernel in amdgcn assembly text.

    Raises:
        ValueError: The text has no kernel metadata.
    """
    frame = _field(assembly, "private_segment_fixed_size")
    spilled = _field(assembly, "vgpr_spill_count") * _VGPR_BYTES
    return Usage(_field(assembly, "vgpr_count"), frame, spilled)


def _field(assembly: str, name: str) -> int:
    match = re.search(rf"^\s*(?:- )?\.{name}:\s+(\d+)", assembly, re.MULTILINE)
    if match is None:
        raise ValueError(f"the assembly's metadata has no .{name}")
    return int(match[1])


def _section(elf: bytes, title: str) -> bytes:
    content = next((content for name, content in sections(elf) if name == title), None)
    if content is None:
        raise ValueError(f"the ELF file has no section {title}")
    return content


def _records(section: bytes) -> Iterator[tuple[int, bytes]]:
    """Attribute and payload of every record that has one."""
    at = 0
    while at + 4 <= len(section):
        form, attribute, size = struct.unpack_from("<BBH", section, at)
        at += 4
        if form == _SIZED:
            yield attribute, section[at : at + size]
            at += size
