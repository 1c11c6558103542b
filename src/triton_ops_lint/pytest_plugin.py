"""A fixture for tests of users; `conftest.py` names it: `pytest_plugins = ["triton_ops_lint.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from triton_ops_lint.engine import lint
from triton_ops_lint.findings import LintReport


@pytest.fixture
def lint_kernels() -> Callable[..., LintReport]:
    """A function that lints a target as `lint` does, and fails the test with every finding and unread file in words.

    A target without a kernel fails it too.
    """
    return _clean


def _clean(target: Any, **options: Any) -> LintReport:
    report = lint(target, **options)
    complaints = [f"{one.file}:{one.line}: {one.rule} in {one.kernel}: {one.evidence}" for one in report.findings]
    complaints += [f"{file} is not read: {why}" for file, why in report.unread.items()]
    if not report.kernels:
        complaints.append(f"nothing was read: {target} has no Triton kernel")
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)
    return report
