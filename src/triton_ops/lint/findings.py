"""The findings of a lint, with what stays undecided, and the form of the rules that make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from triton_ops.kernel_ir import Fact, SourcePlace
    from triton_ops.lint.reading import KernelReading, Variant


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A pitfall that a kernel has.

    Attributes:
        line: Line in it, counted from 1.
        symptom: What a user of the kernel sees.
        evidence: The facts that decided, with their numbers.
        fix: What to change.
        level: What was looked at: `source`, `ttir`, `binary`, `run` or `model`.
    """

    rule: str
    kernel: str
    file: str
    line: int
    symptom: str
    evidence: str
    fix: str
    level: str


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """A rule that could not decide about a kernel."""

    rule: str
    kernel: str
    why: str
    file: str = ""


@dataclass(frozen=True)
class LintReport:
    """The findings of one target, and what stays undecided.

    Attributes:
        findings: In the order of files and lines.
        undecided: In the order of kernels.
        kernels: Name and file of each kernel that was looked at.
        suppressed: Findings that a comment in the source answers, with the reason that it gives.
        unread: Files, among several, that could not be read, with the reason.
    """

    findings: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    kernels: tuple[tuple[str, str], ...] = ()
    suppressed: tuple[tuple[Finding, str], ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """`findings`, `undecided` and `unread` as plain values."""
        whole = asdict(self)
        return {"findings": [*whole["findings"]], "undecided": [*whole["undecided"]], "unread": whole["unread"]}


def merge_reports(several: Iterable[LintReport]) -> LintReport:
    """Several reports as one, in their order; what two of them have in common is in it once."""
    reports = list(several)
    findings: dict[tuple[str, str, int], Finding] = {}
    for one in (one for report in reports for one in report.findings):
        findings.setdefault((one.rule, one.file, one.line), one)
    in_order = sorted(findings.values(), key=lambda one: (one.file, one.line, one.rule))
    undecided = dict.fromkeys(one for report in reports for one in report.undecided)
    kernels = dict.fromkeys(one for report in reports for one in report.kernels)
    suppressed = dict.fromkeys(one for report in reports for one in report.suppressed)
    unread = {file: why for report in reports for file, why in report.unread.items()}
    return LintReport(tuple(in_order), tuple(undecided), tuple(kernels), tuple(suppressed), unread)


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
    return once(lambda kernel: (one for each in kernel.variants for one in decide(kernel, each)))
