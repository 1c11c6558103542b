"""Shipped kernels are imported without the documented tuner."""

import pytest

torch = pytest.importorskip("torch")
from tests.cpu.benchmark.test_autotuner import in_another_process, said_by  # noqa: E402


@pytest.mark.processes
@pytest.mark.triton
def test_shipped_kernels_know_no_tuner():
    pytest.importorskip("triton")
    code = (
        "import sys, triton_ops\n"
        "functions = triton_ops.matmul, triton_ops.fused_rmsnorm_rope\n"
        "print(*sorted(name for name in sys.modules if name.startswith('triton_ops')), sep='\\n')\n"
    )
    imported = said_by(in_another_process(code)).splitlines()
    assert "triton_ops_kernels.matmul.kernel" in imported
    tuners = ("triton_ops.tuner", "triton_ops.autotuner", "triton_ops.evaluation", "triton_ops.compilation")
    assert [name for name in imported if name.startswith(tuners)] == []
