"""The sums of gradients that programs have left: by torch or by a kernel, from any number of rows and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton_ops.backend import (  # noqa: E402
    Arguments,
    TritonCompiler,
)
from triton_ops.device import Target  # noqa: E402
from triton_ops_kernels import load  # noqa: E402
from triton_ops_kernels.jit import SUM_COLUMNS, add_up  # noqa: E402

pytestmark = pytest.mark.triton
SHAPES = ((1, 1, 1), (2, 33, 65), (2, 70, 64), (1, 32, 130))


def largest_errors(columns):
    """By shape, how far sums in float64, rounded to float32, are from torch's, and whether poison was left."""
    outcome = []
    for shape in SHAPES:
        partial = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        results = tuple(torch.full((shape[2],), float("nan")) for _ in range(shape[0]))
        add_up(partial, results, columns)
        errors = [float((result - part.sum(0)).abs().max()) for part, result in zip(partial, results, strict=True)]
        outcome.append(max(errors))
    return outcome


@pytest.mark.parametrize("columns", SUM_COLUMNS)
def test_the_kernel_adds_up_every_row_and_column_once(interpreted, columns):
    result = interpreted(largest_errors, columns)
    assert len(result) == len(SHAPES)
    assert all(error < 1e-5 for error in result), result


@pytest.mark.parametrize(
    ("name", "shape", "launches"),
    [
        ("layer_norm_backward", (64, 512), 2),
        ("layer_norm_backward", (64, 65536), 3),
        ("rmsnorm_rope_backward", (1, 64, 512, 4), 2),
    ],
)
def test_a_gradient_is_two_launches_or_three_for_long_rows(name, shape, launches):
    operation = load(name)
    problem = operation.problem(shape, "bfloat16")
    ahead = TritonCompiler(
        operation.kernel,
        Arguments(keyword=dict(problem.arguments)).described(),
        replace(Target.named("sm_90"), units=132),
    )
    assert len(ahead.built(operation.space_for(problem).default_config)) == launches
