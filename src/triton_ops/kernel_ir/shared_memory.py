"""Banks of shared memory, for which threads wait where they ask one bank for different words.

Shared memory has 32 banks, each of which delivers one word of 4 bytes in a step; neighbouring words lie in neighbouring
banks. Lanes that ask one bank for different words wait for each other; lanes that ask for the same word are served
together. Accesses of 8 and of 16 bytes are served for a half and for a quarter of the warp at a time.

Source: the CUDA C++ Programming Guide, shared memory of compute capability 5.x and later.
"""

from __future__ import annotations

from collections import Counter

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
    addresses = [lane * stride * item_bytes for lane in range(lanes)]
    together = lanes if item_bytes <= _WORD_BYTES else max(1, banks * _WORD_BYTES // item_bytes)  # lanes served at once
    steps = []
    for first in range(0, lanes, together):
        begins = addresses[first : first + together]
        words = {word for at in begins for word in range(at // _WORD_BYTES, (at + item_bytes - 1) // _WORD_BYTES + 1)}
        steps.append(max(Counter(word % banks for word in words).values()))
    return max(steps)


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
