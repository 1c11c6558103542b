"""The way through a kernel's TTIR: blocks, conditions, loops and calls; what operations mean is in `operations.py`.

The body of a loop is walked twice: first with a symbol for each value that it carries, which shows what moves evenly
from turn to turn, and then with these said by the number of the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from triton_ops.kernel_ir import TtirBlock, TtirOperation, TtirWalk, Type, UnreadableError, UntoldError, parsed_module
from triton_ops.lint.kernel_facts import Carried, Facts, LoopFact, TermScope, TermValue
from triton_ops.lint.term_operations import HANDLERS, axis_symbols, elementwise, symbolic
from triton_ops.lint.terms import Term, Terms, inner_terms

_MOST_OPERATIONS = 60_000
_MOST_TERMS = 30_000  # most kernels have two thousand; an unrolled search doubles them with each step


def facts_of(text: str, parameters: Collection[str] = ()) -> Facts:
    """The facts of a kernel, from the text of its TTIR with the places of the source.

    Args:
        text: The text.
        parameters: The kernel's own parameters. What else it is given says what a descriptor that was made on the host
            is like; its truth values ask for NaN beyond the end and for rounding, which are off unless asked for.

    Cost: 5 to 50 ms.

    Raises:
        UnreadableError: The text is of no form that is known here.
        UntoldError: The kernel cannot be walked through, with the reason.
    """
    module, terms = parsed_module(text), Terms()
    facts = Facts(terms)
    arguments = [_argument(terms, name.lstrip("%"), kind, parameters) for name, kind in module.kernel.arguments]
    here = TermScope(facts=facts, path=terms.true, values={}, place=module.frames)
    try:
        _TermWalk(module, _MOST_OPERATIONS).call(module.kernel, arguments, here)
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
    def _through(self, blocks: Sequence[TtirBlock], here: TermScope) -> list[TermValue]:
        arrivals: dict[str, list[tuple[Term, list[TermValue]]]] = {block.label: [] for block in blocks}
        arrivals[blocks[0].label] = [(here.path, [])]
        returned: list[tuple[Term, list[TermValue]]] = []
        for block in blocks:
            ways = arrivals[block.label]
            if not ways:
                continue
            inside = replace(here, path=here.terms.either(*(path for path, _ in ways)))
            here.values.update(zip(block.arguments, _choose(ways, here.terms), strict=False))
            last = self._block(block, inside)
            if last is not None and last.name.startswith("cf."):
                for label, path, values in _jumps(last, inside):
                    arrivals[label].append((path, values))
            elif last is not None:
                returned.append((inside.path, inside.all(last.operands)))
        return _choose(returned, here.terms)

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
                *here.met(operation),
                turn=turn,
                lower=lower.term,
                upper=upper.term,
                step=step.term,
                carried=carried,
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
    for one in inner_terms(term):
        if one.name in ("carried", "turn") and one.operands[0] == loop:
            return True
        if one.name in ("carried", "after", "turn") and one.operands[0] > loop:  # of a loop inside of it
            return True
    return False


def _after_turns(terms: Terms, begin: TermValue, by: Term, turns: Term) -> TermValue:
    if not by.operands:
        return begin
    far = terms.multiply(by, turns)
    if begin.type.pointer:
        root, offset = begin.term.operands
        return TermValue(terms.make("pointer", root, terms.add((1, offset), (1, far))), begin.type)
    return TermValue(terms.add((1, begin.term), (1, far)), begin.type)


def _choose(ways: Sequence[tuple[Term, list[TermValue]]], terms: Terms) -> list[TermValue]:
    if not ways:
        return []
    *firsts, (_, result) = ways
    for path, values in reversed(firsts):
        result = [
            TermValue(terms.choose(path, one.term, other.term), one.type)
            for one, other in zip(values, result, strict=True)
        ]
    return result


def _jumps(last: TtirOperation, here: TermScope) -> list[tuple[str, Term, list[TermValue]]]:
    targets = [(label, here.all(values)) for label, values in last.jumps()]
    if last.name == "cf.br":
        return [(label, here.path, values) for label, values in targets]
    condition = here.value(last.operands[0]).term
    ways = (condition, here.terms.refuse(condition))
    return [
        (label, here.terms.both(here.path, holds), values)
        for (label, values), holds in zip(targets, ways, strict=True)
    ]  # fmt: skip
