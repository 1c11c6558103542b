"""The form of a rule, and of what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops.kernel_ir import Fact, SourcePlace
from triton_ops.lint.findings import Finding, Undecided
from triton_ops.lint.reading import KernelReading, Variant

Statement: TypeAlias = "Finding | Undecided"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One pitfall, decided by `source`, `ttir`, `binary` or `run`; its id stays.

    With `needs_ttir`, a kernel that cannot be lowered stays undecided.
    """

    id: str
    level: str
    symptom: str
    fix: str
    decide: Callable[[Rule, KernelReading], Iterable[Statement]]
    needs_ttir: bool = True

    def found(self, kernel: KernelReading, where: Fact | SourcePlace | int, evidence: str, *, fix: str = "") -> Finding:
        """A finding at a place."""
        if isinstance(where, int):
            where = SourcePlace(kernel.file, where)
        place = kernel.place(where) if isinstance(where, Fact) else where
        return Finding(
            rule=self.id, kernel=kernel.name, file=place.file, line=place.line, symptom=self.symptom,
            evidence=evidence, fix=fix or self.fix, level=self.level,
        )  # fmt: skip

    def undecided(self, kernel: KernelReading, why: str) -> Undecided:
        """A statement that the rule cannot decide."""
        return Undecided(rule=self.id, kernel=kernel.name, why=why)


def in_each_variant(
    decide: Callable[[Rule, KernelReading, Variant], Iterable[Statement]], most: int | None = None
) -> Callable[[Rule, KernelReading], list[Statement]]:
    """A decision by what each variant of a kernel does, or each of the first ones."""
    return lambda rule, kernel: once(one for variant in kernel.variants[:most] for one in decide(rule, kernel, variant))


def once(several: Iterable[Statement]) -> list[Statement]:
    """Each finding of a place once, and at most one undecided of a rule, which findings do not hide."""
    unique: dict[tuple[object, ...], Statement] = {}
    for one in several:
        key = (one.rule, one.file, one.line) if isinstance(one, Finding) else (one.rule, "undecided")
        unique.setdefault(key, one)
    return list(unique.values())
