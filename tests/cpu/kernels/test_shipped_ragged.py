"""Shipped kernels and problems with rows of different lengths."""

from __future__ import annotations

import pytest

import triton_ops_kernels as kernels
from triton_ops.evaluation.cases import ragged_shape


@pytest.mark.parametrize("name", kernels.names())
def test_shipped_kernels_take_one(name):
    operation = kernels.load(name)
    for shape, dtype in operation.problems.values():
        result = ragged_shape(operation, shape, dtype)
        if result is not None:
            assert operation.problem(result, dtype).specs
            assert all(a <= b for a, b in zip(result, shape, strict=True))
