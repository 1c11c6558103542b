"""Rules that put the values of one extent into buckets.

Every rule is total where it says so and silent elsewhere: a value that it has no bucket for is left as it is, so that
nothing is taken for a problem far away from every one that was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

from triton_ops.exceptions import SettingsError

LARGEST = 1 << 62
_CAP = 2.0
_FORMS = "pow2, pow2:16..4096, upto:64,256,1024, near:16,64,256 or near:16,64,256@1.5"


@runtime_checkable
class Rule(Protocol):
    """From a value to its bucket. Buckets lie side by side, from the first one on."""

    @property
    def first(self) -> int:
        """The least value that a bucket holds."""
        ...

    def bucket(self, value: int) -> tuple[int, int] | None:
        """The least and the largest value of the bucket that holds `value`; None if no bucket does."""
        ...

    def representative(self, value: int) -> int:
        """The value of the bucket on which its winner is best measured; `value` itself if no bucket holds it."""
        ...


@dataclass(frozen=True)
class PowersOfTwo:
    """Buckets that end at powers of two: 1, 2, 3 to 4, 5 to 8, 9 to 16 and so on; each is measured at its end.

    Attributes:
        low: The least value that is put into a bucket.
        high: The largest value that is put into a bucket.
    """

    low: int = 1
    high: int = LARGEST

    def __post_init__(self) -> None:
        _check_span(self.low, self.high, "pow2")

    @property
    def first(self) -> int:
        """The rule's lower limit."""
        return self.low

    def bucket(self, value: int) -> tuple[int, int] | None:
        """From above the next smaller power of two to the next larger one, within the rule's limits."""
        if not self.low <= value <= self.high:
            return None
        end = next_power_of_two(value)
        return max(end // 2 + 1, self.low), min(end, self.high)

    def representative(self, value: int) -> int:
        """The end of the bucket."""
        found = self.bucket(value)
        return value if found is None else found[1]

    def __str__(self) -> str:
        return "pow2" if self == PowersOfTwo() else f"pow2:{self.low}..{self.high}"


@dataclass(frozen=True)
class UpTo:
    """Buckets between given ends: `(64, 256)` is 1 to 64 and 65 to 256; above the last end there is none.

    Attributes:
        ends: The ends, rising; each bucket is measured at its end.
    """

    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_rising(self.ends, "upto")

    @property
    def first(self) -> int:
        """1."""
        return 1

    def bucket(self, value: int) -> tuple[int, int] | None:
        """From above the end before to the first end that is not below `value`."""
        if value < 1:
            return None
        return next(((low + 1, high) for low, high in pairwise((0, *self.ends)) if value <= high), None)

    def representative(self, value: int) -> int:
        """The end of the bucket."""
        found = self.bucket(value)
        return value if found is None else found[1]

    def __str__(self) -> str:
        return f"upto:{','.join(map(str, self.ends))}"


@dataclass(frozen=True)
class Nearest:
    """Buckets around given points: a value belongs to the point to which its ratio is least; to the smaller of two.

    Attributes:
        points: The points, rising; each bucket is measured at its point.
        cap: How many times smaller than the first point, or larger than the last, a value may be.
    """

    points: tuple[int, ...]
    cap: float = _CAP

    def __post_init__(self) -> None:
        _check_rising(self.points, "near")
        if not (math.isfinite(self.cap) and self.cap >= 1):
            raise SettingsError(f"the cap of a bucket is {self.cap}; it must be 1 or more", hint="for example @2")

    @property
    def first(self) -> int:
        """The least value whose ratio to the first point is within the cap."""
        return math.ceil(self.points[0] / self.cap)

    def bucket(self, value: int) -> tuple[int, int] | None:
        """The values that are nearer to the same point than to another one."""
        first, last = self.points[0], self.points[-1]
        lows = [math.ceil(first / self.cap), *(math.isqrt(one * other) + 1 for one, other in pairwise(self.points))]
        highs = [*(low - 1 for low in lows[1:]), min(math.floor(last * self.cap), LARGEST)]
        spans = zip(lows, highs, strict=True)
        return next(((low, high) for low, high in spans if low <= value <= high), None)

    def representative(self, value: int) -> int:
        """The point in the bucket."""
        found = self.bucket(value)
        return value if found is None else next(point for point in self.points if found[0] <= point <= found[1])

    def __str__(self) -> str:
        return f"near:{','.join(map(str, self.points))}" + ("" if self.cap == _CAP else f"@{self.cap:g}")


def rule_of(text: str) -> Rule:
    """The rule that a text names: `pow2`, `pow2:16..4096`, `upto:64,256`, `near:16,64` or `near:16,64@1.5`.

    Raises:
        SettingsError: The text names none.
    """
    kind, _, rest = text.strip().partition(":")
    try:
        if kind == "pow2":
            low, _, high = rest.partition("..")
            return PowersOfTwo(int(low), int(high)) if rest else PowersOfTwo()
        if kind == "upto":
            return UpTo(_whole(rest))
        if kind == "near":
            points, at, cap = rest.partition("@")
            return Nearest(_whole(points), float(cap) if at else _CAP)
    except ValueError as error:
        if isinstance(error, SettingsError):
            raise
    raise SettingsError(f"{text!r} is no rule for buckets", hint=f"write {_FORMS}")


def next_power_of_two(value: int) -> int:
    """The least power of two that is not below `value`, which is 1 or more."""
    return 1 << (value - 1).bit_length()


def _whole(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _check_span(low: int, high: int, kind: str) -> None:
    if not 1 <= low <= high <= LARGEST:
        raise SettingsError(f"{kind} from {low} to {high} is no range of 1 or more", hint="for example pow2:16..4096")


def _check_rising(values: tuple[int, ...], kind: str) -> None:
    if not values or values[0] < 1 or values[-1] > LARGEST or any(a >= b for a, b in pairwise(values)):
        raise SettingsError(
            f"the values of {kind} are {', '.join(map(str, values)) or 'none'}; they must rise, from 1 or more",
            hint=f"for example {kind}:16,64,256",
        )
