"""Pitfalls of Triton kernels, found without a GPU: `lint(target)`."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".command_lint": "hints lint_command",
    ".engine": "lint",
    ".findings": "Finding LintReport Undecided",
}

if TYPE_CHECKING:
    from triton_ops_lint.command_lint import hints as hints
    from triton_ops_lint.command_lint import lint_command as lint_command
    from triton_ops_lint.engine import lint as lint
    from triton_ops_lint.findings import Finding as Finding
    from triton_ops_lint.findings import LintReport as LintReport
    from triton_ops_lint.findings import Undecided as Undecided
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
