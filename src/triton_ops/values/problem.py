"""A problem: a kernel's name, and the arguments that decide which of its configs is best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from triton_ops.base import fingerprint
from triton_ops.exceptions import KernelTypeError
from triton_ops.values.tensors import TensorSpec

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True)
class Problem:
    """A kernel's name, and the arguments that decide which config is best.

    Attributes:
        kernel: The kernel family, such as `matmul` or `package.module:function`.
        arguments: Name to tensor spec or scalar, in calling order.
        label: Short text for people, such as `4096x4096x4096 bfloat16`; not part of the identity.
    """

    kernel: str
    arguments: tuple[tuple[str, TensorSpec | Scalar], ...] = ()
    label: str = field(default="", compare=False)

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """The tensor arguments."""
        return {name: argument for name, argument in self.arguments if isinstance(argument, TensorSpec)}

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digits that are equal for problems of equal content."""
        return fingerprint([self.kernel, [[name, plain(argument)] for name, argument in self.arguments]])

    def __str__(self) -> str:
        return f"{self.kernel} {self.label}".rstrip()


def plain(argument: TensorSpec | Scalar) -> Any:
    """An argument of a problem as a value that JSON can hold."""
    if isinstance(argument, TensorSpec):
        spec = argument
        return {"shape": list(spec.shape), "dtype": spec.dtype, "stride": list(spec.strides), "aligned": spec.aligned}
    for kind in (bool, int, float, str):  # bool is an int, and NumPy's double precision number is a float
        if isinstance(argument, kind):
            argument = kind(argument)
            break
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": repr(argument)}  # JSON has no infinity, but a mask value is often one
    return argument


def from_plain(value: Any) -> TensorSpec | Scalar:
    """The argument that `plain` has turned into `value`, with open strides row-major; KernelTypeError for a range."""
    if not isinstance(value, Mapping):
        return value  # type: ignore[no-any-return]
    if "float" in value:
        return float(value["float"])
    if not {"shape", "dtype", "stride"} <= value.keys():
        raise KernelTypeError(f"no argument can be made from {dict(value)}", hint="call the kernel with its arguments")
    stride = None if None in value["stride"] else tuple(value["stride"])
    return TensorSpec(tuple(value["shape"]), value["dtype"], stride, aligned=value.get("aligned", True))
