"""The instructions of a kernel for matrix products and for loads, read from PTX or amdgcn text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from triton_ops.analysis.ptx_places import Places

_PTX_MMA = (("tcgen05", "tcgen05.mma"), ("wgmma", "wgmma.mma_async"), ("mma.sync", "mma.sync"))
_AMD_MMA = (("mfma", "v_mfma_"), ("wmma", "v_wmma_"))
_PTX_LOAD = re.compile(r"\bld\.global(?:\.[\w:]+)*?(?:\.v(\d))?\.[bfsu](8|16|32|64|128)\b")
_PTX_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\S*\s+\[[^]]*\],\s*\[[^]]*\],\s*(0x[0-9a-fA-F]+|\d+)")
_PTX_STORE = re.compile(r"\bst\.global(?:\.[\w:]+)*?(?:\.v(\d))?\.[bfsu](8|16|32|64|128)\b")
_AMD_LOAD = re.compile(r"\b(?:global|buffer|flat)_load_(dwordx?[234]?|[us]?short|[us]byte|[bui]\d+)")
_AMD_BYTES = {
    "dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "ushort": 2, "sshort": 2, "short": 2, "ubyte": 1,
    "sbyte": 1, "b128": 16, "b96": 12, "b64": 8, "b32": 4, "u16": 2, "i16": 2, "u8": 1, "i8": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Features:
    """The instructions that matter for speed.

    Attributes:
        mma: Instruction of the matrix products: `tcgen05`, `wgmma`, `mma.sync`, `mfma`, `wmma`, or `none`.
        loads: Pairs of the bytes that one thread loads at once from global memory and the number of such instructions,
            the widest first. Copies by the tensor memory accelerator move whole tiles and are left out.
    """

    mma: str
    loads: tuple[tuple[int, int], ...]

    @property
    def load_bytes(self) -> int | None:
        """The width of the most frequent load, of equally frequent loads the narrower; None without loads."""
        return min(self.loads, key=lambda load: (-load[1], load[0]))[0] if self.loads else None


def ptx_features(ptx: str) -> Features:
    """The features of PTX text."""
    widths = Counter(int(bits) // 8 * int(vector or 1) for vector, bits in _PTX_LOAD.findall(ptx))
    widths.update(int(width, 0) for width in _PTX_COPY.findall(ptx))
    return Features(_kind(ptx, _PTX_MMA), _sorted(widths))


def widths_by_line(ptx: str) -> dict[tuple[str, str, int], list[int]]:
    """Bytes that one thread moves at once from or to global memory, by `load` or `store`, source file's name and line.

    Copies by the tensor memory accelerator move whole tiles and are left out.
    """
    found: dict[tuple[str, str, int], list[int]] = {}
    places = Places(ptx)
    for line in ptx.splitlines():
        if places.follow(line):
            continue
        for kind, pattern in (("load", _PTX_LOAD), ("store", _PTX_STORE)):
            if (moved := pattern.search(line)) is not None:
                found.setdefault((kind, *places.here), []).append(int(moved[2]) // 8 * int(moved[1] or 1))
        if (copied := _PTX_COPY.search(line)) is not None:
            found.setdefault(("load", *places.here), []).append(int(copied[1], 0))
    return found


def amdgcn_features(assembly: str) -> Features:
    """The features of amdgcn assembly text."""
    widths = Counter(_AMD_BYTES[name] for name in _amd_loads(assembly))
    return Features(_kind(assembly, _AMD_MMA), _sorted(widths))


def _amd_loads(assembly: str) -> Iterator[str]:
    return (name for name in _AMD_LOAD.findall(assembly) if name in _AMD_BYTES)


def _kind(text: str, kinds: tuple[tuple[str, str], ...]) -> str:
    return next((kind for kind, mark in kinds if mark in text), "none")


def _sorted(widths: Counter[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(widths.items(), reverse=True))
