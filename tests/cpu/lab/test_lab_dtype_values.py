"""A kernel with dtypes among its tunables is ranked without a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
from tests import dtype_kernels as kernels  # noqa: E402
from triton_ops import TensorSpec, TritonKernel, rank  # noqa: E402

pytestmark = pytest.mark.triton


@pytest.mark.usefixtures("shared_fork_server")
def test_a_kernel_with_dtypes_is_read_without_a_gpu():
    x, out = TensorSpec((64, 4096), "float16"), TensorSpec((64,), "float32")
    kernel = TritonKernel(kernels.row_sums, lambda _: (64,), outputs=("out",))
    result = rank(kernel, (x, out, 4096), space=kernels.SPACE, gpu="NVIDIA H200", jobs=1)
    assert {one.config["ACC"] for one in result} == {"triton.language:fp16", "triton.language:fp32"}
