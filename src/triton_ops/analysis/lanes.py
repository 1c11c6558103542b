"""Values of registers in each thread of a block, as far as PTX alone says them.

A value is a number for each thread, known up to one summand that is the same in all threads: what a kernel is given,
the number of its program and the turn of a loop are such summands. Which banks threads ask for depends on the threads
alone, so that this is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Lanes: TypeAlias = "np.ndarray[Any, Any]"

_HALF = 1 << 63
_EXACT = 1 << 62  # what a summand is a multiple of where there is none


@dataclass(frozen=True, eq=False)
class Held:
    """What a register holds.

    Attributes:
        lanes: The part that threads differ in: int64 [threads].
        even: What the unknown summand is a multiple of, a power of two; `_EXACT` where there is none.
    """

    lanes: Lanes
    even: int = _EXACT

    @property
    def exact(self) -> bool:
        """Whether nothing is added to `lanes`."""
        return self.even == _EXACT

    @property
    def uniform(self) -> bool:
        """Whether all threads hold the same."""
        return bool((self.lanes == self.lanes[0]).all())


UNTOLD = None  # a register of which the threads hold anything
Maybe: TypeAlias = "Held | None"


def constant(number: int, threads: int) -> Held:
    """One number in all threads."""
    held = (number + _HALF) % (2 * _HALF) - _HALF  # 64 bits, of which the highest may be no sign
    return Held(np.full(threads, held, dtype=np.int64))


def something(threads: int, even: int = 1) -> Held:
    """A number that is not known, and the same in all threads."""
    return Held(np.zeros(threads, dtype=np.int64), even)


def joined(one: Maybe, other: Maybe) -> Maybe:
    """What is known of a register that is given either."""
    if one is None or other is None:
        return UNTOLD
    apart = other.lanes - one.lanes
    if (apart != apart[0]).any():
        return UNTOLD
    first = int(apart[0])
    if one.exact and other.exact and not first:
        return one
    return Held(one.lanes, min(one.even, other.even, _lowest(first)))


def same(one: Maybe, other: Maybe) -> bool:
    """Whether as much is known of both."""
    if one is None or other is None:
        return one is other
    return one.even == other.even and bool((one.lanes == other.lanes).all())


def added(one: Held, other: Held, sign: int = 1) -> Held:
    """The sum, or the difference for a sign of -1."""
    return Held(one.lanes + sign * other.lanes, min(one.even, other.even))


def multiplied(one: Held, other: Held) -> Maybe:
    """The product."""
    if one.exact and other.exact:
        return Held(one.lanes * other.lanes)
    if other.exact and other.uniform:
        factor = int(other.lanes[0])
        return Held(one.lanes * factor, min(one.even * _lowest(factor), _EXACT >> 1)) if factor else Held(0 * one.lanes)
    if one.exact and one.uniform:
        return multiplied(other, one)
    return something(len(one.lanes)) if one.uniform and other.uniform else UNTOLD


def bitwise(name: str, one: Held, other: Held) -> Maybe:
    """`and`, `or` or `xor` of the bits."""
    work = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name]
    if one.exact and other.exact:
        return Held(work(one.lanes, other.lanes))
    even = min(one.even, other.even)
    if all(((held.lanes >= 0) & (held.lanes < even)).all() for held in (one, other)):
        # the unknown bits lie above all that threads differ in
        kept = _EXACT if name == "and" and (one.exact or other.exact) else even
        return Held(work(one.lanes, other.lanes), kept)
    if one.uniform and other.uniform:
        return something(len(one.lanes))
    if name == "and":
        return _masked(one, other) if other.exact else _masked(other, one)
    return UNTOLD


def _masked(one: Held, mask: Held) -> Maybe:
    """`and` with a mask that is the same in all threads."""
    if not mask.uniform or one.exact or ((one.lanes < 0) | (one.lanes >= one.even)).any():
        return UNTOLD
    bits = int(mask.lanes[0])
    return Held(one.lanes & bits, _EXACT if bits < one.even else one.even)


def wrapped(held: Maybe, bits: int, signed: bool) -> Maybe:
    """A value as a number of so many bits."""
    if held is None or not held.exact or bits > 32:
        return held
    lanes = held.lanes & ((1 << bits) - 1)
    return Held(np.where(lanes >= 1 << (bits - 1), lanes - (1 << bits), lanes) if signed else lanes)


def _lowest(number: int) -> int:
    """The largest power of two that a number is a multiple of."""
    return (abs(number) & -abs(number)) or _EXACT
