"""The findings of a lint, with what stays undecided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


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
