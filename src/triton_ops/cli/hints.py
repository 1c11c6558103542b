"""What the linter finds in a kernel of which a config was wrong, as one line each."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from triton_ops.exceptions import DeviceError, KernelTypeError, MissingDependencyError, TargetError

WRONG_RESULTS = (
    "missing-mask", "wrong-mask", "wrong-identity", "stride-order", "low-precision-sum", "overlapping-writes",
    "changed-global", "static-grid", "offset-overflow",
)  # fmt: skip
_MOST = 3
_LINT = "triton_ops.lint.engine"  # takes NumPy along, which a tune without a wrong result does not need


def hints(target: Any, statuses: Iterable[str]) -> list[str]:
    """The findings that may have made results wrong; nothing is read unless a status says that one was.

    Args:
        target: What was tuned: an operation, or what holds one.
        statuses: How its trials ended, such as `wrong`.

    Cost: nothing without a wrong result; else 0.1 to 0.5 s for each kernel, and the import of Triton.
    """
    if "wrong" not in statuses:
        return []
    try:
        found = importlib.import_module(_LINT).lint(target, rules=WRONG_RESULTS).findings
    except (TargetError, MissingDependencyError, DeviceError, KernelTypeError):
        return []  # it launches no Triton kernel that can be read
    lines = [
        f"{Path(one.file).name}:{one.line}: {one.rule} in {one.kernel} may be why: {one.evidence}"
        for one in found[:_MOST]
    ]
    more = len(found) - _MOST
    return [*lines, f"{more} more: triton-ops lint"] if more > 0 else lines
