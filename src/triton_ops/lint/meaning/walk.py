"""The way through a kernel's TTIR: blocks, conditions, loops and calls; what operations mean is in `operations.py`.

The body of a loop is walked twice: first with a symbol for each value that it carries, which shows what moves evenly
from turn to turn, and then with these said by the number of the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from triton_ops.kernel_ir import (
    Block,
    Operation,
    Type,
    UnreadableError,
    UntoldError,
    Walk,
    frames,
    jump_targets,
    parsed_module,
    places,
    yielded,
)
from triton_ops.lint.meaning.facts import Carried, Facts, Loop, Value
from triton_ops.lint.meaning.here import Here
from triton_ops.lint.meaning.operations import HANDLERS, unknown
from triton_ops.lint.meaning.terms import Term, Terms, inner_terms

_MOST_OPERATIONS = 60_000
_MOST_TERMS = 30_000  # most kernels have two thousand; an unrolled search doubles them with each step


def facts_of(text: str, parameters: Collection[str] = ()) -> Facts:
    """What a kernel does, from the text of its TTIR with the places of the source.

    Args:
        text: The text.
        parameters: The kernel's own parameters. What else it is given says what a descriptor that was made on the host
            is like; its truth values ask for NaN beyond the end and for rounding, which are off unless asked for.

    Cost: 5 to 50 ms.

    Raises:
        UnreadableError: The text is of no form that is known here.
        UntoldError: The kernel cannot be walked through, with the reason.
    """
    module, locations = parsed_module(text), places(text)
    terms = Terms()
    facts = Facts(terms, module.kernel.arguments)
    arguments = [_argument(terms, name.lstrip("%"), kind, parameters) for name, kind in module.kernel.arguments]
    here = Here(facts=facts, path=terms.true, values={}, place=lambda operation: frames(operation.location, locations))
    try:
        _Walk(module, _MOST_OPERATIONS).call(module.kernel, arguments, here)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"it has an operation in a form that is not known here: {error!r}") from error
    return facts


def _argument(terms: Terms, name: str, kind: Type, parameters: Collection[str]) -> Value:
    if kind.truth and parameters and name not in parameters:
        return Value(terms.false, kind)
    symbol = terms.make("argument", name)
    if kind.pointer or kind.descriptor:
        return Value(terms.make("pointer", symbol, terms.number(0)), kind)
    if kind.truth:
        return Value(terms.make("compared", symbol), kind)
    return Value(terms.whole(symbol) if kind.whole else symbol, kind)


@dataclass
class _Arrivals:
    """How programs come to a block: under which conditions, and with what."""

    paths: list[Term] = field(default_factory=list)
    passed: list[list[Value]] = field(default_factory=list)


class _Walk(Walk[Here, Value]):
    """A walk of any program, whose values are terms."""

    def _through(self, blocks: Sequence[Block], here: Here) -> list[Value]:
        arrivals = {block.label: _Arrivals() for block in blocks}
        arrivals[blocks[0].label] = _Arrivals([here.path], [[]])
        returned: list[tuple[Term, list[Value]]] = []
        for block in blocks:
            arrived = arrivals[block.label]
            if not arrived.paths:
                continue
            inside = replace(here, path=here.terms.either(*arrived.paths))
            here.values.update(zip(block.arguments, _merged(arrived, inside), strict=False))
            last = self._block(block, inside)
            if last is not None and last.name.startswith("cf."):
                for label, path, values in _jumps(last, inside):
                    arrivals[label].paths.append(path)
                    arrivals[label].passed.append(values)
            elif last is not None:
                returned.append((inside.path, inside.all(last.operands)))
        return _chosen(returned, here.terms)

    def _other(self, operation: Operation, here: Here) -> Sequence[Value]:
        return HANDLERS.get(operation.name, unknown)(here, operation)

    def _results(self, operation: Operation, here: Here) -> Sequence[Value]:
        results = super()._results(operation, here)
        if here.terms.count > _MOST_TERMS:
            raise UntoldError(f"what it computes is made of more than {_MOST_TERMS:,} parts, each of others")
        return results

    def _if(self, operation: Operation, here: Here) -> list[Value]:
        terms, condition = here.terms, here.value(operation.operands[0]).term
        branches = []
        for blocks, holds in zip(operation.regions, (condition, terms.refuse(condition)), strict=False):
            last = self._block(blocks[0], replace(here, path=terms.both(here.path, holds)))
            branches.append(yielded(last, here))
        if not operation.results:
            return []
        pairs = zip(*branches, strict=True)
        return [Value(terms.choose(condition, one.term, other.term), one.type) for one, other in pairs]

    def _while(self, operation: Operation, here: Here) -> list[Value]:
        """Nothing is known of how a value moves in a loop of this kind; each turn may have any."""
        before, after = (region[0] for region in operation.regions)
        names, begin = operation.operands[0::2], here.all(operation.operands[1::2])
        loops = (*here.loops, operation.number)
        inside = replace(here, loops=loops)
        symbols = [_moving(here, operation, k, value) for k, value in enumerate(begin)]
        here.values.update(zip(names, symbols, strict=True))
        last = self._block(before, inside)
        condition, *values = here.all(last.operands) if last is not None else []
        here.values.update(zip(after.arguments, values, strict=True))
        body = replace(inside, path=here.terms.both(here.path, condition.term))
        self._block(after, body)
        return [_after(here, operation, k, value) for k, value in enumerate(values)]

    def _for(self, operation: Operation, here: Here) -> list[Value]:
        lower, upper, step = here.all(operation.operands[1:4])
        begin, terms, loop = here.all(operation.operands[5::2]), here.terms, operation.number
        turn = terms.make("turn", loop)
        at = Value(terms.add((1, lower.term), (1, terms.multiply(step.term, terms.whole(turn)))), lower.type)
        symbols = [_moving(here, operation, k, value) for k, value in enumerate(begin)]
        inside = replace(here, loops=(*here.loops, loop))
        results = self._turn(operation, (at, *symbols), replace(inside, facts=Facts(terms)))
        steps = [_step(terms, loop, *pair) for pair in zip(symbols, results, strict=True)]
        entries = [
            _moved(terms, value, by, terms.whole(turn)) if by is not None else symbol
            for value, symbol, by in zip(begin, symbols, steps, strict=True)
        ]
        results = self._turn(operation, (at, *entries), inside)
        turns = terms.whole(terms.make("turns", loop, lower.term, upper.term, step.term))
        outcomes = [
            _moved(terms, value, by, turns) if by is not None else _after(here, operation, k, value)
            for k, (value, by) in enumerate(zip(begin, steps, strict=True))
        ]
        rows = zip(symbols, outcomes, begin, results, steps, strict=True)
        carried = tuple(_carried(*row) for *row, by in rows if by is None)
        here.facts.loops.append(
            Loop(
                *here.met(operation),
                turn=turn,
                lower=lower.term,
                upper=upper.term,
                step=step.term,
                carried=carried,
            )
        )
        return outcomes

    def _turn(self, operation: Operation, entries: Sequence[Value], here: Here) -> list[Value]:
        """What a turn of a counted loop hands on that is entered with its number and what is carried."""
        here.values.update(zip((operation.operands[0], *operation.operands[4::2]), entries, strict=True))
        return yielded(self._block(operation.regions[0][0], here), here)


def _carried(symbol: Value, after: Value, begin: Value, then: Value) -> Carried:
    return Carried(symbol=symbol.term, after=after.term, begin=begin.term, next=then.term, type=begin.type)


def _indices(terms: Terms, kind: Type) -> list[Term]:
    return [terms.index(axis) for axis in range(len(kind.shape))]


def _symbol(here: Here, name: str, operation: Operation, place: int, value: Value) -> Value:
    terms = here.terms
    if value.type.pointer:
        root = value.term.operands[0]
        symbol = terms.make(name, operation.number, place, *_indices(terms, value.type))
        return Value(terms.make("pointer", root, terms.whole(symbol)), value.type)
    symbol = terms.make(name, operation.number, place, *_indices(terms, value.type))
    if value.type.truth:
        return Value(terms.make("compared", symbol), value.type)
    return Value(terms.whole(symbol) if value.type.whole else symbol, value.type)


def _moving(here: Here, operation: Operation, place: int, value: Value) -> Value:
    return _symbol(here, "carried", operation, place, value)


def _after(here: Here, operation: Operation, place: int, value: Value) -> Value:
    return _symbol(here, "after", operation, place, value)


def _step(terms: Terms, loop: int, symbol: Value, then: Value) -> Term | None:
    """How far a value moves in a turn; None where it does not move evenly."""
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
    """Whether a term may differ from turn to turn of a loop."""
    for one in inner_terms(term):
        if one.name in ("carried", "turn") and one.operands[0] == loop:
            return True
        if one.name in ("carried", "after", "turn") and one.operands[0] > loop:  # of a loop inside of it
            return True
    return False


def _moved(terms: Terms, begin: Value, by: Term, turns: Term) -> Value:
    if not by.operands:
        return begin
    far = terms.multiply(by, turns)
    if begin.type.pointer:
        root, offset = begin.term.operands
        return Value(terms.make("pointer", root, terms.add((1, offset), (1, far))), begin.type)
    return Value(terms.add((1, begin.term), (1, far)), begin.type)


def _merged(arrived: _Arrivals, here: Here) -> list[Value]:
    """What a block is entered with, over all jumps to it."""
    pairs = list(zip(arrived.paths, arrived.passed, strict=True))
    return _chosen(pairs, here.terms)


def _chosen(ways: Sequence[tuple[Term, list[Value]]], terms: Terms) -> list[Value]:
    if not ways:
        return []
    *firsts, (_, result) = ways
    for path, values in reversed(firsts):
        result = [
            Value(terms.choose(path, one.term, other.term), one.type) for one, other in zip(values, result, strict=True)
        ]
    return result


def _jumps(last: Operation, here: Here) -> list[tuple[str, Term, list[Value]]]:
    targets = [(label, here.all(values)) for label, values in jump_targets(last)]
    if last.name == "cf.br":
        return [(label, here.path, values) for label, values in targets]
    condition = here.value(last.operands[0]).term
    ways = (condition, here.terms.refuse(condition))
    return [
        (label, here.terms.both(here.path, holds), values)
        for (label, values), holds in zip(targets, ways, strict=True)
    ]  # fmt: skip
