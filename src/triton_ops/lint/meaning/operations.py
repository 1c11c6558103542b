"""What each operation of TTIR makes of the values that it is given, as terms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from triton_ops.kernel_ir import Operation, Type, attribute
from triton_ops.lint.meaning import operations as shapes
from triton_ops.lint.meaning.facts import Access, Multiplication, Product, Reduction, Value, Widening
from triton_ops.lint.meaning.here import Handler, Here, kind_of
from triton_ops.lint.meaning.terms import Term, Terms, constant

_ORDER = re.compile(r"order = array<i32: ([\d, ]+)>")


def expanded(here: Here, operation: Operation) -> list[Value]:
    """`tt.expand_dims`: later axes move up by one."""
    operand, kind, axis = here.value(operation.operands[0]), kind_of(operation), attribute(operation, "axis") or 0
    terms = here.terms
    later = {terms.index(k): terms.whole(terms.index(k + 1)) for k in range(axis, len(operand.type.shape))}
    return [Value(terms.change(operand.term, later), kind)]


def transposed(here: Here, operation: Operation) -> list[Value]:
    """`tt.trans`: axes change places."""
    operand, terms = here.value(operation.operands[0]), here.terms
    match = _ORDER.search(operation.text)
    order = [int(n) for n in match[1].split(",")] if match else list(range(len(operand.type.shape)))[::-1]
    to = {terms.index(old): terms.whole(terms.index(new)) for new, old in enumerate(order) if new != old}
    return [Value(terms.change(operand.term, to), kind_of(operation))]


def reshaped(here: Here, operation: Operation) -> list[Value]:
    """The element at a place of the new shape is the one at the same place in row-major order."""
    operand, kind, terms = here.value(operation.operands[0]), kind_of(operation), here.terms
    flat = terms.number(0)
    for axis, extent in enumerate(kind.shape):
        place = terms.number(0) if extent == 1 else terms.whole(terms.index(axis))
        flat = terms.add((extent, flat), (1, place)) if axis else place
    to, shape = {}, operand.type.shape
    for axis, extent in enumerate(shape):
        after = terms.number(prod(shape[axis + 1 :]))
        place = _part(terms, flat, after, kind.shape)
        inner = place if axis == 0 else _rest(terms, place, extent, kind.shape)
        to[terms.index(axis)] = terms.number(0) if extent == 1 else inner
    return [Value(terms.change(operand.term, to), kind)]


def _part(terms: Terms, flat: Term, after: Term, shape: Sequence[int]) -> Term:
    """The quotient of a place; what cannot reach the divisor falls away."""
    by = constant(after) or 1
    whole = {m: c for m, c in flat.operands if c % by == 0}
    rest = [(m, c) for m, c in flat.operands if c % by]
    reach = sum(c * (shape[m[0].operands[0]] - 1) for m, c in rest if m)
    if rest and reach >= by:
        return terms.quotient(flat, after)
    return terms.sum({m: c // by for m, c in whole.items()})


def _rest(terms: Terms, place: Term, extent: int, shape: Sequence[int]) -> Term:
    residue = {m: c for m, c in place.operands if c % extent} if place.name == "sum" else {}
    plain = all(len(m) == 1 and m[0].name == "index" for m in residue)
    reach = sum(c * (shape[m[0].operands[0]] - 1) for m, c in residue.items()) if plain else extent
    return terms.sum(residue) if plain and reach < extent else terms.remainder(place, terms.number(extent))


def pair(here: Here, operation: Operation) -> list[Value]:
    """`tt.join`: a new last axis with two elements."""
    one, other = here.all(operation.operands)
    kind = operation.result_types[-1]
    last = here.terms.whole(here.terms.index(len(kind.shape) - 1))
    return [Value(here.terms.choose(here.terms.zero(last), one.term, other.term), kind)]


def halves(here: Here, operation: Operation) -> list[Value]:
    """`tt.split`: the two elements of the last axis."""
    operand, terms = here.value(operation.operands[0]), here.terms
    last = terms.index(len(operand.type.shape) - 1)
    kind = operation.result_types[-1]
    return [Value(terms.change(operand.term, {last: terms.number(k)}), kind) for k in (0, 1)]


_AXES = ("x", "y", "z")
_DENSE = re.compile(r"dense<([^<>]*)>|(?:^|\s)(true|false|-?[\w.+-]+)\s*$")
_SMALL = {"eq": "eq", "ne": "ne", "slt": "<", "ult": "<", "sle": "<=", "ule": "<=", "sgt": ">", "ugt": ">", "sge": ">=",
          "uge": ">="}  # fmt: skip


def made(here: Here, kind: Type, name: str, *operands: object) -> Value:
    """A value of which only its making is known."""
    term = here.terms.make(name, *operands)
    if kind.truth:
        return Value(here.terms.make("compared", term), kind)
    if kind.pointer:
        return Value(here.terms.make("pointer", term, here.terms.number(0)), kind)
    return Value(here.terms.whole(term) if kind.whole else term, kind)


def unknown(here: Here, operation: Operation) -> list[Value]:
    """An operation on single elements: its name, the type of its elements, and what it is given."""
    kinds = operation.result_types or operation.types[-1:]
    operands = [value.term for value in here.all([n for n in operation.operands if n in here.values])]
    count = len(operation.results)
    kinds = (*kinds[:count], *(kinds[-1:] * (count - len(kinds))))
    plain = operation.name.startswith(("arith.", "math.")) or operation.name in _PLAIN
    extra = () if plain else (operation.number,)
    word = _word(operation)
    return [
        made(here, kind, operation.name, kind.element, word, *extra, place, *operands)
        for place, kind in enumerate(kinds)
    ]


_PLAIN = {"tt.fp_to_fp", "tt.bitcast", "tt.precise_sqrt", "tt.precise_divf", "tt.clampf", "tt.mulhiui"}


def _word(operation: Operation) -> str:
    """What else an operation says of itself, such as the predicate of a comparison or the symbol of a function."""
    if operation.name == "arith.cmpf":
        return operation.text.split(",")[0].strip()
    return " ".join(operation.quoted)


def _constant(here: Here, operation: Operation) -> list[Value]:
    kind = kind_of(operation) if operation.types else Type((), "i1")  # `true` and `false` stand without one
    match = _DENSE.search(operation.text)
    literal = (match[1] if match[1] is not None else match[2]) if match else ""
    terms = here.terms
    if literal in ("true", "false"):
        return [Value(terms.truth(literal == "true"), kind)]
    try:
        if kind.whole:
            return [Value(terms.number(int(literal)), kind)]
        return [Value(terms.make("number", _float(literal, kind)), kind)]
    except ValueError:
        return [made(here, kind, "constant", operation.number, *_indices(terms, kind))]


def _float(literal: str, kind: Type) -> float:
    if not literal.startswith("0x"):
        return float(literal)
    bits = {"0xff": "-inf", "0x7f": "inf", "0xfc": "-inf", "0x7c": "inf", "0xfff0": "-inf", "0x7ff0": "inf"}
    digits = literal[2:].rjust(kind.item_bytes * 2, "0").lower()
    narrow = {"f16": ("fc00", "7c00"), "bf16": ("ff80", "7f80"), "f32": ("ff800000", "7f800000")}
    low, high = narrow.get(kind.element, ("fff0000000000000", "7ff0000000000000"))
    if digits == low:
        return float(bits["0xff"])
    return float("inf") if digits == high else float("nan")


def _indices(terms: Terms, kind: Type) -> list[Term]:
    return [terms.index(axis) for axis in range(len(kind.shape))]


def _program(here: Here, operation: Operation) -> list[Value]:
    axis = next(at for at, name in enumerate(_AXES) if operation.text.split()[-1:] == [name])
    return [made(here, kind_of(operation), operation.name.removeprefix("tt.get_"), axis)]


def _range(here: Here, operation: Operation) -> list[Value]:
    kind, terms = kind_of(operation), here.terms
    start = attribute(operation, "start") or 0
    place = terms.number(0) if kind.shape == (1,) else terms.whole(terms.index(0))
    return [Value(terms.add((1, terms.number(start)), (1, place)), kind)]


def _same(here: Here, operation: Operation) -> list[Value]:
    return [Value(here.value(operation.operands[0]).term, kind_of(operation))]


def _wider(here: Here, operation: Operation) -> list[Value]:
    (operand,), kind = here.all(operation.operands), kind_of(operation)
    if operand.type.truth:
        return [Value(here.terms.choose(operand.term, here.terms.number(1), here.terms.number(0)), kind)]
    bits, wide = operand.type.item_bytes * 8, kind.item_bytes * 8
    if bits < wide and wide == 64:
        here.facts.widenings.append(Widening(*here.met(operation), term=operand.term, bits=bits, computed=True))
    return [Value(operand.term, kind)]


def _narrower(here: Here, operation: Operation) -> list[Value]:
    (operand,), kind = here.all(operation.operands), kind_of(operation)
    if kind.truth:
        return [Value(here.terms.refuse(here.terms.zero(operand.term)), kind)]
    return [Value(operand.term, kind)]


def _sum(here: Here, operation: Operation) -> list[Value]:
    one, other = here.all(operation.operands)
    kind = kind_of(operation)
    if kind.truth:
        return unknown(here, operation)
    return [Value(here.terms.add((1, one.term), (-1 if operation.name == "arith.subi" else 1, other.term)), kind)]


def _times(here: Here, operation: Operation) -> list[Value]:
    one, other = here.all(operation.operands)
    kind = kind_of(operation)
    if kind.truth:
        return [Value(here.terms.both(one.term, other.term), kind)]
    here.facts.multiplications.append(
        Multiplication(*here.met(operation), bits=kind.item_bytes * 8, one=one.term, other=other.term)
    )
    return [Value(here.terms.multiply(one.term, other.term), kind)]


def _divided(here: Here, operation: Operation) -> list[Value]:
    one, other = (value.term for value in here.all(operation.operands))
    rest = operation.name in ("arith.remsi", "arith.remui")
    term = here.terms.remainder(one, other) if rest else here.terms.quotient(one, other)
    return [Value(term, kind_of(operation))]


def _shifted(here: Here, operation: Operation) -> list[Value]:
    one, other = (value.term for value in here.all(operation.operands))
    by = constant(other)
    if by is None or not 0 <= by < 63:
        return unknown(here, operation)
    power = here.terms.number(1 << by)
    term = (
        here.terms.multiply(one, power) if operation.name == "arith.shli" else here.terms.quotient(one, power)
    )  # fmt: skip
    return [Value(term, kind_of(operation))]


def _least(here: Here, operation: Operation) -> list[Value]:
    one, other = (value.term for value in here.all(operation.operands))
    name = "least" if "min" in operation.name else "most"
    if one is other:
        return [Value(one, kind_of(operation))]
    return [Value(here.terms.odd(name, *sorted((one, other))), kind_of(operation))]


def _joined(here: Here, operation: Operation) -> list[Value]:
    one, other = here.all(operation.operands)
    kind, terms = kind_of(operation), here.terms
    if not kind.truth:
        power = constant(other.term)
        if operation.name == "arith.andi" and power is not None and power & (power + 1) == 0 and power >= 0:
            return [Value(terms.remainder(one.term, terms.number(power + 1)), kind)]
        return unknown(here, operation)
    if operation.name == "arith.andi":
        return [Value(terms.both(one.term, other.term), kind)]
    if operation.name == "arith.ori":
        return [Value(terms.either(one.term, other.term), kind)]
    for a, b in ((one.term, other.term), (other.term, one.term)):
        if b is terms.true:
            return [Value(terms.refuse(a), kind)]
    return unknown(here, operation)


def _compared(here: Here, operation: Operation) -> list[Value]:
    one, other = here.all(operation.operands)
    terms = here.terms
    kind = Type(kind_of(operation).shape, "i1")
    how = _SMALL.get(operation.text.split(",")[0].strip())
    if one.type.pointer or one.type.truth or how is None:
        return [made(here, kind, "compared", operation.text.split(",")[0], one.term, other.term)]
    a, b = one.term, other.term
    if (inner := _as_condition(a, b)) is not None and how in ("eq", "ne"):
        return [Value(inner if how == "ne" else terms.refuse(inner), kind)]
    if how in ("eq", "ne"):
        condition = terms.zero(terms.add((1, a), (-1, b)))
        return [Value(condition if how == "eq" else terms.refuse(condition), kind)]
    low, high = (a, b) if how in ("<", "<=") else (b, a)
    strict = 1 if how in ("<", ">") else 0
    condition = terms.at_least_zero(terms.add((1, high), (-1, low), (-strict, terms.number(1))))
    return [Value(condition, kind)]


def _as_condition(a: Term, b: Term) -> Term | None:
    """The condition that was made a number, where it is compared with 0."""
    if constant(b) != 0 or a.name != "sum" or len(a.operands) != 1:
        return None
    (monomial, coefficient) = a.operands[0]
    if coefficient != 1 or len(monomial) != 1 or monomial[0].name != "choose":
        return None
    condition, one, other = monomial[0].operands
    return condition if constant(one) == 1 and constant(other) == 0 else None


def _selected(here: Here, operation: Operation) -> list[Value]:
    condition, one, other = here.all(operation.operands)
    return [Value(here.terms.choose(condition.term, one.term, other.term), one.type)]


def _pointer_added(here: Here, operation: Operation) -> list[Value]:
    pointer, offset = here.all(operation.operands)
    if pointer.term.name != "pointer":
        return [made(here, pointer.type, "address", operation.number, pointer.term, offset.term)]
    root, before = pointer.term.operands
    term = here.terms.make("pointer", root, here.terms.add((1, before), (1, offset.term)))
    return [Value(term, pointer.type)]


def _parts_of(here: Here, pointer: Value) -> tuple[Term, Term]:
    if pointer.term.name == "pointer":
        root, offset = pointer.term.operands
        return root, offset
    return pointer.term, here.terms.number(0)


def _load(here: Here, operation: Operation) -> list[Value]:
    pointer, *rest = here.all(operation.operands)
    mask = rest[0].term if rest and rest[0].type.truth else None
    other = rest[1].term if mask is not None and len(rest) > 1 else None
    root, offset = _parts_of(here, pointer)
    kind, terms = Type(pointer.type.shape, pointer.type.element), here.terms
    here.facts.accesses.append(
        Access(
            *here.met(operation),
            kind="load",
            root=root,
            offset=offset,
            type=pointer.type,
            mask=mask or terms.true,
            masked=mask is not None,
            other=other,
        )
    )
    if kind.element.startswith("!"):
        kind = Type(kind.shape, kind.element.removeprefix("!tt.ptr<").rstrip(">"), pointer=True)
    return [made(here, kind, "load", kind.element, root, offset, mask or terms.true, other or "nothing")]


def _store(here: Here, operation: Operation) -> list[Value]:
    pointer, value, *rest = here.all(operation.operands)
    _written(here, operation, "store", pointer, value, rest)
    return []


def _atomic(here: Here, operation: Operation) -> list[Value]:
    pointer, *rest = here.all(operation.operands)
    masks = [one for one in rest if one.type.truth][-1:] if operation.name == "tt.atomic_rmw" else []
    _written(here, operation, "atomic", pointer, rest[0], masks)
    return [made(here, kind_of(operation), "was there", operation.number, *_indices(here.terms, pointer.type))]


def _written(here: Here, operation: Operation, kind: str, pointer: Value, value: Value, masks: Sequence[Value]) -> None:
    root, offset = _parts_of(here, pointer)
    does = operation.text.split(",")[0].strip() if operation.name == "tt.atomic_rmw" else operation.name
    here.facts.accesses.append(
        Access(
            *here.met(operation),
            kind=kind,
            root=root,
            offset=offset,
            type=pointer.type,
            mask=masks[0].term if masks else here.terms.true,
            masked=bool(masks),
            value=value,
            does=does if kind == "atomic" else "",
        )
    )


def _dot(here: Here, operation: Operation) -> list[Value]:
    left, right, start = here.all(operation.operands[:3])
    kind, terms = operation.result_types[-1], here.terms
    product = Product(
        *here.met(operation), left=left, right=right, start=start, type=kind,
        precision="tf32" if "tf32" in operation.text else "",
    )  # fmt: skip
    here.facts.products.append(product)
    bound, rank = terms.make("bound", operation.number), len(kind.shape)
    one = terms.change(left.term, {terms.index(rank - 1): terms.whole(bound)})
    other = terms.change(right.term, {terms.index(rank - 2): terms.whole(bound)})
    return [made(here, kind, "dot", kind.element, operation.number, one, other, start.term)]


def _scaled(here: Here, operation: Operation) -> list[Value]:
    kind = operation.result_types[-1]
    return [made(here, kind, "scaled dot", operation.number, *_indices(here.terms, kind))]


def _reduced(here: Here, operation: Operation) -> list[Value]:
    inputs, axis = tuple(here.all(operation.operands)), attribute(operation, "axis") or 0
    combine = operation.regions[0][0]
    if operation.name == "tt.reduce" or "reverse = true" in operation.text + operation.tail:
        names = {name for inner in combine.operations for name in inner.operands}
        around = {name: here.values[name].term for name in names if name in here.values}
        here.facts.reductions.append(
            Reduction(*here.met(operation), axis=axis, given=inputs, combine=combine, around=around)
        )
    terms, rank = here.terms, len(inputs[0].type.shape)
    bound = terms.make("bound", operation.number)
    to = {terms.index(axis): terms.whole(bound)}
    extra = []
    if operation.name == "tt.reduce":
        to.update({terms.index(k): terms.whole(terms.index(k - 1)) for k in range(axis + 1, rank)})
    else:
        extra = [terms.index(axis)]
    inner = [terms.change(value.term, to) for value in inputs]
    how = " ".join(one.name for one in combine.operations)
    kinds = operation.result_types[: len(operation.results)]
    return [
        made(here, kind, operation.name, kind.element, how, operation.number, place, *extra, *inner)
        for place, kind in enumerate(kinds)
    ]


def _nothing(_: Here, __: Operation) -> list[Value]:
    return []


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("arith.addi", "arith.subi"), _sum),
    **dict.fromkeys(("arith.divsi", "arith.divui", "arith.floordivsi", "arith.remsi", "arith.remui"), _divided),
    **dict.fromkeys(("arith.shli", "arith.shrsi", "arith.shrui"), _shifted),
    **dict.fromkeys(("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui"), _least),
    **dict.fromkeys(("arith.andi", "arith.ori", "arith.xori"), _joined),
    **dict.fromkeys(("arith.extsi", "arith.extui"), _wider),
    **dict.fromkeys(
        ("tt.splat", "tt.broadcast", "arith.index_cast", "arith.index_castui", "ttg.convert_layout"), _same
    ),
    **dict.fromkeys(("tt.get_program_id", "tt.get_num_programs"), _program),
    **dict.fromkeys(("tt.atomic_rmw", "tt.atomic_cas"), _atomic),
    **dict.fromkeys(("tt.reduce", "tt.scan"), _reduced),
    **dict.fromkeys(("tt.assert", "tt.print", "gpu.barrier", "llvm.intr.assume"), _nothing),
    "arith.constant": _constant,
    "arith.trunci": _narrower,
    "arith.muli": _times,
    "arith.cmpi": _compared,
    "arith.select": _selected,
    "tt.make_range": _range,
    "tt.expand_dims": shapes.expanded,
    "tt.trans": shapes.transposed,
    "tt.reshape": shapes.reshaped,
    "tt.join": shapes.pair,
    "tt.split": shapes.halves,
    "tt.addptr": _pointer_added,
    "tt.load": _load,
    "tt.store": _store,
    "tt.dot": _dot,
    "tt.dot_scaled": _scaled,
}
