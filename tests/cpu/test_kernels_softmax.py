"""Softmax: numbers from Triton's interpreter beside float64, gradients, its problems and space, and its errors."""

import itertools
import math

import pytest
import torch

from tests.near import drawn, error_of, off, widened
from triton_ops.exceptions import DeviceError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.kernels.gradient import differentiable
from triton_ops.kernels.softmax import operation, softmax
from triton_ops.kernels.softmax.backward import gradient
from triton_ops.kernels.softmax.backward import operation as backward_operation
from triton_ops.kernels.softmax.space import default_config
from triton_ops.space import Config

pytestmark = pytest.mark.triton


def config(block, rows, warps=1):
    return {"BLOCK_SIZE": block, "ROWS": rows, "num_warps": warps}


# Whole rows, several at once, and chunks; the number of columns is no multiple of any block.
CASES = [
    ((5, 100), None),
    ((5, 100), config(128, 1)),
    ((5, 100), config(128, 4)),
    ((5, 300), config(64, 1)),
    ((2, 3, 128), config(64, 1)),
    ((3, 1), None),
    ((1, 2049), None),
    ((0, 7), None),
    ((7, 0), None),
]
DTYPES = ["float32", "float16"]
ROUNDING = {"float32": 1e-6, "float16": 2**-11}


def forward_error(shape, chosen, dtype):
    x = drawn(*shape, dtype=getattr(torch, dtype)) * 4
    found, right = softmax(x, config=chosen), torch.softmax(x.double(), -1)
    assert (found.shape, found.dtype) == (x.shape, x.dtype)
    return off([found], [right])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "chosen"), CASES)
def test_result_is_that_of_float64(interpreted, shape, chosen, dtype):
    assert interpreted(forward_error, shape, chosen, dtype) <= ROUNDING[dtype]


EXTREMES = {
    "nan": [1.0, math.nan, 2.0],
    "infinity": [1.0, math.inf, 2.0],
    "nothing": [-math.inf] * 3,
    "masked": [1.0, -math.inf, 2.0],
    "large": [3e38, -3e38, 3e38],
    "denormal": [1e-42, -1e-42, 0.0],
    "zeros": [0.0] * 3,
}


def beside_torch(row, chosen):
    x = torch.cat([torch.tensor(row), torch.full((126,), -math.inf)]).repeat(2, 1)
    return softmax(x, config=chosen), torch.softmax(x, -1)


@pytest.mark.parametrize("chosen", [config(64, 1), config(256, 1)], ids=["chunks", "whole"])
@pytest.mark.parametrize("row", EXTREMES.values(), ids=EXTREMES)
def test_extreme_values_are_torchs(interpreted, row, chosen):
    found, right = interpreted(beside_torch, row, chosen)
    torch.testing.assert_close(found, right, equal_nan=True)
    assert found.shape == (2, 129)


def gradients(shape, dtype):
    x = drawn(*shape, dtype=getattr(torch, dtype)).requires_grad_()
    weights = drawn(*shape, dtype=x.dtype)
    (softmax(x) * weights).sum().backward()
    wide = x.detach().double().requires_grad_()
    (torch.softmax(wide, -1) * weights).sum().backward()
    return off([x.grad], [wide.grad])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 100), (2, 2, 64)])
def test_gradient_is_that_of_float64(interpreted, shape, dtype):
    assert interpreted(gradients, shape, dtype) <= 4 * ROUNDING[dtype]


def checked_gradient():
    """The kernels compute in float64 where tensors are float64, which the public function does not take."""
    from triton_ops.kernels.softmax import _forward

    x = drawn(3, 10, dtype=torch.float64).requires_grad_()

    def found(x):
        return differentiable((x,), lambda _: _forward(x.detach(), None, False), gradient)

    return torch.autograd.gradcheck(found, x)


def test_gradient_passes_gradcheck_in_float64(interpreted):
    assert interpreted(checked_gradient)


def chunked_gradient_error(block, rows):
    problem = backward_operation.problem((4, 300), "float32")
    values = backward_operation.materialise(problem, "cpu")
    chosen = Config(config(block, rows))
    backward_operation.kernel.executable(chosen).launch(values)
    right = backward_operation.reference(**widened(values.keyword))
    return off([values.keyword["dx"]], [right])


@pytest.mark.parametrize(("block", "rows"), [(64, 1), (512, 1), (512, 4)])
def test_every_form_of_the_gradient_is_right(interpreted, block, rows):
    assert interpreted(chunked_gradient_error, block, rows) <= 1e-5


@pytest.mark.parametrize("columns", [1, 64, 100, 4096, 16384, 16385, 151936])
def test_default_is_in_its_space(columns):
    for each in (operation, backward_operation):
        space = each.space_for(each.problem((8, columns), "bfloat16"))
        assert space.why_not(space.default_config) is None
        assert space.size.valid > 10 or columns < 64


def test_default_keeps_whole_rows_as_far_as_registers_go():
    assert dict(default_config(4096)) == {"BLOCK_SIZE": 4096, "ROWS": 1, "num_warps": 8}
    assert dict(default_config(100)) == {"BLOCK_SIZE": 128, "ROWS": 8, "num_warps": 2}
    assert default_config(151936)["BLOCK_SIZE"] == 4096


def test_space_says_why_a_config_is_left_out():
    space = operation.space_for(operation.problem((8, 200), "float32"))
    reasons = {
        "row": config(512, 1, 4),
        "chunked": config(64, 2),
        "threads": config(64, 1, 4),
    }
    for name, chosen in reasons.items():
        assert space.why_not(chosen).startswith(f"{name}: ")


def test_work_reads_and_writes_once():
    assert operation.work(operation.problem((3, 100), "float16")).bytes == 2 * 3 * 100 * 2
    assert backward_operation.work(backward_operation.problem((3, 100), "float16")).bytes == 3 * 3 * 100 * 2


@pytest.mark.parametrize(
    ("x", "error"),
    [
        (torch.zeros(3, 4, dtype=torch.int32), UnsupportedDtypeError),
        (torch.zeros(3, 4).t(), ShapeMismatchError),
        (torch.zeros(()), ShapeMismatchError),
    ],
    ids=["dtype", "layout", "rank"],
)
def test_bad_inputs_are_refused(interpreted, x, error):
    assert interpreted(error_of, softmax, x) == (error.__name__, "x")


def test_config_needs_exactly_the_tunables(interpreted):
    assert interpreted(error_of, softmax, torch.zeros(2, 3), config={"BLOCK_SIZE": 64}) == ("UnknownTunableError", None)


def test_cpu_tensors_are_a_device_error():
    with pytest.raises(DeviceError, match="x is on cpu"):
        softmax(torch.zeros(2, 3))


def test_extents_are_those_of_the_command_line():
    assert operation.extents == ("rows", "columns")
    assert list(itertools.islice(operation.problems, 1)) == ["attention-4096"]
