"""Comparison of results of any kind with the expected ones: tensors, arrays, numbers, texts, containers of them.

A tensor's shape, dtype, layout and device must be the expected ones, and its values are judged by the rule, by a
caller's tolerance, or exactly. Instances of dataclasses are compared field by field. Of other objects the type must be
the same, and the value where the type defines equality; `uncompared` names the types that do not.

Many configs of a kernel add up in the same order, so that their results are equal bit for bit. To compare bits reads
each element twice; to judge it takes ten times that, in float64.
"""

from __future__ import annotations

import copy
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from types import NoneType
from typing import Any, TypeAlias

from triton_ops.backend import Arguments, CandidateError, Protection
from triton_ops.base import excerpt, require
from triton_ops.device import Allowance, TorchDevice
from triton_ops.evaluation.judges import ByElement, Difference, Equal, EqualBits, Precision, Rounded
from triton_ops.evaluation.numbers import (
    as_dtype,
    dense,
    device_of,
    dtype_name,
    form_of,
    is_array,
    is_floating,
    is_numbers,
    library_of,
    pieces,
    plain_array,
    quietly,
    same_bits_of,
    wide,
)
from triton_ops.exceptions import DeviceError, KernelTypeError, ShapeMismatchError, TargetError, UnsupportedDtypeError
from triton_ops.values import Tolerance


def as_list(result: object) -> list[Any]:
    """The results of a call as a list, also where the call returns a single one."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def kept(result: object) -> Any:
    """A copy of a result, without its gradient graph, which later launches and the caller's code cannot change.

    A `MemoryError` says that a tune may not take so much more memory.
    """
    leaves = [leaf for leaf, _ in leaf_pairs(result, None) if is_numbers(leaf)] if Allowance.now() is not None else []
    for device, count in _bytes_by_device(leaves).items():
        allowed = TorchDevice(device).allowed_bytes if re.fullmatch(_DEVICES, device) else None
        if allowed is not None and count > allowed:
            raise MemoryError(f"a copy of results takes {count:,} bytes, and the tune may take {allowed:,} more")
    return rebuilt(
        result, lambda part: Protection.value_copy(Arguments((part,)).map(lambda t: t.detach()).positional[0])
    )


def rebuilt(result: object, change: Callable[[Any], Any]) -> Any:
    """A result after a change; an instance of a dataclass is made anew around its fields after the change."""
    if is_array(result) or (parts := fields_of(result)) is None:
        return change(result)
    copied = copy.copy(result)
    for name, value in parts.items():
        object.__setattr__(copied, name, rebuilt(value, change))  # a frozen instance takes it in no other way
    return copied


def fields_of(value: Any) -> dict[str, Any] | None:
    """The values of a dataclass instance by name; None for anything else.

    An array of records has one for each of their fields, and a masked array what it shows, and where it hides some.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name, None) for each in fields(value)}
    if not is_array(value):
        return None
    if hasattr(value, "filled"):
        return {"shown": value.filled(0), "hidden": require("numpy", "checking results").ma.getmaskarray(value)}
    names = getattr(getattr(value, "dtype", None), "names", None)
    return {name: value[name] for name in names} if names else None


_CODES = ("int8", "uint8")
_EXACT_INTEGERS = 2.0**24  # float32 holds every whole number up to here


@dataclass(frozen=True, kw_only=True)
class Standard:
    """The rule by which results are compared with the expected ones, or the caller's `check` in its place.

    `exact` floats must be equal too, as of whole numbers. With `bits` all numbers must have the expected bits.
    """

    precision: Precision = field(default_factory=Precision)
    tolerance: Tolerance = field(default_factory=Tolerance)
    check: Check | None = None
    exact: bool = False
    bits: bool = False

    @property
    def by_rule(self) -> bool:
        """True where the rule holds, and not equal bits, a caller's limit for elements or a check."""
        return self.check is None and not self.bits and not self.tolerance.by_element

    @property
    def words(self) -> str:
        """The replacement of the rule, to be read after what results are compared with; empty for the rule."""
        if self.check is not None:
            return f", by the check `{getattr(self.check, '__name__', type(self.check).__name__)}`"
        return f", within tolerance: {self.tolerance}" if self.tolerance.content else ""


_Judge: TypeAlias = Equal | ByElement | Rounded  # of a tensor of the right shape


@dataclass(frozen=True)
class ExpectedNumbers:
    """The expectation of a tensor or an array; a result with the bits of `own`, the reference's, is right unjudged.

    `array` is the type of an array, and None for a tensor.
    """

    array: Any
    own: Any
    judge: _Judge

    def difference(self, result: Any) -> Difference | None:
        """The difference of a result; None if it is as expected."""
        if not (Arguments.is_tensor(result) if self.array is None else type(result) is self.array):
            return _other_type(result, "tensor" if self.array is None else self.array.__name__)
        numbers = result.detach() if self.array is None else plain_array(result)
        right = form_of(self.own)
        for what, value in form_of(numbers).items():
            if value != right[what]:
                return Difference(f"{what}{value} instead of {right[what]}")
        if same_bits_of(numbers, self.own):
            return None
        with quietly():
            return self.judge.difference(dense(numbers))


def expected(low: Any, golden: Any, dtype: Any, standard: Standard, peers: Sequence[Any] = ()) -> Any:
    """The expectation of one result.

    `low` is the reference's own result, and is kept, so that nothing else may write it; `golden` is that in higher
    precision, None if there is none; `dtype` is that of the tensor that takes the result, None for a result that is
    returned; `peers` are further results whose errors are a yardstick, such as that for inputs cut to TF32.
    """
    if is_numbers(low) and not fields_of(low):
        return _expected_numbers(low, golden, dtype or low.dtype, standard, peers)
    if isinstance(low, Mapping):
        return {name: expected(each, _at(golden, name), None, standard) for name, each in low.items()}
    if fields_of(low) is not None:
        return _Fields(type(low), expected(fields_of(low), fields_of(golden), None, standard))
    if isinstance(low, (tuple, list)):
        return [expected(each, _at(golden, place), None, standard) for place, each in enumerate(low)]
    if is_array(low):
        return low.copy()
    if isinstance(low, (float, complex)):
        golden = golden if isinstance(golden, (float, complex)) else None
        return _expected_numbers(low, golden, None, replace(standard, exact=False), ())
    return low


def difference(result: object, expectation: object) -> Difference | None:
    """The difference between a result and an expectation that `expected` made; None if there is none."""
    if isinstance(expectation, (ExpectedNumbers, _Fields)):
        return expectation.difference(result)
    if isinstance(expectation, dict):
        return _between_mappings(result, expectation)
    if isinstance(expectation, list):
        if not isinstance(result, (tuple, list)):
            return _other_type(result, "sequence")
        if len(result) != len(expectation):
            return Difference(f"{len(result)} items instead of {len(expectation)}")
        return next((d for a, b in zip(result, expectation, strict=True) if (d := difference(a, b))), None)
    return (_between_arrays if is_array(expectation) else _between_objects)(result, expectation)


def is_exact(low: object, golden: object) -> bool:
    """Tell an exact problem: its golden float results are whole numbers, and rounded once they are `low`.

    Problems with integer results are not: whole inputs lie on the ties of a quantiser more often than not.
    """
    pairs = [(a, a if b is None else b) for a, b in leaf_pairs(low, golden) if is_numbers(a)]
    return bool(pairs) and all(_whole(dense(a), dense(b)) for a, b in pairs)


def _whole(low: Any, golden: Any) -> bool:
    if not is_floating(low) or tuple(low.shape) != tuple(golden.shape):
        return False
    with quietly():
        library, right = library_of(low), wide(golden)
        exact = library.isfinite(right) & (right == library.round(right)) & (abs(right) <= _EXACT_INTEGERS)
        return bool(exact.all() and (wide(as_dtype(golden, low.dtype)) == wide(low)).all())


def leaf_pairs(low: object, golden: object) -> Iterator[tuple[Any, Any]]:
    """The values in a result that are no containers, each with its counterpart or None."""
    if isinstance(low, Mapping):
        for name, each in low.items():
            yield from leaf_pairs(each, _at(golden, name))
    elif isinstance(low, (tuple, list)):
        for place, each in enumerate(low):
            yield from leaf_pairs(each, _at(golden, place))
    elif (parts := fields_of(low)) is not None:
        yield from leaf_pairs(parts, fields_of(golden))
    elif is_array(low) and is_numbers(low):
        yield plain_array(low), plain_array(golden) if is_array(golden) else None
    else:
        yield low, golden


def same_bits(result: object, other: object) -> bool:
    """Compare two results: tensors and arrays of numbers bit for bit, others by equality, if their type defines any."""
    pairs = list(leaf_pairs(result, other))
    return len(pairs) == sum(1 for _ in leaf_pairs(other, None)) and all(_same_leaf(a, b) for a, b in pairs)


def _same_leaf(leaf: object, other: object) -> bool:
    if is_numbers(leaf):
        return is_numbers(other) and same_bits_of(leaf, other)
    if is_array(leaf):
        return _between_arrays(leaf, other) is None
    return _between_objects(leaf, other) is None


def uncompared(results: Sequence[object]) -> tuple[list[str], bool]:
    """The names of the types in some results that define no equality, and whether they hold anything to compare."""
    leaves = [value for value, _ in leaf_pairs(results, None)]
    opaque = [value for value in leaves if not (Arguments.is_tensor(value) or is_array(value) or _comparable(value))]
    some = any(value is not None and all(value is not other for other in opaque) for value in leaves)
    return sorted({type(value).__name__ for value in opaque}), some


def tell_wrong_ones(results: Sequence[object]) -> bool:
    """Tell whether wrong results would differ from these: sums that are all infinite, or NaN, are like others."""
    leaves = [dense(value).reshape(-1) for value, _ in leaf_pairs(results, None) if is_numbers(value)]
    return not leaves or not all(map(is_floating, leaves)) or any(
        bool(library_of(leaf).isfinite(wide(leaf[part])).any()) for leaf in leaves for part in pieces(leaf)
    )  # fmt: skip


def _comparable(value: object) -> bool:
    if isinstance(value, (Enum, NoneType, type)):
        return True
    if getattr(type(value), "__eq__", None) is object.__eq__:  # equal only to itself
        return False
    try:
        # NaN differs from itself: any answer will do that has a truth value.
        return bool(value == value) or bool(value != value)
    except Exception:  # noqa: BLE001 - equality that gives no answer, as between data frames
        return False


@dataclass(frozen=True)
class _Fields:
    type: Any
    content: Any

    def difference(self, result: object) -> Difference | None:
        if type(result) is not self.type:
            return _other_type(result, self.type.__name__)
        return difference(fields_of(result), self.content)


def _expected_numbers(low: Any, golden: Any, dtype: Any, standard: Standard, peers: Sequence[Any]) -> ExpectedNumbers:
    array = None if Arguments.is_tensor(low) else type(low)
    if array is not None:
        low, golden = plain_array(low), None if golden is None else plain_array(golden)
        dtype = dtype or low.dtype
    golden = golden if golden is not None and tuple(golden.shape) == tuple(low.shape) else None
    with quietly():
        own = as_dtype(low, dtype) if low.dtype != dtype else low
        judge = _judge(dense(own), None if golden is None else dense(golden), standard, list(map(dense, peers)))
    return ExpectedNumbers(array, own, judge)


def _judge(own: Any, golden: Any, standard: Standard, peers: Sequence[Any]) -> _Judge:
    if standard.bits:
        return EqualBits([own])
    if not is_floating(own):
        both = [own] if golden is None else [own, as_dtype(golden, own.dtype)]
        floats = any("float" in dtype for dtype in standard.precision.inputs)
        return Equal(both, codes=floats and dtype_name(own.dtype) in _CODES)
    if standard.exact:
        return Equal([own if golden is None else as_dtype(golden, own.dtype)])
    if standard.tolerance.by_element:
        return ByElement(golden, own, standard.tolerance)
    right, others = (own, []) if golden is None else (golden, [own, *peers])
    return Rounded(right, others, own.dtype, precision=standard.precision, times=standard.tolerance.times)


def _between_arrays(array: Any, right: Any) -> Difference | None:
    """The difference of an array of no numbers, such as texts or dates, which is judged by equality."""
    if type(array) is not type(right):
        return _other_type(array, type(right).__name__)
    if array.dtype != right.dtype:
        return Difference(f"dtype {array.dtype} instead of {right.dtype}")
    return None if _same_elements(array, right) else Difference("an array whose elements differ")


def _same_elements(array: Any, right: Any) -> bool:
    """Compare arrays; an element that differs from itself, such as NaN or a missing date, equals its like."""
    if array.shape != right.shape:
        return False
    same = (array == right) | ((array != array) & (right != right))
    return bool(require("numpy", "comparing arrays").all(same))  # of a text on its own there is a plain bool


def _between_mappings(mapping: object, expectation: Mapping[object, object]) -> Difference | None:
    if not isinstance(mapping, Mapping):
        return _other_type(mapping, "mapping")
    if set(mapping) != set(expectation):
        return Difference(f"the keys {', '.join(map(str, mapping))} instead of {', '.join(map(str, expectation))}")
    return next((d for name in expectation if (d := difference(mapping[name], expectation[name]))), None)


def _between_objects(value: object, right: object) -> Difference | None:
    if type(value) is not type(right):
        return _other_type(value, type(right).__name__)
    if not _comparable(right):
        return None
    try:
        same = bool(value == right) or bool(value != value and right != right)
    except Exception:  # noqa: BLE001 - equality that gives no answer for this value
        same = False
    return None if same else Difference(f"{excerpt(value)} instead of {excerpt(right)}")


def _other_type(value: object, kind: str) -> Difference:
    return Difference(f"a {type(value).__name__} instead of a {kind}")


def _at(container: Any, key: object) -> Any:
    try:
        return None if container is None else container[key]
    except (KeyError, IndexError, TypeError):
        return None


Check = Callable[[Any, Any], Any]


def refusal(check: Check, results: Sequence[object], expected: Sequence[object]) -> Difference | None:
    """The reason why a check refuses results; it gets copies, in tuples where there is not exactly one result."""
    try:
        answer = check(_one_or_all(results), _one_or_all(expected))
        truth = _truth(answer)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the caller's function may raise anything; it ends this trial only
        return Difference(f"the check raised {CandidateError.one_line(error)}")
    if truth is None:
        return Difference(f"the check returned a {type(answer).__name__}, not a bool")
    return None if truth else Difference("the check refuses the result")


def _truth(answer: object) -> bool | None:
    """A bool, or what torch and NumPy have for one; None for anything else."""
    if isinstance(answer, bool):
        return answer
    one = getattr(answer, "shape", None) == () and "bool" in str(getattr(answer, "dtype", ""))
    return bool(answer) if one else None


def _one_or_all(values: Sequence[object]) -> object:
    copies = tuple(kept(value) for value in values)
    return copies[0] if len(copies) == 1 else copies


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The reference's answers for one case; `disturbed` are golden ones with other rounding errors, if any."""

    low: list[Any]
    golden: list[Any]
    precision: Precision
    disturbed: list[Any] = field(default_factory=list)


_MOST = 3  # orders of adding up that are common in one space
_STEP_RUNS = 2  # of the reference with other errors: of one, a row may be near the golden result by chance
_DEVICES = r"cpu|cuda.*"  # whose free memory is told
_MEMORY_SHARE = 1 / 64  # of the free memory: a copy that takes more is not kept


class RightResults:
    """The last results of one case that were judged and are right. Only results that are all numbers are kept."""

    def __init__(self) -> None:
        self._copies: deque[list[Any]] = deque(maxlen=_MOST)

    def hold(self, results: Sequence[object]) -> bool:
        """True if some results have the bits of kept ones."""
        if not all(map(is_numbers, results)):
            return False
        for place, right in enumerate(self._copies):
            if len(right) == len(results) and all(map(same_bits_of, results, right)):
                del self._copies[place]
                self._copies.appendleft(right)
                return True
        return False

    def keep(self, results: Sequence[object]) -> None:
        """Keep a copy of results that are right, in place of those that were met least lately."""
        if all(is_numbers(each) for each in results) and _fit(results):
            self._copies.appendleft([kept(each) for each in results])


def _bytes_by_device(results: Sequence[Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in results:
        counts[str(device_of(each))] += each.numel() * each.element_size() if Arguments.is_tensor(each) else each.nbytes
    return counts


def _fit(results: Sequence[Any]) -> bool:
    counts = _bytes_by_device(results)
    told = all(re.fullmatch(_DEVICES, device) for device in counts)
    return told and all(count <= _MEMORY_SHARE * TorchDevice(name).free_bytes for name, count in counts.items())


class ExpectedResults:
    """The expected results of one case, as the reference or a trusted config answers.

    `outputs` are the tensors that take the results, empty for results that are returned. `cut` gives the golden results
    for inputs that are cut to TF32, or err as one rounding to 16 bits more would; it is called where code computes so.
    With `whole` the inputs are whole numbers, so that results may have to be equal. `opaque` names types in the results
    that define no equality, so that values of them are not compared, and `empty` says that nothing can be compared.
    `steps` says whether what code rounds to 16 bits on its way is allowed for; None until something is prepared.

    A `TargetError` says that the caller's check does not accept the expected results themselves.
    """

    def __init__(
        self, standard: Standard, answers: Answers, outputs: Sequence[Any] = (), *,
        cut: Callable[[bool, bool, int], Sequence[object] | None] = lambda *_: None, whole: bool = False,
    ) -> None:  # fmt: skip
        self._standard, self._answers, self._cut = standard, answers, cut
        self._whole = whole and standard.by_rule
        self._dtypes = [output.dtype if is_numbers(output) else None for output in outputs] or [None] * len(answers.low)
        self._by_tf32: dict[bool, list[Any]] = {}
        self.steps: bool | None = None
        self._right = {cuts: RightResults() for cuts in (False, True)}
        opaque, some = ([], True) if standard.check is not None else uncompared(answers.low)
        self.opaque, self.empty = tuple(opaque), not some
        if standard.check is not None and (wrong := refusal(standard.check, answers.low, answers.low)) is not None:
            hint = "write check(result, expected) so that it returns True for a right result, and False for any other"
            raise TargetError(f"{wrong.text}, when it was given the expected result twice", hint=hint)

    @classmethod
    def of_own(cls, standard: Standard, results: Sequence[object], *, whole: bool = False) -> ExpectedResults:
        """Results of a trusted config, in place of a reference's; there is no golden result, so that f is doubled."""
        low = [kept(each) for each in results]
        precision = replace(standard.precision, blur=2.0)
        return cls(standard, Answers(low=low, golden=[None] * len(low), precision=precision), whole=whole)

    @property
    def exact(self) -> bool:
        """True if the expected results are whole numbers that every right config meets bit for bit."""
        return is_exact(self._answers.low, self._answers.golden)

    @property
    def count(self) -> int:
        """The number of results."""
        return len(self._dtypes)

    def prepare(self, tf32: bool, steps: bool = False) -> None:
        """Compute what results are compared with, while the arguments of the case are as at first.

        `steps` says whether code computes on with what it has rounded to 16 bits; the first one's answer counts.
        """
        answers, tf32 = self._answers, self._cuts(tf32)
        if self.steps is None:
            sixteen = not {"float16", "bfloat16"}.isdisjoint(answers.precision.inputs)
            self.steps = steps and sixteen and self._standard.by_rule and not self._whole
        if self._standard.check is not None or tf32 in self._by_tf32:
            return
        standard = replace(self._standard, precision=replace(answers.precision, tf32=tf32), exact=self._whole)
        none = [None] * len(answers.low)
        runs = [self._cut(tf32, self.steps, seed) for seed in range(_STEP_RUNS if self.steps else int(tf32))]
        others = zip(*(run or none for run in (*runs, answers.disturbed)), strict=True)
        self._by_tf32[tf32] = [
            expected(low, golden, dtype, standard, [each for each in peers if is_numbers(each)])
            for low, golden, dtype, peers in zip(answers.low, answers.golden, self._dtypes, others, strict=True)
        ]
        if not self._cuts(True):  # nothing more is made from them, and they may be large
            self._answers = replace(answers, low=none, golden=none, disturbed=[])

    def copies(self, results: Sequence[object]) -> list[Any]:
        """Copies of results, which later launches cannot change: the expected ones, where results have their bits."""
        return self._own_with_bits_of(results) or [kept(each) for each in results]

    def _own_with_bits_of(self, results: Sequence[object]) -> list[Any]:
        own = [each.own for each in next(iter(self._by_tf32.values()), ()) if isinstance(each, ExpectedNumbers)]
        alike = len(own) == len(results) and all(map(is_numbers, results))
        return own if alike and all(map(same_bits_of, results, own)) else []

    def _cuts(self, tf32: bool) -> bool:
        """True if a config that computes in TF32 is judged by a yardstick of its own."""
        return tf32 and "float32" in self._answers.precision.inputs and self._standard.by_rule and not self._whole

    def difference(self, results: Sequence[object], tf32: bool) -> Difference | None:
        """The difference between results and the expected ones; None if there is none."""
        if len(results) != len(self._dtypes):
            return Difference(f"returns {len(results)} results instead of {len(self._dtypes)}")
        if self._standard.check is not None:
            return refusal(self._standard.check, results, self._answers.low)
        cuts = self._cuts(tf32)
        if self._own_with_bits_of(results) or self._right[cuts].hold(results):
            return None
        pairs = zip(results, self._by_tf32[cuts], strict=True)
        first = next((d for a, b in pairs if (d := difference(a, b)) is not None), None)
        if first is None:
            self._right[cuts].keep(results)
        return first


def check_fit(results: Sequence[object], outputs: Sequence[str], arguments: Arguments) -> None:
    """Raise unless a reference's results fit the outputs of a kernel; a wider float is rounded to the output's."""
    if outputs and len(results) != len(outputs):
        message = f"the reference returns {len(results)} results, the kernel writes {len(outputs)}"
        hint = "let the reference return the outputs, in the order in which the kernel names them"
        raise KernelTypeError(message, hint=hint)
    for name, result in zip(outputs, results, strict=False):
        if is_numbers(output := arguments.keyword.get(name)):
            _check_output(name, result, output)


def _check_output(name: str, result: Any, output: Any) -> None:
    hint = f"return what {name} must hold: {tuple(output.shape)} {output.dtype} on {device_of(output)}"
    if not is_numbers(result) or Arguments.is_tensor(result) != Arguments.is_tensor(output):
        what = "a tensor" if Arguments.is_tensor(output) else "an array of numbers"
        raise KernelTypeError(f"the reference returns a {type(result).__name__} for {name}, not {what}", hint=hint)
    if tuple(result.shape) != tuple(output.shape):
        message = f"the reference returns shape {tuple(result.shape)} for {name}, which is {tuple(output.shape)}"
        raise ShapeMismatchError(message, tuple(output.shape), tuple(result.shape), name, hint=hint)
    wider = is_floating(output) and is_floating(result) and result.dtype.itemsize > output.dtype.itemsize
    if result.dtype != output.dtype and not wider:
        message = f"the reference returns {result.dtype} for {name}, which is {output.dtype}"
        raise UnsupportedDtypeError(message, str(result.dtype), [str(output.dtype)], name, hint=hint)
    if device_of(result) != device_of(output):
        message = f"the reference returns a tensor on {device_of(result)} for {name}, which is on {device_of(output)}"
        raise DeviceError(message, str(device_of(output)), str(device_of(result)), name, hint=hint)
