"""Comments that answer a finding: `# triton-ops: ignore[RULE] reason`, on its line or alone on the line above."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from triton_ops.lint.findings import Finding
from triton_ops.lint.rules.catalogue import rule_named
from triton_ops.lint.source.island import source_text

BAD = "bad-suppression"
_COMMENT = re.compile(r"#\s*triton-ops:\s*ignore\b\s*(?:\[([^\]]*)\])?\s*(.*)")


@dataclass(frozen=True, kw_only=True)
class Comment:
    """A comment that answers findings.

    Attributes:
        line: The line that it stands on.
        rules: The rules that it names.
        reason: Why.
        first: First line that it speaks for.
        last: Last line that it speaks for.
    """

    line: int
    rules: tuple[str, ...]
    reason: str
    first: int
    last: int


@lru_cache(maxsize=256)
def comments(text: str) -> tuple[Comment, ...]:
    """The comments of a file's text; none if it is no Python."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        tree = ast.parse(text)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    spans = sorted(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
    )
    found = []
    for token in tokens:
        if token.type == tokenize.COMMENT and (said := _COMMENT.search(token.string)) is not None:
            alone = not token.line[: token.start[1]].strip()
            first, last = _span(spans, token.start[0], alone)
            names = tuple(name.strip() for name in (said[1] or "").split(",") if name.strip())
            found.append(
                Comment(line=token.start[0], rules=names, reason=said[2].strip(" -:—"), first=first, last=last)
            )
    return tuple(found)


def _span(spans: list[tuple[int, int]], line: int, alone: bool) -> tuple[int, int]:
    """The lines of the statement that a comment stands in or above."""
    at = line + 1 if alone and not any(first <= line <= last for first, last in spans) else line
    return next(((first, last) for first, last in spans if first <= at <= last), (at, at))


def answered(findings: Iterable[Finding]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
    """Findings that are left, and those that a comment answers, with its reason."""
    left: list[Finding] = []
    answers: list[tuple[Finding, str]] = []
    for finding in findings:
        reason = next(
            (one.reason for one in _of_file(finding.file) if finding.rule in one.rules and one.reason
             and one.first <= finding.line <= one.last), None,
        )  # fmt: skip
        if reason is None:
            left.append(finding)
        else:
            answers.append((finding, reason))
    return left, answers


def bad_comments(file: str) -> list[Finding]:
    """Comments of a file that name no rule, an unknown one, or no reason."""
    found = []
    for one in _of_file(file):
        unknown = [name for name in one.rules if rule_named(name) is None]
        what = "names no rule" if not one.rules else f"names {', '.join(unknown)}, which is no rule" if unknown else (
            "gives no reason" if not one.reason else ""
        )  # fmt: skip
        if what:
            found.append(
                Finding(
                    rule=BAD,
                    kernel="",
                    file=file,
                    line=one.line,
                    symptom="a finding is hidden without an answer",
                    evidence=f"the comment {what}",
                    fix="write # triton-ops: ignore[RULE] reason",
                    level="source",
                )
            )
    return found


def _of_file(file: str) -> tuple[Comment, ...]:
    try:
        return comments(source_text(Path(file)))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ()
