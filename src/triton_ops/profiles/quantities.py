"""Numbers and units as Nsight Compute prints them.

Numbers are printed by the locale: `1,234.50`, or `1.234,50`. Units are scaled by default, as in `Gbyte/s`, `usecond` or
`us`, whose names changed with versions. Values become seconds, bytes, bytes per second, Hz, percent or plain counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_NUMBER = re.compile(r"[-+]?\d[\d.,'\u00a0\u202f]*(?:[eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d{1,3}(?:\.\d{3})*,(?!\d{3}$)\d+|[-+]?\d{1,3}(?:\.\d{3})+,\d+|[-+]?0,\d+")
_TIMES = {
    "second": 1.0, "sec": 1.0, "s": 1.0, "msecond": 1e-3, "ms": 1e-3, "usecond": 1e-6, "us": 1e-6, "nsecond": 1e-9,
    "ns": 1e-9,
}  # fmt: skip
_SCALES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_WORDS = ("byte", "hz", "cycle", "inst", "sector", "request", "flop", "op", "warp", "thread", "block")


@dataclass(frozen=True)
class Quantity:
    """One value of a metric.

    Attributes:
        value: The number in base units; None for `n/a`, `inf` and texts.
        unit: The base unit: `s`, `byte`, `byte/s`, `hz`, `%`, or what was printed.
        text: What was printed.
    """

    value: float | None
    unit: str
    text: str


def quantity(text: str, unit: str, decimal_comma: bool = False) -> Quantity:
    """The value of a printed number with its unit.

    Args:
        text: The printed number; of a number with further ones in brackets the first counts.
        unit: The printed unit; empty for plain counts.
        decimal_comma: Whether the file's numbers have a decimal comma.
    """
    scale, base = _based(unit.strip())
    found = _NUMBER.match(text.strip())
    if found is None or text.strip()[found.end() : found.end() + 1].isalpha():
        return Quantity(None, base, text.strip())
    digits = re.sub(r"['\u00a0\u202f]", "", found[0])
    digits = digits.replace(".", "").replace(",", ".") if decimal_comma else digits.replace(",", "")
    try:
        value = float(digits) * scale
    except ValueError:
        return Quantity(None, base, text.strip())
    return Quantity(value if math.isfinite(value) else None, base, text.strip())


def has_decimal_comma(texts: Iterable[str]) -> bool:
    """Whether the numbers of a file have a decimal comma: one that cannot be a separator of thousands shows it."""
    return any(_DECIMAL_COMMA.fullmatch(text.strip()) for text in texts)


def _based(unit: str) -> tuple[float, str]:
    """The factor to the base unit, and the base unit."""
    if unit in _TIMES:
        return _TIMES[unit], "s"
    over, slash, under = unit.partition("/")
    scale, word = _scaled(over)
    if slash and under in _TIMES:
        scale, word = scale / _TIMES[under], "hz" if word == "cycle" else f"{word}/s"
        return scale, word
    return scale, f"{word}/{under}" if slash else word


def _scaled(word: str) -> tuple[float, str]:
    lowered = word.lower()
    for prefix, factor in _SCALES.items():
        if word.startswith(prefix) and lowered[1:] in _WORDS:
            return factor, lowered[1:]
    return 1.0, lowered if lowered in _WORDS else word
