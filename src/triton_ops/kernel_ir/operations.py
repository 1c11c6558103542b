"""The meaning of each operation of TTIR: as terms, as a function of numbers, and as work.

Loops, conditions and calls are in `term_walk.py`. An operation that is not in the table is taken for one on single
elements, of which only the name is known; where it is none of floating point, a note says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.facts import (
    AccessFact,
    Computation,
    Multiplication,
    ProductFact,
    ReductionFact,
    TermScope,
    TermValue,
)
from triton_ops.kernel_ir.terms import Term, Terms
from triton_ops.kernel_ir.trace import COMPARISONS, Product, Reduction
from triton_ops.kernel_ir.ttir_syntax import TtirOperation, Type, UntoldError

Numbers: TypeAlias = NDArray[Any]
Handler: TypeAlias = Callable[[TermScope, TtirOperation], Sequence[TermValue]]
_COORDINATES = re.compile(r"\[([^\]]*)\]")
_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_UNKNOWN_STRIDE = 1 << 20  # elements, so many that no two rows have a line in common


def _expand_dims(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    operand, kind, axis = here.value(operation.operands[0]), operation.result_type, operation.attribute("axis") or 0
    terms = here.terms
    later = {terms.index(k): terms.whole(terms.index(k + 1)) for k in range(axis, len(operand.type.shape))}
    return [replace(operand, term=terms.change(operand.term, later), type=kind)]


def _transpose(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    operand, terms = here.value(operation.operands[0]), here.terms
    order = operation.order(len(operand.type.shape))
    to = {terms.index(old): terms.whole(terms.index(new)) for new, old in enumerate(order) if new != old}
    return [replace(operand, term=terms.change(operand.term, to), type=operation.result_type)]


def _reshape(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    """The element at a place of the new shape is the one at the same place in row-major order."""
    operand, kind, terms = here.value(operation.operands[0]), operation.result_type, here.terms
    flat = terms.number(0)
    for axis, extent in enumerate(kind.shape):
        place = terms.number(0) if extent == 1 else terms.whole(terms.index(axis))
        flat = terms.add((extent, flat), (1, place)) if axis else place
    to, shape = {}, operand.type.shape
    for axis, extent in enumerate(shape):
        place = _quotient_of_place(terms, flat, prod(shape[axis + 1 :]), kind.shape)
        inner = place if axis == 0 else _remainder_of_place(terms, place, extent, kind.shape)
        to[terms.index(axis)] = terms.number(0) if extent == 1 else inner
    return [replace(operand, term=terms.change(operand.term, to), type=kind)]


def _quotient_of_place(terms: Terms, flat: Term, by: int, shape: Sequence[int]) -> Term:
    """The quotient of a place; what cannot reach the divisor falls away."""
    rest = [(m, c) for m, c in flat.operands if c % by]
    if rest and sum(c * (shape[m[0].operands[0]] - 1) for m, c in rest if m) >= by:
        return terms.quotient(flat, terms.number(by))
    return terms.sum({m: c // by for m, c in flat.operands if c % by == 0})


def _remainder_of_place(terms: Terms, place: Term, extent: int, shape: Sequence[int]) -> Term:
    residue = {m: c for m, c in place.operands if c % extent} if place.name == "sum" else {}
    plain = all(len(m) == 1 and m[0].name == "index" for m in residue)
    reach = sum(c * (shape[m[0].operands[0]] - 1) for m, c in residue.items()) if plain else extent
    return terms.sum(residue) if reach < extent else terms.remainder(place, terms.number(extent))


def _join(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = here.all(operation.operands)
    kind = operation.result_types[-1]
    last = here.terms.whole(here.terms.index(len(kind.shape) - 1))
    return [TermValue(here.terms.choose(here.terms.zero(last), one.term, other.term), kind)]


def _split(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    operand, terms = here.value(operation.operands[0]), here.terms
    last = terms.index(len(operand.type.shape) - 1)
    return [TermValue(terms.change(operand.term, {last: terms.number(k)}), operation.result_types[-1]) for k in (0, 1)]


def symbolic(here: TermScope, kind: Type, name: str, *operands: object) -> TermValue:
    """A value of which only its making is known."""
    if not (here.facts.data or kind.whole or kind.pointer):
        return TermValue(here.terms.data, kind)
    if not here.facts.data and here.terms.data in operands:  # what is made of data is never the same twice
        operands = *operands, here.terms.count
    term = here.terms.make(name, *operands)
    if kind.truth:
        return TermValue(here.terms.make("compared", term), kind)
    if kind.pointer:
        return TermValue(here.terms.make("pointer", term, here.terms.number(0)), kind)
    return TermValue(here.terms.whole(term) if kind.whole else term, kind)


def elementwise(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    """An operation on single elements: its name, the type of its elements, and what it is given."""
    operands = [value.term for value in here.all([n for n in operation.operands if n in here.values])]
    # The result of another operation may depend on more than its operands: it is equal to no other one.
    extra = () if operation.name.startswith(("arith.", "math.")) or operation.name in _PLAIN else (operation.number,)
    word = operation.predicate if operation.name == "arith.cmpf" else " ".join(operation.quoted)
    kinds = enumerate(operation.kinds)
    return [symbolic(here, kind, operation.name, kind.element, word, *extra, place, *operands) for place, kind in kinds]


_PLAIN = {"tt.fp_to_fp", "tt.bitcast", "tt.precise_sqrt", "tt.precise_divf", "tt.clampf", "tt.mulhiui"}


def _constant(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    kind = operation.result_type if operation.types else Type((), "i1")  # `true` and `false` stand without one
    literal, terms = operation.literal, here.terms
    if literal in ("true", "false"):
        return [TermValue(terms.truth(literal == "true"), kind)]
    try:
        if kind.whole:
            return [TermValue(terms.number(int(literal)), kind)]
        return [TermValue(terms.make("number", float_of(literal, kind)), kind)]
    except ValueError:
        return [symbolic(here, kind, "constant", operation.number, *axis_symbols(terms, kind))]


def float_of(literal: str, kind: Type) -> float:
    """The number that a constant of this type is, as the text has it; raises ValueError for any other form."""
    if literal in ("true", "false"):
        return float(literal == "true")
    if not literal.startswith("0x"):
        return float(literal)
    # MLIR writes bits in place of decimals for infinity and NaN alone.
    digits = literal[2:].rjust(kind.item_bytes * 2, "0").lower()
    narrow = {"f16": ("fc00", "7c00"), "bf16": ("ff80", "7f80"), "f32": ("ff800000", "7f800000")}
    low, high = narrow.get(kind.element, ("fff0000000000000", "7ff0000000000000"))
    return float("-inf" if digits == low else "inf" if digits == high else "nan")


def axis_symbols(terms: Terms, kind: Type) -> list[Term]:
    """The symbols of the places along the axes of a block."""
    return [terms.index(axis) for axis in range(len(kind.shape))]


def _program(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    axis = "xyz".index(operation.text.split()[0])  # of the grid
    return [symbolic(here, operation.result_type, operation.name.removeprefix("tt.get_"), axis)]


def _range(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    kind, terms = operation.result_type, here.terms
    place = terms.number(0) if kind.shape == (1,) else terms.whole(terms.index(0))
    return [TermValue(terms.add((1, terms.number(operation.attribute("start") or 0)), (1, place)), kind)]


def _keep(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    return [replace(here.value(operation.operands[0]), type=operation.result_type)]


def _widen(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    (operand,), kind = here.all(operation.operands), operation.result_type
    if operand.type.truth:
        return [TermValue(here.terms.choose(operand.term, here.terms.number(1), here.terms.number(0)), kind)]
    if operand.type.item_bytes < kind.item_bytes == 8:
        (here.facts.widenings if operation.name == "arith.extsi" else here.facts.narrow).append(operand.term)
    return [TermValue(operand.term, kind)]


def _multiply(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = here.all(operation.operands)
    if (kind := operation.result_type).truth:
        return [TermValue(here.terms.both(one.term, other.term), kind)]
    return _product(here, operation, one.term, other.term)


def _product(here: TermScope, operation: TtirOperation, one: Term, other: Term) -> list[TermValue]:
    kind = operation.result_type
    fact = Multiplication(*here.met(operation), bits=kind.item_bytes * 8, one=one, other=other)
    here.facts.multiplications.append(fact)
    return [TermValue(here.terms.multiply(one, other), kind)]


def _shift_left(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, by = (value.term for value in here.all(operation.operands))
    power = _power(here.terms, by)
    return elementwise(here, operation) if power is None else _product(here, operation, one, power)


def _made(work: Callable[..., Term | None]) -> Handler:
    """One result, made of the terms, its type and what is given; of which only its making is known for None."""

    def results(here: TermScope, operation: TtirOperation) -> list[TermValue]:
        kind = operation.result_type
        term = work(here.terms, kind, *(value.term for value in here.all(operation.operands)))
        return elementwise(here, operation) if term is None else [TermValue(term, kind)]

    return results


def _of_terms(work: Callable[..., Term]) -> Handler:
    return _made(lambda terms, _, *operands: work(terms, *operands))


def _narrowed(terms: Terms, kind: Type, one: Term) -> Term:
    return terms.refuse(terms.zero(one)) if kind.truth else one


def _sum_with(factor: int) -> Handler:
    return _made(lambda terms, kind, one, other: None if kind.truth else terms.add((1, one), (factor, other)))


def _power(terms: Terms, by: Term) -> Term | None:
    """The number that a shift multiplies or divides by; None if it is not known."""
    # 1 << 63 is no number of NumPy's int64.
    return terms.number(1 << by.constant) if by.constant is not None and 0 <= by.constant < 63 else None


def _shift_right(terms: Terms, _: Type, one: Term, by: Term) -> Term | None:
    power = _power(terms, by)
    return None if power is None else terms.quotient(one, power)


def _extreme(name: str) -> Handler:
    return _of_terms(lambda terms, *both: both[0] if both[0] is both[1] else terms.opaque(name, *sorted(both)))


def _and(terms: Terms, kind: Type, one: Term, other: Term) -> Term | None:
    if kind.truth:
        return terms.both(one, other)
    # A mask of low ones is a remainder by a power of two.
    if (power := other.constant) is None or power < 0 or power & (power + 1):
        return None
    return terms.remainder(one, terms.number(power + 1))


def _xor(terms: Terms, kind: Type, one: Term, other: Term) -> Term | None:
    if not kind.truth or terms.true not in (one, other):
        return None
    return terms.refuse(one if other is terms.true else other)


def _compare(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = here.all(operation.operands)
    terms = here.terms
    kind = Type(operation.result_type.shape, "i1")
    how = operation.predicate[-2:]
    if one.type.pointer or one.type.truth or how not in COMPARISONS:
        return [symbolic(here, kind, "compared", operation.predicate, one.term, other.term)]
    a, b = one.term, other.term
    if (inner := _as_condition(a, b)) is not None and how in ("eq", "ne"):
        return [TermValue(inner if how == "ne" else terms.refuse(inner), kind)]
    if how in ("eq", "ne"):
        condition = terms.zero(terms.add((1, a), (-1, b)))
        return [TermValue(condition if how == "eq" else terms.refuse(condition), kind)]
    low, high = (a, b) if how in ("lt", "le") else (b, a)
    strict = 1 if how in ("lt", "gt") else 0
    condition = terms.at_least_zero(terms.add((1, high), (-1, low), (-strict, terms.number(1))))
    return [TermValue(condition, kind)]


def _as_condition(a: Term, b: Term) -> Term | None:
    """The condition that was made a number, where it is compared with 0."""
    if b.constant != 0 or a.name != "sum" or len(a.operands) != 1:
        return None
    (monomial, coefficient) = a.operands[0]
    if coefficient != 1 or len(monomial) != 1 or monomial[0].name != "choose":
        return None
    condition, one, other = monomial[0].operands
    return condition if one.constant == 1 and other.constant == 0 else None


def _convert(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    """Other bits for the same elements, whose source stays known."""
    return [replace(elementwise(here, operation)[0], source=here.value(operation.operands[0]).source)]


def unknown(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    """The results of an operation that is not in the table."""
    if not operation.kinds:
        here.facts.notes[f"{operation.name} is not known here, and is taken to do nothing"] = None
    elif not operation.name.startswith(("arith.", "math.", "tt.")):
        here.facts.notes[f"{operation.name} is not known here, and its result counts as unknown"] = None
    return elementwise(here, operation)


def _add_pointer(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    pointer, offset = here.all(operation.operands)
    here.facts.narrow += [offset.term] if offset.type.item_bytes < 8 else []
    if pointer.term.name != "pointer":
        return [symbolic(here, pointer.type, "address", operation.number, pointer.term, offset.term)]
    root, before = pointer.term.operands
    return [TermValue(here.terms.make("pointer", root, here.terms.add((1, before), (1, offset.term))), pointer.type)]


def _load(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    pointer, *rest = here.all(operation.operands)
    mask = rest[0] if rest and rest[0].type.truth else None
    other = rest[1].term if mask is not None and len(rest) > 1 else None
    access = _record_access(here, operation, "load", pointer, mask)
    kind = Type(pointer.type.shape, pointer.type.element)
    if kind.element.startswith("!"):
        kind = Type(kind.shape, kind.element.removeprefix("!tt.ptr<").rstrip(">"), pointer=True)
    operands = kind.element, access.root, access.offset, access.mask, other or "nothing"
    here.facts.loads.setdefault(here.terms.make("load", *operands), operation.number)
    return [replace(symbolic(here, kind, "load", *operands), source=operation.number)]


def _store(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    pointer, value, *rest = here.all(operation.operands)
    _record_access(here, operation, "store", pointer, rest[0] if rest else None, value=value)
    return []


def _atomic(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    pointer, *rest = here.all(operation.operands)
    exchanges = operation.name != "tt.atomic_rmw"
    mask = None if exchanges else next((one for one in reversed(rest) if one.type.truth), None)
    does = operation.name if exchanges else operation.predicate
    _record_access(here, operation, "atomic", pointer, mask, value=rest[0], does=does)
    places = axis_symbols(here.terms, pointer.type)
    return [symbolic(here, operation.result_type, "was there", operation.number, *places)]


def _record_access(
    here: TermScope, operation: TtirOperation, kind: str, pointer: TermValue, mask: TermValue | None, **details: Any
) -> AccessFact:
    root, offset = pointer.term.operands if pointer.term.name == "pointer" else (pointer.term, here.terms.number(0))
    access = AccessFact(
        *here.met(operation), kind=kind, root=root, offset=offset, type=pointer.type,
        mask=here.terms.true if mask is None else mask.term, **details,
    )  # fmt: skip
    here.facts.accesses.append(access)
    return access


def _make_descriptor(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    base = here.value(operation.operands[0])
    extents, strides = (
        tuple(one.term for one in here.all(_NAME.findall(part))) for part in _COORDINATES.findall(operation.text)[:2]
    )
    kind = Type(operation.types[-1].shape, base.type.element, descriptor=True)  # of `<64x32xbf16>`, or of a `tensor`
    return [TermValue(base.term, kind, strides=strides, extents=extents)]


_BLOCKS = {
    "tt.descriptor_load": "load", "tt.descriptor_gather": "load", "tt.descriptor_store": "store",
    "tt.descriptor_scatter": "store", "tt.descriptor_reduce": "atomic",
}  # fmt: skip


def _access_block(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    """An access of a block of a tensor whose place the coordinates tell."""
    described, terms, kind = here.value(operation.operands[0]), here.terms, _BLOCKS[operation.name]
    block = operation.result_type if kind == "load" else operation.types[-1]
    at = here.all(_NAME.findall(_COORDINATES.findall(operation.text)[0]))
    root, offset = described.term.operands if described.term.name == "pointer" else (described.term, terms.number(0))
    for axis, one in enumerate(at):
        far = _UNKNOWN_STRIDE if axis < len(at) - 1 else 1
        stride = described.strides[axis] if axis < len(described.strides) else terms.number(far)
        if stride.constant is None:
            stride = terms.opaque("stride", stride, far)
        offset = terms.add((1, offset), (1, terms.multiply(one.term, stride)))
    access = AccessFact(
        *here.met(operation), kind=kind, root=root, offset=offset, mask=terms.true,
        type=Type((), described.type.element, pointer=True), block=block, extents=described.extents,
        at=tuple(None if one.type.shape else one.term for one in at),
    )  # fmt: skip
    here.facts.blocks.append(access)
    if kind != "load":
        return []
    value = symbolic(here, block, "block", operation.number, *axis_symbols(terms, block))
    return [replace(value, source=operation.number)]


def _dot(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    left, right, start = here.all(operation.operands[:3])
    kind, terms = operation.result_types[-1], here.terms
    bound, rank = terms.make("bound", operation.number), len(kind.shape)
    one = terms.change(left.term, {terms.index(rank - 1): terms.whole(bound)})
    other = terms.change(right.term, {terms.index(rank - 2): terms.whole(bound)})
    product = ProductFact(
        *here.met(operation), left=left, right=right, factors=(one, other), bound=bound, type=kind,
        precision="tf32" if "tf32" in operation.text else "",
    )  # fmt: skip
    here.facts.products.append(product)
    _multiplied(here, operation, left.type.shape[-1])
    return [symbolic(here, kind, "dot", kind.element, operation.number, one, other, start.term)]


def _scaled_dot(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    """`tt.dot_scaled`, whose first operand may hold two elements in a byte."""
    left, kind = here.value(operation.operands[0]), operation.result_types[-1]
    _multiplied(here, operation, left.type.shape[-1] * (2 if "lhs = e2m1" in operation.text else 1))
    return [symbolic(here, kind, "scaled dot", operation.number, *axis_symbols(here.terms, kind))]


def _multiplied(here: TermScope, operation: TtirOperation, inner: int) -> None:
    left, *others = here.all(operation.operands)
    kind = operation.result_types[-1]
    tensors = [value for value in others if len(value.type.shape) == len(kind.shape)]
    right = next((v for v in tensors if v.type.shape[-1] == kind.shape[-1] and v is not tensors[-1]), tensors[0])
    product = Product(
        batch=kind.shape[0] if len(kind.shape) == 3 else 1, rows=kind.shape[-2], columns=kind.shape[-1], inner=inner,
        element=left.type.element, loop=here.way.number, executions=0.0, loads=(left.source, right.source),
    )  # fmt: skip
    here.facts.computations.append(Computation(operation.number, here.way, product=product))


def _reduce(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    inputs, axis = tuple(here.all(operation.operands)), operation.attribute("axis") or 0
    elements = prod(operation.types[0].shape) * len(operation.results)
    inner_operations, scans = operation.regions[0][0].operations, operation.name == "tt.scan"
    tile = Reduction(
        shape=inputs[0].type.shape, axis=axis, executions=0.0, operands=len(operation.results),
        operations=len(inner_operations) - 1, scans=scans,
    )  # fmt: skip
    here.facts.computations.append(Computation(operation.number, here.way, elements, reduction=tile))
    if operation.name == "tt.reduce" or "reverse = true" in operation.text + operation.tail:
        names = {name for inner in inner_operations for name in inner.operands}
        around = {name: here.values[name].term for name in names if name in here.values}
        reduction = ReductionFact(
            *here.met(operation), axis=axis, inputs=inputs, operation=operation, around=around,
            scans=scans, steps=tuple(meaning_of(one.name).does for one in inner_operations),
        )  # fmt: skip
        here.facts.reductions.append(reduction)
    terms, rank = here.terms, len(inputs[0].type.shape)
    to = {terms.index(axis): terms.whole(terms.make("bound", operation.number))}
    extra = [terms.index(axis)] if scans else []
    if operation.name == "tt.reduce":
        to.update({terms.index(k): terms.whole(terms.index(k - 1)) for k in range(axis + 1, rank)})
    inner = [terms.change(value.term, to) for value in inputs]
    how = " ".join(one.name for one in inner_operations)
    return [
        symbolic(here, kind, operation.name, kind.element, how, operation.number, place, *extra, *inner)
        for place, kind in enumerate(operation.kinds)
    ]


class NotComputedError(UntoldError):
    """An operation whose result cannot be computed here; it names the operation."""


def computed(name: str, word: str, operands: Sequence[Numbers]) -> Numbers:
    """The result of an operation, or of a term, on single elements; raises NotComputedError if it is not known."""
    function = OPERATIONS[name].numbers if name in OPERATIONS else _OF_TERMS.get(name)
    if name in ("arith.cmpf", "arith.cmpi"):
        function = COMPARISONS.get(word.strip()[-2:])
    elif name == "tt.extern_elementwise":
        symbol = word.strip('" ').removeprefix("__nv_").removeprefix("fast_")
        function = _LIBRARY.get(symbol) or _LIBRARY.get(symbol.removesuffix("f"))
    if function is None:
        raise NotComputedError(f"{name} {word}".strip())
    try:
        return np.asarray(function(*operands))
    except TypeError as error:  # bits of what is no whole number here
        raise NotComputedError(f"{name} {word}".strip()) from error


def _same(x: Any) -> Any:
    return x


def _divisor(other: Numbers) -> Numbers:
    # Places that a mask leaves out may divide by 0, and nobody uses their results.
    return np.where(other == 0, 1, other)


def _quotient(one: Numbers, other: Numbers) -> Any:
    return np.trunc(one / _divisor(other))


def _remainder(one: Numbers, other: Numbers) -> Any:
    return np.fmod(one, _divisor(other))


@dataclass(frozen=True)
class Meaning:
    """The meaning of one operation.

    Attributes:
        whole: How whole numbers come of it: `computed` from whole numbers by that function, the `same` as the last one
            that it takes, a `pointer` there, or `data`.
        registers: `none` for what is made anew where it is used, `same` for those of what it takes, else `own`.
        does: What it does to floating point, where that is told apart: it `adds`, `multiplies`, `widens`, `rounds` to
            another format, or `counts`: it makes it of a whole number; an extreme `picks` one of whole numbers.
    """

    terms: Handler = elementwise  # its results as terms; what it does is added to the facts
    numbers: Callable[..., Any] | None = None  # its result on single elements; None if that is not known here
    whole: Literal["computed", "same", "pointer", "data"] = "computed"
    counts: bool = True  # whether it takes an instruction for each element of floating point that it makes
    special: bool = False  # whether that is one of the slow ones
    gathers: bool = False  # whether all elements must be there before it begins
    registers: Literal["own", "none", "same"] = "own"
    moves: bool = False  # whether elements stay what they were
    does: Literal["", "adds", "multiplies", "widens", "rounds", "counts", "picks"] = ""


_OF_TERMS: dict[str, Callable[..., Any]] = {
    "quotient": _quotient, "remainder": _remainder, "least": np.minimum, "most": np.maximum,
}  # fmt: skip
_SPECIAL: dict[str, Callable[..., Any] | None] = {
    **{f"math.{name}": getattr(np, name) for name in
       ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "tanh", "log1p", "expm1")},
    "math.rsqrt": lambda x: 1 / np.sqrt(x), "math.erf": np.vectorize(math.erf, otypes=[float]),
    "math.powf": np.power, "tt.precise_sqrt": np.sqrt, "tt.precise_divf": np.divide, "arith.divf": np.divide,
    "arith.remf": np.fmod, "tt.extern_elementwise": None,
}  # fmt: skip
_PLAIN_NUMBERS: dict[str, Callable[..., Any]] = {
    "math.floor": np.floor, "math.ceil": np.ceil, "math.absf": np.abs, "math.absi": np.abs, "arith.negf": np.negative,
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "tt.clampf": np.clip,
    "math.fma": lambda x, y, z: x * y + z, **dict.fromkeys(("arith.sitofp", "arith.uitofp"), lambda x: x * 1.0),
    **dict.fromkeys(("arith.ceildivsi", "arith.ceildivui"), lambda x, by: -(-x // _divisor(by))),
}  # fmt: skip
_LIBRARY: dict[str, Callable[[Any], Any]] = {
    **{name.removeprefix("math."): work for name, work in (_SPECIAL | _PLAIN_NUMBERS).items()
       if name.startswith("math.") and work is not None and name not in ("math.powf", "math.fma")},
    "fabs": np.abs, "sinh": np.sinh, "cosh": np.cosh,
}  # fmt: skip
_DOES: dict[str, Literal["adds", "multiplies", "counts"]] = {
    "arith.addf": "adds", "arith.subf": "adds", "math.fma": "adds", "arith.mulf": "multiplies",
    "arith.sitofp": "counts", "arith.uitofp": "counts",
}  # fmt: skip
_WITHOUT_EFFECT = (
    "scf.yield", "scf.condition", "tt.return", "cf.br", "cf.cond_br", "tt.reduce.return", "tt.scan.return", "tt.assert",
    "tt.print", "gpu.barrier", "llvm.intr.assume", "ttg.barrier", "ttg.local_barrier", "tt.map_elementwise.return",
)  # fmt: skip

_RIGHT_SHIFT = Meaning(_made(_shift_right), lambda x, by: x >> np.clip(by, 0, 62))
OPERATIONS: dict[str, Meaning] = {
    **{name: Meaning(numbers=work, special=True) for name, work in _SPECIAL.items()},
    **{name: Meaning(numbers=work, does=_DOES.get(name, "")) for name, work in _PLAIN_NUMBERS.items()},
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), Meaning(numbers=np.trunc, whole="data")),
    **dict.fromkeys(("arith.truncf", "tt.fp_to_fp"), Meaning(_convert, _same, does="rounds")),
    "arith.extf": Meaning(_convert, _same, registers="same", does="widens"),
    "arith.addi": Meaning(_sum_with(1), np.add),
    "arith.subi": Meaning(_sum_with(-1), np.subtract),
    "arith.muli": Meaning(_multiply, np.multiply),
    **dict.fromkeys(("arith.divsi", "arith.divui"), Meaning(_of_terms(Terms.quotient), _quotient)),
    "arith.floordivsi": Meaning(_of_terms(Terms.quotient), np.floor_divide),
    **dict.fromkeys(("arith.remsi", "arith.remui"), Meaning(_of_terms(Terms.remainder), _remainder)),
    "arith.shli": Meaning(_shift_left, lambda x, by: x << np.clip(by, 0, 62)),
    **dict.fromkeys(("arith.shrsi", "arith.shrui"), _RIGHT_SHIFT),
    **dict.fromkeys(("arith.minsi", "arith.minui"), Meaning(_extreme("least"), np.minimum, does="picks")),
    **dict.fromkeys(("arith.maxsi", "arith.maxui"), Meaning(_extreme("most"), np.maximum, does="picks")),
    "arith.andi": Meaning(_made(_and), np.bitwise_and),
    "arith.ori": Meaning(_made(lambda terms, kind, *both: terms.either(*both) if kind.truth else None), np.bitwise_or),
    "arith.xori": Meaning(_made(_xor), np.bitwise_xor),
    "arith.extsi": Meaning(_widen, _same),
    "arith.extui": Meaning(_widen, lambda x: x * 1),
    "arith.trunci": Meaning(_made(_narrowed), _same),
    **dict.fromkeys(("arith.index_cast", "arith.index_castui"), Meaning(_keep)),
    "arith.cmpi": Meaning(_compare),
    "arith.select": Meaning(_of_terms(Terms.choose), np.where),
    "arith.constant": Meaning(_constant, counts=False, registers="none", moves=True),
    **dict.fromkeys(("tt.get_program_id", "tt.get_num_programs"), Meaning(_program, counts=False)),
    "tt.make_range": Meaning(_range, counts=False),
    "tt.splat": Meaning(_keep, counts=False, registers="none", moves=True),
    "tt.broadcast": Meaning(_keep, counts=False, registers="none"),
    "tt.expand_dims": Meaning(_expand_dims, counts=False, registers="none"),
    "tt.trans": Meaning(_transpose, counts=False, registers="same", moves=True),
    "tt.reshape": Meaning(_reshape, counts=False, registers="same", moves=True),
    "ttg.convert_layout": Meaning(_keep, counts=False, registers="same", moves=True),
    "tt.bitcast": Meaning(_convert, whole="same", counts=False, registers="same", moves=True),
    "arith.bitcast": Meaning(_convert, whole="same", counts=False),
    "tt.int_to_ptr": Meaning(whole="pointer", counts=False),
    "tt.join": Meaning(_join),
    "tt.split": Meaning(_split),
    **dict.fromkeys(("tt.cat", "tt.gather", "tt.histogram"), Meaning()),
    "tt.addptr": Meaning(_add_pointer, counts=False),
    "tt.load": Meaning(_load, counts=False, moves=True),
    "tt.store": Meaning(_store, counts=False),
    **dict.fromkeys(("tt.atomic_rmw", "tt.atomic_cas"), Meaning(_atomic, counts=False)),
    "tt.make_tensor_descriptor": Meaning(_make_descriptor, counts=False),
    **{name: Meaning(_access_block, counts=False, moves=kind == "load") for name, kind in _BLOCKS.items()},
    "tt.dot": Meaning(_dot, counts=False, gathers=True),
    "tt.dot_scaled": Meaning(_scaled_dot, counts=False, gathers=True),
    **dict.fromkeys(("tt.reduce", "tt.scan"), Meaning(_reduce, whole="data", counts=False, gathers=True)),
    **dict.fromkeys(_WITHOUT_EFFECT, Meaning(lambda *_: [], counts=False)),
}
_UNKNOWN = Meaning(unknown)


def meaning_of(name: str) -> Meaning:
    """The meaning of an operation, also of one that is not in the table."""
    return OPERATIONS.get(name, _UNKNOWN)
