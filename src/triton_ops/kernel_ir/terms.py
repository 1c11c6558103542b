"""Terms: what one element of a value is, said by symbols.

A whole number is a polynomial over symbols with whole coefficients, so that equal sums are equal terms however they
were written. A condition on whole numbers is `0 <= polynomial` or `0 == polynomial`. Everything else is the name of
what is done, and to which terms. Equal terms are one object, made by the `Terms` of one kernel.

The symbol `("index", (k,))` is the place of the element along axis `k` of the value that it belongs to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from triton_ops.kernel_ir.ttir_syntax import Type


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A value that a loop carries: `symbol` within a turn, which hands on `next`.

    Its place is the loop's number, and that among what the loop carries.
    """

    place: tuple[int, int]
    symbol: Term
    begin: Term
    next: Term
    type: Type


Monomial: TypeAlias = "tuple[Term, ...]"
Sum: TypeAlias = "dict[Monomial, int]"
SUM, AT_LEAST_ZERO, ZERO, AND, OR, NOT = "sum", "0<=", "0==", "and", "or", "not"
_MOST_CHARACTERS = 2000
INDEX, CONDITION = "index", (AT_LEAST_ZERO, ZERO, AND, OR, NOT, "compared", "truth")


class Term:
    """One term: what is done, such as `load`, to terms, numbers and texts.

    A `sum` is a polynomial, whose operands are pairs of a monomial and its coefficient.

    The number orders the terms of one kernel; `inside` are those of all symbols inside whose operands are no terms, and
    `names` those of all terms inside.
    """

    __slots__ = ("_words", "inside", "name", "names", "number", "operands")
    SUM, AT_LEAST_ZERO, ZERO, AND, OR, NOT, INDEX = SUM, AT_LEAST_ZERO, ZERO, AND, OR, NOT, INDEX

    def __init__(self, name: str, operands: tuple[Any, ...], number: int, inside: frozenset[int]) -> None:
        self.name, self.operands, self.number, self.inside = name, operands, number, inside
        self.names: frozenset[str] = frozenset((name,)).union(*(one.names for one in self.direct()))
        self._words = ""

    def __lt__(self, other: Term) -> bool:
        return self.number < other.number

    def __repr__(self) -> str:
        return self.words

    @property
    def parts(self) -> Sum:
        """The monomials of a polynomial with their coefficients; of any other term the term itself, once."""
        return dict(self.operands) if self.name == SUM else {(self,): 1}

    @property
    def constant(self) -> int | None:
        """The number that a polynomial is; None if it has symbols."""
        if self.name != SUM:
            return None
        if not self.operands:
            return 0
        return int(self.operands[0][1]) if len(self.operands) == 1 and self.operands[0][0] == () else None

    @property
    def argument(self) -> str:
        """The name of the argument that a symbol is; empty for any other term."""
        return str(self.operands[0]) if self.name == "argument" else ""

    @property
    def lone_argument(self) -> tuple[str, int]:
        """Name and factor of the argument of which it is a multiple, plus a number; no name for any other term."""
        symbols = [(m, c) for m, c in self.parts.items() if m]
        if len(symbols) != 1 or len(symbols[0][0]) != 1 or not symbols[0][0][0].argument:
            return "", 0
        return symbols[0][0][0].argument, symbols[0][1]

    @property
    def conjuncts(self) -> tuple[Term, ...]:
        """The conditions that must all hold, of a condition."""
        return self.operands if self.name == AND else (self,)

    @property
    def words(self) -> str:
        """The term in words, for messages and for a debugger; the end is left out of very many."""
        self._words = self._words or self._describe()[:_MOST_CHARACTERS]  # terms share parts, often many times over
        return self._words

    def _describe(self) -> str:
        if self.name == SUM:
            return " + ".join(_describe_monomial(m, c) for m, c in self.operands) or "0"
        if self.name == AT_LEAST_ZERO:
            return _describe_condition(self.operands[0])
        if self.name == INDEX:
            return _AXES[min(self.operands[0], len(_AXES) - 1)]
        inner = [one.words if isinstance(one, Term) else str(one) for one in self.operands]
        if self.name == "load":
            return f"{inner[1]}[{inner[2]}]"
        form = _FORMS.get(self.name)
        return form.format(*inner) if form is not None else f"{self.name}({', '.join(inner)})"

    @property
    def arguments(self) -> set[str]:
        """Names of the kernel's arguments inside of it."""
        return {one.argument for one in self.named("argument")}

    def named(self, *names: str) -> list[Term]:
        """The terms of these names that it is made of."""
        return [one for one in self.inner(names) if one.name in names]

    def comparisons(self) -> Iterator[Term]:
        """The conditions on whole numbers inside of a condition, however they are joined."""
        if self.name in (AND, OR, NOT):
            for one in self.operands:
                yield from one.comparisons()
        elif self.name in (AT_LEAST_ZERO, ZERO):
            yield self

    def direct(self) -> Iterator[Term]:
        """The terms that are its operands."""
        return _inner(self.name, self.operands)

    def inner(self, names: tuple[str, ...] = ()) -> Iterator[Term]:
        """The terms that it is made of, itself first, each once; without those that have none of some names inside."""
        numbers, queue = {self.number}, [self]
        while queue:
            one = queue.pop()
            if names and one.names.isdisjoint(names):
                continue
            yield one
            for inner in one.direct():
                if inner.number not in numbers:
                    numbers.add(inner.number)
                    queue.append(inner)


class Terms:
    """The terms of one kernel."""

    def __init__(self) -> None:
        self._terms: dict[tuple[str, tuple[Any, ...]], Term] = {}
        self._simple: dict[str, Callable[..., Term]] = {
            AT_LEAST_ZERO: self.at_least_zero, ZERO: self.zero, AND: self.both, OR: self.either, NOT: self.refuse,
            "choose": self.choose, "quotient": self.quotient, "remainder": self.remainder,
        }  # fmt: skip
        self.true = self.make("truth", True)
        self.false = self.make("truth", False)

    @property
    def count(self) -> int:
        """Number of different terms."""
        return len(self._terms)

    def make(self, name: str, *operands: Any) -> Term:
        """The term of this name and these operands."""
        key = (name, operands)
        if (term := self._terms.get(key)) is None:
            number = len(self._terms)
            inner = [one.inside for one in _inner(name, operands)]
            inside = frozenset().union(*inner) if inner else frozenset((number,))
            term = self._terms[key] = Term(name, operands, number, inside)
        return term

    def symbols(self, name: str, within: Iterable[Term]) -> list[Term]:
        """The symbols of a name, which have no terms as operands, that some terms are made of."""
        numbers = frozenset().union(*(term.inside for term in within))
        return [one for one in self._terms.values() if one.name == name and one.number in numbers]

    @property
    def data(self) -> Term:
        """Any data."""
        return self.make("data")

    def index(self, axis: int) -> Term:
        """The place along an axis, as a symbol."""
        return self.make(INDEX, axis)

    def number(self, value: int) -> Term:
        """A whole number."""
        return self.sum({(): value})

    def whole(self, symbol: Term) -> Term:
        """A term as a whole number."""
        return symbol if symbol.name == SUM else self.sum({(symbol,): 1})

    def sum(self, parts: Mapping[Monomial, int]) -> Term:
        """The polynomial of these parts."""
        return self.make(SUM, *sorted((m, c) for m, c in parts.items() if c))

    def add(self, *terms: tuple[int, Term]) -> Term:
        """A sum of multiples."""
        total: Sum = {}
        for factor, term in terms:
            for monomial, coefficient in self.whole(term).parts.items():
                total[monomial] = total.get(monomial, 0) + factor * coefficient
        return self.sum(total)

    def multiply(self, one: Term, other: Term) -> Term:
        """A product."""
        product: Sum = {}
        for a, m in self.whole(one).parts.items():
            for b, n in self.whole(other).parts.items():
                key = tuple(sorted((*a, *b)))
                product[key] = product.get(key, 0) + m * n
        return self.sum(product)

    def at_least_zero(self, term: Term) -> Term:
        """Check whether a whole number is 0 or more."""
        value = term.constant
        return self.make(AT_LEAST_ZERO, term) if value is None else self.truth(value >= 0)

    def zero(self, term: Term) -> Term:
        """Check whether a whole number is 0."""
        if (value := term.constant) is not None:
            return self.truth(value == 0)
        # `0 == p` and `0 == -p` are one condition: the first coefficient is made positive.
        return self.make(ZERO, term if min(term.parts.items())[1] > 0 else self.add((-1, term)))

    def truth(self, value: bool) -> Term:
        """True or false."""
        return self.true if value else self.false

    def both(self, *terms: Term) -> Term:
        """Check whether all hold."""
        conditions = {part for term in terms for part in term.conjuncts} - {self.true}
        if self.false in conditions or any(self.refuse(one) in conditions for one in conditions):
            return self.false
        if len(conditions) < 2:
            return next(iter(conditions), self.true)
        return self.make(AND, *sorted(conditions))

    def either(self, *terms: Term) -> Term:
        """Check whether one holds."""
        shared = frozenset.intersection(*(frozenset(term.conjuncts) for term in terms)) - {self.true}
        rests = {self.both(*(part for part in term.conjuncts if part not in shared)) for term in terms}
        if self.true in rests or any(self.refuse(one) in rests for one in rests):
            return self.both(*shared)
        rests -= {self.false}
        rest = next(iter(rests), self.false) if len(rests) < 2 else self.make(OR, *sorted(rests))
        return self.both(*shared, rest)

    def refuse(self, term: Term) -> Term:
        """Check whether a condition does not hold."""
        if term.name == "truth":
            return self.truth(not term.operands[0])
        if term.name == NOT:
            return term.operands[0]  # type: ignore[no-any-return]
        if term.name == AT_LEAST_ZERO:
            # Of whole numbers `not 0 <= p` is `0 <= -p - 1`.
            return self.at_least_zero(self.add((-1, term.operands[0]), (-1, self.number(1))))
        if term.name in (AND, OR):
            inner = [self.refuse(one) for one in term.operands]
            return self.either(*inner) if term.name == AND else self.both(*inner)
        return self.make(NOT, term)

    def choose(self, condition: Term, one: Term, other: Term) -> Term:
        """One of two terms, by a condition."""
        if one is other or condition is self.true:
            return one
        if condition is self.false:
            return other
        if one.name in CONDITION and other.name in CONDITION:
            return self.either(self.both(condition, one), self.both(self.refuse(condition), other))
        if one.name == other.name == "pointer" and one.operands[0] is other.operands[0]:
            root, *offsets = one.operands[0], one.operands[1], other.operands[1]
            return self.make("pointer", root, self.choose(condition, *offsets))
        choice = self.make("choose", condition, one, other)
        return self.whole(choice) if one.name == other.name == SUM else choice

    def quotient(self, one: Term, other: Term) -> Term:
        """A whole quotient, rounded towards zero or down, which is the same for what is not negative."""
        by, value = other.constant, one.constant
        if by == 1:
            return one
        if by and value is not None:
            return self.number(value // by)
        if by and all(c % by == 0 for c in one.parts.values()):
            return self.sum({m: c // by for m, c in one.parts.items()})
        return self.opaque("quotient", one, other)

    def remainder(self, one: Term, other: Term) -> Term:
        """The rest of a whole division."""
        by, value = other.constant, one.constant
        if by and value is not None:
            return self.number(value % by)
        if by and all(c % by == 0 for c in one.parts.values()):
            return self.number(0)
        return self.opaque("remainder", one, other)

    def opaque(self, name: str, *operands: Any) -> Term:
        """A whole number that is no polynomial of what it is made of."""
        return self.whole(self.make(name, *operands))

    def change(self, term: Term, to: Mapping[Term, Term]) -> Term:
        """`term` with other terms in place of symbols."""
        return self._changed(term, to, frozenset(symbol.number for symbol in to), {})

    def _changed(self, term: Term, to: Mapping[Term, Term], numbers: frozenset[int], memo: dict[int, Term]) -> Term:
        if not (term.inside & numbers):
            return term
        if term in to:
            return to[term]
        if term.number not in memo:
            memo[term.number] = self._rebuilt(term, lambda one: self._changed(one, to, numbers, memo))
        return memo[term.number]

    def _rebuilt(self, term: Term, change: Callable[[Term], Term]) -> Term:
        if term.name == SUM:
            same: Sum = {}
            products = []
            for monomial, coefficient in term.operands:
                symbols = [change(symbol) for symbol in monomial]
                if all(map(operator.is_, symbols, monomial)):
                    same[monomial] = coefficient
                else:
                    products.append((coefficient, reduce(self.multiply, symbols)))
            return self.add((1, self.sum(same)), *products)
        inner = tuple(change(one) if isinstance(one, Term) else one for one in term.operands)
        again = self._simple.get(term.name)
        return self.make(term.name, *inner) if again is None else again(*inner)


def _inner(name: str, operands: Iterable[Any]) -> Iterator[Term]:
    if name == SUM:
        for monomial, _ in operands:
            yield from monomial
    else:
        yield from (one for one in operands if isinstance(one, Term))


_FORMS: dict[str, str] = {
    "argument": "{}", "truth": "{}", "program_id": "program_id({})", "bound": "k", "turn": "iteration", "place": "i",
    "quotient": "({}) // {}", "remainder": "({}) % {}",
}  # fmt: skip
_AXES = "ijklm"


def _describe_condition(sums: Term) -> str:
    """`0 <= n - 1 - i` as it is written: `i < n`."""
    low = {m: -c for m, c in sums.parts.items() if m and c < 0}
    high = {m: c for m, c in sums.parts.items() if m and c > 0}
    rest = sums.parts.get((), 0)
    strict = rest < 0
    rest += strict
    smaller = [*(_describe_monomial(m, c) for m, c in low.items()), *([str(-rest)] if rest < 0 else [])]
    larger = [*(_describe_monomial(m, c) for m, c in high.items()), *([str(rest)] if rest > 0 else [])]
    return f"{' + '.join(smaller) or '0'} {'<' if strict else '<='} {' + '.join(larger) or '0'}"


def _describe_monomial(symbols: Monomial, coefficient: int) -> str:
    product = "·".join(one.words for one in symbols)
    if not product:
        return str(coefficient)
    return product if coefficient == 1 else f"{coefficient}·{product}"
