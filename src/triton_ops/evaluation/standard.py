"""The standard that results are held to: the expected results, and the rule, tolerance or check that compares them.

Many configs of a kernel add up in the same order, so that their results are equal bit for bit. To compare bits reads
each element twice; to judge it takes ten times that, in float64.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.backend import Arguments, ArgumentSet
from triton_ops.base import require
from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import (
    Check,
    Criteria,
    as_list,
    difference,
    expected,
    is_exact,
    kept,
    leaf_pairs,
    refusal,
    try_check,
    uncompared,
)
from triton_ops.evaluation.golden import Answers, Referee
from triton_ops.evaluation.judges import Difference, Precision, same_bits_of
from triton_ops.values import Tolerance

_MOST = 3  # orders of adding up that are common in one space
_KINDS = ("cpu", "cuda")  # of devices whose free memory is told
_MEMORY_SHARE = 1 / 64  # of the free memory: a copy that takes more is not kept


class RightResults:
    """The last results of one case that were judged and are right. Only results that are all tensors are kept."""

    def __init__(self) -> None:
        self._copies: deque[list[Any]] = deque(maxlen=_MOST)

    def hold(self, results: Sequence[Any]) -> bool:
        """True if some results have the bits of kept ones."""
        if not all(Arguments.is_tensor(each) for each in results):
            return False
        for place, right in enumerate(self._copies):
            if len(right) == len(results) and all(map(same_bits_of, results, right)):
                del self._copies[place]
                self._copies.appendleft(right)
                return True
        return False

    def keep(self, results: Sequence[Any]) -> None:
        """Keep a copy of results that are right, in place of those that were met least lately."""
        if all(Arguments.is_tensor(each) and each.device.type in _KINDS for each in results) and _fit(results):
            self._copies.appendleft([kept(each) for each in results])


def _fit(results: Sequence[Any]) -> bool:
    counts: Counter[str] = Counter()
    for each in results:
        counts[str(each.device)] += each.numel() * each.element_size()
    return all(count <= _MEMORY_SHARE * TorchDevice(device).free_bytes for device, count in counts.items())


@dataclass(frozen=True, kw_only=True)
class Standard:
    """The rule by which results are compared with the expected ones, or the caller's `check` in its place."""

    precision: Precision = field(default_factory=Precision)
    tolerance: Tolerance = field(default_factory=Tolerance)
    check: Check | None = None

    @property
    def by_rule(self) -> bool:
        """True where the rule holds, and not a caller's limit for elements or a check."""
        return self.check is None and not self.tolerance.by_element

    @property
    def words(self) -> str:
        """The replacement of the rule, to be read after what results are compared with; empty for the rule."""
        if self.check is not None:
            return f", by the check `{getattr(self.check, '__name__', type(self.check).__name__)}`"
        return f", within tolerance: {self.tolerance}" if self.tolerance.content else ""


class ExpectedResults:
    """The expected results of one case, as the reference or a trusted config answers.

    `outputs` are the tensors that take the results, empty for results that are returned. `cut` gives the golden results
    for inputs cut to TF32; it is called once, and only for a config that computes in TF32. With `whole` the inputs are
    whole numbers, so that results may have to be equal. `opaque` names types in the results that define no equality, so
    that values of them are not compared, and `empty` says that nothing can be compared.

    A `TargetError` says that the caller's check does not accept the expected results themselves.
    """

    def __init__(
        self,
        standard: Standard,
        answers: Answers,
        outputs: Sequence[Any] = (),
        *,
        cut: Callable[[], list[Any] | None] = lambda: None,
        whole: bool = False,
    ) -> None:
        self._standard, self._answers, self._cut = standard, answers, cut
        self._whole = whole and standard.by_rule
        self._dtypes = [tensor.dtype if Arguments.is_tensor(tensor) else None for tensor in outputs] or [None] * len(
            answers.low
        )
        self._by_tf32: dict[bool, list[Any]] = {}
        self._right = {cuts: RightResults() for cuts in (False, True)}
        opaque, some = ([], True) if standard.check is not None else uncompared(answers.low)
        self.opaque, self.empty = tuple(opaque), not some
        if standard.check is not None:
            try_check(standard.check, answers.low)

    as_list = staticmethod(as_list)

    @property
    def exact(self) -> bool:
        """True if the expected results are whole numbers that every right config meets bit for bit."""
        return is_exact(self._answers.low, self._answers.golden)

    @property
    def count(self) -> int:
        """The number of results."""
        return len(self._dtypes)

    def prepare(self, tf32: bool) -> None:
        """Compute what results are compared with, while the arguments of the case are as at first."""
        answers, tf32 = self._answers, self._cuts(tf32)
        if self._standard.check is not None or tf32 in self._by_tf32:
            return
        criteria = Criteria(
            precision=replace(answers.precision, tf32=tf32), tolerance=self._standard.tolerance, exact=self._whole
        )
        none = [None] * len(answers.low)
        others = zip((self._cut() if tf32 else None) or none, answers.disturbed or none, strict=True)
        self._by_tf32[tf32] = [
            expected(low, golden, dtype, criteria, [each for each in peers if Arguments.is_tensor(each)])
            for low, golden, dtype, peers in zip(answers.low, answers.golden, self._dtypes, others, strict=True)
        ]
        if not self._cuts(True):  # nothing more is made from them, and they may be large
            self._answers = replace(answers, low=none, golden=none, disturbed=[])

    def _cuts(self, tf32: bool) -> bool:
        """True if a config that computes in TF32 is judged by a yardstick of its own."""
        return tf32 and "float32" in self._answers.precision.inputs and self._standard.by_rule and not self._whole

    def difference(self, results: Sequence[Any], tf32: bool) -> Difference | None:
        """The difference between results and the expected ones; None if there is none."""
        if len(results) != len(self._dtypes):
            return Difference(f"returns {len(results)} results instead of {len(self._dtypes)}")
        if self._standard.check is not None:
            return refusal(self._standard.check, results, self._answers.low)
        cuts = self._cuts(tf32)
        if self._right[cuts].hold(results):
            return None
        pairs = zip(results, self._by_tf32[cuts], strict=True)
        first = next((d for a, b in pairs if (d := difference(a, b)) is not None), None)
        if first is None:
            self._right[cuts].keep(results)
        return first


class ReferenceResults:
    """The results of a reference for some arguments, by which others are judged as in a tune.

    `outputs` names the arguments that a kernel writes, empty where it returns its results. `why_own` says why there is
    no golden result in higher precision; empty where there is one. Raises as `Referee.answers`, and a `TargetError`
    for results that cannot be compared.

    Cost: two or three calls of the reference; copies of the outputs, and, if `protected`, of the inputs, which are
    restored after a reference that writes them.
    """

    as_list = staticmethod(as_list)
    kept = staticmethod(kept)

    def __init__(
        self,
        reference: Callable[..., Any],
        arguments: Arguments,
        outputs: Sequence[str] = (),
        *,
        tolerance: Tolerance | None = None,
        protected: bool = True,
    ) -> None:
        inputs = ArgumentSet(arguments, outputs, protected=protected)
        extents = [extent for tensor in inputs.arguments.tensors() for extent in tensor.shape]
        precision = Precision(inputs=tuple(inputs.input_dtypes), reduction=max([1, *extents]))
        referee = Referee(reference, outputs)
        answers = referee.answers(inputs, precision)
        self.why_own = referee.why_own
        self._tf32 = bool(require("torch", "checking results").get_float32_matmul_precision() != "highest")
        self._golden = [low if it is None else it for low, it in zip(answers.low, answers.golden, strict=True)]
        self._expected = ExpectedResults(
            Standard(precision=precision, tolerance=tolerance or Tolerance()), answers, inputs.outputs,
            cut=lambda: referee.cut_to_tf32(inputs),
        )  # fmt: skip
        self._expected.prepare(self._tf32)

    def fault(self, results: Sequence[Any]) -> str:
        """The error of results in words; empty if they are right."""
        difference = self._expected.difference(results, self._tf32)
        return "" if difference is None else difference.text

    def error(self, results: Sequence[Any]) -> float | None:
        """The largest error of a tensor, relative to the largest golden value in it; None where none is floating."""
        errors = [_relative(a, b) for a, b in leaf_pairs(list(results), self._golden) if _floats(a, b)]
        return max(errors, default=None)


def _floats(result: Any, golden: Any) -> bool:
    both = Arguments.is_tensor(result) and Arguments.is_tensor(golden) and result.shape == golden.shape
    return both and bool(golden.dtype.is_floating_point and golden.numel())


def _relative(result: Any, golden: Any) -> float:
    torch = require("torch", "checking results")
    size = float(torch.nan_to_num(golden.double()).abs().max())
    error = float(torch.nan_to_num(result.double() - golden.double()).abs().max())
    return error / size if size else error


def own_answers(results: Sequence[Any], precision: Precision) -> Answers:
    """Results of a trusted config, in place of a reference's; there is no golden result, so that f is doubled."""
    low = [kept(each) for each in results]
    return Answers(low=low, golden=[None] * len(low), precision=replace(precision, blur=2.0))
