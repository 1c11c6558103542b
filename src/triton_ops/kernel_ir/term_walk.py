"""The way through a kernel's TTIR with terms for its values.

The body of a loop is walked twice: first with a symbol for each value that it carries, which shows what moves evenly
from turn to turn, and then with these said by the number of the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from triton_ops.kernel_ir.draws import padded_lanes_of
from triton_ops.kernel_ir.facts import (
    Branch,
    Computation,
    Fact,
    Facts,
    LoopFact,
    ProductFact,
    ReductionFact,
    TermScope,
    TermValue,
    Way,
    places_in,
)
from triton_ops.kernel_ir.operations import axis_symbols, meaning_of, symbolic
from triton_ops.kernel_ir.terms import Carried, Term, Terms
from triton_ops.kernel_ir.ttir_syntax import (
    Function,
    Module,
    TtirBlock,
    TtirOperation,
    Type,
    UnreadableError,
    UntoldError,
    parsed_module,
)

_MOST_OPERATIONS = 60_000
_MOST_TERMS = 30_000  # most kernels have two thousand; an unrolled search doubles them with each step
_MOST_CALLS = 8  # calls within calls
_GROWING = ("program_id", "turn", "load", "carried", "quotient", "remainder")
_DEEP = 6  # loops within loops, of which each level doubles the walk


class KernelFacts(Facts):
    """The facts of a kernel, read from its TTIR."""

    @classmethod
    def of(cls, text: str | Module, parameters: Collection[str] = (), *, data: bool = True) -> KernelFacts:
        """The facts of a kernel, from its TTIR, of which a text may have the places of the source.

        What it is given beside the kernel's own parameters says what a descriptor that was made on the host is like:
        truth values ask for NaN beyond the end and for rounding, which are off unless asked for. Without `data`, one
        term stands for all data.

        Cost: 2 to 50 ms.

        Raises:
            UnreadableError: The text is of no form that is known here.
            UntoldError: The kernel cannot be walked through, with the reason.
        """
        module = parsed_module(text) if isinstance(text, str) else text
        facts = cls(terms := Terms(), data)
        arguments = [_argument(terms, name.lstrip("%"), kind, parameters) for name, kind in module.kernel.arguments]
        places = places_in(text if isinstance(text, str) else "")
        here = TermScope(facts=facts, path=terms.true, values={}, place=places, way=Way())
        try:
            _TermWalk(module).call(module.kernel, arguments, here)
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableError(f"it has an operation in a form that is not known here: {error!r}") from error
        return facts

    @staticmethod
    def does(term: Term) -> str:
        """What a term's operation does to floating point, as the table of operations has it; empty for any other."""
        return meaning_of(term.name).does

    padded_lanes = padded_lanes_of

    def growing(self, bits: int, least: int) -> list[tuple[Term, Fact, int]]:
        """The products of so many bits of a place that grows and its stride: an argument, or `least` and more.

        Each with its fact and the stride, which is 0 for an argument.
        """
        several = (one for one in self.multiplications if one.bits == bits)
        pairs = ((one, pair) for one in several for pair in ((one.one, one.other), (one.other, one.one)))
        strides = ((one, stride) for one, (place, stride) in pairs if place.named(*_GROWING))
        growing = {one: stride.constant or 0 for one, stride in strides if _is_stride(stride, least)}
        return [(self.terms.multiply(one.one, one.other), one, by) for one, by in growing.items()]

    def waits(self, product: ProductFact) -> bool:
        """Check whether an operand of a product is made of another product of the same turn."""
        others = {one.number for one in self.products if one.loops == product.loops and one is not product}
        dots = (one for side in (product.left, product.right) for one in side.term.named("dot"))
        return any(one.operands[1] in others for one in dots)

    def is_matrix_product(self, reduction: ReductionFact) -> bool:
        """Check whether what is added up are products of a factor without columns and one without rows."""
        term, rank = reduction.inputs[0].term, len(reduction.inputs[0].type.shape)
        while self.does(term) in ("widens", "rounds"):
            term = term.operands[-1]
        if self.does(term) != "multiplies" or rank != 3:
            return False
        factors = [part for part in term.operands if isinstance(part, Term)]
        axes = [self.terms.index(axis).number for axis in range(rank) if axis != reduction.axis]
        sum_axis = self.terms.index(reduction.axis).number
        rows = [[number in part.inside for number in axes] for part in factors]
        apart = rows in ([[True, False], [False, True]], [[False, True], [True, False]])
        return apart and all(sum_axis in part.inside for part in factors)


def _is_stride(term: Term, least: int) -> bool:
    factors = (one for monomial in term.parts for one in monomial)
    return any(one.name == "argument" for one in factors) or (term.constant or 0) >= least


def _argument(terms: Terms, name: str, kind: Type, parameters: Collection[str]) -> TermValue:
    if kind.truth and parameters and name not in parameters:
        return TermValue(terms.false, kind)
    symbol = terms.make("argument", name)
    if kind.pointer or kind.descriptor:
        axes = range(len(kind.shape)) if kind.descriptor else ()
        strides, extents = (
            tuple(terms.opaque("described", name, what, axis) for axis in axes) for what in ("strides", "extents")
        )
        return TermValue(terms.make("pointer", symbol, terms.number(0)), kind, strides=strides, extents=extents)
    if kind.truth:
        return TermValue(terms.make("compared", symbol), kind)
    return TermValue(terms.whole(symbol) if kind.whole else symbol, kind)


_OF_BITS = ("arith.xori", "arith.ori", "arith.andi", "arith.shli", "arith.shrui", "arith.shrsi", "tt.mulhiui")
"""The operations on whole numbers that make random numbers, hashes and packed words, and hardly any place."""


class _TermWalk:
    """One walk through a kernel with the functions that it calls, which ends when it has taken too many steps."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._budget = _MOST_OPERATIONS
        self._control = {"scf.for": self._for, "scf.while": self._while, "scf.if": self._if, "tt.call": self._call}

    def call(self, function: Function, arguments: Sequence[TermValue], here: TermScope) -> list[TermValue]:
        """The values that a function returns; raises UntoldError, with the reason, if it cannot be walked through."""
        if here.depth > _MOST_CALLS:
            raise UntoldError("its functions call each other without end")
        values = dict(zip((name for name, _ in function.arguments), arguments, strict=False))
        return self._through(function.blocks, replace(here, values=values))

    def _block(self, block: TtirBlock, here: TermScope) -> TtirOperation | None:
        """Walk through a block; its last operation, which says where to go on."""
        last: TtirOperation | None = None
        for operation in block.operations:
            last = operation
            self._budget -= 1
            if self._budget < 0:
                raise UntoldError("its loops within loops are too many to walk through")
            here.values.update(zip(operation.results, self._results(operation, here), strict=False))
            if here.terms.count > _MOST_TERMS:
                raise UntoldError(f"what it computes is made of more than {_MOST_TERMS:,} parts, each of others")
        return last

    def _results(self, operation: TtirOperation, here: TermScope) -> Sequence[TermValue]:
        if (control := self._control.get(operation.name)) is not None:
            return control(operation, here)
        meaning = meaning_of(operation.name)
        if meaning.counts and (operation.types or operation.result_types) and operation.results:
            kind = operation.kinds[0]
            if operation.name in _OF_BITS and not kind.truth if kind.whole else not kind.pointer:
                elements = prod(kind.shape)
                here.facts.computations.append(Computation(operation.number, here.way, elements, meaning.special))
        return meaning.terms(here, operation)

    def _call(self, operation: TtirOperation, here: TermScope) -> list[TermValue]:
        if (function := self._module.called(operation)) is None:
            raise UntoldError(f"it calls a function that is not in the text: {operation.text.strip()}")
        return self.call(function, here.all(operation.operands), replace(here, depth=here.depth + 1))

    def _through(self, blocks: Sequence[TtirBlock], here: TermScope) -> list[TermValue]:
        """The values that a function returns, from the blocks that its jumps reach."""
        arrivals: dict[str, list[tuple[TermScope, list[TermValue]]]] = {block.label: [] for block in blocks}
        arrivals[blocks[0].label] = [(here, [])]
        returned: list[tuple[TermScope, list[TermValue]]] = []
        for block in blocks:
            # A block is taken out when it is walked through, so that a later jump to it is seen to go back.
            if not (ways := arrivals.pop(block.label)):
                continue
            inside = ways[0][0]
            if len(ways) > 1:
                path = here.terms.either(*(one.path for one, _ in ways))
                joined = Way(inside.way.loop, tuple(Branch(one.way, None, True, 1.0) for one, _ in ways))
                inside = replace(inside, path=path, way=joined)
            here.values.update(zip(block.arguments, _merged(ways), strict=False))
            if (last := self._block(block, inside)) is not None and last.name.startswith("cf."):
                for label, way, handed_on in _jumps(last, inside):
                    if label not in arrivals:
                        raise UntoldError("it jumps back, which is no loop that is known here")
                    arrivals[label].append((way, handed_on))
            elif last is not None:
                returned.append((inside, inside.all(last.operands)))
        return _merged(returned)

    def _if(self, operation: TtirOperation, here: TermScope) -> list[TermValue]:
        condition, sides = here.value(operation.operands[0]).term, len(operation.regions)
        branches = []
        for blocks, holds in zip(operation.regions, (True, False), strict=False):
            branches.append(here.yielded(self._block(blocks[0], _under(here, condition, holds, 1 / sides))))
        if not operation.results:
            return []
        return [_chosen(here.terms, condition, *pair) for pair in zip(*branches, strict=True)]

    def _while(self, operation: TtirOperation, here: TermScope) -> list[TermValue]:
        """Nothing is said of how a value moves in a loop of this kind, in which each turn may have any."""
        before, after = (region[0] for region in operation.regions)
        # Operands in the order of the text: `scf.while (%name = %begin, ...)`.
        names, begin, terms = operation.operands[0::2], here.all(operation.operands[1::2]), here.terms
        nothing = terms.number(0)
        loop = LoopFact(
            *here.met(operation), turn=nothing, lower=nothing, upper=nothing, step=nothing, operation=operation
        )
        inside = replace(here, way=Way(loop))
        symbols = [_symbol(here, "carried", operation, k, value) for k, value in enumerate(begin)]
        here.values.update(zip(names, symbols, strict=True))
        if (last := self._block(before, inside)) is None or last.name != "scf.condition":
            raise UntoldError("a loop has no condition")
        condition, *values = here.all(last.operands)
        here.values.update(zip(after.arguments, values, strict=True))
        results = here.yielded(self._block(after, replace(inside, path=terms.both(here.path, condition.term))))
        outcomes = [_symbol(here, "after", operation, k, value) for k, value in enumerate(values)]
        for k, (first, symbol, then) in enumerate(zip(begin, symbols, results, strict=True)):
            if (by := _step(terms, operation.number, symbol, then)) is not None:
                loop.moving[k] = _offset(first), by
            loop.carried.append(_carried(operation, k, symbol, first, then))
        loop.ends.extend((condition.term, *map(_offset, values)))
        here.facts.whiles.append(loop)
        return outcomes

    def _for(self, operation: TtirOperation, here: TermScope) -> list[TermValue]:
        # Operands in the order of the text: `scf.for %i = %lower to %upper step %step iter_args(%name = %begin, ...)`.
        lower, upper, step = here.all(operation.operands[1:4])
        begin, terms, number = here.all(operation.operands[5::2]), here.terms, operation.number
        turn = terms.make("turn", number)
        loop = LoopFact(
            *here.met(operation), turn=turn, lower=lower.term, upper=upper.term, step=step.term, operation=operation
        )
        at = TermValue(terms.add((1, lower.term), (1, terms.multiply(step.term, terms.whole(turn)))), lower.type)
        symbols = [_symbol(here, "carried", operation, k, value) for k, value in enumerate(begin)]
        inside = replace(here, way=Way(loop))
        steps: list[Term | None] = [None] * len(begin)
        if len(inside.way.loops) <= _DEEP:
            # The facts of this first walk are thrown away: the second walk finds them again.
            results = self._turn(operation, (at, *symbols), replace(inside, facts=Facts(terms, here.facts.data)))
            steps = [_step(terms, number, *pair) for pair in zip(symbols, results, strict=True)]
        entries = [
            _after_turns(terms, value, by, terms.whole(turn)) if by is not None else symbol
            for value, symbol, by in zip(begin, symbols, steps, strict=True)
        ]
        results = self._turn(operation, (at, *entries), inside)
        turns = terms.whole(terms.make("turns", number, lower.term, upper.term, step.term))
        outcomes = [
            _after_turns(terms, value, by, turns) if by is not None else _symbol(here, "after", operation, k, value)
            for k, (value, by) in enumerate(zip(begin, steps, strict=True))
        ]
        carried = (_carried(operation, k, symbols[k], begin[k], results[k]) for k, by in enumerate(steps) if by is None)
        loop.carried.extend(carried)
        here.facts.loops.append(loop)
        return outcomes

    def _turn(self, operation: TtirOperation, entries: Sequence[TermValue], here: TermScope) -> list[TermValue]:
        """The values that a turn of a counted loop hands on, entered with its number and what is carried."""
        here.values.update(zip((operation.operands[0], *operation.operands[4::2]), entries, strict=True))
        return here.yielded(self._block(operation.regions[0][0], here))


def _under(here: TermScope, condition: Term, holds: bool, share: float) -> TermScope:
    """The place of those for whom a condition holds, or does not."""
    path = here.terms.both(here.path, condition if holds else here.terms.refuse(condition))
    return replace(here, path=path, way=Way(here.way.loop, (Branch(here.way, condition, holds, share),)))


def _jumps(last: TtirOperation, here: TermScope) -> list[tuple[str, TermScope, list[TermValue]]]:
    """The jumps at the end of a block: label, who jumps, and the values that they bring."""
    targets = [(label, here.all(values)) for label, values in last.jumps()]
    if last.name == "cf.br" and len(targets) == 1:
        return [(targets[0][0], here, targets[0][1])]
    if last.name != "cf.cond_br" or len(targets) != 2:
        raise UntoldError(f"a block ends with {last.name}, which is not known here")
    condition = here.value(last.operands[0]).term
    sides = zip(targets, (True, False), strict=True)
    return [(label, _under(here, condition, holds, 0.5), values) for (label, values), holds in sides]


def _merged(ways: list[tuple[TermScope, list[TermValue]]]) -> list[TermValue]:
    result = ways[-1][1] if ways else []
    for here, values in reversed(ways[:-1]):
        result = [_chosen(here.terms, here.path, *pair) for pair in zip(values, result, strict=True)]
    return result


def _chosen(terms: Terms, condition: Term, one: TermValue, other: TermValue) -> TermValue:
    source = one.source if one.term is other.term and one.source == other.source else -1
    return replace(one, term=terms.choose(condition, one.term, other.term), source=source)


def _carried(operation: TtirOperation, at: int, symbol: TermValue, begin: TermValue, then: TermValue) -> Carried:
    """What a loop carries at a place: the symbol, what it begins with, and what the next turn gets."""
    return Carried(place=(operation.number, at), symbol=symbol.term, begin=begin.term, next=then.term, type=begin.type)


def _symbol(here: TermScope, name: str, operation: TtirOperation, place: int, value: TermValue) -> TermValue:
    """A value of which only is known that a loop carries it, or has carried it."""
    terms, kind = here.terms, value.type
    operands = (operation.number, place, *axis_symbols(terms, kind))
    source = value.source if name == "carried" else -1  # as in its first turn
    if not (kind.pointer or kind.descriptor):
        return replace(symbolic(here, kind, name, *operands), source=source)
    offset = terms.whole(terms.make(name, *operands))
    return replace(value, term=terms.make("pointer", value.term.operands[0], offset), source=source)


def _offset(value: TermValue) -> Term:
    """The part of a value that a loop moves: of a pointer its offset."""
    return value.term.operands[1] if value.term.name == "pointer" else value.term


def _step(terms: Terms, loop: int, symbol: TermValue, then: TermValue) -> Term | None:
    """The distance that a value moves in a turn; None where it does not move evenly."""
    one, other = symbol.term, then.term
    if one is other:
        return terms.number(0) if one is not terms.data else None
    if not (symbol.type.whole or symbol.type.pointer):
        return None
    if symbol.type.pointer and not (one.name == other.name == "pointer" and one.operands[0] is other.operands[0]):
        return None
    by = terms.add((1, _offset(then)), (-1, _offset(symbol)))
    return None if _moves(by, loop) else by


def _moves(term: Term, loop: int) -> bool:
    return any(
        (one.name in ("carried", "turn") and one.operands[0] == loop)
        or (one.name in ("carried", "after", "turn") and one.operands[0] > loop)  # of a loop inside of it
        for one in term.inner()
    )


def _after_turns(terms: Terms, begin: TermValue, by: Term, turns: Term) -> TermValue:
    if not by.operands:
        return begin
    far = terms.multiply(by, turns)
    if begin.type.pointer:
        root, offset = begin.term.operands
        return replace(begin, term=terms.make("pointer", root, terms.add((1, offset), (1, far))), source=-1)
    return replace(begin, term=terms.add((1, begin.term), (1, far)), source=-1)
