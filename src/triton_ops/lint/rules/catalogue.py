"""All rules, in the order in which they are documented."""

from __future__ import annotations

from triton_ops.lint.rules.addresses import ATOMICS, NEVER_WRITTEN, OUTSIDE_TENSOR, OVERFLOW, OVERLAPS, SWAPPED
from triton_ops.lint.rules.base import Rule
from triton_ops.lint.rules.compiled_costs import CONFLICTS, LOST, NARROW, SPILL
from triton_ops.lint.rules.launching import CHANGED_GLOBAL, NARROW_KEY, OVER, STATIC
from triton_ops.lint.rules.launching import MISSING as MISSING_CONSTEXPR
from triton_ops.lint.rules.masks import MISSING as MISSING_MASK
from triton_ops.lint.rules.masks import WRONG
from triton_ops.lint.rules.sums import IDENTITY, LOW, UNUSED

RULES: tuple[Rule, ...] = (
    MISSING_MASK, WRONG, IDENTITY, SWAPPED, LOW, MISSING_CONSTEXPR, OVER, SPILL, ATOMICS, OVERLAPS, NARROW_KEY,
    CHANGED_GLOBAL, STATIC, OVERFLOW, UNUSED, NARROW, LOST, CONFLICTS,
    OUTSIDE_TENSOR, NEVER_WRITTEN,
)  # fmt: skip


def rule_named(name: str) -> Rule | None:
    """The rule of an id; None if there is none."""
    return next((rule for rule in RULES if rule.id == name), None)
