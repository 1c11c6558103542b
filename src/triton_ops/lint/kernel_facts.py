"""The facts that a walk through a kernel's TTIR gathers, with terms in place of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TypeAlias

from triton_ops.kernel_ir import Scope, SourcePlace, TtirBlock, TtirOperation, Type
from triton_ops.lint.terms import Term, Terms, inner_terms


@dataclass(frozen=True)
class TermValue:
    """A value of the kernel."""

    term: Term
    type: Type


@dataclass(frozen=True)
class Fact:
    """The part that all facts have.

    Attributes:
        frames: Its places in the source, the innermost function's first.
        path: The conditions under which a program comes here.
        loops: The loops around it, the outermost first.
    """

    number: int
    frames: tuple[SourcePlace, ...]
    path: Term
    loops: tuple[int, ...]


@dataclass(frozen=True)
class AccessFact(Fact):
    """A load, a store or an atomic operation.

    Attributes:
        kind: `load`, `store` or `atomic`.
        root: What the pointer was made of: an argument, or an address that was loaded.
        offset: How far from there, in elements.
        type: The pointers' type, whose shape is that of the elements.
        mask: Which elements are moved, without the path; true for all.
        does: What an atomic operation does, such as `fadd`.
    """

    _: KW_ONLY
    kind: str
    root: Term
    offset: Term
    type: Type
    mask: Term
    value: TermValue | None = None
    does: str = ""


@dataclass(frozen=True)
class ReductionFact(Fact):
    """`tt.reduce`, or a scan that runs backwards.

    Attributes:
        inputs: What it takes, one value for each of its results.
        combine: The block that makes one element of two.
    """

    _: KW_ONLY
    axis: int
    inputs: tuple[TermValue, ...]
    combine: TtirBlock
    around: Mapping[str, Term] = field(default_factory=dict)


@dataclass(frozen=True)
class ProductFact(Fact):
    """`tt.dot`.

    Attributes:
        precision: The precision that the kernel asks for, as TTIR names it.
    """

    _: KW_ONLY
    left: TermValue
    right: TermValue
    type: Type
    precision: str = ""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A value that a loop carries from turn to turn.

    Attributes:
        symbol: What it is within a turn.
        after: What it is after the loop.
        next: What a turn hands on.
    """

    symbol: Term
    after: Term
    begin: Term
    next: Term
    type: Type


@dataclass(frozen=True)
class LoopFact(Fact):
    """A loop over whole numbers.

    Attributes:
        turn: The symbol of its turns, which are counted from 0.
        carried: What does not move evenly, or is no whole number.
    """

    _: KW_ONLY
    turn: Term
    lower: Term
    upper: Term
    step: Term
    carried: tuple[Carried, ...]


@dataclass(frozen=True)
class Multiplication(Fact):
    """A product of two whole numbers of this width."""

    _: KW_ONLY
    bits: int
    one: Term
    other: Term


@dataclass
class Facts:
    """All that a kernel was seen to do.

    Attributes:
        widenings: Numbers that become 64 bits wide.
    """

    terms: Terms
    accesses: list[AccessFact] = field(default_factory=list)
    reductions: list[ReductionFact] = field(default_factory=list)
    products: list[ProductFact] = field(default_factory=list)
    loops: list[LoopFact] = field(default_factory=list)
    widenings: list[Term] = field(default_factory=list)
    multiplications: list[Multiplication] = field(default_factory=list)

    @cached_property
    def carried(self) -> dict[tuple[int, int], Carried]:
        """The values that loops carry, by the loop and the place among what it carries; asked for after the walk."""
        by_place = {}
        for carried in (one for loop in self.loops for one in loop.carried):
            symbol = next(one for one in inner_terms(carried.symbol) if one.name == "carried")
            by_place[symbol.operands[0], symbol.operands[1]] = carried
        return by_place


@dataclass(frozen=True, kw_only=True)
class TermScope(Scope[TermValue]):
    """The place of an operation on the way of any program; values, loops and calls around are those of `Scope`.

    Attributes:
        path: The conditions under which a program comes here.
        place: From an operation to its places in the source.
    """

    facts: Facts
    path: Term
    place: Callable[[TtirOperation], tuple[SourcePlace, ...]]

    @property
    def terms(self) -> Terms:
        """The terms of the kernel."""
        return self.facts.terms

    def met(self, operation: TtirOperation) -> tuple[int, tuple[SourcePlace, ...], Term, tuple[int, ...]]:
        """The first fields of a fact about an operation."""
        return operation.number, self.place(operation), self.path, self.loops


Handler: TypeAlias = Callable[[TermScope, TtirOperation], Sequence[TermValue]]
