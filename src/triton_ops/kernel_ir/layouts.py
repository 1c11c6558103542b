"""The layouts of a TTGIR module: which elements along an axis one thread, one warp and the whole program hold.

Facts used, of Triton 3.6 to 3.9: a layout has a name at the text's top, as `#blocked = #ttg.blocked<{…}>`, or stands in
the type; in a result of `mma.sync` or of `wgmma` a thread holds two neighbours along columns, then four threads stand
side by side, and along rows eight threads stand below each other, of which each has a second row eight further down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

_NAMED = re.compile(r"^(#\w+) = (#tt\w*\..*)$", re.MULTILINE)
_LISTS = re.compile(r"(\w+) = \[([\d, ]*)\]")
_BASES = re.compile(r"(register|lane|warp) = \[((?:\[[\d, ]*\](?:, )?)*)\]")
_SLICE = re.compile(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>$")
_BLOCKED = "#ttg.blocked"
IN_A_THREAD, LANES, WARPS, _PARTS = "in a thread", "lanes", "warps", "parts in order"


@dataclass(frozen=True)
class Layouts:
    """The layouts of a text by name."""

    named: Mapping[str, str]

    @staticmethod
    def of(text: str) -> Layouts:
        """Those that the text of a module names."""
        return Layouts(dict(_NAMED.findall(text)))

    def whole(self, layout: str) -> str:
        """What a name stands for, also within another layout."""
        return re.sub(r"#\w+(?![\w.])", lambda name: self.named.get(name[0], name[0]), layout)

    def order(self, layout: str, axis: int, extent: int, scans: bool = False) -> str:
        """Who holds neighbours along an axis of so many elements, the nearest first, such as `4 in a thread, 32 lanes`.

        Of a running sum, whose next parts follow in order whoever holds them, only the holders of one part are told.
        Where that is not known of a kind of layout, the text of the layout.
        """
        whole = self.whole(layout)
        holders = list(_holders(whole, axis))
        if not holders:
            return whole
        in_parts = scans and whole.startswith(_BLOCKED)
        held = [*holders[:2], (_PARTS, extent)] if in_parts else [*holders, (IN_A_THREAD, extent)]
        # All counts are powers of two. Holders beyond the extent hold the same elements again.
        doublings = [holder for holder, count in held for _ in range(count.bit_length() - 1)][: extent.bit_length() - 1]
        # A thread adds up its elements in order, of which two are halves; then lanes add up by halves, and then warps.
        in_turn = sorted(doublings, key=(_PARTS, WARPS, LANES, IN_A_THREAD).index)
        if not scans and doublings == in_turn and doublings.count(IN_A_THREAD) < 2:
            return f"{extent} by halves"
        return ", ".join(f"{1 << len([*same])} {holder}" for holder, same in groupby(doublings))


def _holders(layout: str, axis: int) -> Iterator[tuple[str, int]]:
    """Who holds neighbours along an axis, and how many there are, from the nearest on."""
    if (slice_ := _SLICE.match(layout)) is not None:
        yield from _holders(slice_[2], axis + (axis >= int(slice_[1])))
        return
    lists = {name: [int(one) for one in numbers.split(",") if one.strip()] for name, numbers in _LISTS.findall(layout)}
    if layout.startswith(_BLOCKED):
        for name, holder in (("sizePerThread", IN_A_THREAD), ("threadsPerWarp", LANES), ("warpsPerCTA", WARPS)):
            yield holder, lists[name][axis]
    elif layout.startswith("#ttg.nvidia_mma"):
        yield from _of_product(lists["warpsPerCTA"], lists["instrShape"], axis)
    elif layout.startswith("#ttg.linear"):
        yield from _of_bases(layout, axis)


def _of_product(warps: list[int], instruction: list[int], axis: int) -> Iterator[tuple[str, int]]:
    if axis == len(warps) - 1:
        yield from ((IN_A_THREAD, 2), (LANES, 4), (IN_A_THREAD, instruction[axis] // 8))
    elif axis == len(warps) - 2:
        yield from ((LANES, 8), (IN_A_THREAD, 2))
    yield WARPS, warps[axis]


def _of_bases(layout: str, axis: int) -> Iterator[tuple[str, int]]:
    """A linear layout has a row of bases for each holder; a holder's bit n moves an element as its base n does."""
    moves = []
    for name, bases in _BASES.findall(layout):
        holder = {"register": IN_A_THREAD, "lane": LANES, "warp": WARPS}[name]
        moved = [step for base in re.findall(r"\[([\d, ]*)\]", bases) if (step := int(base.split(",")[axis]))]
        if moved != sorted(moved) or any(step & (step - 1) for step in moved):
            return  # another order than that of the elements
        moves += [(step, holder) for step in moved]
    yield from ((holder, 2) for _, holder in sorted(moves))
