"""The page of the lint's rules, made from the rules themselves."""

from __future__ import annotations

from triton_ops_lint.engine import RULES
from triton_ops_lint.rules.rule import Rule

_HEAD = """# Every rule of the lint

This page is made from the rules themselves. How they are asked, and what they look at, is in [the lint](lint.md).
"""


def rules_page() -> str:
    """Markdown with a section for each rule."""
    return "\n".join([_HEAD, *map(_section, RULES)])


def _section(rule: Rule) -> str:
    return f"## {rule.id}\n\n*Symptom:* {rule.symptom}.\n\n*Fix:* {rule.fix}.\n\n{rule.about}\n"
