"""Pitfalls of Triton kernels, found without a GPU: `lint(target)`."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops_lint.command_lint import hints as hints
    from triton_ops_lint.command_lint import lint_command as lint_command
    from triton_ops_lint.engine import lint as lint
    from triton_ops_lint.findings import Finding as Finding
    from triton_ops_lint.findings import LintReport as LintReport
    from triton_ops_lint.findings import Undecided as Undecided
