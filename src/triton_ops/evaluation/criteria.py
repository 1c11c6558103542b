"""The rule for verdicts: whether a result is as near to the golden one as correct code of its precision would be.

The golden result g is the reference's on inputs of higher precision. The yardstick is the error of a peer r, the
reference in its own precision. A result c is right if all of these hold:

    shape, dtype, device, and NaN and infinities stand where those of g are, rounded to the dtype of c
    largest error   max|c−g|   ≤ 2 · max|r−g| + 2 units in the last place of max|g|     (4 · max|r−g| with 8-bit floats)
    mean error      RMS(c−g)   ≤ 1.5 · max(RMS(r−g), f · RMS(g))
    error by row    q          ≤ 2, and over 1.5 in at most 0.5 % of the rows

where q of a row is RMS(c−g) / max(RMS(r−g), f · RMS(g)) within that row, and f is what rounding costs:

    f = max(u / √3, slack, 4 · a · √K)        + 2^-13 · √K for inputs of 8 bits

Near 0 the numbers of a dtype are evenly spaced, and rounding costs their distance / √12 by RMS, however small g is: all
limits are at least what that makes of them. An infinity counts as the least number that rounds to it, so that a result
beside the largest number of its dtype may be either.

u is the rounding unit of the coarsest among the result and its inputs of 16 bits or more, a that of the accumulator, K
the number of terms that are added up. u / √3 is the RMS error of rounding at the lower end of a binade, so that correct
rounding stays well below it. Slack is for functions such as `exp` that hardware approximates. Hopper's tensor cores
keep about 14 bits of products of 8-bit floats. A row whose golden values nearly vanish is judged as if its RMS were a
sixteenth of the median row's. Of a result of n < 128 elements the limits of means are 1 + 3 / n times as large: the
peer's error over few elements is a matter of chance, as where all of a sum cancels out.

No element is compared with a low-precision reference: correct results differ from one another by rounding, and of
millions of elements the worst differ much. docs/concepts/verdicts.md says why the rule is this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from triton_ops.problem import Problem
from triton_ops.work import Work

UNITS = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3, "float8_e4m3fnuz": 2.0**-4, "float8_e5m2fnuz": 2.0**-3,
}  # fmt: skip
_DISTANCES = {
    "float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133,
    "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16, "float8_e4m3fnuz": 2.0**-10, "float8_e5m2fnuz": 2.0**-17,
}  # fmt: skip
_REAL_OF = {"complex64": "float32", "complex128": "float64"}
_NARROW = tuple(dtype for dtype in UNITS if dtype.startswith("float8"))
_TF32_UNIT = 2.0**-10  # tensor cores cut off what TF32's 10 bits do not hold, and do not round
_FLOAT64, _FLOAT32, _FLOAT8 = 2.0**-53, 2.0**-24, 2.0**-13  # rounding units of accumulators
LITTLE = 10.0
"""A result is wrong by little if its error is at most so many times what is allowed: faults are wrong by far more."""
_SLACK = {_FLOAT64: 2.0**-36, _FLOAT32: 2.0**-18}


@dataclass(frozen=True)
class Difference:
    """How a result is wrong.

    Attributes:
        text: For people, with the numbers.
        excess: The error divided by what is allowed; infinite where no tolerance applies, such as for another shape.
    """

    text: str
    excess: float = math.inf


@dataclass(frozen=True, kw_only=True)
class Precision:
    """In what precision results are computed.

    Attributes:
        inputs: Dtypes of the inputs, by their long names.
        reduction: How many terms are added up for an element.
        tf32: Whether products of float32 are computed in TF32.
        blur: Factor of f: 1 for a golden result; 2 where results are compared with one of their own precision, whose
            error is unknown; between for a golden result that was rounded to that precision.
    """

    inputs: tuple[str, ...] = ()
    reduction: int = 1
    tf32: bool = False
    blur: float = 1.0

    def rounding(self, output: str) -> float:
        """f: the relative error, by root mean square, that rounding may cost a result of dtype `output`."""
        used = [_REAL_OF.get(dtype, dtype) for dtype in (output, *self.inputs)]
        known = [dtype for dtype in used if dtype in UNITS]
        accumulator = _FLOAT64 if all(dtype == "float64" for dtype in known) else _FLOAT32
        terms = [self.unit(output) / math.sqrt(3), _SLACK[accumulator], 4 * accumulator * math.sqrt(self.reduction)]
        eight = _FLOAT8 * math.sqrt(self.reduction) if any(dtype in _NARROW for dtype in known[1:]) else 0.0
        return self.blur * (max(terms) + eight)

    def unit(self, output: str) -> float:
        """u: the coarsest rounding unit of the result and its inputs of 16 bits or more."""
        output, *inputs = (_REAL_OF.get(dtype, dtype) for dtype in (output, *self.inputs))
        units = [UNITS[dtype] for dtype in inputs if dtype in UNITS and dtype not in _NARROW]
        if self.tf32 and "float32" in inputs:
            units.append(_TF32_UNIT)
        return max([UNITS.get(output, 0.0), *units])

    def distance(self, output: str) -> float:
        """How far apart the smallest numbers of dtype `output` are, times the blur."""
        return self.blur * _DISTANCES.get(_REAL_OF.get(output, output), 0.0)

    def narrow(self, output: str) -> bool:
        """Whether 8-bit floats take part, whose largest errors vary more."""
        return output in _NARROW or any(dtype in _NARROW for dtype in self.inputs)


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
