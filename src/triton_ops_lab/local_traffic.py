"""Spilled registers in the code of a kernel: the instructions that reach local memory.

NVIDIA: the text of `nvdisasm -c`, where `LDL` and `STL` reach local memory, and a suffix such as `.64` is the width in
bits. AMD: assembly text, where LLVM writes `Folded Spill` and `Folded Reload` behind the instructions that move
registers to the stack and back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from triton_ops.kernel_ir import loop_lines

_LOCAL = re.compile(r"\b(?P<sass>LDL|STL)(?P<parts>(?:\.\w+)*)\s|;\s*(?P<bytes>\d+)-byte Folded (?P<amd>Spill|Reload)")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}


@dataclass(frozen=True)
class LocalTraffic:
    """The instructions of one kernel that load from local memory and store to it.

    The bytes are those of one thread, each instruction once; `in_loops` counts those of both that run again and again.
    """

    loads: int
    stores: int
    load_bytes: int
    store_bytes: int
    in_loops: int

    @staticmethod
    def of(text: str) -> LocalTraffic:
        """The local traffic in a kernel's SASS, or in its amdgcn assembly."""
        lines = enumerate(text.splitlines())
        matches = [(at, match) for at, line in lines if (match := _LOCAL.search(line)) is not None]
        widths: dict[str, list[int]] = {"load": [], "store": []}
        for _, match in matches:
            parts = (match["parts"] or "").split(".")
            # 4 bytes of an instruction without a width in its name
            width = int(match["bytes"] or next((_WIDTHS[part] for part in parts if part in _WIDTHS), 4))
            widths["load" if (match["sass"] or match["amd"]) in ("LDL", "Reload") else "store"].append(width)
        inside = len(loop_lines(text) & {at for at, _ in matches})
        loads, stores = widths["load"], widths["store"]
        return LocalTraffic(len(loads), len(stores), sum(loads), sum(stores), inside)
