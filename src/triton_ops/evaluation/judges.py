"""Judges of one tensor or array: by the rule, element by element within a caller's tolerance, or exactly.

Each has a method `difference(found)` that takes numbers of the right shape, dtype and device. Large results are judged
piece by piece, in float64, so that little memory is needed beside the result.

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

No element is compared with a low-precision reference; docs/concepts/verdicts.md says why the rule is this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

from triton_ops.evaluation.numbers import as_dtype, dtype_name, is_floating, library_of, pieces, wide
from triton_ops.space import Config
from triton_ops.values import Problem, Resources, Status, Tolerance, Trial, Work

# Half of the distance from 1 to the next number; below, the least number above 0.
UNITS = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3, "float8_e4m3fnuz": 2.0**-4, "float8_e5m2fnuz": 2.0**-3,
}  # fmt: skip
_DISTANCES = {
    "float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133,
    "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16, "float8_e4m3fnuz": 2.0**-10, "float8_e5m2fnuz": 2.0**-17,
}  # fmt: skip
_REAL_OF = {
    "complex32": "float16",
    "complex64": "float32",
    "complex128": "float64",
    "float128": "float64",
    "complex256": "float64",
}
_NARROW = tuple(dtype for dtype in UNITS if dtype.startswith("float8"))
_TF32_UNIT = 2.0**-10  # tensor cores cut off what TF32's 10 bits do not hold, and do not round
# That of 8-bit floats is what Hopper keeps of their products: about 14 bits, as deepseek-ai/DeepGEMM#37 discusses.
_FLOAT64, _FLOAT32, _FLOAT8 = 2.0**-53, 2.0**-24, 2.0**-13  # rounding units of accumulators
_SLACK = {_FLOAT64: 2.0**-36, _FLOAT32: 2.0**-18}


@dataclass(frozen=True)
class Place:
    """The first element of a wrong result that is off: its value, the right one, and what may lie between them.

    Where each element is a little off, and none by much, it is the worst one.
    """

    index: tuple[int, ...]
    value: float
    right: float
    allowed: float

    @classmethod
    def of(cls, shape: Sequence[int], at: int, value: Any, right: Any, allowed: float) -> Place:
        """The place of a flat element, by its index in a shape; six digits of what is allowed mean anything."""
        index: list[int] = []
        for extent in reversed(shape):
            at, place = divmod(at, extent)
            index.insert(0, place)
        return cls(tuple(index), value.item(), right.item(), float(f"{allowed:.6g}"))


@dataclass(frozen=True)
class Difference:
    """The error of a result in words, and divided by what is allowed; infinite where no tolerance applies.

    `place` is None for what is no error of elements, such as another shape.
    """

    text: str
    excess: float = math.inf
    place: Place | None = None

    def suspecting(self, fault: str, text: str) -> Difference:
        """This difference in other words, with a fault of the compiler that it may come from; empty for none."""
        return replace(self, text=f"{text}; {fault}" if fault else text)

    def trial(self, config: Config, resources: Resources | None, compile_s: float | None) -> Trial:
        """The trial of a config whose results are wrong."""
        excess = self.excess if math.isfinite(self.excess) else None
        return Trial(config, Status.WRONG, error=self.text, resources=resources, compile_s=compile_s, excess=excess)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """In what precision results are computed.

    `reduction` is how many terms are added up for an element; `tf32` whether products of float32 are computed in TF32.
    With `narrow_sums` the code itself adds up in 16 bits, in a tree whose every level rounds to u; with `narrow_steps`
    it rounds to u once more on its way.
    `blur` is a factor of f: 1 for a golden result; 2 where results are compared with one of their own precision, whose
    error is unknown; between for a golden result that was rounded to that precision. `row_blur` is one more in a row
    alone, in which a single element may decide.
    """

    inputs: tuple[str, ...] = ()
    reduction: int = 1
    tf32: bool = False
    narrow_sums: bool = False
    narrow_steps: bool = False
    blur: float = 1.0
    row_blur: float = 1.0

    def rounding(self, output: str) -> float:
        """f: the relative error, by root mean square, that rounding may cost a result of dtype `output`."""
        dtypes = [dtype for it in (output, *self.inputs) if (dtype := _REAL_OF.get(it, it)) in UNITS]
        accumulator = _FLOAT64 if all(dtype == "float64" for dtype in dtypes) else _FLOAT32
        levels = (max(math.log2(self.reduction), 1.0) if self.narrow_sums else 1.0) + self.narrow_steps
        terms = [
            self.unit(output) / math.sqrt(3) * math.sqrt(levels),
            _SLACK[accumulator],
            4 * accumulator * math.sqrt(self.reduction),
        ]
        eight = _FLOAT8 * math.sqrt(self.reduction) if any(dtype in _NARROW for dtype in dtypes[1:]) else 0.0
        return self.blur * (max(terms) + eight)

    def unit(self, output: str) -> float:
        """u: the coarsest rounding unit of the result and its inputs of 16 bits or more."""
        output, *inputs = (_REAL_OF.get(dtype, dtype) for dtype in (output, *self.inputs))
        units = [UNITS[dtype] for dtype in inputs if dtype in UNITS and dtype not in _NARROW]
        if self.tf32 and "float32" in inputs:
            units.append(_TF32_UNIT)
        return max([UNITS.get(output, 0.0), *units])

    def distance(self, output: str) -> float:
        """The distance of the smallest numbers of dtype `output`, times the blur."""
        return self.blur * _DISTANCES.get(_REAL_OF.get(output, output), 0.0)

    def narrow(self, output: str) -> bool:
        """True if 8-bit floats take part, whose largest errors vary more."""
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


_LARGEST, _MEAN, _ROW, _MOST_ROWS, _OUTLIER_SHARE = 2.0, 1.5, 2.0, 1.5, 0.005
_LARGEST_NARROW = 4.0
_VANISHING = 1 / 16  # of the median row's size
_ROW_LENGTHS = (64, 512)  # a last axis of this length is a row; else rows are pieces of `_CUT` elements
_CUT = 128


class Rounded:
    """Judges floating-point results by the rule; the error of `peers`, of which there may be none, is the yardstick.

    `golden` is the result of the peer itself where there is no better one, and `times` a factor of all limits.

    Cost: keeps the golden result in float32, or float64 for results of 32 bits or more, unless it is narrower, and one
        number per row.
    """

    def __init__(
        self, golden: Any, peers: Sequence[Any], dtype: Any, *, precision: Precision, times: float = 1.0
    ) -> None:
        library = self._library = library_of(golden)
        name = dtype_name(dtype)
        self._shape, self._width, self._times = tuple(golden.shape), _width(golden.shape), times
        count = math.prod(golden.shape)
        self._by_mean = times * (1 + 3 / count if 0 < count < _CUT else 1.0)  # factor of limits of means
        holder = library.float64 if dtype.itemsize >= 4 else library.float32
        narrow = is_floating(golden) and 2 <= golden.dtype.itemsize <= max(dtype.itemsize, 4)  # holds no less as it is
        self._golden = (golden if narrow else as_dtype(golden, holder)).reshape(-1)
        self._f, distance = precision.rounding(name), precision.distance(name)
        self._least = distance / math.sqrt(12)  # error by RMS of rounding numbers that nearly vanish
        self._odd = _OddPlaces(self._golden, [peer.reshape(-1) for peer in peers[:1]], dtype)
        self._measure_peers([peer.reshape(-1) for peer in peers], precision.row_blur)
        largest = (_LARGEST_NARROW if precision.narrow(name) else _LARGEST) * self._own_largest
        unit = 2 * max(precision.blur * precision.unit(name), math.sqrt(3) * self._f)  # in the last place of 1
        self._limit, beside_infinity = (
            times * (largest + 2 * max(unit * _binade(size), distance)) for size in (self._size, self._odd.largest)
        )
        self._limits = self._limit, beside_infinity
        self._mean_limit = self._by_mean * _MEAN * max(self._own_mean, self._f * self._mean, self._least)

    def _measure_peers(self, peers: Sequence[Any], row_blur: float) -> None:
        """The size of the golden result and of the peers' errors: largest, by root mean square, and by row."""
        library, count, nothing = self._library, max(len(self._golden), 1), wide(self._golden[:0])
        sizes, errors, largest, size = [nothing], [[nothing] for _ in peers], 0.0, 0.0
        for part in self._parts():
            golden = self._odd.without(wide(self._golden[part]), part)
            sizes.append(self._row_sums(golden))
            differences = [library.nan_to_num(self._odd.without(wide(peer[part]) - golden, part)) for peer in peers]
            for each, error in zip(errors, differences, strict=True):
                each.append(self._row_sums(error))
            largest = max([largest, *(float(abs(error).max()) for error in differences)])
            size = max(size, float(abs(golden).max()))
        square = library.concatenate(sizes)
        own = [library.concatenate(each) for each in errors]
        self._own_largest, self._size = largest, size
        self._mean = math.sqrt(float(square.sum()) / count)
        self._own_mean = max([0.0, *(math.sqrt(float(each.sum()) / count) for each in own)])
        filled = square[square > 0]
        # The lower of two in the middle, which `median` is not in both libraries.
        floor = float(filled[filled.argsort()[(len(filled) - 1) // 2]]) * _VANISHING**2 if len(filled) else 0.0
        scale = library.clip(
            (row_blur * self._f) ** 2 * library.clip(square, floor, None), self._width * self._least**2, None
        )
        for each in own:
            scale = library.maximum(scale, each)
        self._rows = library.sqrt(scale)

    @property
    def own_error(self) -> float:
        """The peers' error by root mean square beyond that of the smallest numbers, divided by the golden result's."""
        error = max(0.0, self._own_mean - 2 * self._least)
        return error / self._mean if self._mean else float(error > 0)

    def difference(self, result: Any) -> Difference | None:
        """The error of `result`, numbers of the same shape; None if it is right."""
        if not len(self._golden):
            return None
        flat = result.reshape(-1)
        measured = self._measured(flat, lambda values, _: values)
        if not math.isfinite(measured.largest):  # rarely, since this reads the result once more
            measured = self._measured(flat, lambda values, part: self._odd.closed(values, part, self._limits[1]))
        excess = self._excess(measured)
        return None if excess <= 1 else Difference(*self._told(flat, measured, excess))

    def _measured(self, flat: Any, closed: Callable[[Any, slice], Any]) -> _Errors:
        library, columns = self._library, []
        for part, rows in zip(self._parts(), self._row_parts(), strict=True):
            values = wide(flat[part])
            error = self._odd.without(closed(values, part) - wide(self._golden[part]), part)
            size = library.linalg.norm(self._in_rows(error), None, 1)
            share = _ratio(size, self._rows[rows])
            over = (share > _MOST_ROWS * self._by_mean).sum()
            largest = abs(error).max()  # NaN if there is one, as for the largest of all
            strange = self._odd.strange(values, part, self._limits)
            columns.append(library.stack([(size * size).sum(), largest, wide(over), share.max(), wide(strange)]))
        table = library.stack(columns)
        both = library.stack([table.sum(0), library.amax(table, 0)])
        sums, most = both.tolist()  # the one time that the device is waited for
        return _Errors(
            mean=math.sqrt(sums[0] / len(self._golden)), largest=most[1], rows_over=int(sums[2]), row=most[3],
            strange=int(sums[4]),
        )  # fmt: skip

    def _excess(self, measured: _Errors) -> float:
        """The largest ratio of an error and its limit; at most 1 for a right result."""
        if measured.strange or not math.isfinite(measured.largest):
            return math.inf
        allowed = max(1, _OUTLIER_SHARE * len(self._rows))
        row = measured.row / (_ROW * self._by_mean)
        many = max(1.0 + 1e-3, row) if measured.rows_over > allowed else 0.0
        return max(_over(measured.largest, self._limit), _over(measured.mean, self._mean_limit), row, many)

    def _told(self, flat: Any, measured: _Errors, excess: float) -> tuple[str, float, Place]:
        library, count = self._library, len(self._golden)
        off, worst, place, first = 0, -1.0, 0, -1
        for part, rows in zip(self._parts(), self._row_parts(), strict=True):
            golden = wide(self._golden[part])
            error = self._odd.without(self._odd.closed(wide(flat[part]), part, self._limits[1]) - golden, part)
            allowed = self._f * abs(self._in_rows(self._odd.without(golden, part)))
            allowed = allowed + (self._rows[rows] / math.sqrt(self._width))[:, None]
            times = _ratio(abs(error), allowed.reshape(-1)[: len(error)])
            times = library.nan_to_num(times, nan=math.inf)
            times = library.where(self._odd.wrong(flat[part], part, self._limits), math.inf, times)
            beyond = library.where(times > 4 * self._times)[0]  # four times the mean error is beyond any rounding
            first = part.start + int(beyond[0]) if len(beyond) and not off else first
            off += len(beyond)
            top = int(times.argmax())
            if float(times[top]) > worst:
                worst, place = float(times[top]), part.start + top
        index = tuple(map(int, library.unravel_index(library.asarray(place), self._shape))) if self._shape else ()
        values = f"{float(flat[place]):.6g} instead of {float(self._golden[place]):.6g}"
        size = self._mean or 1.0
        share = f"{off / count:.2%} of the elements" if off >= 1e-4 * count else f"{off} of {count} elements"
        parts = [
            f"{share} are off" if off else "all elements are a little off",
            f"the worst at {index}: {values}",
            f"error {measured.mean / size:.2g} of the result, allowed {self._mean_limit / size:.2g}",
        ]
        if self._own_mean:
            parts.append(f"the reference's own {self._own_mean / size:.2g}")
        if len(self._rows) > 1:
            parts.append(f"{measured.rows_over} of {len(self._rows)} rows beyond theirs")
        return ", ".join(parts), excess, self._place(flat, first if off else place)

    def _place(self, flat: Any, at: int) -> Place:
        """The place of an element, which may err by what is allowed alone in its row."""
        row = _ROW * self._by_mean * float(self._rows[at // self._width])
        return Place.of(self._shape, at, wide(flat[at]), wide(self._golden[at]), min(self._limit, row))

    def _parts(self) -> Iterator[slice]:
        yield from pieces(self._golden, self._width)

    def _row_parts(self) -> Iterator[slice]:
        for part in self._parts():
            yield slice(part.start // self._width, -(-part.stop // self._width))

    def _row_sums(self, values: Any) -> Any:
        rows = self._in_rows(values)
        return (rows * rows).sum(1)

    def _in_rows(self, values: Any) -> Any:
        if rest := -len(values) % self._width:
            nothing = self._library.broadcast_to(self._library.zeros_like(values[:1]), (rest,))
            values = self._library.concatenate([values, nothing])
        return values.reshape(-1, self._width)


@dataclass(frozen=True, kw_only=True)
class _Errors:
    mean: float
    largest: float
    rows_over: int
    row: float
    strange: int


class _OddPlaces:
    """The places where the golden result, rounded to the dtype of the results, or a peer is no finite number.

    There a result must be what the golden result or a peer is; where the golden result is finite, a near value will do,
    as of two numbers beside the largest one of which one was rounded to infinity.
    """

    def __init__(self, golden: Any, peers: Sequence[Any], dtype: Any) -> None:
        self._library = library_of(golden)
        self._golden, self._peers, self._dtype = golden, list(peers), dtype
        about = self._library.finfo(dtype)
        self.largest = float(about.max)
        self._edge = self.largest + float(about.eps) * _binade(self.largest) / 2  # the least that becomes infinity
        self._mask = None
        masks = [self._odd(part) for part in pieces(golden)]
        if any(bool(each.any()) for each in masks):
            self._mask = self._library.concatenate(masks)
        else:
            self._peers = []  # they may be large

    def _odd(self, part: slice) -> Any:
        return ~self._library.stack([self._library.isfinite(each) for each in self._held(part)]).all(0)

    def _held(self, part: slice) -> list[Any]:
        golden = self._golden[part]
        rounded = as_dtype(golden, self._dtype)
        return [as_dtype(each, golden.dtype) for each in (rounded, *(peer[part] for peer in self._peers))]

    def closed(self, values: Any, part: slice, limit: float) -> Any:
        """The values; infinities near the golden result as the least numbers that are rounded to them.

        Where the golden result is the dtype's largest number itself, which masks are made of, an infinity stays one.
        """
        golden, clamped = wide(self._golden[part]), self._library.clip(values, -self._edge, self._edge)
        return self._library.where((abs(clamped - golden) <= limit) & (abs(golden) != self.largest), clamped, values)

    def without(self, values: Any, part: slice) -> Any:
        return values if self._mask is None else self._library.where(self._mask[part], 0.0, values)

    def strange(self, values: Any, part: slice, limits: tuple[float, float]) -> Any:
        """The number of elements that are not finite where they should be, or not what they must be at an odd place.

        Without odd places none is counted: what is not finite there has an error that is not finite either. `limits`
        are the largest errors of an element, and of one beside the largest number of the dtype.
        """
        return (self.wrong(values, part, limits) if self._mask is not None else values[:0]).sum()

    def wrong(self, values: Any, part: slice, limits: tuple[float, float]) -> Any:
        library, values = self._library, wide(values)
        closed = self.closed(values, part, limits[1])
        if self._mask is None:
            return ~library.isfinite(closed)
        right = library.isfinite(closed) & ~self._mask[part]
        for there in map(wide, self._held(part)):
            right |= self._mask[part] & _same(values, there)
        golden = wide(self._golden[part])
        beside_infinity, apart = abs(golden) >= self.largest - limits[1], abs(closed - golden)
        near = (apart <= limits[0]) | (beside_infinity & (apart <= limits[1]))
        return ~(right | (self._mask[part] & near))


class ByElement:
    """Judges floating-point results by a caller's tolerance, near the golden result or near `peer`."""

    def __init__(self, golden: Any, peer: Any, tolerance: Tolerance) -> None:
        self._library = library_of(peer)
        either = (peer,) if golden is None else (peer, golden)
        self._either = [(each.reshape(-1), self._size(each.reshape(-1))) for each in either]
        self._tolerance = tolerance

    def difference(self, result: Any) -> Difference | None:
        """The error of `result`, numbers of the same shape; None if it is right."""
        flat, most, over, first = result.reshape(-1), 0.0, 0, 0
        for part in pieces(flat):
            least = self._ratios(wide(flat[part]), part)
            beyond = self._library.where(least > 1)[0]
            first = part.start + int(beyond[0]) if len(beyond) and not over else first
            most, over = max(most, float(least.max())), over + len(beyond)
        if most <= 1:
            return None
        how = f"the worst by {most:.3g} times the tolerance, which is {self._tolerance}"
        peer, size = self._either[0]
        value, right = wide(flat[first]), wide(peer[first])
        place = Place.of(result.shape, first, value, right, self._allowed(right, size).item())
        return Difference(f"{over / len(flat):.2%} of the elements differ, {how}", most, place)

    def _ratios(self, values: Any, part: slice) -> Any:
        library, least = self._library, None
        for one, size in self._either:
            expected = wide(one[part])
            error = library.nan_to_num(abs(values - expected), nan=math.inf)
            ratio = library.where(_same(values, expected), 0.0, _ratio(error, self._allowed(expected, size)))
            least = ratio if least is None else library.minimum(least, ratio)
        return least

    def _allowed(self, expected: Any, size: float) -> Any:
        finite = self._library.where(self._library.isfinite(expected), expected, 0.0)
        return self._tolerance.absolute + (self._tolerance.relative or 0.0) * (abs(finite) + size)

    def _size(self, expected: Any) -> float:
        total = 0.0
        for part in pieces(expected):
            values = wide(expected[part])
            finite = self._library.where(self._library.isfinite(values), values, 0.0)
            total += float((finite * finite).sum())
        return math.sqrt(total / max(len(expected), 1))


class Equal:
    """Judges results that must be equal: integers, Booleans, and floats of problems that are exact.

    A reference may round differently in another precision, hence several `peers`. With `codes` one of a thousand may be
    one apart, as where quantisers round values that lie between two.
    """

    _MOST_CODES = 1e-3

    def __init__(self, peers: Sequence[Any], codes: bool = False) -> None:
        self._peers, self._codes = [peer.reshape(-1) for peer in peers], codes

    def difference(self, result: Any) -> Difference | None:
        """The error of `result`, numbers of the same shape; None if it is right."""
        library, flat, count, largest, index, first = library_of(result), result.reshape(-1), 0, -1.0, 0, 0
        for part in pieces(flat):
            wrong = reduce(and_, (~_same(flat[part], peer[part]) for peer in self._peers))
            if not (here := int(wrong.sum())):
                continue
            apart = library.nan_to_num(abs(wide(flat[part]) - wide(self._peers[0][part])), nan=math.inf)
            apart = library.where(wrong, apart, -1.0)
            first = first if count else part.start + int(library.where(wrong)[0][0])
            count, top = count + here, int(apart.argmax())
            if float(apart[top]) > largest:
                largest, index = float(apart[top]), part.start + top
        share = count / max(len(flat), 1)
        if count == 0 or (self._codes and largest <= 1 and share <= self._MOST_CODES):
            return None
        text = self._text(flat[index].item(), self._peers[0][index].item(), share, index)
        return Difference(text, place=Place.of(result.shape, first, flat[first], self._peers[0][first], 0.0))

    @staticmethod
    def _text(value: Any, right: Any, share: float, index: int) -> str:
        """The worst element in words; integers in full, since 17 digits do not tell large ones apart."""
        numbers = (abs(value - right), value, right)
        worst, *pair = (f"{number:g}" if isinstance(number, float) else f"{number:d}" for number in numbers)
        place = f"element {index} is {pair[0]} instead of {pair[1]}"
        return f"{share:.2%} of the elements differ, the worst by {worst}; none may; {place}"


class EqualBits(Equal):
    """Judges results that do not have the right bits: none of them is right, whatever its values."""

    def difference(self, result: Any) -> Difference:
        """The error of `result`, numbers of the same shape."""
        return super().difference(result) or Difference("equal values, in other bits: of a zero, or of no number")


def _width(shape: Sequence[int]) -> int:
    last = shape[-1] if len(shape) else 1
    return int(last) if _ROW_LENGTHS[0] <= last <= _ROW_LENGTHS[1] else _CUT


def _binade(size: float) -> float:
    """The power of two at or below a size; 0 for 0."""
    return math.ldexp(1.0, math.frexp(size)[1] - 1) if size > 0 and math.isfinite(size) else 0.0


def _over(error: float, limit: float) -> float:
    return error / limit if limit > 0 else math.inf if error > 0 else 0.0


def _ratio(error: Any, allowed: Any) -> Any:
    """Error by allowed error; 0 where there is no error, infinite where none is allowed."""
    return library_of(error).where(error == 0, 0.0, error / allowed)


def _same(values: Any, others: Any) -> Any:
    """Tell where numbers are equal, or both no number."""
    return (values == others) | ((values != values) & (others != others))
