"""Pitfalls of Triton kernels, found without a GPU: `lint(target)`."""

from triton_ops.lint.engine import lint
from triton_ops.lint.findings import Finding, LintReport, Undecided

__all__ = ["Finding", "LintReport", "Undecided", "lint"]
