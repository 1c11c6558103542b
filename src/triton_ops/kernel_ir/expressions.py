"""What each element that a kernel writes is made of: a canonical expression of its TTIR, without the sizes of tiles.

Two configs whose stored expressions are equal do the same operations in the same types. Addresses and masks choose
which element is computed, and are left out; so are splats, transpositions and other moves. A sum of a loop's steps is
one chain, whatever the tile, where each step of a `tl.dot` adds to the sum of the last one; what a step adds up apart
is grouped by the tile, and told. So are the bounds of loops that carry numbers, with tiles in place of their sizes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from triton_ops.kernel_ir.facts import SourcePlace
from triton_ops.kernel_ir.ttir_syntax import Module, TtirBlock, TtirOperation, UntoldError

EXACT = frozenset((
    "arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf", "arith.maxsi", "arith.maxui", "arith.minsi",
    "arith.minui", "arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori", "arith.cmpi", "arith.cmpf",
    "arith.select",
))  # fmt: skip
"""Operations whose results are the same in whatever order elements are reduced."""
_MOVES = frozenset((
    "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.unsplat", "tt.split", "tt.addptr",
    "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor", "arith.extsi", "arith.index_cast",
))  # fmt: skip
_GROWING = _MOVES | {"arith.addi", "arith.muli", "arith.subi", "arith.extui", "arith.trunci"}
_LOADS = frozenset(("tt.load", "tt.descriptor_load", "tt.descriptor_gather"))
_STORES = {"tt.store": 1, "tt.descriptor_store": -1, "tt.descriptor_scatter": -1}
_UNTOLD = {
    "tt.elementwise_inline_asm": "it has inline assembly",
    "tt.atomic_cas": "it exchanges values atomically, in the order in which programs come",
    "tt.descriptor_reduce": "it adds atomically, in the order in which programs come",
    "tt.mulhiui": "it draws random numbers, or multiplies whole numbers as generators of these do",
    "tt.call": "it calls a function that Triton does not write into it",
    "scf.while": "a loop ends by what it computes",
    **dict.fromkeys(("cf.br", "cf.cond_br"), "it jumps"),
}
_NAMES = re.compile(r"%[\w$.-]+(?:#\d+)?|\baxis = \d+ : i32|(?:end|start) = \d+ : i32")
ZERO = "0.000000e+00"
PROGRAMS = "number of programs"
_GIVEN = -2  # no depth of a loop
_IN_PARTS = re.compile(r"inputPrecision = \w+x\d")  # several products for one, whose sums stand apart
_IMPRECISE = re.compile(r"maxNumImpreciseAcc = \d+")


class Expression(NamedTuple):
    """A value; `data` tells whether it depends on what the kernel reads, and `number` is a constant's.

    `inexact` is one of floating point, whose value depends on the order of what makes it. Of a product that adds to
    nothing, `apart` has what it is made of, without its sum. `tile` is the size of the tiles that it counts. A value
    that is another one with each turn of a loop has the loop's depth in `turns`, with the operations by which it does
    more than grow; one that a launch's numbers are part of, `_GIVEN` with their names.
    """

    key: str
    data: bool = True
    number: int | None = None
    inexact: bool = False
    pointer: bool = False
    apart: tuple[object, ...] = ()
    tile: int | None = None
    turns: frozenset[tuple[int, str]] = frozenset()


def digest(*parts: object) -> str:
    """A short name for what has these parts."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


@dataclass
class Expressions:
    """The expressions of a kernel.

    Attributes:
        place: From an operation to its places in the source.
        stored: What is written, and where to.
        groups: What is grouped by sizes of tiles, in words, with its place.
        bounds: The numbers, known when it is launched, that say how many terms a sum has: arguments by name, and
            `PROGRAMS`.
    """

    place: Callable[[TtirOperation], SourcePlace | None]
    stored: set[str] = field(default_factory=set)
    groups: set[tuple[SourcePlace | None, str]] = field(default_factory=set)
    bounds: set[str] = field(default_factory=set)
    _values: dict[str, Expression] = field(default_factory=dict)
    _tiles: set[int] = field(default_factory=set)
    _chained: set[str] = field(default_factory=set)  # products whose sum is the loop's own

    @staticmethod
    def of(module: Module, place: Callable[[TtirOperation], SourcePlace | None]) -> Expressions:
        """Those of a module of TTIR; raises UntoldError, with the reason, where the order of a sum cannot be told."""
        found = Expressions(place)
        loads = (one for one in walk(module.kernel.blocks) if one.name in _LOADS)
        found._tiles.update(extent for one in loads for extent in one.kinds[0].shape)
        for name, kind in module.kernel.arguments:
            key = _described(name, module) if kind.descriptor else name
            pointer, turns = kind.pointer or kind.descriptor, frozenset({(_GIVEN, name[1:])} if kind.whole else ())
            found._values[name] = Expression(key, data=not kind.whole, pointer=pointer, turns=turns)
        found._block(module.kernel.blocks[0], 0)
        return found

    def _block(self, block: TtirBlock, depth: int) -> list[Expression]:
        """The values that a block hands on."""
        for one in block.operations:
            if one.name in ("scf.yield", "tt.reduce.return", "tt.scan.return"):
                return [self._values[name] for name in one.operands]
            self._keep(one, self._results(one, depth))
        return []

    def _keep(self, one: TtirOperation, values: Iterable[Expression]) -> None:
        for name, value, kind in zip(one.results, values, one.kinds, strict=False):
            if one.name != "scf.for":  # which names no types of its results
                pointer = value.pointer or kind.pointer
                value = value._replace(inexact=not (kind.whole or pointer), pointer=pointer)
            self._values[name] = value

    def _results(self, one: TtirOperation, depth: int) -> Iterable[Expression]:
        if (reason := _UNTOLD.get(one.name)) is not None:
            raise UntoldError(reason)
        given = [self._values[name] for name in one.operands if name in self._values]
        if (special := _SPECIAL.get(one.name)) is not None:
            return special(self, one, given, depth)
        if one.name in _STORES:
            self.stored.add(digest("store", given[0].key, given[_STORES[one.name]].key))
            return []
        if one.name == "tt.dot_scaled":
            self.groups.add((self.place(one), f"sums of {one.types[0].shape[-1]} terms after others"))
        return [value._replace(turns=_turns(one, given)) for value in self._plain(one, given)]

    def _load(self, one: TtirOperation, given: Sequence[Expression], depth: int) -> list[Expression]:
        """What is read, in which order by the turns of the innermost loop, and what stands for elements outside."""
        places, filled = (given[:1], given[2:3]) if one.name == "tt.load" else (given, [])
        turns = frozenset[tuple[int, str]]().union(*(value.turns for value in places))
        order = sorted(name for at, name in turns if at == depth - 1 and name)
        fill = [value.key for value in filled if value.key != digest(ZERO, one.kinds[0].element) and value.number != 0]
        parts = [order, fill] if order or fill else []
        return [Expression(digest("load", given[0].key, one.kinds[0].element, *parts), turns=turns)]

    def _plain(self, one: TtirOperation, given: Sequence[Expression]) -> list[Expression]:
        """What an operation makes of single elements."""
        if one.name in _MOVES:
            return [given[0]] * len(one.results)
        if one.name == "arith.constant":
            number = int(one.literal) if one.kinds[0].whole and re.fullmatch(r"-?\d+", one.literal) else None
            return [Expression(digest(one.literal, one.kinds[0].element), data=False, number=number)]
        if (tile := self._tile(one, given)) is not None:
            return [tile]
        if one.name == "arith.addf" and (products := [value for value in given if value.apart]):
            other = given[1 - given.index(products[0])]
            return [Expression(digest(*products[0].apart, other.key))]
        if one.name == "arith.select" and not given[0].data:
            given = [Expression("a place", data=False), *given[1:]]
        words, element = (_NAMES.sub("", one.text), one.quoted), [kind.element for kind in one.kinds]
        return _made(one, given, one.name, words, [value.key for value in given], element)

    def _tile(self, one: TtirOperation, given: Sequence[Expression]) -> Expression | None:
        """Where a tile begins or ends, or how many tiles cover an extent, without their size."""
        others = [value.key for value in given if value.number is None]
        sizes = [value.number for value in given if value.number is not None]
        if len(others) != 1 or len(sizes) != 1 or any(value.data for value in given):
            return None
        key, size, name = others[0], sizes[0], one.name
        if size not in self._tiles:
            ends = size + 1 in self._tiles and name == "arith.addi"
            return Expression(f"{key} + tile - 1", data=False) if ends else None
        if name == "arith.muli":
            return Expression(f"({key}) * tile", data=False)
        if name == "arith.addi" and key.endswith("* tile"):
            return Expression(f"{key} + tile", data=False)
        covers = name in ("arith.divsi", "arith.divui") and key.endswith(" + tile - 1")
        return Expression(f"tiles of {key.removesuffix(' + tile - 1')}", data=False, tile=size) if covers else None

    def _dot(self, one: TtirOperation, given: Sequence[Expression], _: int) -> list[Expression]:
        left, right, total = (value.key for value in given[:3])
        promoted, terms = one.attribute("maxNumImpreciseAcc") or 0, one.types[0].shape[-1]
        apart = total == digest(ZERO, one.kinds[0].element)
        if not one.types[0].whole:  # exact in any order
            if one.results[0] not in self._chained:
                self.groups.add((self.place(one), f"sums of {terms} terms {'apart' if apart else 'after others'}"))
            if 0 < promoted <= terms:
                self.groups.add((self.place(one), f"sums of {promoted} terms apart"))
        words = _IMPRECISE.sub("", _NAMES.sub("", one.text))
        made = ("dot", words, sorted((left, right)), [kind.element for kind in one.types])
        return [Expression(digest(*made, total), apart=made if apart else ())]

    def _reduce(self, one: TtirOperation, given: Sequence[Expression], depth: int) -> list[Expression]:
        block = one.regions[0][0]
        for nth, name in enumerate(block.arguments):
            self._values[name] = Expression(f"reduced {depth} {nth}")
        if one.name == "tt.reduce" and one.types[0].shape[one.attribute("axis") or 0] == 1:
            return list(given)
        combined = [value.key for value in self._block(block, depth + 1)]
        words = one.name, "reverse = true" in one.text
        return _made(one, given, words, [value.key for value in given], combined)

    def _atomic(self, one: TtirOperation, given: Sequence[Expression], _: int) -> list[Expression]:
        if one.kinds[0].element.startswith(("f", "bf")) or one.predicate in ("fadd", "exch"):
            raise UntoldError("it adds floating point atomically, in the order in which programs come")
        self.stored.add(digest("atomic", one.predicate, [value.key for value in given[:2]]))
        return [Expression(digest("before", one.predicate, given[0].key))]

    def _if(self, one: TtirOperation, given: Sequence[Expression], depth: int) -> list[Expression]:
        ways = ([value.key for value in self._block(region[0], depth)] for region in one.regions)
        return [Expression(digest("if", given[0].key, [*each])) for each in zip(*filter(None, ways), strict=True)]

    def _for(self, one: TtirOperation, _: Sequence[Expression], depth: int) -> list[Expression]:
        # Operands in the order of the text: `scf.for %i = %lower to %upper step %step iter_args(%name = %begin, ...)`.
        turn, lower, upper, step, *carried = one.operands
        inner, begin = carried[0::2], [self._values[name] for name in carried[1::2]]
        handed = dict(zip(inner, one.regions[0][0].operations[-1].operands, strict=False))
        self._values[turn] = Expression(f"turn {depth}", data=False, turns=frozenset({(depth, "")}))
        ranks = [sum(one.inexact for one in begin[:nth]) for nth in range(len(begin))]
        for nth, (name, value) in enumerate(zip(inner, begin, strict=True)):
            key = value.key if value.pointer else f"carried {depth} {ranks[nth] if value.inexact else f'whole {nth}'}"
            turns = value.turns if value.inexact else value.turns | self._steps(one, name, handed[name], depth)
            self._values[name] = value._replace(key=key, number=None, apart=(), turns=turns)
        self._chained |= _chains(one, inner)
        turned = self._block(one.regions[0][0], depth + 1)
        bounds = self._values[lower], self._values[upper], self._values[step]
        if any(value.inexact for value in begin):
            self.bounds.update(name for value in bounds for at, name in value.turns if at == _GIVEN)
        reach = _reach(*bounds, _own_tiles(one))
        sums = [(value.key, then.key) for value, then in zip(begin, turned, strict=True) if value.inexact]
        return [
            value._replace(key=digest("for", reach, sums, rank), apart=()) if value.inexact else value
            for value, rank in zip(begin, ranks, strict=True)
        ]

    def _steps(self, loop: TtirOperation, name: str, handed: str, depth: int) -> frozenset[tuple[int, str]]:
        """How a place that a loop carries is another one with each turn."""
        made = next((each for each in loop.regions[0][0].operations if handed in each.results), None)
        if made is None:  # it stays what it is
            return frozenset()
        own = Expression(name, turns=frozenset({(depth, "")}))
        given = [own if each == name else self._values.get(each, Expression(each)) for each in made.operands]
        falls = made.name == "arith.subi" or any((value.number or 0) < 0 for value in given)
        return own.turns | _turns(made, given) | ({(depth, "falls")} if falls else set())


_Way = Callable[[Expressions, TtirOperation, Sequence[Expression], int], list[Expression]]
_SPECIAL: dict[str, _Way] = {
    "scf.for": Expressions._for, "scf.if": Expressions._if, "tt.reduce": Expressions._reduce,
    "tt.scan": Expressions._reduce, "tt.atomic_rmw": Expressions._atomic, "tt.dot": Expressions._dot,
    **dict.fromkeys(_LOADS, Expressions._load),
}  # fmt: skip


def _chains(loop: TtirOperation, inner: Sequence[str]) -> set[str]:
    """The products that add to what the loop carries, and are all that it carries on there."""
    operations = loop.regions[0][0].operations
    pairs = dict(zip(operations[-1].operands, inner, strict=False))
    dots = (each for each in operations if each.name == "tt.dot" and not _IN_PARTS.search(each.text))
    return {each.results[0] for each in dots if pairs.get(each.results[0]) == each.operands[2]}


def _made(one: TtirOperation, given: Sequence[Expression], *parts: object) -> list[Expression]:
    """The results of an operation that have these parts."""
    data = any(value.data for value in given)
    return [Expression(digest(*parts, nth), data) for nth in range(len(one.results))]


def _turns(one: TtirOperation, given: Sequence[Expression]) -> frozenset[tuple[int, str]]:
    """How a value is another one with each turn of loops: those that it is made of, and how it is made of them."""
    found = frozenset[tuple[int, str]]().union(*(value.turns for value in given))
    bent = given[1:] if one.name == "arith.subi" else () if one.name in _GROWING else given
    programs = {(_GIVEN, PROGRAMS)} if one.name == "tt.get_num_programs" else set()
    return found | programs | {(at, one.name) for value in bent for at, _ in value.turns if at != _GIVEN}


def _described(name: str, module: Module) -> str:
    """The tensor that a descriptor made on the host is named after, such as `%a` for `%a_tiles`; else its own name."""
    words = {f"%{word}" for word in (name[1:].partition("_")[0], name.rpartition("_")[2])}
    return next((other for other, kind in module.kernel.arguments if kind.pointer and other in words), name)


def _own_tiles(loop: TtirOperation) -> set[int]:
    """How many elements a turn of a loop adds up: the terms of its products, else of its reductions, else its tiles."""
    inside = list(walk(loop.regions[0]))
    terms = {one.types[0].shape[-1] for one in inside if one.name == "tt.dot"}
    terms = terms or {one.types[0].shape[one.attribute("axis") or 0] for one in inside if one.name == "tt.reduce"}
    return terms or {extent for one in inside if one.name in _LOADS for extent in one.kinds[0].shape}


def _reach(lower: Expression, upper: Expression, step: Expression, tiles: set[int]) -> tuple[str, ...]:
    """The elements that a loop covers, without the size of its tiles."""
    if step.number in tiles:
        return lower.key, upper.key
    if upper.tile in tiles and step.number == 1 and lower.number == 0:
        return lower.key, upper.key.removeprefix("tiles of ")
    return lower.key, upper.key, f"{upper.tile}", step.key


def walk(blocks: Iterable[TtirBlock]) -> Iterable[TtirOperation]:
    """Every operation of some blocks, with those inside of others."""
    for block in blocks:
        for one in block.operations:
            yield one
            for region in one.regions:
                yield from walk(region)
