"""Shipped operations as the lint runs them."""

import pytest

import triton_ops_kernels as kernels
from triton_ops_lint.apart_child import exact_dtype, odd_shape

pytestmark = pytest.mark.triton


@pytest.mark.parametrize("name", kernels.names())
def test_shipped_operations_have_a_small_problem_with_odd_extents(name):
    result = kernels.load(name)
    operation = getattr(result, "operation", result)
    dtype = exact_dtype(operation)
    problem = operation.problem(odd_shape(operation, dtype), dtype)
    assert sum(spec.numel for spec in problem.specs.values()) < 200_000
