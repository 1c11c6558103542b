"""The key under which a winner is kept: its problem, in clear, or in the buckets that it shares with others.

Two things are no part of the key, and stand in the record: the config space, since a winner remains the fastest of the
configs that were tried, and the clock with which measuring ended, since that is a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypedDict

from triton_ops.base import Extent, Frozen, Host, Nested, Plain, cached_property, fingerprint
from triton_ops.exceptions import KernelTypeError
from triton_ops.values.tensors import TensorSpec

if TYPE_CHECKING:
    from triton_ops.device import DeviceSpec

_LONGEST = 60  # characters of an argument in a label


@dataclass(frozen=True)
class Problem:
    """A kernel's name, and the arguments that decide which config is best.

    Attributes:
        kernel: The kernel family, such as `matmul` or `package.module:function`.
        arguments: Name to tensor spec or scalar, in calling order.
        label: Short text for people, such as `4096x4096x4096 bfloat16`; not part of the identity.
    """

    kernel: str
    arguments: tuple[tuple[str, TensorSpec | Plain], ...] = ()
    label: str = field(default="", compare=False)

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    @classmethod
    def described(cls, kernel: str, arguments: tuple[tuple[str, TensorSpec | Plain], ...]) -> Problem:
        """The problem of a call, whose label has the first arguments, the beginning of a long list or text."""
        whole = [(str(argument), isinstance(argument, TensorSpec)) for _, argument in arguments if argument is not None]
        texts = [text if spec or len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text, spec in whole]
        return cls(kernel, arguments, ", ".join(texts[:4]) + (", …" if len(texts) > 4 else ""))

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """The tensor arguments."""
        return {name: argument for name, argument in self.arguments if isinstance(argument, TensorSpec)}

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digits that are equal for problems of equal content."""
        return fingerprint([self.kernel, [[name, Problem.plain(argument)] for name, argument in self.arguments]])

    def __str__(self) -> str:
        return f"{self.kernel} {self.label}".rstrip()

    @staticmethod
    def plain(argument: TensorSpec | Plain) -> Any:
        """An argument of a problem as a value that JSON can hold."""
        if (name := type(argument).__name__) in ("dtype", "constexpr"):  # of torch or Triton
            return f"{name} {argument}"
        if isinstance(argument, TensorSpec):
            shape, stride = list(argument.shape), list(argument.strides)
            return {"shape": shape, "dtype": argument.dtype, "stride": stride, "aligned": argument.aligned}
        for kind in (bool, int, float, str):  # bool is an int, and NumPy's double precision number is a float
            if isinstance(argument, kind):
                argument = kind(argument)
                break
        if isinstance(argument, float) and not math.isfinite(argument):
            return {"float": repr(argument)}  # JSON has no infinity, but a mask value is often one
        return argument

    @staticmethod
    def from_plain(value: Any) -> TensorSpec | Plain:
        """The argument that `plain` has made `value` of, with open strides row-major; KernelTypeError for a range."""
        if not isinstance(value, Mapping):
            return value  # type: ignore[no-any-return]
        if "float" in value:
            return float(value["float"])
        if not {"shape", "dtype", "stride"} <= value.keys():
            hint = "call the kernel with its arguments"
            raise KernelTypeError(f"no argument can be made from {dict(value)}", hint=hint)
        stride = None if None in value["stride"] else tuple(value["stride"])
        return TensorSpec(tuple(value["shape"]), value["dtype"], stride, aligned=value.get("aligned", True))


# Of two. As `tuple[Extent, Extent]`, numbers with bounds in a tuple of fixed length within a union, it ends the decoder
# of msgspec 0.22.0 with SIGSEGV; an issue of msgspec was looked for in vain.
Span: TypeAlias = list[Extent]


class TensorFacts(TypedDict, total=False):
    """A tensor argument; or with `float` alone, a number that JSON does not have.

    Where a bucket stands for several problems, an extent is the least and the largest of them, and a stride other than
    0 and 1 is null. Then `range` alone is a whole number in a bucket, and `any` alone an argument of no account.
    """

    shape: list[Extent | Span]
    dtype: str
    stride: list[int | None]
    aligned: bool
    float: str
    range: Span
    any: bool


Argument: TypeAlias = TensorFacts | bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Key:
    """Kernel, problem, device and cache state for which a winner holds."""

    UNKNOWN: ClassVar[str] = "unknown"
    FORM: ClassVar[str] = "form "  # begins the name of a part of the identity that one form of a kernel has

    kernel: str
    problem: Mapping[str, Argument]  # argument name to scalar, or to `{shape, dtype, stride, aligned}`
    identity: Mapping[str, str]
    device: Mapping[str, Plain]  # kind, name, architecture, units and driver; for a CPU the number of `threads` as well
    cache_state: str  # `cold` or `warm`, as was asked for when a launch starts
    held_to: Mapping[str, Nested] = field(default_factory=dict)  # tolerance and check of the caller's, not the rule's
    label: str = ""  # for people; not part of the identity

    def __post_init__(self) -> None:
        Frozen.fields(self, "problem", "identity", "device", "held_to")

    @classmethod
    def of(
        cls, problem: Problem, identity: Mapping[str, str], device: DeviceSpec, *, cold: bool = True,
        held_to: Mapping[str, Any] | None = None,
    ) -> Key:  # fmt: skip
        """The key of a problem on a device."""
        return cls(
            kernel=problem.kernel, problem={name: Problem.plain(argument) for name, argument in problem.arguments},
            identity=identity, device=cls.facts_of(device), cache_state="cold" if cold else "warm",
            held_to=held_to or {}, label=problem.label,
        )  # fmt: skip

    @staticmethod
    def facts_of(device: DeviceSpec) -> dict[str, Any]:
        """The facts of a device in a key: kind, name, architecture, units and driver; of a CPU the threads as well."""
        facts = {name: getattr(device, name) for name in ("kind", "name", "arch", "units", "driver")}
        return {**facts, "threads": Host.cpu_threads()} if device.is_cpu else facts

    @cached_property
    def id(self) -> str:
        """32 hexadecimal digits: the fingerprint of this key's content."""
        return fingerprint(self._content())

    @property
    def unknown(self) -> str | None:
        """The part of the kernel or its arguments that cannot be told from others, and why; None if there is none.

        A key with such a part is never looked up.
        """
        values = (*self.problem.values(), self.held_to.get("check"))
        reasons = (value for value in values if isinstance(value, str) and value.startswith(f"{self.UNKNOWN}: "))
        return self.identity.get(self.UNKNOWN) or next(reasons, None)

    @property
    def bits(self) -> str:
        """The class of bits that is asked for, or the config that has it as text; empty if none is."""
        return str(self.held_to.get("same_bits_as", ""))

    @classmethod
    def source_of(cls, identity: Mapping[str, str]) -> dict[str, str]:
        """The parts of an identity that are the kernel's, and no version: its source, its grid and further forms."""
        names = ("source", "grid", *(name for name in identity if name.startswith(cls.FORM)))
        return {name: identity[name] for name in names if name in identity}

    @classmethod
    def changes_since(cls, then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
        """The parts of an earlier identity's source that are others now.

        A form that is missing now, as where the installed Triton cannot run it, says nothing of the others.
        """
        parts = cls.source_of(then).items()
        return [name for name, text in parts if now.get(name, text if name.startswith(cls.FORM) else None) != text]

    @property
    def unknown_note(self) -> str:
        """The reason why the winner of a key with an unknown part is not remembered."""
        why = "since the kernel or its arguments cannot be told from others"
        return f"the winner is not remembered, {why}: {self.unknown}"

    @property
    def interpreted(self) -> bool:
        """True if the kernel runs as Python, as under `TRITON_INTERPRET=1`."""
        return "interpreted" in self.identity

    def differences(self, other: Key) -> list[str]:
        """Every field in which `other` differs, as `field: this | other`; empty if they are the same key."""
        mine, theirs = _flatten(self._content()), _flatten(other._content())
        return [
            f"{name}: {mine.get(name, '(absent)')} | {theirs.get(name, '(absent)')}"
            for name in sorted({*mine, *theirs})
            if mine.get(name) != theirs.get(name)
        ]

    def _content(self) -> dict[str, Any]:
        content = {
            "kernel": self.kernel, "problem": dict(self.problem), "identity": dict(self.identity),
            "device": dict(self.device), "cache_state": self.cache_state,
        }  # fmt: skip
        # Only where it is asked for, so that keys of the rule are those of records from before there was a choice.
        return {**content, "held_to": dict(self.held_to)} if self.held_to else content


def _flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
