"""The sections of an ELF file, as NVIDIA's binaries are."""

from __future__ import annotations

import struct
from collections.abc import Iterator

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
