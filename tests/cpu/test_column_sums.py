"""The sums of gradients that programs have left: by torch or by a kernel, from any number of rows and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton_ops.backend import Arguments  # noqa: E402
from triton_ops.backend.offline import AheadOfTime, described  # noqa: E402
from triton_ops.hardware import named_target  # noqa: E402
from triton_ops.kernels import load  # noqa: E402
from triton_ops.kernels.column_sums import add_up  # noqa: E402
from triton_ops.space import Config  # noqa: E402

pytestmark = pytest.mark.triton
SHAPES = ((1, 1, 1), (2, 33, 65), (2, 70, 64), (1, 32, 130))


def largest_errors():
    """By shape, how far sums in float64, rounded to float32, are from torch's, and whether poison was left."""
    found = []
    for shape in SHAPES:
        partial = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        results = tuple(torch.full((shape[2],), float("nan")) for _ in range(shape[0]))
        add_up(partial, results, 64)
        errors = [float((result - part.sum(0)).abs().max()) for part, result in zip(partial, results, strict=True)]
        found.append(max(errors))
    return found


def test_the_kernel_adds_up_every_row_and_column_once(interpreted):
    found = interpreted(largest_errors)
    assert len(found) == len(SHAPES)
    assert all(error < 1e-5 for error in found), found


def test_torch_adds_up_where_no_columns_are_asked_for():
    partial, results = torch.ones((2, 5, 3)), (torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16))
    add_up(partial, results, 0)
    assert [result.tolist() for result in results] == [[5.0] * 3] * 2


@pytest.mark.parametrize(
    ("name", "shape"), [("layer_norm_backward", (64, 512)), ("rmsnorm_rope_backward", (1, 64, 512, 4))]
)
def test_a_gradient_is_two_launches_with_the_kernel_and_one_without(name, shape):
    operation = load(name)
    problem = operation.problem(shape, "bfloat16")
    ahead = AheadOfTime(
        operation.kernel,
        described(Arguments(keyword=dict(problem.arguments))),
        replace(named_target("sm_90"), units=132),
    )
    default = operation.space_for(problem).default_config
    launches = [len(ahead.built(Config(default, SUM_COLUMNS=columns))) for columns in (0, 64)]
    assert launches == [1, 2]
    assert default["SUM_COLUMNS"] == 0, "what runs untuned changes with a measurement only"
