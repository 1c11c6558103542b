"""Whether a candidate computes the right thing, found out before it is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Arguments, is_tensor
from triton_ops.exceptions import KernelTypeError

# Largest accepted error of an element, relative to its own size plus the result's root mean square: a few roundings of
# the dtype for 16 bits and below; for float32 the inputs' rounding to TF32 (2^-11), which Triton's dot uses by default.
TOLERANCE = {
    "float64": 1e-9, "float32": 4e-3, "float16": 4e-3, "bfloat16": 2e-2, "float8_e4m3fn": 0.13, "float8_e5m2": 0.26,
}  # fmt: skip


class Verifier:
    """Compares a candidate's result with the right one.

    Args:
        expected: The right result: a tensor, a number, or a sequence of these.
        outputs: Names of the arguments that the kernel writes; empty if it returns its result.
        arguments: The private arguments that candidates run on.
    """

    def __init__(self, expected: Any, outputs: Sequence[str], arguments: Arguments) -> None:
        self._expected = _as_list(expected)
        self._written = [arguments.keyword[name] for name in outputs]
        if self._written and len(self._written) != len(self._expected):
            raise KernelTypeError(
                f"the reference returns {len(self._expected)} results, the kernel writes {len(self._written)}: "
                f"{', '.join(outputs)}",
                hint="let the reference return the outputs in this order",
            )

    def wrong(self, call: Callable[[], Any]) -> str | None:
        """Run `call` once; None if its result is right, else how it differs.

        Outputs are filled with NaN before, so that what is not written cannot pass.

        Raises:
            Exception: Whatever the call raises.
        """
        for tensor in self._written:
            poison(tensor)
        result = call()
        found = self._written or _as_list(result)
        if len(found) != len(self._expected):
            return f"returns {len(found)} results instead of {len(self._expected)}"
        differences = (_difference(a, b) for a, b in zip(found, self._expected, strict=True))
        return next((difference for difference in differences if difference), None)


def reference_result(reference: Callable[..., Any], arguments: Arguments) -> Any:
    """The reference's result on these arguments, by name where they have names."""
    return reference(*arguments.positional, **arguments.keyword)


def poison(tensor: Any) -> None:
    """Fill with NaN, or with the largest value of an integer type."""
    torch = require("torch", "checking results")
    if tensor.dtype.is_floating_point:
        tensor.fill_(math.nan)
    elif tensor.dtype is not torch.bool:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


def _as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _difference(found: Any, expected: Any) -> str | None:
    if is_tensor(found) and is_tensor(expected):
        return _tensor_difference(found, expected)
    if isinstance(found, (int, float)) and isinstance(expected, (int, float)):
        same = math.isclose(found, expected, rel_tol=TOLERANCE["float32"]) or (found != found and expected != expected)
        return None if same else f"{found} instead of {expected}"
    if isinstance(found, Mapping) and isinstance(expected, Mapping) and set(found) == set(expected):
        return next((d for name in expected if (d := _difference(found[name], expected[name]))), None)
    if type(found) is type(expected) and hasattr(found, "shape"):  # NumPy arrays
        torch = require("torch", "checking results")
        return _tensor_difference(torch.as_tensor(found), torch.as_tensor(expected))
    return None if type(found) is type(expected) else f"a {type(found).__name__}, not a {type(expected).__name__}"


def _tensor_difference(found: Any, expected: Any) -> str | None:
    if found.shape != expected.shape:
        return f"shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    if found.numel() == 0:
        return None
    torch = require("torch", "checking results")
    tolerance = TOLERANCE.get(str(found.dtype).removeprefix("torch."), 0.0)
    wide = torch.float64 if found.dtype is torch.float64 else torch.float32
    a, b = found.to(wide), expected.to(wide)
    finite = torch.isfinite(b)
    scale = b.abs() + torch.where(finite, b, 0).square().mean().sqrt()
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    error = torch.where(same, 0, (a - b).abs() / scale)
    bad = ~(error <= tolerance)  # NaN and infinity are bad too
    if not bool(bad.any()):
        return None
    worst = float(torch.nan_to_num(error, nan=math.inf, posinf=math.inf).max())
    share = float(bad.float().mean())
    return f"{share:.2%} of the elements differ, the worst by {worst:.3g} relative; allowed is {tolerance:g}"
