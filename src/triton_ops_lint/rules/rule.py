"""The form of a rule: its decision about a kernel, of which each statement becomes a finding or stays undecided."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import NamedTuple, TypeAlias

from triton_ops.kernel_ir import Fact, SourcePlace
from triton_ops_lint.findings import Finding, Undecided
from triton_ops_lint.reading import KernelReading, Variant


class Seen(NamedTuple):
    """A pitfall at a place, with a fix or a level where these are not those of the rule."""

    where: Fact | SourcePlace | int
    evidence: str
    fix: str = ""
    level: str = ""


class UndecidedError(Exception):
    """Ends a decision, with the reason."""


Statement: TypeAlias = "Seen | str"
"""What is seen, or the reason why it stays undecided."""
Decision: TypeAlias = "Callable[[KernelReading], Iterable[Statement]]"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One pitfall, decided by `source`, `ttir`, `binary`, `run` or `model`; its id stays."""

    id: str
    level: str
    symptom: str
    fix: str
    decide: Decision

    @property
    def about(self) -> str:
        """Markdown: what is a finding, what is none, and what stays undecided. It is the docstring of the decision."""
        return inspect.getdoc(self.decide) or ""

    def statements(self, kernel: KernelReading) -> Iterator[Finding | Undecided]:
        """What the rule says of a kernel."""
        for one in _to_the_end(self.decide, kernel):
            if isinstance(one, str):
                yield self.undecided(kernel.name, one)
                continue
            place = kernel.place(one.where)
            yield Finding(
                rule=self.id, kernel=kernel.name, file=place.file, line=place.line, symptom=self.symptom,
                evidence=one.evidence, fix=one.fix or self.fix, level=one.level or self.level,
            )  # fmt: skip

    def undecided(self, kernel: str, why: str) -> Undecided:
        """A statement that the rule cannot decide."""
        return Undecided(rule=self.id, kernel=kernel, why=why)


def rule(name: str, level: str = "ttir", *, symptom: str, fix: str) -> Callable[[Decision], Rule]:
    """A decorator that makes a rule of its decision."""
    return lambda decide: Rule(id=name, level=level, symptom=symptom, fix=fix, decide=decide)


def _to_the_end(decide: Decision, kernel: KernelReading) -> Iterator[Statement]:
    try:
        yield from decide(kernel)
    except UndecidedError as error:
        yield str(error)


def once(decide: Decision) -> Callable[[KernelReading], list[Statement]]:
    """Each finding of a place once, and at most one reason to be undecided, which findings do not hide."""

    @wraps(decide)
    def unique(kernel: KernelReading) -> list[Statement]:
        statements: dict[SourcePlace | None, Statement] = {}
        for one in _to_the_end(decide, kernel):
            statements.setdefault(None if isinstance(one, str) else kernel.place(one.where), one)
        return list(statements.values())

    return unique


def in_each_variant(
    decide: Callable[[KernelReading, Variant], Iterable[Statement]],
) -> Callable[[KernelReading], list[Statement]]:
    """A decision by what each variant of a kernel does."""

    @once
    @wraps(decide)
    def of_each(kernel: KernelReading) -> Iterator[Statement]:
        return (one for each in kernel.variants for one in decide(kernel, each))

    return of_each
