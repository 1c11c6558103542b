"""The process that lints kernels that another one interprets: `python -c ... main()`, by `apart.py`."""

from __future__ import annotations

import pickle

from triton_ops.backend import unpack
from triton_ops.exceptions import TritonKernelError
from triton_ops.lint.engine import lint_here
from triton_ops.lint.findings import LintReport
from triton_ops.lint.question import answer, question
from triton_ops.processes.child import import_heavy


def main() -> None:
    """Answer one request with the report, or with the error that the lint raised, pickled."""
    request, told = question()
    import_heavy(("triton",), "reading kernels")
    request.surroundings.take()
    found: LintReport | TritonKernelError
    try:
        found = lint_here(unpack(request.packed), rules=request.rules, gpu=request.gpu, run=request.run)
    except TritonKernelError as error:
        found = error
    answer(told, pickle.dumps(found))
