"""Operations that only move elements: what the element at a place of the result is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from triton_ops.lint.meaning.facts import Value
from triton_ops.lint.meaning.here import Here, kind_of
from triton_ops.lint.meaning.terms import Term, Terms, constant
from triton_ops.ttir.syntax import Operation, attribute

_ORDER = re.compile(r"order = array<i32: ([\d, ]+)>")


def expanded(here: Here, operation: Operation) -> list[Value]:
    """`tt.expand_dims`: later axes move up by one."""
    given, kind, axis = here.value(operation.operands[0]), kind_of(operation), attribute(operation, "axis") or 0
    terms = here.terms
    later = {terms.index(k): terms.whole(terms.index(k + 1)) for k in range(axis, len(given.type.shape))}
    return [Value(terms.change(given.term, later), kind)]


def transposed(here: Here, operation: Operation) -> list[Value]:
    """`tt.trans`: axes change places."""
    given, terms = here.value(operation.operands[0]), here.terms
    found = _ORDER.search(operation.text)
    order = [int(n) for n in found[1].split(",")] if found else list(range(len(given.type.shape)))[::-1]
    to = {terms.index(old): terms.whole(terms.index(new)) for new, old in enumerate(order) if new != old}
    return [Value(terms.change(given.term, to), kind_of(operation))]


def reshaped(here: Here, operation: Operation) -> list[Value]:
    """The element at a place of the new shape is the one at the same place in row-major order."""
    given, kind, terms = here.value(operation.operands[0]), kind_of(operation), here.terms
    flat = terms.number(0)
    for axis, extent in enumerate(kind.shape):
        place = terms.number(0) if extent == 1 else terms.whole(terms.index(axis))
        flat = terms.add((extent, flat), (1, place)) if axis else place
    to, shape = {}, given.type.shape
    for axis, extent in enumerate(shape):
        after = terms.number(prod(shape[axis + 1 :]))
        place = _part(terms, flat, after, kind.shape)
        inner = place if axis == 0 else _rest(terms, place, extent, kind.shape)
        to[terms.index(axis)] = terms.number(0) if extent == 1 else inner
    return [Value(terms.change(given.term, to), kind)]


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
    kept = {m: c for m, c in place.operands if c % extent} if place.name == "sum" else {}
    plain = all(len(m) == 1 and m[0].name == "index" for m in kept)
    reach = sum(c * (shape[m[0].operands[0]] - 1) for m, c in kept.items()) if plain else extent
    return terms.sum(kept) if plain and reach < extent else terms.remainder(place, terms.number(extent))


def pair(here: Here, operation: Operation) -> list[Value]:
    """`tt.join`: a new last axis with two elements."""
    one, other = here.all(operation.operands)
    kind = operation.result_types[-1]
    last = here.terms.whole(here.terms.index(len(kind.shape) - 1))
    return [Value(here.terms.choose(here.terms.zero(last), one.term, other.term), kind)]


def halves(here: Here, operation: Operation) -> list[Value]:
    """`tt.split`: the two elements of the last axis."""
    given, terms = here.value(operation.operands[0]), here.terms
    last = terms.index(len(given.type.shape) - 1)
    kind = operation.result_types[-1]
    return [Value(terms.change(given.term, {last: terms.number(k)}), kind) for k in (0, 1)]
