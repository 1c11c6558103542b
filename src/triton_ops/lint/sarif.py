"""A report of the lint as SARIF 2.1.0, the form in which code hosts take findings.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from triton_ops import settings
from triton_ops.lint.engine import BAD, RULES
from triton_ops.lint.findings import Finding, LintReport
from triton_ops.lint.island import source_text

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ANSWERS = ("a comment that answers nothing", "write # triton-ops: ignore[RULE] reason", "source")


def as_sarif(report: LintReport, version: str) -> dict[str, Any]:
    """A report as a log with one run: what comments answer is suppressed, what is undecided or not read is a note.

    A result's fingerprint is made of its rule, file and kernel and the text of its line, so that code hosts know it
    again below lines that were added.
    """
    texts = {one.id: (one.symptom, one.fix, one.level) for one in RULES} | {BAD: _ANSWERS}
    page = _documentation()
    rules = [
        {
            "id": name, "shortDescription": {"text": symptom}, "help": {"text": fix}, "properties": {"level": level},
            "defaultConfiguration": {"level": "warning"},
            **({"helpUri": f"{page}/reference/lint/#{name}"} if page else {}),
        }
        for name, (symptom, fix, level) in texts.items()
    ]  # fmt: skip
    index = {name: number for number, name in enumerate(texts)}
    prints = _fingerprints([*report.findings, *(one for one, _ in report.suppressed)])
    answers = {one: [{"kind": "inSource", "justification": reason}] for one, reason in report.suppressed}
    results = [
        {
            "ruleId": one.rule, "ruleIndex": index[one.rule], "level": "warning",
            "message": {"text": f"{one.kernel}: {one.symptom}. {one.evidence}. Fix: {one.fix}"},
            "locations": [_location(one.file, one.line)], "partialFingerprints": {"primaryLocationLineHash": mark},
            "properties": {"evidence": one.evidence, "decidedBy": one.level},
            **({"suppressions": answers[one]} if one in answers else {}),
        }
        for one, mark in prints.items()
    ]  # fmt: skip
    notes = [
        {
            "level": "note", "message": {"text": f"{one.kernel}: undecided: {one.why}"},
            "descriptor": {"id": one.rule, "index": index[one.rule]}, "locations": [_location(one.file)],
        }
        for one in report.undecided
    ]  # fmt: skip
    notes += [
        {"level": "error", "message": {"text": f"not read: {why}"}, "locations": [_location(file)]}
        for file, why in report.unread.items()
    ]
    driver = {"name": "triton-ops lint", "version": version, "rules": rules}
    invocation = {"executionSuccessful": not report.unread, "toolExecutionNotifications": notes}
    run = {"tool": {"driver": driver}, "results": results, "invocations": [invocation]}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _documentation() -> str:
    """The address of the documents, as the installed package names it; empty while it names none."""
    try:
        links = metadata("triton-ops").get_all("Project-URL") or []
    except PackageNotFoundError:  # it runs from a source tree
        return ""
    addresses = dict(link.split(", ", 1) for link in links)
    return str(addresses.get("Documentation", "")).rstrip("/")


def _location(file: str, line: int = 0) -> dict[str, Any]:
    region = {"region": {"startLine": line}} if line else {}
    return {"physicalLocation": {"artifactLocation": _address(file), **region}}


def _address(file: str) -> dict[str, str]:
    """A path below the working folder as a relative one, so that a code host finds the file; else as a file's URI."""
    path, here = Path(file).absolute(), settings.current_folder()
    if here is None or not path.is_relative_to(here):
        return {"uri": path.as_uri()}
    return {"uri": quote(os.fsencode(path.relative_to(here))), "uriBaseId": "%SRCROOT%"}


def _fingerprints(findings: Iterable[Finding]) -> dict[Finding, str]:
    counts: Counter[str] = Counter()
    prints = {}
    for one in findings:
        words = "\0".join((one.rule, _address(one.file)["uri"], one.kernel, _line(one).strip()))
        digest = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        counts[digest] += 1
        prints[one] = f"{digest}:{counts[digest]}"
    return prints


def _line(finding: Finding) -> str:
    try:
        return source_text(Path(finding.file)).splitlines()[finding.line - 1]
    except (OSError, SyntaxError, UnicodeDecodeError, IndexError):
        return ""
