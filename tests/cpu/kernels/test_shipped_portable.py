"""A shipped kernel goes to other processes by its name."""

from __future__ import annotations

import pytest

import triton_ops_kernels as kernels
from tests.cpu.backend.test_portable import elsewhere
from triton_ops.backend import Packed


@pytest.mark.processes
@pytest.mark.triton
def test_a_shipped_kernel_goes_by_its_name_and_keeps_its_identity():
    operation = kernels.load("matmul")
    result = Packed.of(operation.kernel).content
    assert len(result) < 2000
    assert elsewhere(result, "dict(it.identity)") == dict(operation.kernel.identity)
    assert elsewhere(result, "it.cache_key") == operation.kernel.cache_key
