"""A tune without a right config is explained by what the linter finds."""

import pytest

from tests.cpu.lint.lint_kernels import elementwise
from triton_ops.backend import Operation, TritonKernel
from triton_ops.values import TensorSpec
from triton_ops_lint.command_lint import hints


@pytest.mark.triton
def test_a_wrong_config_of_a_kernel_is_explained_by_the_line_that_the_linter_finds():
    def arguments(n: int = 1000):
        return {"src": TensorSpec((n,), "float32"), "dst": TensorSpec((n,), "float32", fill="empty"), "total": n}

    kernel = TritonKernel(elementwise.inclusive_bad, lambda meta: (16,), outputs=("dst",))
    operation = Operation("inclusive", kernel, {"B": [64]}, arguments)
    result = hints(operation)
    assert len(result) == 2
    assert all("elementwise.py" in line and "wrong-mask in inclusive_bad may be why" in line for line in result)
    assert hints(Operation("plain", lambda src, dst, total, B: src, {"B": [1]}, arguments)) == []
