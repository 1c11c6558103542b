"""Buckets: the rules by which problems share a key.

A value for which a rule has no bucket is left as it is, so that it is never taken for a problem far away from all that
were measured.

A problem is taken in the form that keys and files have: argument name to scalar, or to the shape, dtype, strides and
alignment of a tensor. An extent is named `a[0]` where it is an axis of the tensor `a`, and by the argument's name where
it is a whole number, such as `M`. What stands under `NAME:class` is a kind of argument, and no extent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from triton_ops.base import Extent
from triton_ops.exceptions import SettingsError, UnknownTunableError

LARGEST = 1 << 62
_CAP = 2.0
_FORMS = "pow2, pow2:16..4096, upto:64,256,1024, near:16,64,256 or near:16,64,256@1.5"


@runtime_checkable
class BucketRule(Protocol):
    """From a value to its bucket. Buckets lie side by side, from the first one on."""

    @property
    def first(self) -> int:
        """The least value that a bucket holds."""
        ...

    def bucket(self, value: int) -> tuple[int, int] | None:
        """The least and the largest value of the bucket that holds `value`; None if no bucket does."""
        ...

    def representative(self, value: int) -> int:
        """The value on which the bucket's winner is best measured, its end; `value` itself if no bucket holds it."""
        span = self.bucket(value)
        return value if span is None else span[1]


@dataclass(frozen=True)
class PowersOfTwo(BucketRule):
    """Buckets that end at powers of two: 1, 2, 3 to 4, 5 to 8, 9 to 16 and so on; each is measured at its end."""

    low: int = 1  # the least value that is put into a bucket
    high: int = LARGEST  # the largest

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= LARGEST:
            message = f"pow2 from {self.low} to {self.high} is no range of 1 or more"
            raise SettingsError(message, hint="for example pow2:16..4096")

    @property
    def first(self) -> int:
        """The rule's lower limit."""
        return self.low

    def bucket(self, value: int) -> tuple[int, int] | None:
        """From above the next smaller power of two to the next larger one, within the rule's limits."""
        if not self.low <= value <= self.high:
            return None
        end = 1 << (value - 1).bit_length()
        return max(end // 2 + 1, self.low), min(end, self.high)


@dataclass(frozen=True)
class UpTo(BucketRule):
    """Buckets between rising ends, at which they are measured: `(64, 256)` is 1 to 64 and 65 to 256; none is above."""

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


@dataclass(frozen=True)
class Nearest(BucketRule):
    """Buckets around given points: a value belongs to the point to which its ratio is least; to the smaller of two."""

    points: tuple[int, ...]  # rising; each bucket is measured at its point
    cap: float = _CAP  # how many times smaller than the first point, or larger than the last, a value may be

    def __post_init__(self) -> None:
        _check_rising(self.points, "near")
        SettingsError.checked("the cap of a bucket", self.cap, 1, hint="for example @2")

    @property
    def first(self) -> int:
        """The least value whose ratio to the first point is within the cap."""
        return math.ceil(self.points[0] / self.cap)

    def bucket(self, value: int) -> tuple[int, int] | None:
        """The values that are nearer to the same point than to another one."""
        first, last = self.points[0], self.points[-1]
        # between two points buckets meet at the root of their product, where the ratios to both are equal
        lows = [math.ceil(first / self.cap), *(math.isqrt(one * other) + 1 for one, other in pairwise(self.points))]
        highs = [*(low - 1 for low in lows[1:]), min(math.floor(last * self.cap), LARGEST)]
        return next(((low, high) for low, high in zip(lows, highs, strict=True) if low <= value <= high), None)

    def representative(self, value: int) -> int:
        """The point in the bucket."""
        span = self.bucket(value)
        return value if span is None else next(point for point in self.points if span[0] <= point <= span[1])


def rule_of(text: str) -> BucketRule:
    """The rule that a text names: `pow2`, `pow2:16..4096`, `upto:64,256`, `near:16,64` or `near:16,64@1.5`."""
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


def _whole(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _check_rising(values: tuple[int, ...], kind: str) -> None:
    if not values or values[0] < 1 or values[-1] > LARGEST or any(a >= b for a, b in pairwise(values)):
        message = f"the values of {kind} are {', '.join(map(str, values)) or 'none'}; they must rise, from 1 or more"
        raise SettingsError(message, hint=f"for example {kind}:16,64,256")


@dataclass(frozen=True)
class Range:
    """The values that some extents, equal among themselves, may have; ValueError if there are none."""

    extents: tuple[str, ...]  # such as `M`, `a[0]` and `c[0]`
    low: Extent
    high: Extent

    def __post_init__(self) -> None:
        if not self.extents:
            raise ValueError("a range names no extent")
        if not 0 <= self.low <= self.high:
            raise ValueError(f"the range of {', '.join(self.extents)} is empty: {self.low} to {self.high}")

    def __str__(self) -> str:
        return f"{'='.join(self.extents)} from {self.low} to {self.high}"


ANY = {"any": True}  # stands in a key for an argument that makes no difference


@dataclass(frozen=True)
class Mapper:
    """The problems that share one key: arguments that make no difference, and extents in buckets.

    Each of the `buckets` is some extents, such as `M`, `a[0]` and `c[0]`, that have one value in every problem, and the
    rule for them.
    """

    buckets: tuple[tuple[tuple[str, ...], BucketRule], ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(cls, buckets: Mapping[str, str | BucketRule | None] | None = None, ignored: Iterable[str] = ()) -> Mapper:
        """The mapper in plain words: `{"M,a[0],c[0]": "pow2"}`, and names of arguments; else SettingsError."""
        rules = []
        if not isinstance(buckets, (Mapping, type(None))):
            raise SettingsError(f"the buckets are {buckets!r}, which names no extents", hint='write {"M": "pow2"}')
        for names, rule in (buckets or {}).items():
            if not isinstance(names, str):
                raise SettingsError(f"the bucket {names!r} is no name of an extent", hint='write {"M": "pow2"}')
            extents = tuple(name.strip() for name in names.split(","))
            if not all(extents) or rule is None or rule == "":
                raise SettingsError(f"the bucket {names!r} names no extent, or has no rule", hint="write M=pow2")
            if not isinstance(rule, (str, BucketRule)):
                raise SettingsError(
                    f"the rule of the bucket {names!r} is {rule!r}, which lacks `first`, `bucket` or `representative`",
                    hint="write M=pow2",
                )
            rules.append((extents, rule_of(rule) if isinstance(rule, str) else rule))
        all_names = [name for bucket, _ in rules for name in bucket]
        if twice := sorted({name for name in all_names if all_names.count(name) > 1}):
            raise SettingsError(f"{', '.join(twice)} is in two buckets", hint="keep one of the two")
        return cls(tuple(rules), tuple(ignored))

    def check(self, parameters: Collection[str]) -> None:
        """Raise UnknownTunableError unless every name is one of a kernel's arguments, or an axis of one."""
        extents = [name for bucket, _ in self.buckets for name in bucket]
        strange = [name for name in (*extents, *self.ignored) if name.partition("[")[0] not in parameters]
        if strange:
            message = f"{', '.join(strange)} is no argument of the kernel; it has {', '.join(parameters)}"
            raise UnknownTunableError(message, hint="name an argument, such as M, or an axis of one, such as a[0]")

    def ranges(self, problem: Mapping[str, Any]) -> tuple[Range, ...]:
        """The ranges around a problem, one for each bucket that holds its value.

        A bucket whose extents are missing, or not equal, makes no range: the problem then keeps its own values.
        """
        extents, ranges = Mapper.extents_of(problem), []
        for bucket, rule in self.buckets:
            values = {extents.get(name) for name in bucket}
            value = values.pop() if len(values) == 1 else None
            span = None if value is None else rule.bucket(value)
            if span is not None:
                ranges.append(Range(bucket, *span))
        return tuple(ranges)

    def keyed(self, problem: Mapping[str, Any]) -> dict[str, Any]:
        """The problem as it stands in a key: ranges in place of extents in buckets, and nothing of what is ignored.

        Problems share a key exactly if all that is neither ignored nor in a bucket is equal, and the buckets are.
        """
        spans = {name: [each.low, each.high] for each in self.ranges(problem) for name in each.extents}
        extents = {name: span if "[" in name else {"range": span} for name, span in spans.items()}
        return {
            name: ANY if name in self.ignored else _with_extents(name, argument, extents)
            for name, argument in problem.items()
        }

    @staticmethod
    def extents_of(problem: Mapping[str, Any]) -> dict[str, int]:
        """Every extent of a problem by its name; booleans are none."""
        extents: dict[str, int] = {}
        for name, argument in problem.items():
            if isinstance(argument, Mapping):
                extents.update({f"{name}[{axis}]": extent for axis, extent in enumerate(argument.get("shape", ()))})
            elif isinstance(argument, int) and not isinstance(argument, bool) and ":" not in name:
                extents[name] = argument
        return extents

    @staticmethod
    def rest_of(problem: Mapping[str, Any], free: Collection[str]) -> dict[str, Any]:
        """The problem without the extents named in `free`.

        Each such extent becomes null. The strides of a tensor with such an axis follow from its extents, so only their
        kind remains: 0, 1, or null for any other.
        """
        extents = dict.fromkeys(free)
        return {name: _with_extents(name, argument, extents) for name, argument in problem.items()}

    @staticmethod
    def unkeyed(problem: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Range, ...], tuple[str, ...]]:
        """The content of a mapper's key: a problem with the end of each range, the ranges, and the ignored arguments.

        A problem that no mapper has changed is itself, without ranges.
        """
        ranges: list[Range] = []
        plain: dict[str, Any] = {}
        for name, argument in problem.items():
            if isinstance(argument, Mapping) and "range" in argument:
                ranges.append(Range((name,), *argument["range"]))
                plain[name] = argument["range"][1]
            elif isinstance(argument, Mapping) and "shape" in argument:
                extents = enumerate(argument["shape"])
                spans = {axis: extent for axis, extent in extents if isinstance(extent, (list, tuple))}
                ranges += [Range((f"{name}[{axis}]",), *span) for axis, span in spans.items()]
                shape = [spans[axis][1] if axis in spans else extent for axis, extent in enumerate(argument["shape"])]
                plain[name] = {**argument, "shape": shape}
            else:
                plain[name] = argument
        return plain, tuple(ranges), tuple(name for name, argument in problem.items() if argument == ANY)


def _with_extents(name: str, argument: Any, extents: Mapping[str, Any]) -> Any:
    if not isinstance(argument, Mapping):
        return extents.get(name, argument)
    axes = [f"{name}[{axis}]" for axis in range(len(argument.get("shape", ())))]
    if not any(axis in extents for axis in axes):
        return argument
    shape = [extents.get(axis, extent) for axis, extent in zip(axes, argument["shape"], strict=True)]
    strides = argument.get("stride", ())
    return {**argument, "shape": shape, "stride": [step if step in (0, 1) else None for step in strides]}
