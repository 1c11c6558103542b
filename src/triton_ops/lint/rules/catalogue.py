"""All rules, in the order in which they are documented."""

from __future__ import annotations

from triton_ops.lint.rules.banks import CONFLICTS
from triton_ops.lint.rules.base import Rule
from triton_ops.lint.rules.caches import CHANGED_GLOBAL, NARROW_KEY
from triton_ops.lint.rules.constants import MISSING as MISSING_CONSTEXPR
from triton_ops.lint.rules.constants import OVER
from triton_ops.lint.rules.grids import STATIC
from triton_ops.lint.rules.masks import MISSING as MISSING_MASK
from triton_ops.lint.rules.masks import WRONG
from triton_ops.lint.rules.offsets import OVERFLOW
from triton_ops.lint.rules.padding import IDENTITY
from triton_ops.lint.rules.precision import LOW
from triton_ops.lint.rules.programs import ATOMICS
from triton_ops.lint.rules.registers import SPILL
from triton_ops.lint.rules.runs import NEVER_WRITTEN, OUTSIDE_TENSOR, OVERLAPS
from triton_ops.lint.rules.stages import LOST
from triton_ops.lint.rules.strides import SWAPPED
from triton_ops.lint.rules.tensor_cores import UNUSED
from triton_ops.lint.rules.widths import NARROW

RULES: tuple[Rule, ...] = (
    MISSING_MASK, WRONG, IDENTITY, SWAPPED, LOW, MISSING_CONSTEXPR, OVER, SPILL, ATOMICS, OVERLAPS, NARROW_KEY,
    CHANGED_GLOBAL, STATIC, OVERFLOW, UNUSED, NARROW, LOST, CONFLICTS,
    OUTSIDE_TENSOR, NEVER_WRITTEN,
)  # fmt: skip


def rule_named(name: str) -> Rule | None:
    """The rule of an id; None if there is none."""
    return next((rule for rule in RULES if rule.id == name), None)
