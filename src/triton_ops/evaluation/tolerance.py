"""The difference between two results, and how large it may be if both are right.

The error of an element is relative to the element's size plus the root mean square of the result, because a sum of many
terms that cancels to nearly nothing still has the rounding errors of its terms.

    allowed = max over the output and its inputs of 16 bits or more of BASE[dtype]  +  4 · u · √K

BASE is the effect of rounding to a dtype, of intermediate values as well: 8 units of 2^-11 for float16, and for
float32, whose products Triton's dot computes in TF32; 5 units of 2^-8 for bfloat16; 2 units for 8 bits, because only
results are rounded to 8 bits. K is the length of the reduction behind an element, and u the rounding unit of its
accumulator. The root of K stands there because rounding errors of many terms have both signs, and 4 because the worst
of millions of elements counts. u is 2^-24, that of float32, and 2^-13 for float8 inputs, since Hopper's tensor cores
keep about 14 bits of their products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import is_tensor
from triton_ops.trial import Problem, Work

BASE = {
    "float64": 2.0**-30, "float32": 2.0**-8, "float16": 2.0**-8, "bfloat16": 5 * 2.0**-8,
    "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2, "float8_e4m3fnuz": 2.0**-3, "float8_e5m2fnuz": 2.0**-2,
}  # fmt: skip
_NARROW = tuple(dtype for dtype in BASE if dtype.startswith("float8"))
_ACCUMULATOR = {"float64": 2.0**-53, **dict.fromkeys(_NARROW, 2.0**-13)}
_FLOAT32 = 2.0**-24


def tolerance(output: str, inputs: Iterable[str] = (), reduction: int = 1) -> float:
    """The largest error that an element of a right result may have; 0 for integers.

    Args:
        output: Dtype of the result.
        inputs: Dtypes of the inputs.
        reduction: How many terms are added up for one element.
    """
    if output not in BASE:
        return 0.0
    given = list(inputs)
    base = max([BASE[output], *(BASE[dtype] for dtype in given if dtype in BASE and dtype not in _NARROW)])
    rounding = max([_ACCUMULATOR.get(dtype, _FLOAT32) for dtype in given] or [_FLOAT32])
    return base + 4 * rounding * math.sqrt(reduction)


def reduction_length(problem: Problem, outputs: Iterable[str], work: Work | None) -> int:
    """The largest number of terms that are added up for one element of the result.

    The number follows from the operations where they are known, two for each term. Else it is the longest axis of an
    input, or the number of an input's elements if the result is one number.
    """
    names = set(outputs)
    results = sum(spec.numel for name, spec in problem.specs.items() if name in names)
    inputs = [spec for name, spec in problem.specs.items() if name not in names]
    if work is not None and work.flops and results:
        return max(1, round(work.flops / (2 * results)))
    if results == 1:
        return max([1, *(spec.numel for spec in inputs)])
    return max([1, *(extent for spec in inputs for extent in spec.shape)])


def difference(found: Any, expected: Any, inputs: Iterable[str] = (), reduction: int = 1) -> str | None:
    """How `found` differs from `expected` beyond the tolerance; None if it does not.

    Tensors, arrays, numbers, and mappings, lists and tuples of them are compared by value; of other objects only the
    types are compared.
    """
    if is_tensor(found) and is_tensor(expected):
        return _between_tensors(found, expected, inputs, reduction)
    if isinstance(found, (int, float)) and isinstance(expected, (int, float)):
        same = math.isclose(found, expected, rel_tol=BASE["float32"]) or (found != found and expected != expected)
        return None if same else f"{found} instead of {expected}"
    if isinstance(found, Mapping) and isinstance(expected, Mapping) and set(found) == set(expected):
        parts = (difference(found[name], expected[name], inputs, reduction) for name in expected)
        return next((part for part in parts if part), None)
    if isinstance(found, (tuple, list)) and isinstance(expected, (tuple, list)) and len(found) == len(expected):
        parts = (difference(a, b, inputs, reduction) for a, b in zip(found, expected, strict=True))
        return next((part for part in parts if part), None)
    if type(found) is type(expected) and hasattr(found, "shape"):  # NumPy arrays
        torch = require("torch", "checking results")
        return _between_tensors(torch.as_tensor(found), torch.as_tensor(expected), inputs, reduction)
    return None if type(found) is type(expected) else f"a {type(found).__name__}, not a {type(expected).__name__}"


def _between_tensors(found: Any, expected: Any, inputs: Iterable[str], reduction: int) -> str | None:
    if found.shape != expected.shape:
        return f"shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    if found.numel() == 0:
        return None
    torch = require("torch", "checking results")
    if found.is_complex() and expected.is_complex():
        found, expected = torch.view_as_real(found), torch.view_as_real(expected)
    if not found.is_floating_point() and not expected.is_floating_point():
        wrong = float((found != expected).float().mean())
        largest = float((found.double() - expected.double()).abs().max())
        return f"{wrong:.2%} of the elements differ, the worst by {largest:g}; none may" if wrong else None
    allowed = tolerance(str(found.dtype).removeprefix("torch."), inputs, reduction)
    wide = torch.float64 if found.dtype is torch.float64 else torch.float32
    a, b = found.to(wide), expected.to(wide)
    finite = torch.isfinite(b)
    scale = b.abs() + torch.where(finite, b, 0).square().mean().sqrt()
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    error = torch.where(same, 0, (a - b).abs() / scale)
    bad = ~(error <= allowed)  # NaN and infinity are bad too
    if not bool(bad.any()):
        return None
    worst = float(torch.nan_to_num(error, nan=math.inf, posinf=math.inf).max())
    share = float(bad.float().mean())
    return f"{share:.2%} of the elements differ, the worst by {worst:.3g} relative; allowed is {allowed:.2g}"
