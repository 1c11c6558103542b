"""The facts that a walk through a kernel's TTIR gathers, with terms in place of numbers.

Facts used, of the text that Triton 3.6 to 3.9 write with debug information: a place is `#loc3 = loc("file.py":12:5)`;
one with a name is `loc("x"(#loc3))`; one inside of a function that was called is `loc(callsite(#loc3 at #loc7))`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from triton_ops.base import cached_property
from triton_ops.kernel_ir.terms import Carried, Term, Terms
from triton_ops.kernel_ir.trace import Product, Reduction
from triton_ops.kernel_ir.ttir_syntax import TtirOperation, Type, UntoldError

_PLACE = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)$')
_NAMED = re.compile(r'"(?:[^"\\]|\\.)*"\((#loc\d*)\)$')
_CALL = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)$")
_ESCAPE = re.compile(rb"\\(\\|[0-9A-F]{2})")
_DEEPEST = 64  # places within places: a damaged text may have a circle of them


@dataclass(frozen=True)
class SourcePlace:
    """A place in the source."""

    file: str
    line: int


def places_in(text: str) -> Callable[[TtirOperation], tuple[SourcePlace, ...]]:
    """From an operation of a text to its places in the source: the innermost function's first, its callers' after it.

    Empty where the text does not say.
    """
    matches = (_PLACE.match(line) for line in text.splitlines() if line.startswith("#loc"))
    locations = {one[1]: one[2] for one in matches if one is not None}
    return lambda operation: tuple(_frames(operation.location, locations))


def _frames(name: str, locations: Mapping[str, str], depth: int = _DEEPEST) -> Iterator[SourcePlace]:
    text = locations.get(name, "") if depth else ""
    if (file := _FILE.match(text)) is not None:
        escaped = os.fsencode(file[1])  # a backslash twice, and two digits for each byte that is no printable ASCII
        path = _ESCAPE.sub(lambda one: one[0][:1] if one[1] == b"\\" else bytes([int(one[1], 16)]), escaped)
        yield SourcePlace(os.fsdecode(path), int(file[2]))
    elif (inner := _NAMED.match(text)) is not None:
        yield from _frames(inner[1], locations, depth - 1)
    elif (call := _CALL.match(text)) is not None:
        yield from _frames(call[1], locations, depth - 1)
        yield from _frames(call[2], locations, depth - 1)


class Branch(NamedTuple):
    """One side of a condition; `share` of those before it go there where the condition depends on data."""

    before: Way
    condition: Term | None
    holds: bool
    share: float


@dataclass(frozen=True, eq=False)
class Way:
    """The way to an operation within a turn of the loop around, by any of some branches; no branch for all of them."""

    loop: LoopFact | None = None
    branches: tuple[Branch, ...] = ()

    @cached_property
    def loops(self) -> tuple[int, ...]:
        """The loops around, the outermost first."""
        return () if self.loop is None else (*self.loop.loops, self.loop.number)

    @property
    def number(self) -> int:
        """The number of the loop around; 0 outside of loops."""
        return 0 if self.loop is None else self.loop.number


@dataclass(frozen=True)
class TermValue:
    """A value of the kernel."""

    term: Term
    type: Type
    source: int = -1  # the operation that loaded the elements, -1 if they were not only moved since
    strides: tuple[Term, ...] = ()  # of a descriptor: how far apart neighbours along each axis are, in elements
    extents: tuple[Term, ...] = ()  # of a descriptor: those of the whole tensor


@dataclass(frozen=True, eq=False)
class Fact:
    """The common part of facts, at which a program comes under the conditions of `path`.

    Frames are places in the source, the innermost function's first.
    """

    number: int
    frames: tuple[SourcePlace, ...]
    path: Term
    way: Way

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops around, the outermost first."""
        return self.way.loops


@dataclass(frozen=True, eq=False)
class AccessFact(Fact):
    """A `load`, `store` or `atomic` operation."""

    _: KW_ONLY
    kind: str
    root: Term  # what the pointer was made of: an argument, or an address that was loaded
    offset: Term  # from there, in elements
    type: Type  # of the pointers, whose shape is that of the elements
    mask: Term  # which elements are moved, without the path; true for all
    value: TermValue | None = None
    does: str = ""  # of an atomic operation, such as `fadd`
    block: Type | None = None  # that a descriptor places
    at: tuple[Term | None, ...] = ()  # the coordinates of the block, None for several
    extents: tuple[Term, ...] = ()  # of the tensor that it is placed in


@dataclass(frozen=True, eq=False)
class ReductionFact(Fact):
    """`tt.reduce`, or a scan that runs backwards.

    It takes one input for each of its results; its block makes one element of two by `steps`, each told by what it does
    to floating point, with values from `around`. A scan keeps what comes of each element.
    """

    _: KW_ONLY
    axis: int
    inputs: tuple[TermValue, ...]
    operation: TtirOperation
    around: Mapping[str, Term] = field(default_factory=dict)
    scans: bool = False
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ProductFact(Fact):
    """`tt.dot`, with the precision that the kernel asks for, as TTIR names it.

    The factors are those of a sum over `bound`.
    """

    _: KW_ONLY
    left: TermValue
    right: TermValue
    factors: tuple[Term, Term]
    bound: Term
    type: Type
    precision: str = ""


@dataclass(frozen=True, eq=False)
class LoopFact(Fact):
    """A loop whose turns are counted from 0; `carried` is what does not move evenly, or is no whole number.

    Attributes:
        operation: The loop in the text.
        moving: Of a `while`, whose bounds say nothing: what moves evenly, by its place among what it carries, with its
            begin and its step.
        ends: Of a `while`, in terms of what it carries: whether another turn follows, and what it hands on at its end.
    """

    _: KW_ONLY
    turn: Term
    lower: Term
    upper: Term
    step: Term
    operation: TtirOperation
    carried: list[Carried] = field(default_factory=list)
    moving: dict[int, tuple[Term, Term]] = field(default_factory=dict)
    ends: list[Term] = field(default_factory=list)

    @property
    def limits(self) -> set[str]:
        """The arguments that it runs to: alone, the least of several, or as many blocks as cover one."""
        return {name for name in (one.lone_argument[0] for one in _alone(self.upper)) if name}


def _alone(term: Term) -> Iterator[Term]:
    symbols = [monomial for monomial in term.parts if monomial]
    if len(symbols) == 1 and len(symbols[0]) == 1 and symbols[0][0].name in ("least", "quotient"):
        several = symbols[0][0].operands
        for one in several if symbols[0][0].name == "least" else several[:1]:
            yield from _alone(one)
    else:
        yield term


@dataclass(frozen=True, eq=False)
class Multiplication(Fact):
    """A product of two whole numbers of this width."""

    _: KW_ONLY
    bits: int
    one: Term
    other: Term


class Computation(NamedTuple):
    """An operation on tiles of data.

    `elements` are those that it takes or makes, one by one; `product` is what it multiplies, whose loop and loads are
    told by the numbers of their operations; `reduction` is what it reduces or scans.
    """

    number: int
    way: Way
    elements: int = 0
    special: bool = False
    product: Product | None = None
    reduction: Reduction | None = None


@dataclass(eq=False)
class Facts:
    """The facts of a kernel."""

    terms: Terms
    data: bool = True  # whether terms say how data is made; else one term stands for all of it
    accesses: list[AccessFact] = field(default_factory=list)
    blocks: list[AccessFact] = field(default_factory=list)  # those that descriptors place
    reductions: list[ReductionFact] = field(default_factory=list)
    products: list[ProductFact] = field(default_factory=list)
    loops: list[LoopFact] = field(default_factory=list)
    whiles: list[LoopFact] = field(default_factory=list)  # loops that end by a condition
    widenings: list[Term] = field(default_factory=list)  # numbers that become 64 bits wide, with their sign
    narrow: list[Term] = field(default_factory=list)  # others of fewer bits that become so, or are added to pointers
    multiplications: list[Multiplication] = field(default_factory=list)
    computations: list[Computation] = field(default_factory=list)
    loads: dict[Term, int] = field(default_factory=dict)  # the operation that loads what a term stands for
    notes: dict[str, None] = field(default_factory=dict)  # what is not known here, in words

    def loop_of(self, turn: Term) -> LoopFact | None:
        """The loop whose turns a symbol counts."""
        return next((loop for loop in self.loops if loop.turn is turn), None)

    @cached_property
    def carried(self) -> dict[tuple[int, int], Carried]:
        """The values that loops carry, by the loop and the place among what it carries; asked for after the walk."""
        return {carried.place: carried for loop in self.loops for carried in loop.carried}


@dataclass(frozen=True, kw_only=True)
class TermScope:
    """The place of an operation on the way of any program, which comes here under the conditions of `path`.

    The values by name that it finds there grow.
    """

    facts: Facts
    path: Term
    place: Callable[[TtirOperation], tuple[SourcePlace, ...]]
    values: dict[str, TermValue]
    way: Way
    depth: int = 0

    @property
    def terms(self) -> Terms:
        """The terms of the kernel."""
        return self.facts.terms

    def value(self, name: str) -> TermValue:
        """The value of this name; raises UntoldError if there is none."""
        try:
            return self.values[name]
        except KeyError:
            raise UntoldError(f"it uses {name}, which nothing has made") from None

    def all(self, names: Sequence[str]) -> list[TermValue]:
        """The values of these names; raises as `value` does."""
        return [self.value(name) for name in names]

    def yielded(self, last: TtirOperation | None) -> list[TermValue]:
        """The values that a block hands on by its last operation; none where it ends without saying so."""
        return self.all(last.operands) if last is not None and last.name == "scf.yield" else []

    def met(self, operation: TtirOperation) -> tuple[int, tuple[SourcePlace, ...], Term, Way]:
        """The first fields of a fact about an operation."""
        return operation.number, self.place(operation), self.path, self.way
