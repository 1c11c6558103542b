"""The arguments of a recorded problem as a compiler sees them: dtypes, alignment, and classes of integers.

A key has either every argument (shapes, strides, numbers), or, as those of decorated kernels, the dtype of a tensor and
under `NAME:class` what the compiler specialises on. Both are enough to compile, and neither needs a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from triton_ops.backend import Arguments, StandIn
from triton_ops.exceptions import KernelTypeError
from triton_ops.values import ITEM_BYTES, Range, TensorSpec, contiguous_stride, from_plain

_CLASS = ":class"
_STEP = 16  # Triton specialises integers on being 1, or a multiple of this
_WIDE = 1 << 40  # a multiple of 16 that needs 64 bits
_INTEGERS = {"1": 1, "a multiple of 16": _STEP, "no multiple of 16": _STEP + 1}
_OTHERS: dict[str, Any] = {"float": 0.5, "bool": True, "NoneType": None}


def stand_ins(problem: Mapping[str, Any]) -> Arguments:
    """The arguments of a problem by name, with stand-ins for tensors; what is ignored is left out.

    Raises:
        KernelTypeError: An argument cannot be made.
    """
    classes = {name.removesuffix(_CLASS): text for name, text in problem.items() if name.endswith(_CLASS)}
    plain = {name: value for name, value in problem.items() if not name.endswith(_CLASS) and value != {"any": True}}
    arguments = {name: _argument(value, classes.get(name)) for name, value in plain.items()}
    arguments.update({name: _of_class(name, text) for name, text in classes.items() if name not in plain})
    return Arguments(keyword=arguments)


def specialised(problem: Mapping[str, Any], ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
    """The problem with one value of each kind that its ranges hold: 1, a multiple of 16, and another number.

    Kernels are compiled anew for these kinds, so that together the problems stand for all in the ranges.
    """
    for values in product(*map(_kinds, ranges)):
        extents = {name: value for each, value in zip(ranges, values, strict=True) for name in each.extents}
        yield with_extents(problem, extents)


def with_extents(problem: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """The problem with other values of some extents; the strides of a row-major tensor follow its shape."""
    return {name: _replace_extents(name, argument, values) for name, argument in problem.items()}


def _replace_extents(name: str, argument: Any, values: Mapping[str, int]) -> Any:
    if not isinstance(argument, Mapping) or "shape" not in argument:
        return values.get(name, argument)
    shape = [values.get(f"{name}[{axis}]", extent) for axis, extent in enumerate(argument["shape"])]
    if shape == list(argument["shape"]):
        return argument
    row_major = argument["stride"][-1:] == [1]
    return {**argument, "shape": shape, "stride": [*contiguous_stride(shape)] if row_major else argument["stride"]}


def kind_of(arguments: Arguments, exact: bool) -> tuple[Any, ...]:
    """Equal for arguments for which a kernel is compiled to the same code; with `exact` numbers count by value."""
    return tuple((name, _kind(value, exact)) for name, value in arguments.keyword.items())


def _argument(value: Any, kind: str | None) -> Any:
    if isinstance(value, str) and value.partition(" ")[0] in ITEM_BYTES and kind in ("aligned", "not aligned"):
        dtype, _, shape = value.partition(" ")
        extents = tuple(int(extent) for extent in shape.split("x")) if shape else (_STEP,)
        return StandIn.of(TensorSpec(extents, dtype, aligned=kind == "aligned"))
    if isinstance(value, str) and kind is None and value in _OTHERS:
        return _OTHERS[value]
    argument = from_plain(value)
    return StandIn.of(argument) if isinstance(argument, TensorSpec) else argument


def _of_class(name: str, text: Any) -> Any:
    """A value of a class, which is that of an integer, or a constant itself."""
    if not isinstance(text, str):
        return text
    narrow = text.removesuffix(" of 64 bits")
    if narrow in _INTEGERS:
        return _INTEGERS[narrow] + (_WIDE if narrow != text else 0)
    if text in ("aligned", "not aligned"):
        raise KernelTypeError(f"{name} is a tensor of no known dtype", hint="call the kernel with its arguments")
    return _OTHERS.get(text, text)


def _kinds(span: Range) -> list[int]:
    multiple = -(-span.low // _STEP) * _STEP or _STEP
    values = {span.low if span.low == 1 else None, multiple if multiple <= span.high else None}
    other = next((v for v in range(span.low, min(span.high, span.low + 2) + 1) if v > 1 and v % _STEP), None)
    return sorted(value for value in {*values, other} if value is not None) or [span.low]


def _kind(value: Any, exact: bool) -> Any:
    if isinstance(value, StandIn):
        return (
            value.dtype,
            value.offset_bytes,
            (value.shape, value.strides) if exact else value.storage_bytes >= 1 << 31,
        )
    if isinstance(value, int) and not isinstance(value, bool) and not exact:
        return "int", value == 1, value % _STEP == 0, -(1 << 31) <= value < 1 << 31
    return type(value).__name__, value if exact or not isinstance(value, float) else None
