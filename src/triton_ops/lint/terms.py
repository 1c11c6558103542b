"""Terms: what one element of a value is, said by symbols, or computed in many draws at once.

A whole number is a polynomial over symbols with whole coefficients, so that equal sums are equal terms however they
were written. A condition on whole numbers is `0 <= polynomial` or `0 == polynomial`. Everything else is the name of
what is done, and to which terms. Equal terms are one object, made by the `Terms` of one kernel.

The symbol `("index", (k,))` is the place of the element along axis `k` of the value that it belongs to.

A place along an axis may lie beyond what a mask lets pass; what such a lane would compute then shows. What a loop
carries is what it begins with, or what its first turns make of it, so that every number is one of a real launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir import TtirOperation, Type

Numbers: TypeAlias = NDArray[Any]


def _quotient(one: Numbers, other: Numbers) -> Numbers:
    return np.asarray(np.floor(one / np.where(other == 0, 1, other)))


def _remainder(one: Numbers, other: Numbers) -> Numbers:
    return np.asarray(np.mod(one, np.where(other == 0, 1, other)))


_OF_NUMPY = ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "tanh", "floor", "ceil", "log1p", "expm1")
_ONE: dict[str, Callable[[Any], Any]] = {
    **{f"math.{name}": getattr(np, name) for name in _OF_NUMPY}, "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.absf": np.abs, "math.absi": np.abs, "math.erf": np.vectorize(math.erf, otypes=[float]),
    "arith.negf": np.negative, "tt.precise_sqrt": np.sqrt, "arith.extf": lambda x: x, "arith.truncf": lambda x: x,
    "tt.fp_to_fp": lambda x: x, "arith.sitofp": lambda x: x * 1.0, "arith.uitofp": lambda x: x * 1.0,
    "arith.fptosi": np.trunc, "arith.fptoui": np.trunc, "arith.extsi": lambda x: x, "arith.extui": lambda x: x * 1,
    "arith.trunci": lambda x: x,
}  # fmt: skip
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "tt.precise_divf": np.divide, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin, "math.powf": np.power, "arith.remf": np.fmod, "arith.addi": np.add,
    "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
    "arith.maxui": np.maximum, "arith.minui": np.minimum, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_MORE: dict[str, Callable[..., Any]] = {
    "arith.select": np.where, "math.fma": lambda x, y, z: x * y + z, "tt.clampf": np.clip,
    "arith.divsi": _quotient, "arith.divui": _quotient, "quotient": _quotient,
    "arith.remsi": _remainder, "arith.remui": _remainder, "remainder": _remainder,
    "least": np.minimum, "most": np.maximum,
}  # fmt: skip
_BITS = {"arith.andi": np.logical_and, "arith.ori": np.logical_or, "arith.xori": np.logical_xor}
_LIBRARY: dict[str, Callable[[Any], Any]] = {
    **{name.removeprefix("math."): work for name, work in _ONE.items() if name.startswith("math.")},
    "fabs": np.abs, "sinh": np.sinh, "cosh": np.cosh,
}  # fmt: skip


class NotComputedError(Exception):
    """An operation whose result cannot be computed here; it names the operation."""


def apply(name: str, word: str, operands: Sequence[Numbers]) -> Numbers:
    """The result of an operation on single elements; raises NotComputedError if it is not known."""
    function: Callable[..., Any] | None = _ONE.get(name) or TWO.get(name) or _MORE.get(name)
    if name in _BITS and all(one.dtype == bool for one in operands):
        function = _BITS[name]
    elif name in ("arith.cmpf", "arith.cmpi"):
        function = TWO.get(word.strip()[-2:])
    elif name == "tt.extern_elementwise":
        symbol = word.strip('" ').removeprefix("__nv_").removeprefix("fast_")
        function = _LIBRARY.get(symbol) or _LIBRARY.get(symbol.removesuffix("f"))
    if function is None:
        raise NotComputedError(f"{name} {word}".strip())
    return np.asarray(function(*operands))


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A value that a loop carries: `symbol` within a turn, which hands on `next`, and `after` the loop."""

    symbol: Term
    after: Term
    begin: Term
    next: Term
    type: Type


Monomial: TypeAlias = "tuple[Term, ...]"
Sum: TypeAlias = "dict[Monomial, int]"
SUM, AT_LEAST_ZERO, ZERO, AND, OR, NOT = "sum", "0<=", "0==", "and", "or", "not"
INDEX, CONDITION = "index", (AT_LEAST_ZERO, ZERO, AND, OR, NOT, "compared", "truth")


class Term:
    """One term: what is done, such as `load`, to terms, numbers and texts.

    A `sum` is a polynomial, whose operands are pairs of a monomial and its coefficient.

    The number orders the terms of one kernel; `inside` are those of all symbols inside whose operands are no terms.
    """

    __slots__ = ("inside", "name", "number", "operands")

    def __init__(self, name: str, operands: tuple[Any, ...], number: int, inside: frozenset[int]) -> None:
        self.name, self.operands, self.number, self.inside = name, operands, number, inside

    def __lt__(self, other: Term) -> bool:
        return self.number < other.number

    def __repr__(self) -> str:
        return describe(self)


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
        term = self._terms.get(key)
        if term is None:
            number = len(self._terms)
            inner = [one.inside for one in _inner(name, operands)]
            inside = frozenset().union(*inner) if inner else frozenset((number,))
            term = self._terms[key] = Term(name, operands, number, inside)
        return term

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
            for monomial, coefficient in parts(self.whole(term)).items():
                total[monomial] = total.get(monomial, 0) + factor * coefficient
        return self.sum(total)

    def multiply(self, one: Term, other: Term) -> Term:
        """A product."""
        product: Sum = {}
        for a, m in parts(self.whole(one)).items():
            for b, n in parts(self.whole(other)).items():
                key = tuple(sorted((*a, *b)))
                product[key] = product.get(key, 0) + m * n
        return self.sum(product)

    def at_least_zero(self, term: Term) -> Term:
        """Check whether a whole number is 0 or more."""
        value = constant(term)
        return self.make(AT_LEAST_ZERO, term) if value is None else self.truth(value >= 0)

    def zero(self, term: Term) -> Term:
        """Check whether a whole number is 0."""
        value = constant(term)
        if value is not None:
            return self.truth(value == 0)
        first = min(parts(term).items())
        return self.make(ZERO, term if first[1] > 0 else self.add((-1, term)))

    def truth(self, value: bool) -> Term:
        """True or false."""
        return self.true if value else self.false

    def both(self, *terms: Term) -> Term:
        """Check whether all hold."""
        conditions = {part for term in terms for part in all_of(term)} - {self.true}
        if self.false in conditions or any(self.refuse(one) in conditions for one in conditions):
            return self.false
        if len(conditions) < 2:
            return next(iter(conditions), self.true)
        return self.make(AND, *sorted(conditions))

    def either(self, *terms: Term) -> Term:
        """Check whether one holds."""
        shared = frozenset.intersection(*(frozenset(all_of(term)) for term in terms)) - {self.true}
        rests = {self.both(*(part for part in all_of(term) if part not in shared)) for term in terms}
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
        by = constant(other)
        if by == 1:
            return one
        if by:
            whole = {m: c for m, c in parts(one).items() if c % by == 0}
            rest = {m: c for m, c in parts(one).items() if c % by}
            multiple = self.sum({m: c // by for m, c in whole.items()})
            if not rest:
                return multiple
            if constant(self.sum(rest)) is not None or not whole:
                value = constant(one)
                return self.number(value // by) if value is not None else self.opaque("quotient", one, other)
        return self.opaque("quotient", one, other)

    def remainder(self, one: Term, other: Term) -> Term:
        """The rest of a whole division."""
        by, value = constant(other), constant(one)
        if by and value is not None:
            return self.number(value % by)
        if by and all(c % by == 0 for c in parts(one).values()):
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
            total = self.number(0)
            for monomial, coefficient in term.operands:
                product = self.number(coefficient)
                for symbol in monomial:
                    product = self.multiply(product, change(symbol))
                total = self.add((1, total), (1, product))
            return total
        inner = tuple(change(one) if isinstance(one, Term) else one for one in term.operands)
        again = self._simple.get(term.name)
        return self.make(term.name, *inner) if again is None else again(*inner)


def _inner(name: str, operands: Iterable[Any]) -> Iterator[Term]:
    if name == SUM:
        for monomial, _ in operands:
            yield from monomial
    else:
        yield from (one for one in operands if isinstance(one, Term))


def inner_terms(term: Term) -> Iterator[Term]:
    """The terms that a term is made of, itself first, each once."""
    numbers, queue = {term.number}, [term]
    while queue:
        one = queue.pop()
        yield one
        for inner in _inner(one.name, one.operands):
            if inner.number not in numbers:
                numbers.add(inner.number)
                queue.append(inner)


def parts(term: Term) -> Sum:
    """The monomials of a polynomial with their coefficients; of any other term the term itself, once."""
    return dict(term.operands) if term.name == SUM else {(term,): 1}


def constant(term: Term) -> int | None:
    """The number that a polynomial is; None if it has symbols."""
    if term.name != SUM:
        return None
    if not term.operands:
        return 0
    return int(term.operands[0][1]) if len(term.operands) == 1 and term.operands[0][0] == () else None


def lone_argument(term: Term) -> tuple[str, int]:
    """Name and factor of the argument of which a polynomial is a multiple, plus a number; no name for any other."""
    symbols = [(m, c) for m, c in parts(term).items() if m]
    if len(symbols) != 1 or len(symbols[0][0]) != 1 or symbols[0][0][0].name != "argument":
        return "", 0
    return str(symbols[0][0][0].operands[0]), symbols[0][1]


def all_of(condition: Term) -> tuple[Term, ...]:
    """The conditions that must all hold."""
    return condition.operands if condition.name == AND else (condition,)


_FORMS: dict[str, str] = {
    "argument": "{}", "truth": "{}", "program_id": "program_id({})", "bound": "k", "turn": "turn", "place": "i",
    "quotient": "({}) // {}", "remainder": "({}) % {}",
}  # fmt: skip
_AXES = "ijklm"


def describe(term: Term) -> str:
    """A term in words, for messages and for a debugger."""
    if term.name == SUM:
        return " + ".join(_describe_monomial(m, c) for m, c in term.operands) or "0"
    if term.name == AT_LEAST_ZERO:
        return _describe_condition(term.operands[0])
    if term.name == INDEX:
        return _AXES[min(term.operands[0], len(_AXES) - 1)]
    inner = [describe(one) if isinstance(one, Term) else str(one) for one in term.operands]
    if term.name == "load":
        return f"{inner[1]}[{inner[2]}]"
    form = _FORMS.get(term.name)
    return form.format(*inner) if form is not None else f"{term.name}({', '.join(inner)})"


def _describe_condition(sums: Term) -> str:
    """`0 <= n - 1 - i` as it is written: `i < n`."""
    low = {m: -c for m, c in parts(sums).items() if m and c < 0}
    high = {m: c for m, c in parts(sums).items() if m and c > 0}
    rest = parts(sums).get((), 0)
    strict = rest < 0
    rest += strict
    smaller = [*(_describe_monomial(m, c) for m, c in low.items()), *([str(-rest)] if rest < 0 else [])]
    larger = [*(_describe_monomial(m, c) for m, c in high.items()), *([str(rest)] if rest > 0 else [])]
    return f"{' + '.join(smaller) or '0'} {'<' if strict else '<='} {' + '.join(larger) or '0'}"


def _describe_monomial(symbols: Monomial, coefficient: int) -> str:
    product = "·".join(describe(one) for one in symbols)
    if not product:
        return str(coefficient)
    return product if coefficient == 1 else f"{coefficient}·{product}"


DRAWS = 64
SMALL_ARGUMENTS = np.arange(DRAWS) % 2 == 1  # where those of floating point are tiny: what falls away is an epsilon's
_PLACES = (0, 1, 2)  # of a sum or a product over a whole axis, these stand for all
_MOST = 20_000  # numbers that are computed for one question
_SMALL = {"program_id": 2, "turn": 2, "turns": 4, "num_programs": 9, "index": 3, "bound": 3}


class Draw:
    """The values of terms in many draws, at given places of a block.

    A place along an axis, by its symbol, is one for all draws or one for each. A masked lane holds `padding` where the
    load says nothing. So many `turns` have made what a loop carries.
    """

    def __init__(
        self,
        terms: Terms,
        carried: Mapping[tuple[int, int], Carried],
        places: Mapping[Term, Numbers | int],
        padding: float,
        turns: int = 0,
    ) -> None:
        self._terms, self._carried, self._padding, self._turns = terms, carried, padding, turns
        self._places = dict(places)
        self._marks = tuple(  # which tell a place from others
            (symbol.number, place if isinstance(place, int) else place.tobytes()) for symbol, place in places.items()
        )
        self._values: dict[tuple[Any, ...], Numbers] = {}
        self._bounds: dict[int, Term] = {}

    def __call__(self, term: Term) -> Numbers:
        """The value of a term in each draw; raises NotComputedError if it has an unknown operation, or too many."""
        key = (term.number, self._turns, *(mark for mark in self._marks if mark[0] in term.inside))
        if key not in self._values:
            if len(self._values) >= _MOST:
                raise NotComputedError("it takes too many steps, each of which is used by several others")
            with np.errstate(all="ignore"):
                self._values[key] = self._value(term)
        return self._values[key]

    def at(self, places: Mapping[Term, Numbers | int], turns: int | None = None) -> Draw:
        """The same at other places, the rest unchanged."""
        return self._beside({**self._places, **places}, self._turns if turns is None else turns)

    def _beside(self, places: Mapping[Term, Numbers | int], turns: int) -> Draw:
        """The same draws at these places, with what depends on no place computed once.

        Products of products would else take three times as long for each further product.
        """
        draw = Draw(self._terms, self._carried, places, self._padding, turns)
        draw._values, draw._bounds = self._values, self._bounds
        return draw

    def _value(self, term: Term) -> Numbers:
        name = term.name
        if name == SUM:
            return self._sum(term)
        if name in CONDITION:
            return self._condition(term)
        if name == "load":
            return self._load(term)
        if name == "choose":
            condition, one, other = (self(part) for part in term.operands)
            return np.where(condition, one, other)
        if name == "number":
            return np.full(DRAWS, term.operands[0])
        if name in ("tt.reduce", "dot"):
            return self._over_an_axis(term)
        if name in ("carried", "after"):
            return self._of_loop(term)
        if name in _SYMBOLS:
            return self._symbol(term, whole=False)
        return self._applied(term)

    def _sum(self, term: Term) -> Numbers:
        total = np.zeros(DRAWS)
        for monomial, coefficient in term.operands:
            product = np.full(DRAWS, float(coefficient))
            for one in monomial:
                product = product * (self._symbol(one, whole=True) if one.name in _SYMBOLS else self(one))
            total = total + product
        return total

    def _symbol(self, term: Term, whole: bool) -> Numbers:
        if term in self._places:
            return np.broadcast_to(np.asarray(self._places[term], dtype=float), DRAWS)
        inner = [self(one) for one in term.operands if isinstance(one, Term)]
        seed = _hash(term.number, np.arange(DRAWS), *inner)
        if not whole and term.name == "argument":  # a scale, or an epsilon: both must do
            return np.where(SMALL_ARGUMENTS, 1e-10, 0.5 + 1.5 * _share(seed))
        if not whole:
            return _real(seed)
        if term.name == "argument":
            return np.floor(5000 + 1000 * _share(seed))
        return np.floor(_share(seed) * _SMALL.get(term.name, 9))

    def _of_loop(self, term: Term) -> Numbers:
        """A value that a loop carries: as it began, or as a turn has made it."""
        carried = self._carried.get(term.operands[:2])
        if carried is None:
            raise NotComputedError("a loop without a known number of turns")
        after_a_turn = term.name == "after" or self._turns > 0
        inner = carried.next if after_a_turn else carried.begin
        turns = 0 if term.name == "after" else max(0, self._turns - 1)
        places = {self._terms.index(axis): self(one) for axis, one in enumerate(term.operands[2:])}
        return self._beside(places, turns)(inner.operands[1] if inner.name == "pointer" else inner)

    def _condition(self, term: Term) -> Numbers:
        if term.name == "truth":
            return np.full(DRAWS, bool(term.operands[0]))
        inner = [self(one) for one in term.operands if isinstance(one, Term)]
        if term.name in _TESTS:
            return np.asarray(_TESTS[term.name](inner))
        if len(term.operands) == 1:
            return np.asarray(inner[0] != 0)
        comparison = TWO.get(str(term.operands[0]).strip()[-2:])
        if comparison is None or len(inner) != 2:
            raise NotComputedError(f"a comparison {term.operands[0]}")
        return np.asarray(comparison(*inner))

    def _load(self, term: Term) -> Numbers:
        element, root, offset, mask, other = term.operands
        seed = _hash(root.number, np.arange(DRAWS), self(offset))
        data = np.floor(1 + 50 * _share(seed)) if str(element).startswith("i") else _real(seed)
        rest = self(other) if isinstance(other, Term) else np.full(DRAWS, self._padding)
        return np.where(self(mask), data, rest)

    def _over_an_axis(self, term: Term) -> Numbers:
        if term.number not in self._bounds:
            number = term.operands[2] if term.name == "tt.reduce" else term.operands[1]  # which its bound has too
            bounds = (one for one in inner_terms(term) if one.name == "bound" and one.operands[0] == number)
            self._bounds[term.number] = next(bounds, Term("bound", (number,), -1, frozenset()))
        inside = self._bounds[term.number]
        several = [self.at({inside: place}) for place in _PLACES]
        if term.name == "dot":
            _, _, left, right, start = term.operands
            return self(start) + sum(one(left) * one(right) for one in several)
        how, operands = str(term.operands[1]).split(), [one for one in term.operands if isinstance(one, Term)]
        fold = TWO.get(how[0])
        if fold is None or len(operands) != 1 or len(how) != 2:
            return _real(_hash(term.number, np.arange(DRAWS), *(abs(several[0](one)) for one in operands)))
        result = several[0](operands[0])
        for one in several[1:]:
            result = fold(result, one(operands[0]))
        return result

    def _applied(self, term: Term) -> Numbers:
        number = term.operands[-1] if term.name in ("arith.sitofp", "arith.uitofp") else None
        if number is not None and len(number.operands) == 1 and lone_argument(number)[0]:
            # An extent by which a sum is divided. As large as in masks it would hide what one lane adds.
            return np.floor(2 + 6 * _share(_hash(term.number, np.arange(DRAWS))))
        word = str(term.operands[1]) if len(term.operands) > 1 else ""
        return apply(term.name, word, [self(one) for one in term.operands if isinstance(one, Term)])


_TESTS: dict[str, Callable[[list[Numbers]], Any]] = {
    AT_LEAST_ZERO: lambda inner: inner[0] >= 0, ZERO: lambda inner: inner[0] == 0, AND: np.logical_and.reduce,
    OR: np.logical_or.reduce, NOT: lambda inner: np.logical_not(inner[0]),
}  # fmt: skip
_SYMBOLS = {"argument", *_SMALL}


def combine(
    reduction: TtirOperation, one: Sequence[Numbers], other: Sequence[Numbers], around: Mapping[str, Numbers]
) -> list[Numbers]:
    """Two elements made one, as a reduction does, with the values from outside that its block uses.

    Raises NotComputedError if the block has an operation that is not known.
    """
    block = reduction.regions[0][0]
    values: dict[str, Numbers] = {**around, **dict(zip(block.arguments, [*one, *other], strict=True))}
    for operation in block.operations:
        if operation.name in ("tt.reduce.return", "tt.scan.return"):
            return [values[name] for name in operation.operands]
        if operation.name == "arith.constant":
            literal = operation.text.split()[0].strip()
            values[operation.results[0]] = np.full(DRAWS, {"true": 1.0, "false": 0.0}.get(literal) or float(literal))
            continue
        word = operation.predicate or " ".join(operation.quoted)
        with np.errstate(all="ignore"):
            result = apply(operation.name, word, [values[name] for name in operation.operands])
        values.update(zip(operation.results, [result], strict=True))
    raise NotComputedError("a reduction that returns nothing")


def _hash(number: int, draws: NDArray[np.int64], *values: Numbers) -> NDArray[np.uint64]:
    """A number for each draw that depends on all that is given, the same in every process."""
    hashes = (draws.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    hashes ^= np.uint64((number + 1) * 0xBF58476D1CE4E5B9 % (1 << 64))
    for value in values:
        bits = np.ascontiguousarray(np.asarray(value, dtype=np.float64) + 0.0).view(np.uint64)
        hashes = _scramble(hashes ^ _scramble(bits))
    return _scramble(hashes)


def _scramble(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _share(seed: NDArray[np.uint64]) -> NDArray[np.float64]:
    return (seed >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _real(seed: NDArray[np.uint64]) -> NDArray[np.float64]:
    return 4.0 * _share(seed) - 2.0
