"""Accesses of shared memory, whose threads wait for each other where they ask one bank for different words.

The addresses are computed for every thread of the block (`ptx.py`); a part that is the same in all threads is
not known, and moves no thread to another's bank.

Shared memory has 32 banks, each of which delivers one word of 4 bytes in a step; neighbouring words lie in neighbouring
banks. Lanes that ask one bank for different words wait for each other; lanes that ask for the same word are served
together. Accesses of 8 and of 16 bytes are served for a half and for a quarter of the warp at a time.

Source: the CUDA C++ Programming Guide, shared memory of compute capability 5.x and later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from triton_ops.exceptions import ConfigValueError
from triton_ops.kernel_ir.ptx import Instruction, Registers, RegisterValue, instructions_of, read_ptx

BANKS = 32
_WORD_BYTES = 4


def bank_conflicts(stride: int, *, item_bytes: int = 4, lanes: int = 32, banks: int = 32) -> int:
    """Ways in which lanes conflict that read items `stride` apart: the steps of a bank; 1 without a conflict.

    Args:
        stride: Items from one lane's to the next lane's, such as the length of a row for lanes that read a column;
            0 for one item that all read.
        item_bytes: Bytes of an item: 1, 2, 4, 8 or 16.
        lanes: Lanes that read together: 32, or 64 on AMD.
        banks: Banks of shared memory, each 4 bytes wide: 32, or 64 on AMD's gfx950.

    Returns:
        From 1 to `lanes`: a stride of 32 items of 4 bytes conflicts 32 ways, one of 33 does not.

    Raises:
        ConfigValueError: A value is no whole number, `item_bytes` is another size, or `lanes` or `banks` is below 1.
    """
    _check(stride, item_bytes, lanes, banks)
    return max(steps_of([lane * stride * item_bytes for lane in range(lanes)], item_bytes, banks))


def steps_of(addresses: Sequence[int], item_bytes: int, banks: int = BANKS) -> list[int]:
    """The steps that each part of a warp takes that is served together; addresses in bytes, in the order of lanes."""
    words_of_parts = _words_served(addresses, item_bytes, banks)
    return [max(Counter(word % banks for word in words).values(), default=1) for words in words_of_parts]


def _words_served(addresses: Sequence[int], item_bytes: int, banks: int) -> Iterator[set[int]]:
    """The words that each part of a warp asks for that is served together."""
    served = len(addresses) if item_bytes <= _WORD_BYTES else max(1, banks * _WORD_BYTES // item_bytes)
    for first in range(0, len(addresses), served):
        yield {
            word
            for begin in addresses[first : first + served]
            for word in range(begin // _WORD_BYTES, (begin + item_bytes - 1) // _WORD_BYTES + 1)
        }


def bank_padding(stride: int, *, item_bytes: int = 4, lanes: int = 32, banks: int = 32) -> int:
    """The fewest items to add to a stride so that lanes conflict least: 1 for rows of 32 items of 4 bytes, 0 for 33.

    Args:
        stride: As for `bank_conflicts`, and so are the others.
        item_bytes: Bytes of an item.
        lanes: Lanes that read together.
        banks: Banks of shared memory.

    Raises:
        ConfigValueError: As `bank_conflicts`.
    """
    _check(stride, item_bytes, lanes, banks)
    period = banks * _WORD_BYTES // min(item_bytes, _WORD_BYTES)
    rest = [more for more in range(period) if stride + more or not stride]  # never one item for all lanes
    return min(
        rest, key=lambda more: (bank_conflicts(stride + more, item_bytes=item_bytes, lanes=lanes, banks=banks), more)
    )


def _check(stride: int, item_bytes: int, lanes: int, banks: int) -> None:
    for name, value in (("stride", stride), ("item_bytes", item_bytes), ("lanes", lanes), ("banks", banks)):
        if type(value) is not int:
            raise ConfigValueError(f"{name} is {value!r}, which is no whole number")
    if item_bytes not in (1, 2, 4, 8, 16):
        message = f"item_bytes is {item_bytes}; a lane moves 1, 2, 4, 8 or 16 bytes"
        raise ConfigValueError(message, hint="give the bytes of one item")
    for name, value in (("lanes", lanes), ("banks", banks)):
        if value < 1:
            raise ConfigValueError(f"{name} is {value}; there is at least 1")


_WARP = 32
_ROW_BYTES = 16  # of a matrix of 8 rows
_WIDTH = re.compile(r"(?:\.v([248]))?\.[bfsu](8|16|32|64|128)$")
_MATRICES = re.compile(r"\.x([124])\b")
_KINDS = {"ld": "load", "st": "store", "ldmatrix": "load", "stmatrix": "store", "atom": "atomic", "red": "atomic"}


@dataclass(frozen=True, kw_only=True)
class SharedAccess:
    """One instruction (`load`, `store`, `atomic`, or `copy` from global memory) that reads or writes shared memory.

    The banks take so many `steps` for all threads of the block, and would take the `fewest` without conflicts; both are
    None if the addresses depend on data.
    """

    kind: str
    file: str
    line: int
    lane_bytes: int
    in_loop: bool
    steps: int | None
    fewest: int | None


_WAYS = 2  # steps for each that would do, from which a line is told
_GLOBAL_BYTES = 32
"""Bytes that a multiprocessor gets from global memory while its banks take a step.

An A100 has 13, an H200 21 (bandwidth over multiprocessors and clock), and L2 about twice that: a conflict that
takes fewer steps than the kernel's global memory takes is hidden behind it.
"""


class SharedLine(NamedTuple):
    """The accesses of one line, and what the block moves from and to global memory meanwhile."""

    place: tuple[str, int]
    accesses: tuple[SharedAccess, ...]
    bytes_moved: int

    @property
    def steps(self) -> int:
        """Steps that the banks take for them."""
        return sum(one.steps or 0 for one in self.accesses)

    @property
    def fewest(self) -> int:
        """Steps that they would take without conflicts."""
        return sum(one.fewest or 0 for one in self.accesses)

    @property
    def matters(self) -> bool:
        """Check whether threads wait for banks longer than for global memory."""
        return self.steps >= _WAYS * self.fewest and _GLOBAL_BYTES * (self.steps - self.fewest) > self.bytes_moved

    @property
    def in_words(self) -> str:
        """What the banks do for them, in words."""
        worst = max(self.accesses, key=lambda one: (one.steps or 0) / max(1, one.fewest or 0))
        kinds = sorted({one.kind for one in self.accesses})
        widths = sorted({one.lane_bytes for one in self.accesses})
        often = " in each iteration of a loop" if worst.in_loop else ""
        ways = (worst.steps or 0) / max(1, worst.fewest or 0)
        return (
            f"{len(self.accesses)} instructions ({' and '.join(kinds)}, {' and '.join(map(str, widths))} bytes a "
            f"thread) take {self.steps:,} steps of the banks for a block{often}, where {self.fewest:,} would do: up "
            f"to {ways:.3g} ways; global memory takes {-(-self.bytes_moved // _GLOBAL_BYTES):,} of {_GLOBAL_BYTES} "
            "bytes meanwhile"
        )


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The accesses of shared memory, and the bytes that a block moves from and to global memory.

    Each instruction counts once; `loop_bytes` are those of what runs again and again. With `bulk`, copies of the tensor
    memory accelerator come on top.
    """

    shared: tuple[SharedAccess, ...] = ()
    global_bytes: int = 0
    loop_bytes: int = 0
    bulk: bool = False

    @staticmethod
    def of(ptx: str) -> Traffic:
        """Read the accesses and the traffic of a kernel's PTX; raises ValueError if it says no threads of a block.

        What Hopper's and Blackwell's matrix units and the tensor memory accelerator read and write of shared memory by
        themselves is left out: the hardware swizzles their tiles.

        Cost: 10 to 200 ms; nothing for a kernel that uses no shared memory.
        """
        if ".shared" not in ptx:
            return Traffic()
        instructions, registers = read_ptx(ptx)
        memo: dict[tuple[int, ...], tuple[int, int]] = {}
        accesses = (_access(one, registers, memo) for one in instructions)
        moves = [(one.in_loop, _global_bytes(one) * registers.threads) for one in instructions]
        return Traffic(
            shared=tuple(one for one in accesses if one is not None), global_bytes=sum(size for _, size in moves),
            loop_bytes=sum(size for in_loop, size in moves if in_loop), bulk="cp.async.bulk" in ptx,
        )  # fmt: skip

    @staticmethod
    def widths(ptx: str) -> dict[tuple[str, str, int], list[int]]:
        """Bytes that one thread moves at once from or to global memory, by `load` or `store`, file name and line.

        Copies by the tensor memory accelerator move whole tiles and are left out.
        """
        by_line: dict[tuple[str, str, int], list[int]] = {}
        for one in instructions_of(ptx):
            if width := _global_bytes(one):
                kind = "store" if one.name.startswith("st") else "load"
                by_line.setdefault((kind, *one.place), []).append(width)
        return by_line

    @property
    def lines(self) -> list[SharedLine]:
        """The lines of what runs again and again, or of the whole kernel if nothing that moves data does."""
        loops = self.loop_bytes > 0 or any(one.in_loop for one in self.shared)
        by_place: dict[tuple[str, int], list[SharedAccess]] = {}
        for one in self.shared:
            if one.in_loop == loops:
                by_place.setdefault((one.file, one.line), []).append(one)
        size = self.loop_bytes if loops else self.global_bytes
        return [SharedLine(place, tuple(accesses), size) for place, accesses in by_place.items()]


def _global_bytes(one: Instruction) -> int:
    """Bytes that one thread moves by an instruction from or to global memory; 0 for any other instruction."""
    if one.name.startswith("cp.async.c"):
        return int(one.operands[2], 0)
    if not one.name.startswith(("ld.global", "st.global")) or (width := _WIDTH.search(one.name)) is None:
        return 0
    return int(width[2]) // 8 * int(width[1] or 1)


def _access(
    one: Instruction, registers: Registers, memo: dict[tuple[int, ...], tuple[int, int]]
) -> SharedAccess | None:
    head = one.name.partition(".")[0]
    address = next((text for text in one.operands if text.startswith("[")), None)
    if address is None or ".shared" not in one.name.replace("shared::cluster", ""):
        return None
    if one.name.startswith("cp.async.c"):
        kind, lane_bytes, lanes = "copy", int(one.operands[2], 0), _WARP
    elif head in ("ldmatrix", "stmatrix"):
        matrices = _MATRICES.search(one.name)
        kind, lane_bytes, lanes = _KINDS[head], _ROW_BYTES, 8 * int(matrices[1] if matrices else 1)
    elif head in _KINDS and (width := _WIDTH.search(one.name)) is not None:
        kind, lane_bytes, lanes = _KINDS[head], int(width[2]) // 8 * int(width[1] or 1), _WARP
    else:
        return None
    steps, fewest = _steps(_active(one, registers, lanes), lane_bytes, memo, registers.address(address))
    return SharedAccess(
        kind=kind, file=one.place[0], line=one.place[1], lane_bytes=lane_bytes, in_loop=one.in_loop, steps=steps,
        fewest=fewest,
    )  # fmt: skip


def _active(one: Instruction, registers: Registers, lanes: int) -> list[bool]:
    """Of each thread whether it takes part; all of them where that is not known."""
    guard = registers.value(one.guard) if one.guard else None
    lanes_on = [at % _WARP < lanes for at in range(registers.threads)]
    if guard is None or not guard.exact:
        return lanes_on
    return [on and bool(value) != one.negated for on, value in zip(lanes_on, guard.lanes.tolist(), strict=True)]


def _steps(
    active: Sequence[bool], lane_bytes: int, memo: dict[tuple[int, ...], tuple[int, int]], address: RegisterValue | None
) -> tuple[int, int] | tuple[None, None]:
    if address is None:
        return None, None
    steps = fewest = 0
    lanes = address.lanes.tolist()
    for first in range(0, len(lanes), _WARP):
        addresses = [lanes[at] for at in range(first, first + _WARP) if active[at]]
        if not addresses:
            continue
        begin = min(addresses) // (BANKS * _WORD_BYTES) * (BANKS * _WORD_BYTES)
        key = (lane_bytes, *(one - begin for one in addresses))
        if key not in memo:
            words = _words_served(key[1:], lane_bytes, BANKS)  # those of a part could lie in banks of their own
            memo[key] = sum(steps_of(key[1:], lane_bytes)), sum(max(1, -(-len(one) // BANKS)) for one in words)
        steps, fewest = steps + memo[key][0], fewest + memo[key][1]
    return steps, fewest
