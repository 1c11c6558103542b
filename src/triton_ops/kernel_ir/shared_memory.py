"""Banks of shared memory, for which threads wait where they ask one bank for different words.

Shared memory has 32 banks, each of which delivers one word of 4 bytes in a step; neighbouring words lie in neighbouring
banks. Lanes that ask one bank for different words wait for each other; lanes that ask for the same word are served
together. Accesses of 8 and of 16 bytes are served for a half and for a quarter of the warp at a time.

Source: the CUDA C++ Programming Guide, shared memory of compute capability 5.x and later.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence

from triton_ops.exceptions import ConfigValueError

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
    return max(_steps([lane * stride * item_bytes for lane in range(lanes)], item_bytes, banks))


def _steps(addresses: Sequence[int], item_bytes: int, banks: int = 32) -> list[int]:
    """The steps of the banks for each part of the lanes that is served at once."""
    together = len(addresses) if item_bytes <= _WORD_BYTES else max(1, banks * _WORD_BYTES // item_bytes)
    steps = []
    for first in range(0, len(addresses), together):
        begins = addresses[first : first + together]
        words = {word for at in begins for word in range(at // _WORD_BYTES, (at + item_bytes - 1) // _WORD_BYTES + 1)}
        steps.append(max(Counter(word % banks for word in words).values()))
    return steps


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
        # `isinstance` would take True for 1.
        if type(value) is not int:
            raise ConfigValueError(f"{name} is {value!r}, which is no whole number")
    if item_bytes not in (1, 2, 4, 8, 16):
        message = f"item_bytes is {item_bytes}; a lane moves 1, 2, 4, 8 or 16 bytes"
        raise ConfigValueError(message, hint="give the bytes of one item")
    for name, value in (("lanes", lanes), ("banks", banks)):
        if value < 1:
            raise ConfigValueError(f"{name} is {value}; there is at least 1")


_WARP = 32
_FORM = re.compile(
    r"(?:ld|st)\.shared(?:\.v(?P<parts>[24]))?\.[bfsu](?P<bits>\d+)|"
    r"(?:ld|st)matrix\.sync\.aligned\.m8n8\.x(?P<matrices>[124])\S*|cp\.async\S+"
)
_WRITE = re.compile(r"\s*((?:@\S+\s+)?[a-z][\w.:]*)\s+(\{[^}]*\}|%\w+)\s*,\s*([^;]*);")
_REGISTER = re.compile(r"%\w+")
_NUMBER = re.compile(r"-?(?:0x[\da-fA-F]+|\d+)$")
_WORK: dict[str, Callable[..., int]] = {
    "mov.b32": int, "mov.u32": int, "cvt.u32.u64": int, "cvt.u64.u32": int, "neg.s32": operator.neg,
    "add.s32": operator.add, "sub.s32": operator.sub, "mul.lo.s32": operator.mul,
    "mad.lo.s32": lambda one, other, more: one * other + more, "and.b32": operator.and_, "or.b32": operator.or_,
    "xor.b32": operator.xor, "not.b32": operator.invert, "shr.u32": lambda one, by: one % (1 << 32) >> by % 64,
    "shl.b32": lambda one, by: one << by % 64, "shr.s32": lambda one, by: one >> by % 64,
    "bfe.u32": lambda one, first, bits: one >> first % 64 & ((1 << bits % 64) - 1),
    "bfe.s32": lambda one, first, bits: _signed(one >> first % 64 << (32 - bits) % 64) >> (32 - bits) % 64,
    "setp.eq.b32": operator.eq, "setp.ne.b32": operator.ne, "selp.b32": lambda one, other, yes: one if yes else other,
}  # fmt: skip


class WarpRegisters:
    """The whole numbers that registers of PTX hold in the lanes of the first warp, in the first turn of loops.

    Instructions that are not in the table, such as loads, leave no numbers.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, Sequence[int]] = {"%tid.x": range(_WARP), "%laneid": range(_WARP)}

    def follow(self, line: str, in_loop: bool) -> None:
        """Take in what an instruction writes to registers."""
        if (write := _WRITE.match(line)) is None:
            return
        if (work := _WORK.get(write[1])) is None:
            self._numbers.update(dict.fromkeys(_REGISTER.findall(write[2]), ()))
        elif not in_loop or write[2] not in self._numbers:
            operands = [self._lanes(one.strip()) for one in write[3].split(",")]
            numbers = [_signed(work(*lane)) for lane in zip(*operands, strict=False)]
            alike = self._numbers.get(write[2], numbers) == numbers  # else two branches write it
            self._numbers[write[2]] = numbers if alike else ()

    def _lanes(self, operand: str) -> Sequence[int]:
        if _NUMBER.match(operand) is not None:
            return [int(operand, 0)] * _WARP
        return [0] * _WARP if operand.isidentifier() else self._numbers.get(operand, ())  # memory begins at a name

    def further_steps(self, instruction: str, operands: str) -> int | None:
        """The steps of the banks beyond the fewest, as if all lanes took part; None if an address is not known."""
        base, _, offset = operands.partition("[")[2].partition("]")[0].partition("+")
        begins, form = self._lanes(base.strip()), _FORM.fullmatch(instruction)
        if not begins or form is None:
            return None
        width = int(form["bits"] or 128) // 8 * int(form["parts"] or 1)  # a row of a matrix has 128 bits
        if instruction.startswith("cp"):
            width = int(operands.split(",")[2], 0)
        acting = begins[: 8 * int(form["matrices"] or 4)]
        return sum(steps - 1 for steps in _steps([begin + int(offset or "0", 0) for begin in acting], width))


def _signed(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
