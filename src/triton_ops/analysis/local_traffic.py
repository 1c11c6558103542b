"""Loads and stores of local memory in machine code, which are what spilled registers cost.

NVIDIA: the text of `nvdisasm -c`, where `LDL` and `STL` reach local memory, a suffix such as `.64` is the width in
bits, and a backward branch to a label closes a loop. AMD: assembly text, where LLVM writes `Folded Spill` and
`Folded Reload` behind the instructions that move registers to the stack and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SASS = re.compile(r"\b(LDL|STL)((?:\.\w+)*)\s")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
_LABEL = re.compile(r"^\s*(\.L\w+):")
_BRANCH = re.compile(r"\b(?:BRA\S*|s_c?branch\w*)\s.*?(\.L\w+)")
_AMD = re.compile(r";\s*(\d+)-byte Folded (Spill|Reload)")


@dataclass(frozen=True)
class LocalTraffic:
    """The instructions of one kernel that load from local memory and store to it.

    Attributes:
        loads: Number of loads.
        stores: Number of stores.
        load_bytes: Bytes that one thread loads by them, each once.
        store_bytes: Bytes that one thread stores by them, each once.
        in_loops: How many of both are in a loop, and so run again and again.
    """

    loads: int
    stores: int
    load_bytes: int
    store_bytes: int
    in_loops: int


def sass_traffic(text: str) -> LocalTraffic:
    """The local traffic in machine code as `nvdisasm -c` prints it."""
    lines = text.splitlines()
    found = [(at, match) for at, line in enumerate(lines) if (match := _SASS.search(line))]
    moved = [(at, match[1] == "LDL", _width(match[2])) for at, match in found]
    return _counted(moved, _loops(lines))


def amdgcn_traffic(text: str) -> LocalTraffic:
    """The local traffic in amdgcn assembly text."""
    lines = text.splitlines()
    found = [(at, match) for at, line in enumerate(lines) if (match := _AMD.search(line))]
    return _counted([(at, match[2] == "Reload", int(match[1])) for at, match in found], _loops(lines))


def _width(suffixes: str) -> int:
    return next((_WIDTHS[part] for part in suffixes.split(".") if part in _WIDTHS), 4)


def _loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """First and last line of every loop: from a label to a later branch back to it, but for a branch to itself."""
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for at, line in enumerate(lines):
        if (label := _LABEL.match(line)) is not None:
            labels[label[1]] = at
        elif (branch := _BRANCH.search(line)) is not None and branch[1] in labels:
            loops.append((labels[branch[1]], at))
    return loops


def _counted(moved: Iterable[tuple[int, bool, int]], loops: Sequence[tuple[int, int]]) -> LocalTraffic:
    moved = list(moved)
    loads, stores = ([width for _, is_load, width in moved if is_load is kind] for kind in (True, False))
    inside = sum(any(first < at < last for first, last in loops) for at, _, _ in moved)
    return LocalTraffic(len(loads), len(stores), sum(loads), sum(stores), inside)
