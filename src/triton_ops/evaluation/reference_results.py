"""The results of a reference: judges of others without a kernel, and themselves in doubt where many configs agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from triton_ops.backend import Arguments, ArgumentSet
from triton_ops.evaluation.expected import (
    Check,
    ExpectedResults,
    Standard,
    difference,
    expected,
    kept,
    leaf_pairs,
)
from triton_ops.evaluation.golden import Referee
from triton_ops.evaluation.judges import Difference, Precision
from triton_ops.evaluation.numbers import dense, is_floating, is_numbers, library_of, quietly, wide
from triton_ops.evaluation.raised_precision import RaisedPrecision
from triton_ops.space import Config
from triton_ops.values import Tolerance, Trial

_TERMS = 1 << 12  # that are added up for an element of results of which nobody knows how many they are
_ROW_BLUR = math.sqrt(2)  # other code may round once more on its way, as torch's softmax of columns does (2.13)


class ReferenceResults:
    """The results of a reference for some arguments, by which others are judged as in a tune.

    `outputs` names the arguments that a kernel writes, empty where it returns its results. `used` is the precision of
    the golden result, and `why_own` says why there is none; either is empty. Raises as `Referee.answers`, and a
    `TargetError` for results that cannot be compared.

    Cost: two or three calls of the reference, and one more where products of float32 may be computed in TF32; copies
    of the outputs, and, if `protected`, of the inputs, which are restored after a reference that writes them.
    """

    used = why_own = ""
    dissent: Dissent

    def __init__(
        self, reference: Callable[..., object], arguments: Arguments, outputs: Sequence[str] = (), *,
        tolerance: Tolerance | None = None, check: Check | None = None, protected: bool = True,
    ) -> None:  # fmt: skip
        inputs = ArgumentSet(arguments, outputs, protected=protected)
        precision = Precision(
            inputs=tuple(inputs.input_dtypes), reduction=max([1, *inputs.extents]), row_blur=_ROW_BLUR)  # fmt: skip
        referee = Referee(reference, outputs)
        answers = referee.answers(inputs, precision, check)
        self.used, self.why_own = referee.used, referee.why_own
        self._tf32 = RaisedPrecision.may_be_tf32(arguments, convolves=referee.convolves)
        self._golden = [low if it is None else it for low, it in zip(answers.low, answers.golden, strict=True)]
        self._expected = ExpectedResults(
            Standard(precision=precision, tolerance=tolerance or Tolerance(), check=check), answers, inputs.outputs,
            cut=partial(referee.cut, inputs),
        )  # fmt: skip
        self._expected.prepare(self._tf32)

    @classmethod
    def of_own(
        cls, results: Sequence[object], dtypes: Iterable[str], tolerance: object, check: Check | None = None
    ) -> ReferenceResults:
        """Results of something whose kernels take tensors of these dtypes, as it is."""
        precision = Precision(inputs=tuple(dtypes), reduction=_TERMS, row_blur=_ROW_BLUR)
        standard = Standard(precision=precision, tolerance=Tolerance.of(tolerance), check=check)
        own = cls.__new__(cls)
        own._expected, own._tf32 = ExpectedResults.of_own(standard, results), False
        own._expected.prepare(own._tf32)
        own.dissent = Dissent(precision)
        return own

    @property
    def empty(self) -> bool:
        """True if nothing in the results can be compared."""
        return self._expected.empty

    @property
    def uncompared(self) -> str:
        """The part of the results that is not compared, in words, since an object may hold anything; empty if none."""
        if opaque := self._expected.opaque:
            return f"a result of type {', '.join(opaque)} cannot be compared"
        return "nothing in the results can be compared" if self.empty else ""

    def fault(self, results: Sequence[object], tf32: bool | None = False, config: Config | None = None) -> str:
        """The error of results in words, which may have been computed in TF32; empty if they are right.

        Those of a `config` are counted in `dissent`, which results that are a contestant's own have.
        """
        difference = self.difference(results, tf32)
        if config is not None and difference is not None:
            self.dissent.differs(config, results, difference)
        elif config is not None:
            self.dissent.agrees(config)
        return "" if difference is None else difference.text

    def difference(self, results: Sequence[object], tf32: bool | None = False) -> Difference | None:
        """The error of results, which may have been computed in TF32; None if they are right."""
        tf32 = self._tf32 or bool(tf32)
        self._expected.prepare(tf32)
        return self._expected.difference(results, tf32)

    def error(self, results: Sequence[object]) -> float | None:
        """The largest error of a result, relative to the largest golden value in it; None where none is floating."""
        errors: list[float] = []
        for result, golden in leaf_pairs(list(results), self._golden):
            numbers = is_numbers(result) and is_numbers(golden) and result.shape == golden.shape
            if numbers and is_floating(golden) and math.prod(golden.shape):
                with quietly():
                    right, clean = wide(dense(golden)), library_of(golden).nan_to_num
                    size, error = (float(abs(clean(each)).max()) for each in (right, wide(dense(result)) - right))
                errors.append(error / size if size else error)
        return max(errors, default=None)


_FEWEST = 2  # that agree with one another, before what they are compared with is doubted


class Dissent:
    """Counts configs whose results are right, and those that agree and are wrong, of an excess up to `most`."""

    def __init__(self, precision: Precision, most: float = math.inf) -> None:
        self._manner = Standard(precision=replace(precision, blur=2.0))
        self._agree: set[Config] = set()
        self._against: set[Config] = set()
        self._ran: set[Config] = set()
        self._most, self._excess = most, 0.0
        self._other: Any = None

    def agrees(self, config: Config) -> None:
        """A config's results are right."""
        self._agree.add(config)
        self._ran.add(config)

    def differs(self, config: Config, results: Sequence[object], error: Difference) -> None:
        """A config's results are wrong."""
        self._ran.add(config)
        if error.excess > self._most:
            return
        self._excess = max(self._excess, error.excess)
        if self._other is None:
            self._other = expected([kept(each) for each in results], None, None, self._manner)
            self._against.add(config)
        elif difference(list(results), self._other) is None:
            self._against.add(config)

    def of_default(self, default: Config | None) -> str:
        """A remark if more configs agree against the default than with it; empty otherwise."""
        if len(self._against) < _FEWEST or len(self._against) <= len(self._agree):
            return ""
        return (
            f"{len(self._against)} of {len(self._ran)} configs agree with one another and differ from ({default}), "
            "which is therefore probably wrong: give a reference, and tune again"
        )

    def of_reference(self) -> str:
        """A remark if all configs agree with one another, and none is wrong by more than the most; else empty.

        A fault of a kernel is larger at most tiles, and another one at each.
        """
        if len(self._against) < _FEWEST or self._against != self._ran:
            return ""
        little = "by little, " if self._excess <= Trial.LITTLE else ""
        return (
            f"the reference is the suspect: all {len(self._ran)} configs that ran agree with one another and differ "
            f"from it {little}at most by {self._excess:.2g} times what is allowed; let it compute in float32 or wider, "
            "and round once at the end"
        )
