"""The distance that a result may have from the expected one, and the comparison that a caller gives instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, cast

from triton_ops.base import excerpt
from triton_ops.exceptions import KernelTypeError, SettingsError


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """The distance that a right result may have from the expected one.

    With `relative` or `absolute`, each element may differ by `absolute + relative * (|e| + RMS)`, where e is the
    expected element and RMS the root mean square of the expected result. Without them the rule holds, with its limits
    multiplied by `times`.

    Attributes:
        relative: Largest relative error of an element, 0 or more; 0 alone asks for the reference's own bits. None
            keeps the rule.
        absolute: Largest error of an element that is allowed whatever its size, 0 or more, in the result's own unit.
        times: Factor of the rule's limits, more than 0: 3 suits gradients, whose errors add up over two kernels.
        bitwise: Whether equal launches must give equal bits. None asks it of compiled kernels without atomics.

    Raises:
        SettingsError: A number is out of its range, or both a limit for elements and `times` are given.
    """

    relative: float | None = None
    absolute: float = 0.0
    times: float = 1.0
    bitwise: bool | None = None

    def __post_init__(self) -> None:
        for name, least in (("relative", 0), ("absolute", 0), ("times", None)):
            if (value := getattr(self, name)) is None and name == "relative":
                continue
            hint = "leave it out for the rule; 0.02 allows 2 %"
            number = float(SettingsError.checked(f"the tolerance's {name}", value, least, hint=hint))
            object.__setattr__(self, name, abs(number))  # plain, whatever library it is from, for keys and run logs
        if self.bitwise is not None and not _is_bool(self.bitwise):
            message = f"the tolerance's bitwise is {excerpt(self.bitwise)}; it must be True, False or None"
            raise SettingsError(message, hint="leave it out for the rule, which asks it of kernels without atomics")
        object.__setattr__(self, "bitwise", None if self.bitwise is None else bool(self.bitwise))
        if self.by_element and self.times != 1:
            message = "a tolerance was given a limit for elements and `times`, which multiplies the limits of the rule"
            raise SettingsError(message, hint="give one of both: Tolerance(relative=0.02) or Tolerance(times=3)")

    @property
    def by_element(self) -> bool:
        """True if elements are compared one by one, instead of by the rule."""
        return self.relative is not None or self.absolute > 0

    @property
    def content(self) -> dict[str, Any]:
        """The values that differ from the default, as plain values; empty for the default."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in values if value != field.default}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.content.items())

    @staticmethod
    def of(tolerance: Any) -> Tolerance:
        """The tolerance that a caller gave: None is the rule, a number a relative error of elements."""
        if tolerance is None:
            return Tolerance()
        if isinstance(tolerance, Tolerance):
            return tolerance
        if isinstance(tolerance, Real) and not _is_bool(tolerance):
            return Tolerance(relative=cast(float, tolerance))
        message = f"tolerance is {excerpt(tolerance)}; it must be a number or a Tolerance"
        raise SettingsError(message, hint="for example tolerance=0.02")


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")  # NumPy's, in its two names


_CALLABLE = {
    "check": "give check(result, expected), which returns True or False",
    "reference": "give a function that returns the right result for the same arguments",
}


def as_callable(what: str, function: Any) -> Callable[..., Any] | None:
    """The caller's own `check` or `reference`, or None; KernelTypeError if it is not callable."""
    if function is None or callable(function):
        return function  # type: ignore[no-any-return]
    raise KernelTypeError(f"{what} is {excerpt(function)}, which is not callable", hint=_CALLABLE[what])
