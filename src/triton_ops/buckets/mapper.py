"""The mapping from a problem to the key that it shares with others, used by the tuner and by the launcher alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_ops.buckets.extents import extents_of
from triton_ops.buckets.rules import Rule, rule_of
from triton_ops.buckets.validity import Range
from triton_ops.exceptions import SettingsError, UnknownTunableError

ANY = {"any": True}  # stands in a key for an argument that makes no difference


@dataclass(frozen=True)
class Bucket:
    """A rule for some extents that have one value in every problem.

    Attributes:
        extents: Their names, such as `M`, `a[0]` and `c[0]`.
        rule: The rule.
    """

    extents: tuple[str, ...]
    rule: Rule

    def __str__(self) -> str:
        return f"{','.join(self.extents)}={self.rule}"


@dataclass(frozen=True)
class Mapper:
    """Which problems share one key: arguments that make no difference, and extents in buckets.

    Attributes:
        buckets: The extents that are put into buckets, each with its rule.
        ignored: Arguments that make no difference.
    """

    buckets: tuple[Bucket, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(cls, buckets: Mapping[str, str | Rule | None] | None = None, ignored: Iterable[str] = ()) -> Mapper:
        """The mapper in plain words: `{"M,a[0],c[0]": "pow2"}`, and names of arguments.

        Raises:
            SettingsError: An extent without a rule or with two, or what is given is no mapping from names to rules.
        """
        made = []
        if not isinstance(buckets, (Mapping, type(None))):
            raise SettingsError(f"the buckets are {buckets!r}, which names no extents", hint='write {"M": "pow2"}')
        for names, rule in (buckets or {}).items():
            if not isinstance(names, str):
                raise SettingsError(f"the bucket {names!r} is no name of an extent", hint='write {"M": "pow2"}')
            extents = tuple(name.strip() for name in names.split(","))
            if not all(extents) or rule is None or rule == "":
                raise SettingsError(f"the bucket {names!r} names no extent, or has no rule", hint="write M=pow2")
            if not isinstance(rule, (str, Rule)):
                raise SettingsError(
                    f"the rule of the bucket {names!r} is {rule!r}, which lacks `first`, `bucket` or `representative`",
                    hint="write M=pow2",
                )
            made.append(Bucket(extents, rule_of(rule) if isinstance(rule, str) else rule))
        named = [name for bucket in made for name in bucket.extents]
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise SettingsError(f"{', '.join(twice)} is in two buckets", hint="keep one of the two")
        return cls(tuple(made), tuple(ignored))

    def check(self, parameters: Collection[str]) -> None:
        """Raise unless every name is one of a kernel's arguments, or an axis of one.

        Raises:
            UnknownTunableError: A name is none.
        """
        named = [name for bucket in self.buckets for name in bucket.extents]
        strange = [name for name in (*named, *self.ignored) if name.partition("[")[0] not in parameters]
        if strange:
            raise UnknownTunableError(
                f"{', '.join(strange)} is no argument of the kernel; it has {', '.join(parameters)}",
                hint="name an argument, such as M, or an axis of one, such as a[0]",
            )

    def ranges(self, problem: Mapping[str, Any]) -> tuple[Range, ...]:
        """The ranges around a problem, one for each bucket that holds its value.

        A bucket whose extents are missing, or not equal, makes no range: the problem then keeps its own values.
        """
        extents, found = extents_of(problem), []
        for bucket in self.buckets:
            values = {extents.get(name) for name in bucket.extents}
            value = values.pop() if len(values) == 1 else None
            span = None if value is None else bucket.rule.bucket(value)
            if span is not None:
                found.append(Range(bucket.extents, *span))
        return tuple(found)

    def keyed(self, problem: Mapping[str, Any]) -> dict[str, Any]:
        """The problem as it stands in a key: ranges in place of extents in buckets, and nothing of what is ignored.

        Problems share a key exactly if all that is neither ignored nor in a bucket is equal, and the buckets are.
        """
        spans = {name: [each.low, each.high] for each in self.ranges(problem) for name in each.extents}
        return {name: ANY if name in self.ignored else _keyed(name, given, spans) for name, given in problem.items()}

    def __str__(self) -> str:
        ignored = [f"without {', '.join(self.ignored)}"] if self.ignored else []
        return "; ".join([*map(str, self.buckets), *ignored]) or "every argument as it is"


def unkeyed(problem: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Range, ...], tuple[str, ...]]:
    """What a key of a mapper says: a problem with the end of each range, the ranges, and the ignored arguments.

    A problem that no mapper has changed is itself, without ranges.
    """
    ranges: list[Range] = []
    plain: dict[str, Any] = {}
    for name, given in problem.items():
        if isinstance(given, Mapping) and "range" in given:
            ranges.append(Range((name,), *given["range"]))
            plain[name] = given["range"][1]
        elif isinstance(given, Mapping) and "shape" in given:
            spans = {axis: extent for axis, extent in enumerate(given["shape"]) if isinstance(extent, (list, tuple))}
            ranges += [Range((f"{name}[{axis}]",), *span) for axis, span in spans.items()]
            shape = [spans[axis][1] if axis in spans else extent for axis, extent in enumerate(given["shape"])]
            plain[name] = {**given, "shape": shape}
        else:
            plain[name] = given
    return plain, tuple(ranges), tuple(name for name, given in problem.items() if given == ANY)


def _keyed(name: str, given: Any, spans: Mapping[str, list[int]]) -> Any:
    if not isinstance(given, Mapping):
        return {"range": spans[name]} if name in spans else given
    shape = [spans.get(f"{name}[{axis}]", extent) for axis, extent in enumerate(given.get("shape", ()))]
    if not any(isinstance(extent, list) for extent in shape):
        return given
    return {**given, "shape": shape, "stride": [step if step in (0, 1) else None for step in given["stride"]]}
