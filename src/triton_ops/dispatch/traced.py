"""Sizes of a recorded call as numbers that note how they were computed, and what was asked of them.

What is computed from such numbers is one of them, with an expression of the sizes of the call's arguments. Each
comparison, and whatever takes a number as it is, such as a hash, becomes a condition: another call is the same as long
as all of them have the same answers. C code that takes the digits of a number without asking it is not seen, such as
`math.gcd`, `range` and the arithmetic of floats; of torch's functions and of launches the arguments are looked at, and
code that is recorded uses no other.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import cache, partial, reduce
from math import inf
from typing import Any, TypeAlias

from triton_ops.backend import Arguments, functions_taken
from triton_ops.base import require
from triton_ops.values import contiguous_stride

Memory: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The shape and the strides of a tensor."""
_COMPUTED = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "lshift": "<<", "rshift": ">>", "and": "&",
    "or": "|", "xor": "^",
}  # fmt: skip
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TAKEN = (
    "hash", "int", "float", "index", "str", "repr", "format", "truediv", "rtruediv", "pow", "rpow", "divmod", "rdivmod",
    "round", "ceil", "floor", "trunc", "bool", "abs", "pos", "invert",
)  # fmt: skip
_OF_A_CLASS = frozenset({
    "dtype", "device", "layout", "is_nested", "is_cuda", "is_meta", "is_sparse", "requires_grad", "ndim", "dim",
    "data_ptr", "element_size", "itemsize", "is_neg", "is_conj", "is_floating_point", "get_device", "is_leaf",
    "untyped_storage", "_version", "is_quantized", "is_complex", "grad_fn", "is_inference",
})  # fmt: skip
"""Functions and properties of a tensor that do not depend on its sizes."""


_LIMITS: dict[tuple[str, bool], Callable[[int], tuple[float, float, int | None]]] = {
    ("<", True): lambda c: (-inf, c - 1, None), ("<", False): lambda c: (c, inf, None),
    ("<=", True): lambda c: (-inf, c, None), ("<=", False): lambda c: (c + 1, inf, None),
    (">", True): lambda c: (c + 1, inf, None), (">", False): lambda c: (-inf, c, None),
    (">=", True): lambda c: (c, inf, None), (">=", False): lambda c: (-inf, c - 1, None),
    ("==", True): lambda c: (c, c, None), ("==", False): lambda c: (-inf, inf, c),
    ("!=", True): lambda c: (-inf, inf, c), ("!=", False): lambda c: (c, c, None),
}  # fmt: skip
"""By a comparison with a number and its answer the least and the largest value that give it, and one that does not."""
_NAME = re.compile(r"v\d+_[ns]\d+")


class Conditions:
    """What has to hold for a call to be the same: limits of expressions, and texts that are true, in their order."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[float, float, frozenset[int]] | None] = {}
        self._equal: dict[str, tuple[str, int]] = {}

    def limit(self, text: str, low: float, high: float, hole: int | None = None) -> None:
        """Note that an expression lies between two numbers, and is not the third."""
        least, most, holes = self._noted.get(text) or (0 if _NAME.fullmatch(text) else -inf, inf, frozenset())
        self._noted[text] = max(least, low), min(most, high), holes if hole is None else holes | {hole}

    def hold(self, one: Traced, sign: str, other: Traced, answer: bool) -> None:
        """Note the answer of a comparison."""
        for name, text in ((one.text, other.text), (other.text, one.text)):
            if (sign, answer) in (("==", True), ("!=", False)) and _NAME.fullmatch(name) and name not in text:
                self._equal.setdefault(name, (text, plain(one)))
                break
        else:
            self._noted[f"{'not ' if answer else ''}{one.text} {sign} {other.text}"] = None

    def settled(self) -> tuple[dict[str, str], dict[str, int], list[str]]:
        """What stands for sizes in a plan, the sizes that are the same at each call, and what tells another call."""
        limits = {text: each for text, each in self._noted.items() if each is not None and _NAME.fullmatch(text)}
        pins = {text: int(low) for text, (low, high, _) in limits.items() if low == high}
        for name, (text, value) in self._equal.items():
            if not _NAME.search(put(text, pins)):
                pins[name] = value
        same, doubts = {name: str(value) for name, value in pins.items()}, dict[str, None]()
        for name, (text, _) in self._equal.items():
            if name not in pins:
                doubts[f"{name} != {put(text, same)}"] = None
                same[name] = put(text, same)
        for condition, limit in self._noted.items():
            text = put(condition, same)
            if _NAME.search(text):
                doubts |= dict.fromkeys([text] if limit is None else _doubts_of(text, *limit))
        return same, pins, sorted(doubts, key=lambda text: "/" in text or "%" in text)  # after what excludes 0


def put(text: str, sizes: Mapping[str, object]) -> str:
    """A text with what stands for these sizes."""
    return _NAME.sub(lambda name: str(sizes.get(name[0], name[0])), text)


def _doubts_of(text: str, low: float, high: float, holes: frozenset[int]) -> Iterator[str]:
    if low == high:
        yield f"{text} != {low}"
    elif low > (0 if _NAME.fullmatch(text) else -inf):
        yield f"{text} < {low}" if high == inf else f"not {low} <= {text} <= {high}"
    elif high < inf:
        yield f"{text} > {high}"
    yield from (f"{text} == {hole}" for hole in holes if low <= hole <= high)


class Traced(int):
    """A size, by the expression `text`; what is asked of it is noted in `conditions`."""

    text: str
    conditions: Conditions

    @classmethod
    def of(cls, value: int, text: str, conditions: Conditions) -> Traced:
        """The number of this value."""
        number = cls(value)
        number.text, number.conditions = text, conditions
        return number

    def pinned(self) -> int:
        """The plain number, which another call has to have too."""
        value = int.__int__(self)
        self.conditions.limit(self.text, value, value)
        return value

    def bit_length(self) -> int:
        """As of any number."""
        count = int.bit_length(self)
        self.conditions.limit(self.text, 1 << count >> 1, (1 << count) - 1)
        return count


def text_of(number: object) -> str:
    """The expression of a number."""
    return number.text if isinstance(number, Traced) else repr(number)


def _computed(run: Callable[..., int], form: str, idle: int | None = None) -> Callable[..., int]:
    def compute(self: Traced, other: object) -> int:
        if not isinstance(other, int):
            return run(self.pinned(), other)
        if type(other) is int and other == idle:
            return self
        return Traced.of(run(int.__int__(self), plain(other)), form.format(self.text, text_of(other)), self.conditions)

    return compute


def _compared(run: Callable[..., bool], sign: str) -> Callable[..., bool]:
    def compare(self: Traced, other: object) -> bool:
        if not isinstance(other, int):
            return run(self.pinned(), other)
        answer = run(int.__int__(self), plain(other))
        if not isinstance(other, Traced):
            self.conditions.limit(self.text, *_LIMITS[sign, answer](int(other)))
        elif self.text != other.text:
            self.conditions.hold(self, sign, other, answer)
        return answer

    return compare


def _taken(run: Callable[..., object]) -> Callable[..., object]:
    return lambda self, *args: run(self.pinned(), *args)


for _name, _sign in _COMPUTED.items():
    _run, _idle = getattr(operator, f"__{_name}__"), {"mul": 1, "add": 0}.get(_name)
    _back = partial(lambda run, one, other: run(other, one), _run)
    setattr(Traced, f"__{_name}__", _computed(_run, f"({{0}} {_sign} {{1}})", _idle))
    setattr(Traced, f"__r{_name}__", _computed(_back, f"({{1}} {_sign} {{0}})", _idle))
for _name, _sign in _COMPARED.items():
    setattr(Traced, f"__{_name}__", _compared(getattr(operator, f"__{_name}__"), _sign))
for _name in _TAKEN:
    setattr(Traced, f"__{_name}__", _taken(getattr(int, f"__{_name}__")))
setattr(Traced, "__neg__", lambda self: 0 - self)  # noqa: B010 - as the others


def traced_in(value: object) -> Iterator[Traced]:
    """Every traced number in a value, also inside of containers."""
    for each in Arguments.tensors_in([value], lambda one: isinstance(one, (Traced, slice))):
        if isinstance(each, slice):
            yield from traced_in((each.start, each.stop, each.step))
        else:
            yield each


def plain(value: Any) -> Any:
    """A value, such as a descriptor, with plain numbers in place of traced ones; no condition is noted."""
    if isinstance(value, Traced):
        return int.__int__(value)
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    if type(value) is dict:
        return {name: plain(each) for name, each in value.items()}
    if Arguments.is_descriptor(value) and next(traced_in(vars(value)), None) is not None:
        value = copy(value)
        vars(value).update(plain(vars(value)))
    return value


def taken(values: Mapping[str, object]) -> dict[str, object]:
    """The values with plain numbers, which another call has to have too."""
    return {name: value.pinned() if isinstance(value, Traced) else value for name, value in values.items()}


class Sizes:
    """The sizes of the tensors of a recorded call, and the conditions on them."""

    def __init__(self) -> None:
        self.conditions = Conditions()
        self.told = False  # whether a function of torch is running whose arguments were looked at
        self._memory: dict[int, tuple[Any, Memory]] = {}  # with the tensor, whose id stays its own

    def begin(self, name: str, tensor: Any) -> None:
        """Trace the sizes of an argument, whose numbers are called after its name."""
        sizes = enumerate(tensor.shape), enumerate(tensor.stride())
        shape, stride = (
            tuple(Traced.of(number, f"{name}_{kind}{axis}", self.conditions) for axis, number in each)
            for kind, each in zip("ns", sizes, strict=True)
        )
        self._memory[id(tensor)] = tensor, (shape, stride)

    def of(self, tensor: Any) -> Memory:
        """The shape and strides; plain numbers where they are the same at each call."""
        if (own := self._memory.get(id(tensor))) is not None:
            return own[1]
        return tuple(tensor.shape), tuple(tensor.stride())

    def pin(self, *values: object) -> None:
        """Have calls differ that have other sizes of the tensors, and other numbers, among these values."""
        for value in values:
            for number in traced_in(self._memory.get(id(value), (value,))):
                number.pinned()

    def seen(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a function of torch gives, with traced numbers for sizes."""
        reads, makes = _rules()
        if func in reads and not kwargs:
            return reads[func](*self.of(args[0]), *args[1:])
        self.told = True
        try:
            output = func(*plain(tuple(args)), **plain(dict(kwargs)))
        finally:
            self.told = False
        name = getattr(func, "__name__", "")
        if (getattr(func, "__self__", func).__name__ if name == "__get__" else name) in _OF_A_CLASS:
            return output
        traced = func in makes and kwargs.keys() <= {"dtype", "device"}  # such as a format may decide strides
        memory = makes[func](self, *args, **kwargs) if traced else None
        if memory is not None and plain(memory) == (tuple(output.shape), tuple(output.stride())):
            self._memory[id(output)] = output, memory
        else:
            self.pin(*Arguments.tensors_in((args, kwargs), lambda each: not isinstance(each, (tuple, list, Mapping))))
        return output


def _product(numbers: Iterable[int]) -> int:
    return reduce(lambda total, number: number * total, numbers, 1)


def _is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    if 0 in shape:
        return True
    step = 1
    for extent, own in zip(reversed(shape), reversed(stride), strict=True):
        if extent != 1 and own != step:
            return False
        step = extent * step
    return True


def _row_major(shape: Sequence[Any]) -> Memory:
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)
    return shape, contiguous_stride(shape)


def _viewed(sizes: Sizes, tensor: Any, extents: Any = None, *more: Any, **_dtype: Any) -> Memory | None:
    own, stride = sizes.of(tensor)
    shape = tuple(extents) if isinstance(extents, (tuple, list)) else (extents, *more)
    if not all(isinstance(extent, int) for extent in shape) or not _is_contiguous(own, stride):
        return None
    rest = _product(extent for extent in shape if extent != -1)
    if -1 in plain(shape) and rest != 0:
        shape = tuple(_product(own) // rest if extent == -1 else extent for extent in shape)
    return _row_major(shape)


def _alike(sizes: Sizes, tensor: object, **_: object) -> Memory | None:
    memory = sizes.of(tensor)
    return memory if _is_contiguous(*memory) else None


def _turned(sizes: Sizes, tensor: object, one: int = 0, other: int = 1) -> Memory | None:
    shape, stride = map(list, sizes.of(tensor))
    if len(shape) <= max(one, other) or not shape:
        return None
    for each in (shape, stride):
        each[one], each[other] = each[other], each[one]
    return tuple(shape), tuple(stride)


@cache
def _rules() -> tuple[dict[Any, Callable[..., Any]], dict[Any, Callable[..., Memory | None]]]:
    """What is read of a tensor's shape and strides, and the memory of what a function makes; None if not known."""
    torch = require("torch", "a known call")
    tensor = torch.Tensor

    def part(which: int) -> Callable[..., object]:
        return lambda shape, stride, axis=None: (shape, stride)[which] if axis is None else (shape, stride)[which][axis]

    reads: dict[Any, Callable[..., Any]] = {
        tensor.shape.__get__: lambda shape, _stride, *_: shape, tensor.size: part(0), tensor.stride: part(1),
        tensor.numel: lambda shape, _stride: _product(shape), tensor.nelement: lambda shape, _stride: _product(shape),
        tensor.is_contiguous: _is_contiguous,
    }  # fmt: skip
    makes: dict[Any, Callable[..., Memory | None]] = {
        tensor.new_empty: lambda _sizes, _tensor, *shape, **_: _row_major(shape),
        tensor.new_zeros: lambda _sizes, _tensor, *shape, **_: _row_major(shape),
        torch.empty: lambda _sizes, *shape, **_: _row_major(shape),
        torch.zeros: lambda _sizes, *shape, **_: _row_major(shape),
        tensor.new_empty_strided: lambda _sizes, _tensor, shape, stride, **_: (tuple(shape), tuple(stride)),
        tensor.as_strided: lambda _sizes, _tensor, shape, stride, *_: (tuple(shape), tuple(stride)),
        tensor.detach: lambda sizes, tensor: sizes.of(tensor),
        tensor.contiguous: _alike, torch.empty_like: _alike, tensor.view: _viewed, tensor.reshape: _viewed,
        tensor.t: _turned, tensor.transpose: _turned,
    }  # fmt: skip
    return reads, makes


def sizes_seen(recorder: Callable[[], Any]) -> AbstractContextManager[object]:
    """Inside, the sizes of what `recorder()` gives on a thread, where there is any, see functions of torch."""

    def seen(func: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        own = recorder()
        return func(*args, **kwargs) if own is None else own.sizes.seen(func, args, kwargs)

    return functions_taken(seen)
