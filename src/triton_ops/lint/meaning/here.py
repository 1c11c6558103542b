"""The scope of an operation while a kernel is walked through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops.kernel_ir import Scope, SourcePlace, TtirOperation
from triton_ops.lint.meaning.facts import Facts, TermValue
from triton_ops.lint.meaning.terms import Term, Terms


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
