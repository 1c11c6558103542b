"""`CorrectnessVerifier`: whether results are right, element by element or by the rule for verdicts.

The rule is that of tuning: the reference is asked on inputs of higher precision too, and its own error is the
yardstick. It suits low precision, where correct results differ from each other by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triton_ops.backend import Arguments
from triton_ops.base import require
from triton_ops.benchmark.judging import judged_call
from triton_ops.exceptions import KernelTypeError, SettingsError

_SMALL = 1e-10  # added to what errors are divided by


class CorrectnessVerifier:
    """Compares results of a kernel with those of a reference.

    Args:
        rtol: Relative error that an element may have, 0 or more.
        atol: Error that an element may have whatever its size, 0 or more.

    Raises:
        SettingsError: A tolerance is no number, negative or not finite.
    """

    def __init__(self, rtol: float = 1e-3, atol: float = 1e-5) -> None:
        self.rtol, self.atol = _tolerance("rtol", rtol), _tolerance("atol", atol)

    def verify(self, actual: Any, expected: Any) -> tuple[bool, dict[str, Any]]:
        """Check that each element is within `atol + rtol * |expected|`, and return figures.

        NaN equals NaN and infinity itself; a tensor of another shape is wrong in every element.

        Args:
            actual: A tensor.
            expected: A tensor; it may be on another device and of another dtype.

        Returns:
            Whether it is right, and `is_correct`, `max_abs_diff`, `mean_abs_diff`, `max_rel_diff`, `mean_rel_diff`,
            `num_violations`, `total_elements`, `rtol` and `atol`. An error beside NaN or infinity is infinite.

        Raises:
            KernelTypeError: One of them is no tensor.

        Cost: three float64 tensors of that size, complex128 for complex numbers, and one host sync.
        """
        check_tensors(actual=actual, expected=expected)
        if tuple(actual.shape) != tuple(expected.shape):
            return False, self._details(False, [math.inf] * 4, actual.numel(), actual.numel())
        torch = require("torch", "checking results")
        result, right = _widened(actual, expected)
        near = torch.isclose(result, right, self.rtol, self.atol, equal_nan=True)
        wrong = int((~near).sum())
        absolute, relative = _errors(result, right)
        figures = [f(errors) for errors in (absolute, relative) for f in (_largest, _mean)]
        return wrong == 0, self._details(wrong == 0, figures, wrong, actual.numel())

    def verify_allclose(self, actual: Any, expected: Any) -> bool:
        """Tell whether `verify` finds it right."""
        return self.verify(actual, expected)[0]

    def compute_relative_error(self, actual: Any, expected: Any) -> float:
        """The largest error of an element relative to its expected size; infinite for another shape."""
        return float(self.verify(actual, expected)[1]["max_rel_diff"])

    def verify_by_rule(
        self,
        actual: Any,
        reference: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        outputs: Sequence[str] = (),
    ) -> tuple[bool, str]:
        """Judge a result by the rule for verdicts, as in a tune; say in words how it is wrong.

        Args:
            actual: What the kernel returned for these arguments.
            reference: Called with copies of the same arguments, and with floats of higher precision.
            args: Positional arguments.
            kwargs: Keyword arguments.
            outputs: Names of the arguments that the kernel writes, whose values `actual` are; empty where it returns
                its result.

        Raises:
            SettingsError: The reference is not callable, or `args` is no sequence of arguments.
            TargetError: The reference gives another result each time, or none that can be compared.

        Cost: copies of the arguments, and two or three calls of the reference; one more where torch may compute
        products of float32 in TF32, whose error is then a yardstick too.
        """
        if not callable(reference):
            raise SettingsError(f"reference is {reference!r}; it must be a function")
        if not isinstance(args, (tuple, list)):
            raise SettingsError(f"args is a {type(args).__name__}; it must be a tuple of arguments", hint="args=(x,)")
        arguments = Arguments(tuple(args), dict(kwargs or {}))
        _, fault = judged_call(lambda *_, **__: actual, reference, arguments, outputs)
        return not fault, fault

    def _details(self, right: bool, figures: Sequence[float], wrong: int, total: int) -> dict[str, Any]:
        names = ("max_abs_diff", "mean_abs_diff", "max_rel_diff", "mean_rel_diff")
        figures_by_name = dict(zip(names, figures, strict=True))
        counts = {"num_violations": wrong, "total_elements": total}
        return {"is_correct": right, **figures_by_name, **counts, "rtol": self.rtol, "atol": self.atol}


def verify_fp8_accuracy(
    fp8_result: Any, fp16_baseline: Any, max_relative_error: float = 0.01
) -> tuple[bool, dict[str, Any]]:
    """Check that a result of 8-bit floats is near to one of wider floats.

    The error is by root mean square, relative to that of the baseline: single elements near 0 err by any factor where
    large ones cancel out. E4M3 has 3 bits of fraction, so that each factor errs by about 2.6 %, and products of
    independent values by 3.7 %: the default, 1 %, holds for values that E4M3 has, and for few others.

    Args:
        fp8_result: The result.
        fp16_baseline: The result to compare with, of the same shape.
        max_relative_error: The most that is right.

    Returns:
        Whether it is right, and `is_within_tolerance`, `relative_error`, `max_relative_error`, `mean_relative_error`,
        `max_abs_diff`, `mean_abs_diff` and `tolerance`; the largest and mean relative errors are of single elements.

    Raises:
        KernelTypeError: A result is no tensor.
        SettingsError: `max_relative_error` is no number, negative or not finite.
    """
    check_tensors(fp8_result=fp8_result, fp16_baseline=fp16_baseline)
    _tolerance("max_relative_error", max_relative_error)
    if tuple(fp8_result.shape) != tuple(fp16_baseline.shape):
        figures = [math.inf] * 5
    else:
        result, right = _widened(fp8_result, fp16_baseline)
        absolute, relative = _errors(result, right)
        size = math.sqrt(_mean(right.abs().square()))
        error = math.sqrt(_mean(absolute.square()))
        own = error / size if size else (0.0 if error == 0 else math.inf)
        figures = [own, _largest(relative), _mean(relative), _largest(absolute), _mean(absolute)]
    right_enough = figures[0] <= max_relative_error
    names = ("relative_error", "max_relative_error", "mean_relative_error", "max_abs_diff", "mean_abs_diff")
    details = {"is_within_tolerance": right_enough, **dict(zip(names, figures, strict=True))}
    return right_enough, {**details, "tolerance": max_relative_error}


def verify_nan_inf_propagation(output: Any, input_has_nan: bool, input_has_inf: bool) -> tuple[bool, dict[str, bool]]:
    """Check that NaN in the input left NaN in the output, and infinity left infinity or NaN.

    Returns:
        Whether both did, and `is_correct`, `input_has_nan`, `input_has_inf`, `output_has_nan`, `output_has_inf`,
        `nan_propagated` and `inf_propagated`.

    Raises:
        KernelTypeError: `output` is no tensor.
    """
    check_tensors(output=output)
    wide, _ = _widened(output, output)  # torch asks 8-bit floats nothing
    has_nan, has_inf = bool(wide.isnan().any()), bool(wide.isinf().any())
    nan_kept, inf_kept = has_nan or not input_has_nan, has_nan or has_inf or not input_has_inf
    details = {
        "is_correct": nan_kept and inf_kept, "input_has_nan": input_has_nan, "input_has_inf": input_has_inf,
        "output_has_nan": has_nan, "output_has_inf": has_inf, "nan_propagated": nan_kept, "inf_propagated": inf_kept,
    }  # fmt: skip
    return nan_kept and inf_kept, details


def _tolerance(name: str, value: Any) -> float:
    return float(SettingsError.checked(name, value, 0))


def check_tensors(**results: Any) -> None:
    """Raise a `KernelTypeError` unless all are tensors with values that can be read in order."""
    for name, result in results.items():
        if not Arguments.is_tensor(result):
            raise KernelTypeError(f"{name} is a {type(result).__name__}, not a torch.Tensor")
        if result.device.type == "meta" or result.is_nested or not str(result.layout).endswith("strided"):
            kind = "nested" if result.is_nested else str(result.layout).removeprefix("torch.")
            message = f"{name} is a {kind} tensor on {result.device}; its elements cannot be compared"
            raise KernelTypeError(message, hint="pass a dense tensor that has memory")


def _widened(actual: Any, expected: Any) -> tuple[Any, Any]:
    """Both on the device of the first, in double precision; as complex numbers if one has them."""
    torch = require("torch", "checking results")
    wide = torch.complex128 if actual.is_complex() or expected.is_complex() else torch.float64
    return actual.detach().to(wide), expected.detach().to(actual.device, wide)


def _errors(result: Any, right: Any) -> tuple[Any, Any]:
    """Absolute and relative errors; 0 where both are the same NaN or infinity, infinite where only one is."""
    torch = require("torch", "checking results")
    same = (result == right) | (result.isnan() & right.isnan())
    absolute = torch.where(same, 0.0, (result - right).abs().nan_to_num(nan=math.inf, posinf=math.inf))
    relative = (absolute / (right.abs() + _SMALL)).nan_to_num(nan=math.inf, posinf=math.inf)
    return absolute, torch.where(same, 0.0, relative)


def _largest(values: Any) -> float:
    return float(values.max()) if values.numel() else 0.0


def _mean(values: Any) -> float:
    return float(values.mean()) if values.numel() else 0.0
