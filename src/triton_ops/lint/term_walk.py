"""The way through a kernel's TTIR with terms for its values.

The body of a loop is walked twice: first with a symbol for each value that it carries, which shows what moves evenly
from turn to turn, and then with these said by the number of the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from triton_ops.kernel_ir import TtirOperation, TtirWalk, Type, UnreadableError, UntoldError
from triton_ops.lint.kernel_facts import (
    AccessFact,
    Facts,
    Handler,
    LoopFact,
    Multiplication,
    ProductFact,
    ReductionFact,
    TermScope,
    TermValue,
    places_in,
)
from triton_ops.lint.terms import Carried, Term, Terms, constant, inner_terms


def _expand_dims(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    operand, kind, axis = here.value(operation.operands[0]), operation.result_type, operation.attribute("axis") or 0
    terms = here.terms
    later = {terms.index(k): terms.whole(terms.index(k + 1)) for k in range(axis, len(operand.type.shape))}
    return [TermValue(terms.change(operand.term, later), kind)]


def _transpose(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    operand, terms = here.value(operation.operands[0]), here.terms
    order = operation.order(len(operand.type.shape))
    to = {terms.index(old): terms.whole(terms.index(new)) for new, old in enumerate(order) if new != old}
    return [TermValue(terms.change(operand.term, to), operation.result_type)]


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
    return [TermValue(terms.change(operand.term, to), kind)]


def _quotient_of_place(terms: Terms, flat: Term, by: int, shape: Sequence[int]) -> Term:
    """The quotient of a place; what cannot reach the divisor falls away."""
    divisor = terms.number(by)
    rest = [(m, c) for m, c in flat.operands if c % by]
    if rest and sum(c * (shape[m[0].operands[0]] - 1) for m, c in rest if m) >= by:
        return terms.quotient(flat, divisor)
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
    kind = operation.result_types[-1]
    return [TermValue(terms.change(operand.term, {last: terms.number(k)}), kind) for k in (0, 1)]


_SMALL = {"eq": "eq", "ne": "ne", "slt": "<", "ult": "<", "sle": "<=", "ule": "<=", "sgt": ">", "ugt": ">", "sge": ">=",
          "uge": ">="}  # fmt: skip


def symbolic(here: TermScope, kind: Type, name: str, *operands: object) -> TermValue:
    """A value of which only its making is known."""
    term = here.terms.make(name, *operands)
    if kind.truth:
        return TermValue(here.terms.make("compared", term), kind)
    if kind.pointer:
        return TermValue(here.terms.make("pointer", term, here.terms.number(0)), kind)
    return TermValue(here.terms.whole(term) if kind.whole else term, kind)


def elementwise(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    """An operation on single elements: its name, the type of its elements, and what it is given."""
    operands = [value.term for value in here.all([n for n in operation.operands if n in here.values])]
    plain = operation.name.startswith(("arith.", "math.")) or operation.name in _PLAIN
    extra = () if plain else (operation.number,)
    word = operation.predicate if operation.name == "arith.cmpf" else " ".join(operation.quoted)
    return [
        symbolic(here, kind, operation.name, kind.element, word, *extra, place, *operands)
        for place, kind in enumerate(operation.kinds)
    ]


_PLAIN = {"tt.fp_to_fp", "tt.bitcast", "tt.precise_sqrt", "tt.precise_divf", "tt.clampf", "tt.mulhiui"}


def _constant(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    kind = operation.result_type if operation.types else Type((), "i1")  # `true` and `false` stand without one
    literal, terms = operation.literal, here.terms
    if literal in ("true", "false"):
        return [TermValue(terms.truth(literal == "true"), kind)]
    try:
        if kind.whole:
            return [TermValue(terms.number(int(literal)), kind)]
        return [TermValue(terms.make("number", _float(literal, kind)), kind)]
    except ValueError:
        return [symbolic(here, kind, "constant", operation.number, *axis_symbols(terms, kind))]


def _float(literal: str, kind: Type) -> float:
    if not literal.startswith("0x"):
        return float(literal)
    digits = literal[2:].rjust(kind.item_bytes * 2, "0").lower()
    narrow = {"f16": ("fc00", "7c00"), "bf16": ("ff80", "7f80"), "f32": ("ff800000", "7f800000")}
    low, high = narrow.get(kind.element, ("fff0000000000000", "7ff0000000000000"))
    return float("-inf" if digits == low else "inf" if digits == high else "nan")


def axis_symbols(terms: Terms, kind: Type) -> list[Term]:
    """The symbols of the places along the axes of a block."""
    return [terms.index(axis) for axis in range(len(kind.shape))]


def _range(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    kind, terms = operation.result_type, here.terms
    place = terms.number(0) if kind.shape == (1,) else terms.whole(terms.index(0))
    return [TermValue(terms.add((1, terms.number(operation.attribute("start") or 0)), (1, place)), kind)]


def _keep(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    return [TermValue(here.value(operation.operands[0]).term, operation.result_type)]


def _widen(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    (operand,), kind = here.all(operation.operands), operation.result_type
    if operand.type.truth:
        return [TermValue(here.terms.choose(operand.term, here.terms.number(1), here.terms.number(0)), kind)]
    bits, wide = operand.type.item_bytes * 8, kind.item_bytes * 8
    if bits < wide and wide == 64:
        here.facts.widenings.append(operand.term)
    return [TermValue(operand.term, kind)]


def _narrow(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    (operand,), kind = here.all(operation.operands), operation.result_type
    if kind.truth:
        return [TermValue(here.terms.refuse(here.terms.zero(operand.term)), kind)]
    return [TermValue(operand.term, kind)]


def _add(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = here.all(operation.operands)
    kind = operation.result_type
    if kind.truth:
        return elementwise(here, operation)
    return [TermValue(here.terms.add((1, one.term), (-1 if operation.name == "arith.subi" else 1, other.term)), kind)]


def _multiply(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = here.all(operation.operands)
    kind = operation.result_type
    if kind.truth:
        return [TermValue(here.terms.both(one.term, other.term), kind)]
    here.facts.multiplications.append(
        Multiplication(*here.met(operation), bits=kind.item_bytes * 8, one=one.term, other=other.term)
    )
    return [TermValue(here.terms.multiply(one.term, other.term), kind)]


def _divide(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = (value.term for value in here.all(operation.operands))
    rest = operation.name in ("arith.remsi", "arith.remui")
    term = here.terms.remainder(one, other) if rest else here.terms.quotient(one, other)
    return [TermValue(term, operation.result_type)]


def _shift(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = (value.term for value in here.all(operation.operands))
    by = constant(other)
    if by is None or not 0 <= by < 63:
        return elementwise(here, operation)
    work = here.terms.multiply if operation.name == "arith.shli" else here.terms.quotient
    return [TermValue(work(one, here.terms.number(1 << by)), operation.result_type)]


def _minimum(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = sorted(value.term for value in here.all(operation.operands))
    name = "least" if "min" in operation.name else "most"
    return [TermValue(one if one is other else here.terms.opaque(name, one, other), operation.result_type)]


def _bitwise(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = here.all(operation.operands)
    kind, terms = operation.result_type, here.terms
    if not kind.truth:
        power = constant(other.term)
        if operation.name == "arith.andi" and power is not None and power & (power + 1) == 0 and power >= 0:
            return [TermValue(terms.remainder(one.term, terms.number(power + 1)), kind)]
        return elementwise(here, operation)
    if operation.name == "arith.andi":
        return [TermValue(terms.both(one.term, other.term), kind)]
    if operation.name == "arith.ori":
        return [TermValue(terms.either(one.term, other.term), kind)]
    for a, b in ((one.term, other.term), (other.term, one.term)):
        if b is terms.true:
            return [TermValue(terms.refuse(a), kind)]
    return elementwise(here, operation)


def _compare(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    one, other = here.all(operation.operands)
    terms = here.terms
    kind = Type(operation.result_type.shape, "i1")
    how = _SMALL.get(operation.predicate)
    if one.type.pointer or one.type.truth or how is None:
        return [symbolic(here, kind, "compared", operation.predicate, one.term, other.term)]
    a, b = one.term, other.term
    if (inner := _as_condition(a, b)) is not None and how in ("eq", "ne"):
        return [TermValue(inner if how == "ne" else terms.refuse(inner), kind)]
    if how in ("eq", "ne"):
        condition = terms.zero(terms.add((1, a), (-1, b)))
        return [TermValue(condition if how == "eq" else terms.refuse(condition), kind)]
    low, high = (a, b) if how in ("<", "<=") else (b, a)
    strict = 1 if how in ("<", ">") else 0
    condition = terms.at_least_zero(terms.add((1, high), (-1, low), (-strict, terms.number(1))))
    return [TermValue(condition, kind)]


def _as_condition(a: Term, b: Term) -> Term | None:
    """The condition that was made a number, where it is compared with 0."""
    if constant(b) != 0 or a.name != "sum" or len(a.operands) != 1:
        return None
    (monomial, coefficient) = a.operands[0]
    if coefficient != 1 or len(monomial) != 1 or monomial[0].name != "choose":
        return None
    condition, one, other = monomial[0].operands
    return condition if constant(one) == 1 and constant(other) == 0 else None


def _select(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    condition, one, other = here.all(operation.operands)
    return [TermValue(here.terms.choose(condition.term, one.term, other.term), one.type)]


def _add_pointer(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    pointer, offset = here.all(operation.operands)
    if pointer.term.name != "pointer":
        return [symbolic(here, pointer.type, "address", operation.number, pointer.term, offset.term)]
    root, before = pointer.term.operands
    term = here.terms.make("pointer", root, here.terms.add((1, before), (1, offset.term)))
    return [TermValue(term, pointer.type)]


def _load(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    pointer, *rest = here.all(operation.operands)
    mask = rest[0] if rest and rest[0].type.truth else None
    other = rest[1].term if mask is not None and len(rest) > 1 else None
    access = _record_access(here, operation, "load", pointer, mask)
    kind = Type(pointer.type.shape, pointer.type.element)
    if kind.element.startswith("!"):
        kind = Type(kind.shape, kind.element.removeprefix("!tt.ptr<").rstrip(">"), pointer=True)
    return [symbolic(here, kind, "load", kind.element, access.root, access.offset, access.mask, other or "nothing")]


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
    is_sum = pointer.term.name == "pointer"
    root, offset = pointer.term.operands if is_sum else (pointer.term, here.terms.number(0))
    access = AccessFact(
        *here.met(operation), kind=kind, root=root, offset=offset, type=pointer.type,
        mask=here.terms.true if mask is None else mask.term, **details,
    )  # fmt: skip
    here.facts.accesses.append(access)
    return access


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
    return [symbolic(here, kind, "dot", kind.element, operation.number, one, other, start.term)]


def _reduce(here: TermScope, operation: TtirOperation) -> list[TermValue]:
    inputs, axis = tuple(here.all(operation.operands)), operation.attribute("axis") or 0
    inner_operations = operation.regions[0][0].operations
    if operation.name == "tt.reduce" or "reverse = true" in operation.text + operation.tail:
        names = {name for inner in inner_operations for name in inner.operands}
        around = {name: here.values[name].term for name in names if name in here.values}
        here.facts.reductions.append(
            ReductionFact(*here.met(operation), axis=axis, inputs=inputs, operation=operation, around=around)
        )
    terms, rank = here.terms, len(inputs[0].type.shape)
    to = {terms.index(axis): terms.whole(terms.make("bound", operation.number))}
    extra = [terms.index(axis)] if operation.name == "tt.scan" else []
    if operation.name == "tt.reduce":
        to.update({terms.index(k): terms.whole(terms.index(k - 1)) for k in range(axis + 1, rank)})
    inner = [terms.change(value.term, to) for value in inputs]
    how = " ".join(one.name for one in inner_operations)
    return [
        symbolic(here, kind, operation.name, kind.element, how, operation.number, place, *extra, *inner)
        for place, kind in enumerate(operation.kinds)
    ]


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("arith.addi", "arith.subi"), _add),
    **dict.fromkeys(("arith.divsi", "arith.divui", "arith.floordivsi", "arith.remsi", "arith.remui"), _divide),
    **dict.fromkeys(("arith.shli", "arith.shrsi", "arith.shrui"), _shift),
    **dict.fromkeys(("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui"), _minimum),
    **dict.fromkeys(("arith.andi", "arith.ori", "arith.xori"), _bitwise),
    **dict.fromkeys(("arith.extsi", "arith.extui"), _widen),
    **dict.fromkeys(
        ("tt.splat", "tt.broadcast", "arith.index_cast", "arith.index_castui", "ttg.convert_layout"), _keep
    ),
    "tt.get_program_id": lambda here, one: [symbolic(here, one.result_type, "program_id", one.grid_axis)],
    "tt.get_num_programs": lambda here, one: [symbolic(here, one.result_type, "num_programs", one.grid_axis)],
    **dict.fromkeys(("tt.atomic_rmw", "tt.atomic_cas"), _atomic),
    **dict.fromkeys(("tt.reduce", "tt.scan"), _reduce),
    **dict.fromkeys(("tt.assert", "tt.print", "gpu.barrier", "llvm.intr.assume"), lambda _, __: []),
    "arith.constant": _constant,
    "arith.trunci": _narrow,
    "arith.muli": _multiply,
    "arith.cmpi": _compare,
    "arith.select": _select,
    "tt.make_range": _range,
    "tt.expand_dims": _expand_dims,
    "tt.trans": _transpose,
    "tt.reshape": _reshape,
    "tt.join": _join,
    "tt.split": _split,
    "tt.addptr": _add_pointer,
    "tt.load": _load,
    "tt.store": _store,
    "tt.dot": _dot,
    "tt.dot_scaled": lambda here, one: [
        symbolic(here, one.result_type, "scaled dot", one.number, *axis_symbols(here.terms, one.result_type))
    ],
}


_MOST_OPERATIONS = 60_000
_MOST_TERMS = 30_000  # most kernels have two thousand; an unrolled search doubles them with each step


def facts_of(text: str, parameters: Collection[str] = ()) -> Facts:
    """The facts of a kernel, from the text of its TTIR with the places of the source.

    What it is given beside the kernel's own parameters says what a descriptor that was made on the host is like: truth
    values ask for NaN beyond the end and for rounding, which are off unless asked for.

    Cost: 5 to 50 ms.

    Raises:
        UnreadableError: The text is of no form that is known here.
        UntoldError: The kernel cannot be walked through, with the reason.
    """
    walk, facts = _TermWalk(text, _MOST_OPERATIONS), Facts(terms := Terms())
    kernel = walk.module.kernel
    arguments = [_argument(terms, name.lstrip("%"), kind, parameters) for name, kind in kernel.arguments]
    here = TermScope(facts=facts, path=terms.true, values={}, place=places_in(text))
    try:
        walk.call(kernel, arguments, here)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"it has an operation in a form that is not known here: {error!r}") from error
    return facts


def _argument(terms: Terms, name: str, kind: Type, parameters: Collection[str]) -> TermValue:
    if kind.truth and parameters and name not in parameters:
        return TermValue(terms.false, kind)
    symbol = terms.make("argument", name)
    if kind.pointer or kind.descriptor:
        return TermValue(terms.make("pointer", symbol, terms.number(0)), kind)
    if kind.truth:
        return TermValue(terms.make("compared", symbol), kind)
    return TermValue(terms.whole(symbol) if kind.whole else symbol, kind)


class _TermWalk(TtirWalk[TermScope, TermValue]):
    def _joined(self, ways: list[tuple[TermScope, list[TermValue]]]) -> tuple[TermScope, list[TermValue]] | None:
        if not ways:
            return None
        here = ways[0][0]
        inside = replace(here, path=here.terms.either(*(one.path for one, _ in ways)))
        return inside, self._merged(ways)

    def _merged(self, ways: list[tuple[TermScope, list[TermValue]]]) -> list[TermValue]:
        result = ways[-1][1] if ways else []
        for here, values in reversed(ways[:-1]):
            result = [
                TermValue(here.terms.choose(here.path, one.term, other.term), one.type)
                for one, other in zip(values, result, strict=True)
            ]
        return result

    def _jumps(self, last: TtirOperation, here: TermScope) -> list[tuple[str, TermScope, list[TermValue]]]:
        targets = [(label, here.all(values)) for label, values in last.jumps()]
        if last.name == "cf.br":
            return [(label, here, values) for label, values in targets]
        condition = here.value(last.operands[0]).term
        ways = (condition, here.terms.refuse(condition))
        return [
            (label, replace(here, path=here.terms.both(here.path, holds)), values)
            for (label, values), holds in zip(targets, ways, strict=True)
        ]

    def _other(self, operation: TtirOperation, here: TermScope) -> Sequence[TermValue]:
        return HANDLERS.get(operation.name, elementwise)(here, operation)

    def _results(self, operation: TtirOperation, here: TermScope) -> Sequence[TermValue]:
        results = super()._results(operation, here)
        if here.terms.count > _MOST_TERMS:
            raise UntoldError(f"what it computes is made of more than {_MOST_TERMS:,} parts, each of others")
        return results

    def _if(self, operation: TtirOperation, here: TermScope) -> list[TermValue]:
        terms, condition = here.terms, here.value(operation.operands[0]).term
        branches = []
        for blocks, holds in zip(operation.regions, (condition, terms.refuse(condition)), strict=False):
            last = self._block(blocks[0], replace(here, path=terms.both(here.path, holds)))
            branches.append(here.yielded(last))
        if not operation.results:
            return []
        pairs = zip(*branches, strict=True)
        return [TermValue(terms.choose(condition, one.term, other.term), one.type) for one, other in pairs]

    def _while(self, operation: TtirOperation, here: TermScope) -> list[TermValue]:
        """Nothing is known of how a value moves in a loop of this kind; each turn may have any."""
        before, after = (region[0] for region in operation.regions)
        names, begin = operation.operands[0::2], here.all(operation.operands[1::2])
        loops = (*here.loops, operation.number)
        inside = replace(here, loops=loops)
        symbols = [_symbol(here, "carried", operation, k, value) for k, value in enumerate(begin)]
        here.values.update(zip(names, symbols, strict=True))
        last = self._block(before, inside)
        condition, *values = here.all(last.operands) if last is not None else []
        here.values.update(zip(after.arguments, values, strict=True))
        body = replace(inside, path=here.terms.both(here.path, condition.term))
        self._block(after, body)
        return [_symbol(here, "after", operation, k, value) for k, value in enumerate(values)]

    def _for(self, operation: TtirOperation, here: TermScope) -> list[TermValue]:
        lower, upper, step = here.all(operation.operands[1:4])
        begin, terms, loop = here.all(operation.operands[5::2]), here.terms, operation.number
        turn = terms.make("turn", loop)
        at = TermValue(terms.add((1, lower.term), (1, terms.multiply(step.term, terms.whole(turn)))), lower.type)
        symbols = [_symbol(here, "carried", operation, k, value) for k, value in enumerate(begin)]
        inside = replace(here, loops=(*here.loops, loop))
        results = self._turn(operation, (at, *symbols), replace(inside, facts=Facts(terms)))
        steps = [_step(terms, loop, *pair) for pair in zip(symbols, results, strict=True)]
        entries = [
            _after_turns(terms, value, by, terms.whole(turn)) if by is not None else symbol
            for value, symbol, by in zip(begin, symbols, steps, strict=True)
        ]
        results = self._turn(operation, (at, *entries), inside)
        turns = terms.whole(terms.make("turns", loop, lower.term, upper.term, step.term))
        outcomes = [
            _after_turns(terms, value, by, turns) if by is not None else _symbol(here, "after", operation, k, value)
            for k, (value, by) in enumerate(zip(begin, steps, strict=True))
        ]
        carried = tuple(
            Carried(symbol=symbol.term, after=after.term, begin=first.term, next=then.term, type=first.type)
            for symbol, after, first, then, by in zip(symbols, outcomes, begin, results, steps, strict=True)
            if by is None
        )
        here.facts.loops.append(
            LoopFact(
                *here.met(operation), turn=turn, lower=lower.term, upper=upper.term, step=step.term, carried=carried
            )
        )
        return outcomes

    def _turn(self, operation: TtirOperation, entries: Sequence[TermValue], here: TermScope) -> list[TermValue]:
        """The values that a turn of a counted loop hands on, entered with its number and what is carried."""
        here.values.update(zip((operation.operands[0], *operation.operands[4::2]), entries, strict=True))
        return here.yielded(self._block(operation.regions[0][0], here))


def _symbol(here: TermScope, name: str, operation: TtirOperation, place: int, value: TermValue) -> TermValue:
    """A value of which only is known that a loop carries it, or has carried it."""
    terms, kind = here.terms, value.type
    operands = (operation.number, place, *axis_symbols(terms, kind))
    if not kind.pointer:
        return symbolic(here, kind, name, *operands)
    offset = terms.whole(terms.make(name, *operands))
    return TermValue(terms.make("pointer", value.term.operands[0], offset), kind)


def _step(terms: Terms, loop: int, symbol: TermValue, then: TermValue) -> Term | None:
    """The distance that a value moves in a turn; None where it does not move evenly."""
    one, other = symbol.term, then.term
    if one is other:
        return terms.number(0)
    if not (symbol.type.whole or symbol.type.pointer) or symbol.type.truth:
        return None
    if symbol.type.pointer:
        if one.name != "pointer" or other.name != "pointer" or one.operands[0] is not other.operands[0]:
            return None
        one, other = one.operands[1], other.operands[1]
    by = terms.add((1, other), (-1, one))
    return None if _moves(by, loop) else by


def _moves(term: Term, loop: int) -> bool:
    return any(
        (one.name in ("carried", "turn") and one.operands[0] == loop)
        or (one.name in ("carried", "after", "turn") and one.operands[0] > loop)  # of a loop inside of it
        for one in inner_terms(term)
    )


def _after_turns(terms: Terms, begin: TermValue, by: Term, turns: Term) -> TermValue:
    if not by.operands:
        return begin
    far = terms.multiply(by, turns)
    if begin.type.pointer:
        root, offset = begin.term.operands
        return TermValue(terms.make("pointer", root, terms.add((1, offset), (1, far))), begin.type)
    return TermValue(terms.add((1, begin.term), (1, far)), begin.type)
