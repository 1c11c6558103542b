"""Expected results of any kind: tensors, arrays, numbers, texts and containers of them, and how a result differs.

A tensor's shape, dtype and device must be the expected ones, and its values are judged by the rule, by a caller's
tolerance, or exactly. Of other objects the type must be the same, and the value where the type defines equality.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from triton_ops._optional import require
from triton_ops.backend import is_tensor
from triton_ops.evaluation.criteria import Difference, Precision
from triton_ops.evaluation.judges import ByElement, Equal, Rounded
from triton_ops.tolerance import Tolerance

_CODES = ("int8", "uint8")
_EXACT_INTEGERS = 2.0**24  # float32 holds every whole number up to here


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How values are judged.

    Attributes:
        precision: In what precision results are computed.
        tolerance: The caller's tolerance, or the default one.
        exact: Whether floats must be equal too, since the problem has whole numbers only.
    """

    precision: Precision = field(default_factory=Precision)
    tolerance: Tolerance = field(default_factory=Tolerance)
    exact: bool = False


class _Judge(Protocol):
    def difference(self, found: Any) -> Difference | None:
        """How a tensor of the right shape is wrong."""


@dataclass(frozen=True)
class ExpectedTensor:
    """What a tensor must be.

    Attributes:
        shape: Its extents.
        dtype: Its torch dtype.
        device: Its torch device; None for an array on the host.
        judge: Judges its values.
    """

    shape: tuple[int, ...]
    dtype: Any
    device: Any
    judge: _Judge

    def difference(self, found: Any) -> Difference | None:
        """How a tensor differs; None if it is as expected."""
        if tuple(found.shape) != self.shape:
            return Difference(f"shape {tuple(found.shape)} instead of {self.shape}")
        if found.dtype != self.dtype:
            return Difference(f"dtype {_name(found.dtype)} instead of {_name(self.dtype)}")
        if found.device != self.device:
            return Difference(f"on {found.device} instead of {self.device}")
        return self.judge.difference(_real(found))


@dataclass(frozen=True)
class _Array:
    """A NumPy array; one of numbers is judged as a tensor, any other by equality."""

    tensor: ExpectedTensor | None
    plain: Any


def expected(low: Any, golden: Any, dtype: Any, manner: Manner, peers: Sequence[Any] = ()) -> Any:
    """The expectation of one result.

    Args:
        low: The reference's own result, of the shape, device and, unless `dtype` is given, dtype that are expected.
        golden: Its result in higher precision, of the same structure; None if there is none.
        dtype: The dtype of the tensor that takes the result; None for a result that is returned.
        manner: How values are judged.
        peers: Further results whose errors are a yardstick, such as that for inputs cut to TF32.
    """
    if is_tensor(low):
        return _expected_tensor(low, golden, dtype or low.dtype, manner, peers)
    if isinstance(low, Mapping):
        return {name: expected(each, _at(golden, name), None, manner) for name, each in low.items()}
    if isinstance(low, (tuple, list)):
        return [expected(each, _at(golden, place), None, manner) for place, each in enumerate(low)]
    if hasattr(low, "shape") and hasattr(low, "astype"):
        return _expected_array(low, golden, manner)
    if isinstance(low, (float, complex)):
        return _expected_number(low, golden, manner)
    return low


def difference(found: Any, wanted: Any) -> Difference | None:
    """How a result differs from an expectation that `expected` made; None if it does not."""
    if isinstance(wanted, ExpectedTensor):
        return wanted.difference(found) if is_tensor(found) else _other_type(found, "tensor")
    if isinstance(wanted, _Array):
        return _between_arrays(found, wanted)
    if isinstance(wanted, _Number):
        return wanted.difference(found)
    if isinstance(wanted, dict):
        return _between_mappings(found, wanted)
    if isinstance(wanted, list):
        if not isinstance(found, (tuple, list)):
            return _other_type(found, "sequence")
        if len(found) != len(wanted):
            return Difference(f"{len(found)} items instead of {len(wanted)}")
        return next((d for a, b in zip(found, wanted, strict=True) if (d := difference(a, b))), None)
    return _between_objects(found, wanted)


def is_exact(low: Any, golden: Any) -> bool:
    """Whether a problem of whole numbers is exact: its golden float results are whole, and rounded once they are `low`.

    Problems with integer results are not: whole inputs lie on the ties of a quantiser more often than not.
    """
    pairs = list(_tensor_pairs(low, golden))
    return bool(pairs) and all(_whole(a, b) for a, b in pairs)


def _whole(low: Any, golden: Any) -> bool:
    torch = require("torch", "checking results")
    if not low.dtype.is_floating_point or tuple(low.shape) != tuple(golden.shape):
        return False
    wide = golden.double()
    if not bool((torch.isfinite(wide) & (wide == wide.round()) & (wide.abs() <= _EXACT_INTEGERS)).all()):
        return False
    return bool((golden.to(low.dtype).double() == low.double()).all())


def _tensor_pairs(low: Any, golden: Any) -> Any:
    if is_tensor(low):
        yield low, low if golden is None else golden
    elif isinstance(low, (tuple, list)):
        for place, each in enumerate(low):
            yield from _tensor_pairs(each, _at(golden, place))


def _expected_tensor(low: Any, golden: Any, dtype: Any, manner: Manner, peers: Sequence[Any]) -> ExpectedTensor:
    golden = golden if golden is not None and tuple(golden.shape) == tuple(low.shape) else None
    own = _real(low.to(dtype) if low.dtype != dtype else low)
    wide = None if golden is None else _real(golden)
    judge = _judge(own, wide, manner, [_real(peer) for peer in peers])
    return ExpectedTensor(tuple(low.shape), dtype, low.device, judge)


def _judge(own: Any, golden: Any, manner: Manner, peers: Sequence[Any]) -> _Judge:
    if not own.dtype.is_floating_point:
        both = [own] if golden is None else [own, golden.to(own.dtype)]
        floats = any("float" in dtype for dtype in manner.precision.inputs)
        return Equal([each.clone() for each in both], codes=floats and _name(own.dtype) in _CODES)
    if manner.exact:
        return Equal([own.clone() if golden is None else golden.to(own.dtype)])
    if manner.tolerance.by_element:
        return ByElement(golden, own.clone(), manner.tolerance)
    times = manner.tolerance.times
    if golden is None:
        return Rounded(own.clone(), (), own.dtype, precision=manner.precision, times=times)
    return Rounded(golden, [own, *peers], own.dtype, precision=manner.precision, times=times)


def _expected_array(low: Any, golden: Any, manner: Manner) -> _Array:
    own, wide = _as_tensor(low), None if golden is None else _as_tensor(golden)
    return _Array(None if own is None else _expected_tensor(own, wide, own.dtype, manner, ()), low.copy())


def _as_tensor(array: Any) -> Any:
    """A NumPy array as a tensor; None where torch has no such dtype."""
    torch = require("torch", "checking results")
    try:
        return torch.as_tensor(array.copy())
    except (TypeError, ValueError):
        return None


def _between_arrays(found: Any, wanted: _Array) -> Difference | None:
    if type(found) is not type(wanted.plain):
        return _other_type(found, type(wanted.plain).__name__)
    if found.dtype != wanted.plain.dtype:
        return Difference(f"dtype {found.dtype} instead of {wanted.plain.dtype}")
    if wanted.tensor is not None:
        return wanted.tensor.difference(_as_tensor(found))
    same = found.shape == wanted.plain.shape and bool((found == wanted.plain).all())
    return None if same else Difference("an array whose elements differ")


@dataclass(frozen=True)
class _Number:
    """A Python float or complex number, and how far a right one may be from it."""

    value: Any
    margin: float

    def difference(self, found: Any) -> Difference | None:
        if type(found) is not type(self.value):
            return _other_type(found, type(self.value).__name__)
        same = found == self.value or (found != found and self.value != self.value)
        if same or abs(found - self.value) <= self.margin:
            return None
        excess = abs(found - self.value) / self.margin if self.margin else math.inf
        return Difference(f"{found:.6g} instead of {self.value:.6g}", excess if excess == excess else math.inf)


def _expected_number(low: Any, golden: Any, manner: Manner) -> _Number:
    """A number, expected as near as results of the inputs' dtypes are; as near as a double's for other inputs."""
    value = golden if isinstance(golden, (float, complex)) else low
    tolerance = manner.tolerance
    if tolerance.by_element:
        return _Number(low, tolerance.absolute + 2 * (tolerance.relative or 0.0) * abs(low))
    margin = 2 * abs(low - value) + 4 * manner.precision.rounding("float64") * abs(value)
    return _Number(type(low)(value), tolerance.times * margin if math.isfinite(margin) else 0.0)


def _between_mappings(found: Any, wanted: Mapping[Any, Any]) -> Difference | None:
    if not isinstance(found, Mapping):
        return _other_type(found, "mapping")
    if set(found) != set(wanted):
        return Difference(f"the keys {', '.join(map(str, found))} instead of {', '.join(map(str, wanted))}")
    return next((d for name in wanted if (d := difference(found[name], wanted[name]))), None)


def _between_objects(found: Any, wanted: Any) -> Difference | None:
    if type(found) is not type(wanted):
        return _other_type(found, type(wanted).__name__)
    if getattr(type(wanted), "__eq__", None) is object.__eq__:  # equal only to itself: nothing more can be told
        return None
    try:
        same = bool(found == wanted)
    except Exception:  # noqa: BLE001 - equality that gives no answer, as between objects that hold arrays
        return None
    return None if same else Difference(f"{_shown(found)} instead of {_shown(wanted)}")


def _other_type(found: Any, wanted: str) -> Difference:
    return Difference(f"a {type(found).__name__} instead of a {wanted}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _at(container: Any, key: Any) -> Any:
    try:
        return None if container is None else container[key]
    except (KeyError, IndexError, TypeError):
        return None


def _real(tensor: Any) -> Any:
    """A complex tensor as its real and imaginary parts."""
    return require("torch", "checking results").view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
