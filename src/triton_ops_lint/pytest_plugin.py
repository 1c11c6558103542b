"""A fixture for tests of users. pytest finds it where triton-ops is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from triton_ops_lint.findings import LintReport


@pytest.fixture
def lint_kernels() -> Callable[..., LintReport]:
    """A function that lints a target as `lint` does, and fails the test with every finding and unread file in words.

    A target without a kernel fails it too.
    """
    return _clean


def _clean(target: Any, **options: Any) -> LintReport:
    from triton_ops_lint.engine import lint  # every run of pytest imports this file

    report = lint(target, **options)
    complaints = [f"{one.file}:{one.line}: {one.rule} in {one.kernel}: {one.evidence}" for one in report.findings]
    complaints += [f"{file} is not read: {why}" for file, why in report.unread.items()]
    if not report.kernels:
        complaints.append(f"nothing was read: {target} has no Triton kernel")
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)
    return report
