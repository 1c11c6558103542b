"""Layer norm: numbers from Triton's interpreter beside float64, gradients, its problems and space, and its errors."""

import math

import pytest
import torch

from tests.near import drawn, error_of, off, widened
from triton_ops.backend import Arguments
from triton_ops.dispatch import Gradient
from triton_ops.exceptions import DeviceError, SettingsError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.space import Config
from triton_ops_kernels.layer_norm import _forward, gradient, layer_norm, operation
from triton_ops_kernels.layer_norm import gradient_operation as backward_operation
from triton_ops_kernels.layer_norm.problems import gradient_default

pytestmark = pytest.mark.triton


def config(block, rows, warps=1):
    return {"BLOCK_SIZE": block, "ROWS": rows, "num_warps": warps}


CASES = [
    ((5, 100), None),
    ((5, 100), config(128, 4)),
    ((5, 100), {**config(128, 4), "EVICT": "all", "SPREAD": True}),
    ((3, 200), {**config(64, 1), "EVICT": "loads"}),
    ((5, 300), config(64, 1)),
    ((2, 3, 128), config(64, 1)),
    ((3, 1), None),
    ((1, 2049), None),
    ((0, 7), None),
    ((7, 0), None),
]
ROUNDING = {"float32": 3e-6, "float16": 2**-10}


def expected(x, weight, bias, eps=1e-5):
    wide = [None if each is None else each.double() for each in (x, weight, bias)]
    return torch.nn.functional.layer_norm(wide[0], x.shape[-1:], *wide[1:], eps=eps)


def forward_error(shape, chosen, dtype, affine=(True, True)):
    kind, columns = getattr(torch, dtype), shape[-1]
    x = drawn(*shape, dtype=kind, shift=0.5)
    weight, bias = (drawn(columns, dtype=kind) if given else None for given in affine)
    result, right = layer_norm(x, weight, bias, config=chosen), expected(x, weight, bias)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)
    return ((result.double() - right).abs().max() / right.abs().max().clamp_min(1)).item() if right.numel() else 0.0


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("shape", "chosen"), CASES)
def test_result_is_that_of_float64(interpreted, shape, chosen, dtype):
    assert interpreted(forward_error, shape, chosen, dtype) <= ROUNDING[dtype]


@pytest.mark.parametrize("affine", [(False, False), (True, False), (False, True)])
def test_weight_and_bias_may_be_left_out(interpreted, affine):
    assert interpreted(forward_error, (4, 96), None, "float32", affine) <= ROUNDING["float32"]


def error_beside_a_large_mean(chosen):
    x = drawn(3, 1000) * 1e-2 + 1000.0
    return (layer_norm(x, config=chosen).double() - expected(x, None, None)).abs().max().item()


@pytest.mark.parametrize("chosen", [config(64, 1), config(1024, 1)], ids=["chunks", "whole"])
def test_a_mean_far_larger_than_the_deviation_costs_no_accuracy(interpreted, chosen):
    assert interpreted(error_beside_a_large_mean, chosen) <= 1e-2  # E[x²] - mean² would be off by more than 1


EXTREMES = {"nan": math.nan, "infinity": math.inf, "large": 1e18, "denormal": 1e-42, "zero": 0.0}


def beside_torch(value, chosen):
    x = torch.ones(2, 128)
    x[0, 5] = value
    return layer_norm(x, config=chosen), torch.nn.functional.layer_norm(x, (128,))


@pytest.mark.parametrize("chosen", [config(64, 1), config(128, 2)], ids=["chunks", "whole"])
@pytest.mark.parametrize("value", EXTREMES.values(), ids=EXTREMES)
def test_extreme_values_are_torchs(interpreted, value, chosen):
    result, right = interpreted(beside_torch, value, chosen)
    torch.testing.assert_close(result, right, equal_nan=True, rtol=1e-4, atol=1e-4)
    assert result[1].isfinite().all(), "a row does not touch the next"


def largest_gradient_error(shape, dtype):
    kind = getattr(torch, dtype)
    given = [drawn(*shape, dtype=kind, shift=0.5), drawn(shape[-1], dtype=kind), drawn(shape[-1], dtype=kind)]
    given = [each.requires_grad_() for each in given]
    weights = drawn(*shape, dtype=kind)
    (layer_norm(*given) * weights).sum().backward()
    wide = [each.detach().double().requires_grad_() for each in given]
    (expected(*wide) * weights).sum().backward()
    return off([each.grad for each in given], [each.grad for each in wide])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", [(7, 100), (2, 3, 64)])
def test_gradients_are_those_of_float64(interpreted, shape, dtype):
    assert interpreted(largest_gradient_error, shape, dtype) <= 4 * ROUNDING[dtype]


def checked_gradient():
    """The kernels compute in float64 where tensors are float64, which the public function does not take."""
    x, weight, bias = drawn(4, 9).double(), drawn(9).double(), drawn(9).double()

    def normalised(x, weight, bias):
        inputs = {"x": x, "weight": weight, "bias": bias, "eps": 1e-3}
        described = Gradient(
            inputs=("x", "weight", "bias"), function=gradient, values="float eps", kept=("x", "weight")
        )
        return described.attached(inputs, _forward(x, weight, bias, 1e-3, None, False))

    return torch.autograd.gradcheck(normalised, [t.requires_grad_() for t in (x, weight, bias)])


def test_gradients_pass_gradcheck_in_float64(interpreted):
    assert interpreted(checked_gradient)


GRADIENT = {"PROGRAMS": 2, "STAGES": 1, "SUM_COLUMNS": 64}


def gradients_by(chosen, shape, eps=1e-5, spoilt=None, changed=lambda given: given):
    """What one config of the gradient's operation finds, and what its reference does."""
    values = backward_operation.materialise(backward_operation.problem(shape, "float32"), "cpu")
    given = changed({**values.keyword, "eps": eps})
    if spoilt is not None:
        given["x"][1, 3] = spoilt
    for name in ("dx", "dweight", "dbias"):
        given[name].fill_(math.nan)
    right = backward_operation.reference(**(widened(given) if spoilt is None else given))
    backward_operation.kernel.compile(Config({**GRADIENT, **chosen}), values).launch(Arguments(keyword=given))
    return [given[name] for name in ("dx", "dweight", "dbias")], right


def form_error(chosen, shape, eps=1e-5):
    return off(*gradients_by(chosen, shape, eps))


FORMS = {
    "chunks": (config(64, 1), (5, 300)),
    "chunks, many rows": ({**config(64, 1), "PROGRAMS": 16, "SUM_COLUMNS": 16}, (37, 130)),
    "chunks, rows in flight": ({**config(128, 4), "STAGES": 2}, (7, 513)),
    "chunks without a rest": (config(64, 2), (5, 256)),
    "chunks, fewer rows than a tile": (config(64, 2), (1, 1100)),
    "whole": ({**config(512, 1), "SUM_COLUMNS": 16}, (5, 300)),
    "rows without a rest": ({**config(128, 32), "STAGES": 3}, (37, 128)),
    "rows, in flight": ({**config(512, 4), "STAGES": 2}, (5, 300)),
    "one row": (config(64, 1), (1, 257)),
    "one element": (config(64, 16), (3, 1)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_gradient_is_right(interpreted, form):
    assert interpreted(form_error, *FORMS[form]) <= 2e-5


BOTH = pytest.mark.parametrize("chosen", [config(64, 4), config(32, 2)], ids=["whole", "chunks"])


@BOTH
def test_rows_past_the_last_one_add_nothing_without_eps(interpreted, chosen):
    assert interpreted(form_error, chosen, (5, 60), 0.0) <= 2e-5


@BOTH
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e-42])
def test_an_extreme_value_spoils_what_arithmetic_says(interpreted, chosen, value):
    result, right = interpreted(gradients_by, chosen, (5, 60), 1e-5, value)
    for each, expected_one in zip(result, right, strict=True):
        assert each.isnan().equal(expected_one.isnan())
    assert result[0][[0, 2, 3, 4]].isfinite().all()


def shifted(given):
    """A mean far larger than the deviation, with one half of each row apart from the other."""
    x = given["x"] * 1e-2 + 1000.0
    x[:, x.shape[1] // 2 :] += 1.0
    return {**given, "x": x}


def vast(given):
    """Values whose squares are over the largest float32: their scale is 0."""
    return {**given, "x": given["x"] * 1e25, "grad": given["grad"] * 1e3}


def unweighted(given):
    return {**given, "weight": None}


def changed_error(chosen, changed):
    return off(*gradients_by(chosen, (6, 130), changed=changed))


@BOTH
@pytest.mark.parametrize(("changed", "most"), [(shifted, 1e-2), (unweighted, 2e-5)], ids=["shifted", "unweighted"])
def test_gradients_are_right_beside_a_large_mean_and_without_weights(interpreted, chosen, changed, most):
    wide = {"BLOCK_SIZE": 256} if chosen["BLOCK_SIZE"] == 64 else {}
    assert interpreted(changed_error, {**chosen, **wide}, changed) <= most


def vast_gradients(chosen):
    return gradients_by(chosen, (6, 60), changed=vast)[0]


@BOTH
def test_rows_with_squares_over_the_largest_number_have_no_gradient(interpreted, chosen):
    dx, dweight, _dbias = interpreted(vast_gradients, chosen)
    assert (dx == 0).all()
    assert (dweight == 0).all()


def test_default_of_the_gradient_has_whole_rows_as_far_as_registers_go():
    assert dict(gradient_default(8192)) == {**GRADIENT, **config(8192, 1, 16), "PROGRAMS": 1}
    assert dict(gradient_default(1280)) == {**GRADIENT, **config(2048, 1, 4), "PROGRAMS": 4, "SUM_COLUMNS": 16}
    assert dict(gradient_default(768)) == {
        **GRADIENT, **config(1024, 1), "PROGRAMS": 8, "STAGES": 2, "SUM_COLUMNS": 16,
    }  # fmt: skip
    assert gradient_default(65536)["BLOCK_SIZE"] == 2048


def test_space_of_the_gradient_says_why_a_config_is_left_out():
    def why_not(columns, **chosen):
        space = backward_operation.space_for(backward_operation.problem((8, columns), "bfloat16"))
        return space.why_not({**gradient_default(columns), **chosen}) or ""

    assert why_not(8192, BLOCK_SIZE=4096).startswith("row: ")
    assert why_not(8192, ROWS=2, num_warps=32).startswith("registers: ")
    assert why_not(8192, PROGRAMS=4).startswith("resident: ")
    assert why_not(128, PROGRAMS=1).startswith("idle: ")
    assert why_not(65536, ROWS=8, BLOCK_SIZE=1024, num_warps=16).startswith("chunked: ")
    assert why_not(65536, num_warps=4).startswith("registers: ")
    assert why_not(65536, PROGRAMS=1).startswith("columns: ")


def test_weights_are_spread_over_several_rows_only():
    space = operation.space_for(operation.problem((8, 128), "bfloat16"))
    assert space.default_config["SPREAD"] is True
    assert space.why_not({**config(128, 1), "EVICT": "none", "SPREAD": True}).startswith("spread: ")


@pytest.mark.parametrize("wrong", [{"EVICT": "some"}, {"EVICT": 1}, {"SPREAD": 1}, {"SPREAD": "yes"}])
def test_values_that_the_kernel_does_not_take_are_refused(interpreted, wrong):
    chosen = {**config(64, 1), **wrong}
    assert interpreted(error_of, layer_norm, torch.zeros(3, 4), config=chosen)[0] == "ConfigValueError"


@pytest.mark.parametrize("columns", [1, 128, 768, 8192, 16385, 65536])
def test_default_is_in_its_space(columns):
    for each in (operation, backward_operation):
        space = each.space_for(each.problem((8, columns), "bfloat16"))
        assert space.why_not(space.default_config) is None


def test_work_reads_and_writes_once():
    assert operation.work(operation.problem((3, 100), "float16")).bytes == 2 * (2 * 3 * 100 + 2 * 100)
    assert backward_operation.work(backward_operation.problem((3, 100), "float16")).bytes == 2 * (3 * 3 * 100 + 3 * 100)


X = torch.zeros(3, 4)
ERRORS = {
    "dtype": ((X, torch.zeros(4, dtype=torch.int32)), UnsupportedDtypeError, "weight"),
    "layout": ((torch.zeros(4, 3).t(),), ShapeMismatchError, "x"),
    "rank": ((torch.zeros(()),), ShapeMismatchError, "x"),
    "weight": ((X, torch.zeros(3)), ShapeMismatchError, "weight"),
    "bias": ((X, None, torch.zeros(4, 1)), ShapeMismatchError, "bias"),
    "eps": ((X, None, None, -1.0), SettingsError, None),
}


@pytest.mark.parametrize("what", ERRORS)
def test_bad_inputs_are_refused(interpreted, what):
    given, error, name = ERRORS[what]
    assert interpreted(error_of, layer_norm, *given) == (error.__name__, name)


def test_cpu_tensors_are_a_device_error():
    with pytest.raises(DeviceError, match="x is on cpu"):
        layer_norm(X)
