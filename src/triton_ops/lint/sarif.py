"""Findings as SARIF 2.1.0, the form in which code hosts take them (https://docs.oasis-open.org/sarif/sarif/v2.1.0/)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.lint.engine import BAD
from triton_ops.lint.findings import Finding, LintReport
from triton_ops.lint.rules.base import Rule
from triton_ops.lint.rules.catalogue import RULES

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(report: LintReport, version: str) -> dict[str, Any]:
    """A report as a SARIF log with one run; what comments answer is in it as suppressed, undecided rules as notes."""
    rules = [*map(_rule, RULES), {"id": BAD, "shortDescription": {"text": "a comment that answers nothing"}}]
    results = [_result(one) for one in report.findings]
    results += [
        {**_result(one), "suppressions": [{"kind": "inSource", "justification": reason}]}
        for one, reason in report.suppressed
    ]
    notes = [
        {"level": "note", "message": {"text": f"{one.kernel}: undecided: {one.why}"}, "descriptor": {"id": one.rule}}
        for one in report.undecided
    ]
    driver = {"name": "triton-ops lint", "version": version, "rules": rules}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "results": results,
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.symptom},
        "help": {"text": rule.fix},
        "properties": {"level": rule.level},
    }


def _result(one: Finding) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _uri(one.file)}, "region": {"startLine": one.line}}
    return {
        "ruleId": one.rule,
        "level": "warning",
        "message": {"text": f"{one.kernel}: {one.symptom}. {one.evidence}. Fix: {one.fix}"},
        "locations": [{"physicalLocation": place}],
        "properties": {"evidence": one.evidence, "decidedBy": one.level},
    }


def _uri(file: str) -> str:
    """A path below the working folder as a relative one, so that a code host finds the file; else as a file's URI."""
    if (here := settings.current_folder()) is None:
        return Path(file).as_uri()
    path = Path(file).absolute()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_uri()
