"""Where an operation stands while a kernel is walked through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops.kernel_ir import Operation, Place, Standing, Type
from triton_ops.lint.meaning.facts import Facts, Value
from triton_ops.lint.meaning.terms import Term, Terms


@dataclass(frozen=True, kw_only=True)
class Here(Standing[Value]):
    """The place of an operation on the way of any program; values, loops and calls around are those of `Standing`.

    Attributes:
        facts: Takes what is met.
        path: The conditions under which a program comes here.
        place: From an operation to its places in the source.
    """

    facts: Facts
    path: Term
    place: Callable[[Operation], tuple[Place, ...]]

    @property
    def terms(self) -> Terms:
        """The terms of the kernel."""
        return self.facts.terms

    def met(self, operation: Operation) -> tuple[int, tuple[Place, ...], Term, tuple[int, ...]]:
        """What every fact begins with."""
        return operation.number, self.place(operation), self.path, self.loops


Handler: TypeAlias = Callable[[Here, Operation], Sequence[Value]]


def kind_of(operation: Operation) -> Type:
    """The type of an operation's result: the last that it names."""
    return (operation.result_types or operation.types)[-1]
