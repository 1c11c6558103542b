"""Check of a compiled model's results against those of the model as it is: the rule for verdicts, on whole models.

The golden results are those of the model as it is, with its weights and inputs in higher precision. The yardstick is
the error of the model as it is in its own precision.

Some gradients are zero, as that of a bias whose sum a normalisation takes off again: what any way to compute them gives
is rounding alone, and has no digit in common with what another gives. Of these the size is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from triton_ops.backend import Arguments, is_tensor
from triton_ops.base import require
from triton_ops.compile_modes.step import ModelRunner
from triton_ops.compile_modes.workload import ModelWorkload
from triton_ops.evaluation import (
    Answers,
    ArgumentSet,
    Difference,
    ExpectedResults,
    Precision,
    Referee,
    Standard,
    leaf_pairs,
)
from triton_ops.exceptions import TargetError
from triton_ops.values import Tolerance

_VANISHED = 1e-4  # of the model's own gradient: what a gradient that is zero may be in float64
_LOUDER = 16.0  # times the model's own rounding


class Verification:
    """Expected results of each call of a workload.

    Args:
        workload: The model and its calls.
        step: Calls the model as it is.
        tolerance: How far results may be off.

    Attributes:
        notes: Why there is no golden result, or no check at all; empty if there is nothing to say.

    Raises:
        Exception: Whatever the model raises.

    Cost: for each call two calls of the model, one of them in higher precision with copies of the weights.
    """

    def __init__(self, workload: ModelWorkload, step: ModelRunner, tolerance: Tolerance) -> None:
        self.notes: list[str] = []
        self._tf32 = _tf32_allowed()
        self._noise: list[dict[str, float]] = []
        self._expectations = [self._expected(workload, step, call, tolerance) for call in workload.calls]
        self.notes = list(dict.fromkeys(self.notes))

    def difference(self, number: int, results: Sequence[Any]) -> Difference | None:
        """The fault of the results of call `number`; None if they are right, or cannot be checked."""
        expected, noise = self._expectations[number], self._noise[number]
        if expected is None:
            return None
        return _louder(results, noise) or expected[0].difference(_without(results, noise), self._tf32)

    def error(self, number: int, results: Sequence[Any]) -> float | None:
        """The largest difference from the golden results, relative to their largest value; None if not known."""
        expected = self._expectations[number]
        if expected is None:
            return None
        pairs = leaf_pairs(list(results), expected[1])
        errors = [error for a, b in pairs if (error := _relative(a, b)) is not None]
        return max(errors, default=None)

    def _expected(
        self, workload: ModelWorkload, step: ModelRunner, call: Arguments, tolerance: Tolerance
    ) -> tuple[ExpectedResults, list[Any]] | None:
        state = {**workload.parameters, **workload.buffers}
        arguments = ArgumentSet(Arguments((state, *call.positional), call.keyword), protected=False)
        precision = _precision(arguments)
        noise = _noise(step, arguments.arguments)
        self._noise.append(noise)
        if noise:
            names = f"gradients that are zero but for rounding, of {', '.join(noise)}"
            self.notes.append(f"{names}: only their size is checked")
        referee = Referee(lambda *args, **kwargs: _without(step.reference(*args, **kwargs), noise))
        try:
            answers: Answers = referee.answers(arguments, precision)
            results = ExpectedResults(
                Standard(precision=precision, tolerance=tolerance), answers, cut=lambda: referee.cut_to_tf32(arguments)
            )
        except TargetError as error:
            self.notes.append(f"results are not checked: {error.message}")
            return None
        if referee.why_own:
            self.notes.append(f"there is no golden result in higher precision: {referee.why_own}")
        golden = [low if better is None else better for low, better in zip(answers.low, answers.golden, strict=True)]
        results.prepare(self._tf32)
        return results, golden


def _noise(step: ModelRunner, arguments: Arguments) -> dict[str, float]:
    """By name the size of the model's own gradients that are zero but for rounding: in float64 they nearly vanish."""
    if not step.training:
        return {}
    low = step.reference(*arguments.positional, **arguments.keyword)[1]
    wide = arguments.map(_widened)
    try:
        golden = step.reference(*wide.positional, **wide.keyword)[1]
    except Exception:  # noqa: BLE001 - a model may refuse float64 by any error, and is then judged without
        return {}
    sizes = {name: (_size(each), _size(golden.get(name))) for name, each in low.items()}
    return {name: own for name, (own, true) in sizes.items() if own and true is not None and true < _VANISHED * own}


def _widened(tensor: Any) -> Any:
    wide = tensor.detach().double() if tensor.is_floating_point() else tensor
    return wide.requires_grad_(tensor.requires_grad)


def _size(tensor: Any) -> float | None:
    """The root mean square of a gradient; None of none."""
    return float(tensor.detach().double().square().mean().sqrt()) if is_tensor(tensor) and tensor.numel() else None


def _louder(results: Sequence[Any], noise: Mapping[str, float]) -> Difference | None:
    """The first gradient that should be rounding alone, and is more than that."""
    for name, own in noise.items():
        size = _size(results[1].get(name))
        if size is None or not size <= _LOUDER * own:
            return Difference(f"the gradient of {name} is zero but for rounding, {own:.2g}; here it is {size}")
    return None


def _without(results: Sequence[Any], names: Collection[str]) -> list[Any]:
    """Results without some of the gradients."""
    output, gradients, *rest = results
    return [output, {name: each for name, each in gradients.items() if name not in names}, *rest]


def _precision(arguments: ArgumentSet) -> Precision:
    tensors = [tensor for tensor in arguments.arguments.tensors() if tensor.dtype.is_floating_point]
    names = dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
    longest = max([1, *(extent for tensor in tensors for extent in tensor.shape)])
    return Precision(inputs=tuple(names), reduction=longest)


def _relative(result: Any, golden: Any) -> float | None:
    if not (is_tensor(result) and is_tensor(golden) and golden.dtype.is_floating_point and golden.numel()):
        return None
    torch = require("torch", "checking results")
    if result.shape != golden.shape:
        return None
    size = float(torch.nan_to_num(golden.double()).abs().max())
    error = float(torch.nan_to_num(result.double() - golden.double()).abs().max())
    return error / size if size else error


def _tf32_allowed() -> bool:
    torch = require("torch", "checking results")
    return bool(torch.get_float32_matmul_precision() != "highest")
