"""Softmax: numbers from Triton's interpreter beside float64, gradients, its problems and space, and its errors."""

import itertools
import math

import pytest
import torch

from tests.near import drawn, error_of, off, widened
from triton_ops.device import DeviceSpec, Machine
from triton_ops.dispatch import Gradient
from triton_ops.exceptions import DeviceError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.space import Config
from triton_ops_kernels.rows import default_config
from triton_ops_kernels.softmax import gradient, operation, softmax
from triton_ops_kernels.softmax import gradient_operation as backward_operation
from triton_ops_kernels.softmax.problems import gradient_default

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
    result, right = softmax(x, config=chosen), torch.softmax(x.double(), -1)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)
    return off([result], [right])


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
    result, right = interpreted(beside_torch, row, chosen)
    torch.testing.assert_close(result, right, equal_nan=True)
    assert result.shape == (2, 129)


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
    from triton_ops_kernels.softmax import _forward

    x = drawn(3, 10, dtype=torch.float64).requires_grad_()

    def found(x):
        described = Gradient(inputs=("x",), function=gradient, results=(0,))
        return described.attached({"x": x}, _forward(x, None, False))

    return torch.autograd.gradcheck(found, x)


def test_gradient_passes_gradcheck_in_float64(interpreted):
    assert interpreted(checked_gradient)


GRADIENT = {"SPLIT": 1, "EVICT": "none"}


def launched(values, chosen):
    """The gradient by one config of the operation, in place of whatever dx held."""
    values.keyword["dx"].fill_(math.nan)
    backward_operation.kernel.executable(Config({**GRADIENT, **chosen})).launch(values)
    return values.keyword["dx"]


def gradient_error(shape, chosen):
    values = backward_operation.materialise(backward_operation.problem(shape, "float32"), "cpu")
    result = launched(values, chosen)
    return off([result], [backward_operation.reference(**widened(values.keyword))])


FORMS = {
    "chunks": ((4, 300), config(64, 1)),
    "chunks, loads evicted": ((3, 301), {**config(64, 1), "EVICT": "loads"}),
    "chunks, all evicted": ((3, 301), {**config(64, 1), "EVICT": "all"}),
    "whole": ((4, 300), config(512, 1)),
    "rows": ((5, 300), config(512, 4)),
    "split": ((5, 300), {**config(64, 1), "SPLIT": 4, "EVICT": "loads"}),
    "split, whole parts": ((1, 257), {**config(64, 1), "SPLIT": 8}),
    "split, empty parts": ((3, 65), {**config(64, 1), "SPLIT": 16}),
    "split rows": ((5, 300), {**config(64, 2), "SPLIT": 4}),
    "one element": ((2, 1), {**config(64, 1), "SPLIT": 4}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_gradient_is_right(interpreted, form):
    assert interpreted(gradient_error, *FORMS[form]) <= 1e-5


def extreme_gradients(value):
    """Whether each form finds what float32 arithmetic says of a row with an extreme value, and leaves the others."""
    values = backward_operation.materialise(backward_operation.problem((3, 130), "float32"), "cpu")
    values.keyword["grad"][1, 70] = value
    right = backward_operation.reference(**values.keyword)
    forms = [{**config(64, 1), "SPLIT": 4}, {**config(64, 1), "EVICT": "loads"}, config(256, 1)]
    return [(launched(values, chosen).clone(), right) for chosen in forms]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, 1e-42])
def test_extreme_values_spoil_one_row_of_the_gradient_in_every_form(interpreted, value):
    for result, right in interpreted(extreme_gradients, value):
        torch.testing.assert_close(result, right, equal_nan=True, rtol=1e-4, atol=1e-6)
        assert result[[0, 2]].isfinite().all()


def test_few_long_rows_are_split_untuned_and_many_are_not():
    few, many = gradient_default(64, 128256), gradient_default(2048, 151936)
    assert (few["SPLIT"], few["BLOCK_SIZE"], few["num_warps"]) == (8, 4096, 8)
    assert (many["SPLIT"], many["BLOCK_SIZE"], many["num_warps"]) == (1, 8192, 16)
    assert dict(gradient_default(64, 4096)) == {**config(4096, 1, 16), **GRADIENT}


def test_space_of_the_gradient_says_why_rows_are_not_split():
    def why_not(shape, **chosen):
        space = backward_operation.space_for(backward_operation.problem(shape, "float32"))
        return space.why_not({**config(4096, 1, 8), "EVICT": "all", **chosen})

    assert why_not((64, 128256), SPLIT=16) is None
    assert why_not((2048, 128256), SPLIT=16).startswith("few_rows: ")
    assert why_not((64, 4096), SPLIT=4).startswith("split: ")
    assert why_not((64, 128256), SPLIT=16, EVICT="none").startswith("kept: ")
    assert why_not((64, 128256), SPLIT=1, BLOCK_SIZE=512).startswith("chunks: ")
    assert why_not((64, 4096), SPLIT=1).startswith("once: ")
    assert why_not((64, 4096), SPLIT=1, EVICT="none") is None
    assert why_not((64, 8192), SPLIT=1, EVICT="loads") is None


def test_parts_of_few_rows_are_expected_to_be_faster_than_whole_rows():
    work = backward_operation.work(backward_operation.problem((64, 128256), "float32"))
    machine = Machine.of(DeviceSpec.named("NVIDIA H200"))
    plans = [work.tiles.plan({**GRADIENT, **config(4096, 1, 8), "SPLIT": parts}, machine) for parts in (1, 8)]
    expected = [plan.schedule(plan.footprint).time_ms for plan in plans]
    assert expected[1] < 0.7 * expected[0]


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
