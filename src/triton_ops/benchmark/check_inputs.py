"""Inputs on which a candidate is judged: extents and values that nobody chose for it, and ways to lie in memory.

Extents vary together where they are equal: a weight stays as long as the rows that it is for. What the reference
refuses is no question to a candidate, so that no extent needs to be allowed beforehand. Extents up to four are left as
they are, since they often mean something else, such as the sides of a filter.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from triton_ops.backend import Arguments, Operation
from triton_ops.evaluation import library_of
from triton_ops.values import TensorSpec, contiguous_stride, item_bytes

_FIXED = 4  # extents up to here stay
_PRIMES, _SIXTEENS, _WHOLE, _EDGES = (17, 31, 67, 131), (48, 80, 144), (192, 64, 320), (65, 127, 33, 129)
_WIDE = 1 << 31  # elements that a signed number of 32 bits cannot count
_FEW = 7  # values of a tensor of many ties; no width of tiles is a multiple of it
_LARGE, _OUTLIER = 100.0, 10.0
_LARGE_OF_16_BITS = 8.0  # beyond, rounding alone decides which score of attention is the largest


def is_spec(value: object) -> bool:
    """Tell the description of a tensor."""
    return isinstance(value, TensorSpec)


@dataclass(frozen=True)
class Form:
    """Problems of one form: `make` describes the arguments for any extents; those that were asked for are `extents`.

    `arrays` says whether NumPy's arrays take the place of tensors; `flops` are the operations of operands of `dtype` at
    the extents that were asked for, 0 if they are not known.
    """

    extents: tuple[int, ...]
    make: Callable[[tuple[int, ...]], Arguments]
    arrays: bool = False
    flops: float = 0.0
    dtype: str = ""

    @classmethod
    def of_arguments(cls, given: Arguments, *, arrays: bool = False) -> Form:
        """The form of described arguments, or of given ones, whose values are drawn from again and again."""
        arrays = arrays or any(map(Arguments.is_array, (*given.positional, *given.keyword.values())))
        asked = given.map(_described, _is_described)
        specs = list(Arguments.tensors_in((asked.positional, asked.keyword), is_spec))
        extents = tuple(dict.fromkeys(extent for spec in specs for extent in spec.shape if extent > _FIXED))

        def make(others: tuple[int, ...]) -> Arguments:
            new = dict(zip(extents, others, strict=True))
            return asked if others == extents else asked.map(lambda value: _resized(value, new), _is_sized)

        return cls(extents, make, arrays)

    @classmethod
    def of_operation(cls, operation: Operation, shape: tuple[int, ...], dtype: str | None) -> Form:
        """The form of an operation's arguments, which are passed by name."""
        problem = operation.problem(shape, dtype)
        work = None if operation.work is None else operation.work(problem)
        word = {"dtype": dtype or operation.dtypes[0]} if operation.dtypes else {}
        return cls(
            shape, lambda others: Arguments(keyword=dict(operation.arguments(*others, **word))),
            flops=0.0 if work is None else work.flops, dtype="" if work is None else work.dtype,
        )  # fmt: skip

    def specs(self, extents: tuple[int, ...]) -> list[TensorSpec]:
        """The descriptions of the tensors."""
        made = self.make(extents)
        return list(Arguments.tensors_in((made.positional, made.keyword), is_spec))


def _described(value: Any) -> Any:
    """The description of a tensor or an array, with the values to draw from as a tensor."""
    if Arguments.is_tensor(value):
        return replace(TensorSpec.of(value), fill=value.detach())
    spec = TensorSpec.from_values(value) if Arguments.is_array(value) else value
    return spec if isinstance(spec.fill, str) else replace(spec, fill=spec.own_values("cpu"))


def _is_described(value: object) -> bool:
    return is_spec(value) or Arguments.is_tensor(value) or Arguments.is_array(value)


def _is_sized(value: object) -> bool:
    return is_spec(value) or type(value) is int


def _resized(value: Any, new: dict[int, int]) -> Any:
    """A description, or a number that says an extent, with other extents."""
    if not isinstance(value, TensorSpec):
        return new.get(value, value)
    shape = tuple(new.get(extent, extent) for extent in value.shape)
    return value if shape == value.shape else replace(value, shape=shape, stride=None)


@dataclass(frozen=True)
class Inputs:
    """The inputs of one call: extents, a seed, and by name the sort of values and the way that they lie in memory."""

    form: Form
    extents: tuple[int, ...]
    seed: int
    values: str = ""
    layout: str = ""

    @property
    def shape(self) -> str:
        """The shapes as they are typed, such as `256x1024,1024`."""
        return ",".join("x".join(map(str, spec.shape)) or "scalar" for spec in self.form.specs(self.extents))

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(spec.nbytes for spec in self.form.specs(self.extents))

    @property
    def is_as_asked(self) -> bool:
        """Tell inputs as the question has them; halves of them may be new."""
        return self.extents == self.form.extents and not self.layout and self.values not in VALUES

    @property
    def has_floats(self) -> bool:
        """Tell whether a tensor holds floats."""
        return any("float" in spec.dtype for spec in self.form.specs(self.extents))

    def made(self, device: str) -> Arguments:
        """New arguments on a device; the same each time."""
        seeds, rng = itertools.count(self.seed), random.Random(self.seed)
        specs, largest = self.form.specs(self.extents), max(self.extents, default=1)
        floats = [at for at, spec in enumerate(specs) if "float" in spec.dtype and spec.numel]
        most = max((specs[at].numel for at in floats), default=0)
        changed = rng.choice([at for at in floats if specs[at].numel == most]) if floats else -1
        places = itertools.count()
        least = 0 if self.extents == self.form.extents else min((*self.extents, largest))

        def tensor(spec: TensorSpec) -> Any:
            at, seed = next(places), next(seeds)
            content = _drawn(spec, device, seed, least)
            if self.values in RENEWED and spec.numel:
                half, other = spec.numel // 2, _drawn(spec, device, seed + len(specs), least)
                part = slice(half, None) if self.values == "the second half new" else slice(half)
                content.reshape(-1)[part] = other.reshape(-1)[part]
            elif at == changed and self.values in VALUES:
                VALUES[self.values](content, rng)
            return self._laid_out(spec, content, device)

        return self.form.make(self.extents).map(tensor, is_spec)

    def _laid_out(self, spec: TensorSpec, content: Any, device: str) -> Any:
        plain = spec.stride is None and spec.aligned
        room = None if plain else replace(spec, fill="empty").create_tensor(device)
        if self.layout and content.ndim and spec.numel:
            room = LAYOUTS[self.layout](replace(spec, stride=None, aligned=True, fill="empty"), device)
        if room is not None:
            room[...] = content
            content = room
        return content.numpy() if self.form.arrays and hasattr(content, "numpy") else content


def _drawn(spec: TensorSpec, device: str, seed: int, least: int) -> Any:
    """New values: drawn as a word says, or from given ones; integers that may be indices stay below `least`, if any."""
    if isinstance(spec.fill, str):
        content = replace(spec, stride=None, aligned=True).create_tensor(device, seed)
    else:
        pool = spec.fill.reshape(-1)
        pool = pool.to(device) if hasattr(pool, "to") else pool
        fill = "arange" if _is_sorted(pool) else "bits"
        places = TensorSpec((spec.numel,), "int64", fill=fill).create_tensor(device, seed)
        places = places * len(pool) // max(spec.numel, 1) if fill == "arange" else places % max(len(pool), 1)
        content = pool[places].reshape(spec.shape)
    return content % least if least and "int" in spec.dtype else content


def _is_sorted(values: Any) -> bool:
    """Tell rising whole numbers, such as the ends of sequences, which mean something together."""
    if values.ndim != 1 or len(values) < 3 or "int" not in str(values.dtype):
        return False
    return bool((values[1:] >= values[:-1]).all()) and bool(values[0] != values[-1])


def _some(count: int, share: int, rng: random.Random) -> list[int]:
    """Few of `count` places, one at least."""
    return rng.sample(range(count), min(count, max(1, min(count // share, 4096))))


def _rows(content: Any, rng: random.Random) -> tuple[Any, list[int]]:
    rows = content.reshape(-1, content.shape[-1] if content.ndim else 1)
    return rows, _some(len(rows), 8, rng)


def _outliers(content: Any, rng: random.Random) -> None:
    flat = content.reshape(-1)
    flat[_some(len(flat), 1000, rng)] *= _OUTLIER


def _large_rows(content: Any, rng: random.Random) -> None:
    rows, some = _rows(content, rng)
    rows[some] *= _LARGE if content.dtype.itemsize > 2 else _LARGE_OF_16_BITS


def _denormal_rows(content: Any, rng: random.Random) -> None:
    rows, some = _rows(content, rng)
    rows[some] *= library_of(content).finfo(content.dtype).tiny


def _ties(content: Any, rng: random.Random) -> None:  # noqa: ARG001 - the signature of all
    flat = content.reshape(-1)
    flat[...] = library_of(content).tile(flat[:_FEW].copy() if Arguments.is_array(flat) else flat[:_FEW].clone(),
                                       (len(flat) // min(_FEW, len(flat)) + 1,))[: len(flat)]  # fmt: skip


def _one_nan(content: Any, rng: random.Random) -> None:
    content.reshape(-1)[rng.randrange(math.prod(content.shape))] = math.nan


def _infinities(content: Any, rng: random.Random) -> None:
    for value in (math.inf, -math.inf):
        content.reshape(-1)[rng.randrange(math.prod(content.shape))] = value


RENEWED = ("the second half new", "the first half new")
INFINITIES = "infinities"
SPECIAL = {"a NaN": _one_nan, INFINITIES: _infinities}
"""Values for which a reference's own rule may not be meant."""
VALUES: dict[str, Callable[[Any, random.Random], None]] = {
    "outliers": _outliers, "large rows": _large_rows, "denormal rows": _denormal_rows, "ties": _ties, **SPECIAL,
}  # fmt: skip


def _padded(spec: TensorSpec, device: str) -> Any:
    stride = contiguous_stride((*spec.shape[:-1], spec.shape[-1] + 3))
    return replace(spec, stride=stride, aligned=False).create_tensor(device)


def _transposed(spec: TensorSpec, device: str) -> Any:
    stride = list(contiguous_stride((*spec.shape[:-2], *reversed(spec.shape[-2:]))))
    stride[-2:] = reversed(stride[-2:])
    return replace(spec, stride=tuple(stride)).create_tensor(device)


def _offset(bytes_: int) -> Callable[[TensorSpec, str], Any]:
    def made(spec: TensorSpec, device: str) -> Any:
        places = max(bytes_ // item_bytes(spec.dtype), 1)
        return replace(spec, shape=(spec.numel + places,)).create_tensor(device)[places:].reshape(spec.shape)

    return made


_STRIDED: dict[str, Callable[[TensorSpec, str], Any]] = {"padded rows": _padded, "transposed": _transposed}
LAYOUTS = {
    **_STRIDED,
    **{f"an address of {bytes_} bytes beyond one of 64": _offset(bytes_) for bytes_ in (2, 4, 8, 16)},
}  # fmt: skip


def shapes_near(extents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Other extents: small ones first, then each alone at its own edges; the same ones may come twice."""
    axes = range(len(extents))
    for numbers in ((1,), _PRIMES, _PRIMES[1:], _EDGES, _EDGES[1:], _SIXTEENS, _WHOLE):
        yield tuple(numbers[axis % len(numbers)] for axis in axes)
    for axis, extent in enumerate(extents):
        for other in (0, 1, extent - 1, extent + 1, prime_below(extent)):
            yield (*extents[:axis], other, *extents[axis + 1 :])


def inputs_near(asked: Inputs, rng: random.Random) -> Iterator[Inputs]:
    """Without end in turns: one extent smaller by one, other strides, and the inputs as they are.

    Only one of other extents and one of other strides, since a candidate may compile for each.
    """
    extents, axis = list(asked.extents), rng.randrange(max(len(asked.extents), 1))
    extents[axis : axis + 1] = [extent - 1 for extent in extents[axis : axis + 1]]
    others = replace(asked, extents=tuple(extents)), replace(asked, layout=rng.choice([*_STRIDED])), asked
    return itertools.cycle(others)


def prime_below(extent: int) -> int:
    """The largest prime below an extent; 1 if there is none."""
    return next((n for n in range(extent - 1, 1, -1) if all(n % d for d in range(2, math.isqrt(n) + 1))), 1)


def wide_extents(form: Form, free_bytes: float) -> tuple[int, ...] | None:
    """Extents at which the largest tensor has more than 2^31 elements; None without room for it all eight times."""
    most = max((spec.numel for spec in form.specs(form.extents)), default=0)
    if not (most and form.extents):
        return None
    wide = (form.extents[0] * (_WIDE // most + 1), *form.extents[1:])
    return wide if 8 * Inputs(form, wide, 0).nbytes <= free_bytes else None


def smallest(extents: tuple[int, ...], wrong: Callable[[tuple[int, ...], bool], bool]) -> tuple[int, ...]:
    """Extents at which something is still wrong: the smallest that halving finds, then what lies between each and half.

    `wrong` is asked for extents, and whether to look closely. Each way of halving begins with small extents, which take
    the least time; the second looks closely.
    """
    for closely in (False, True):
        extents = _halved(extents, wrong, closely)
    for axis in range(len(extents)):
        low = extents[axis] // 2
        while extents[axis] - low > 1:
            middle = (low + extents[axis]) // 2
            if wrong(between := (*extents[:axis], middle, *extents[axis + 1 :]), False):
                extents = between
            else:
                low = middle
    return extents


def _halved(extents: tuple[int, ...], wrong: Callable[[tuple[int, ...], bool], bool], closely: bool) -> tuple[int, ...]:
    """Extents of which none can be half as large: at first all of them are at most 1, 2, 4, and so on."""
    powers = takewhile(lambda power: power < max(extents, default=0), (1 << power for power in itertools.count()))
    capped = (tuple(min(extent, most) for extent in extents) for most in powers)
    best, before = next((each for each in capped if wrong(each, closely)), extents), None
    while best != before:
        before = best
        for axis in sorted(range(len(best)), key=before.__getitem__):
            while best[axis] > 1 and wrong(half := (*best[:axis], best[axis] // 2, *best[axis + 1 :]), closely):
                best = half
    return best


def plain_names(arguments: Arguments) -> Sequence[str]:
    """The names by which a call's arguments are told: of those by position their numbers."""
    return [*map(str, range(len(arguments.positional))), *arguments.keyword]
