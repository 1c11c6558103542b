"""Quantising to E4M3 and back in Triton's interpreter: every code, scales of every granularity, overflow, errors."""

import math

import pytest
import torch

from tests.near import drawn, error_of, off, widened
from triton_ops.exceptions import DeviceError, KernelTypeError, NumericalOverflowError, ShapeMismatchError
from triton_ops.space import Config
from triton_ops_kernels import FP8Format, dequantize_fp8, quantize_fp8, quantize_fp8_with_overflow_handling
from triton_ops_kernels.fp8_quantize import dequantize_operation
from triton_ops_kernels.fp8_quantize.kernel import rescale_grid
from triton_ops_kernels.fp8_quantize.problems import saturated

pytestmark = pytest.mark.triton

E4M3 = torch.float8_e4m3fn


def codes(tensor):
    return tensor.view(torch.uint8)


def round_trip_of_all_codes(dtype):
    every = torch.arange(256, dtype=torch.uint8).view(E4M3)
    one = torch.ones(())
    wide = dequantize_fp8(every, one, dtype)
    torch.testing.assert_close(wide, every.to(dtype), rtol=0, atol=0, equal_nan=True)
    again, scale = quantize_fp8(wide, one)
    same = codes(again) == codes(every)
    return scale is one, [code for code in range(256) if not same[code]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_all_256_codes_are_torchs_and_come_back(interpreted, dtype):
    kept, other = interpreted(round_trip_of_all_codes, dtype)
    assert kept
    assert set(other) <= {0x7F, 0xFF}  # NaN has two codes


def midpoints_rounded():
    """Halfway between neighbours, just below and just above, as torch rounds them."""
    finite = torch.arange(0x7F, dtype=torch.uint8).view(E4M3).float()
    middle = (finite[1:] + finite[:-1]) / 2
    values = torch.cat([middle, middle.nextafter(finite[1:]), middle.nextafter(finite[:-1])])
    result, _ = quantize_fp8(torch.cat([values, -values]), torch.ones(()))
    return torch.equal(codes(result), codes(torch.cat([values, -values]).to(E4M3)))


def test_values_between_codes_are_rounded_to_even_as_torch_does(interpreted):
    assert interpreted(midpoints_rounded)


def of_granularity(shape, granularity, dtype, config=None):
    x = drawn(*shape, dtype=dtype) * 30
    result, scale = quantize_fp8(x, granularity=granularity, config=config)
    back = dequantize_fp8(result, scale, torch.float32)
    assert (result.shape, result.dtype, scale.dtype) == (x.shape, E4M3, torch.float32)
    error = (back - x.float()).abs()
    least = FP8Format.min_subnormal / scale.min()  # below the smallest normal number, steps are even
    return (
        tuple(scale.shape),
        bool((error <= x.float().abs() / 16 + least).all()),
        codes(result).tolist(),
        scale.tolist(),
    )


SHAPES = {
    "tensor": [((5, 300), ()), ((2, 3, 40), ()), ((7,), ())],
    "row": [((5, 300), (5, 1)), ((2, 3, 40), (2, 3, 1)), ((7,), (1,)), ((2, 5000), (2, 1))],
    "block": [((5, 300), (5, 3)), ((2, 3, 256), (2, 3, 2)), ((7,), (1,))],
    "tile": [((5, 300), (1, 3)), ((130, 128), (2, 1))],
}


def as_formula_has_it(shape, granularity, dtype):
    _, near, result, scale = of_granularity(shape, granularity, dtype)
    x = (drawn(*shape, dtype=dtype) * 30).float()
    each = torch.tensor(scale)
    if granularity == "block":
        each = each.repeat_interleave(128, -1)[..., : shape[-1]]
    if granularity == "tile":
        each = each.repeat_interleave(128, 0).repeat_interleave(128, 1)[: shape[0], : shape[1]]
    largest = x.abs().amax() if granularity == "tensor" else x.abs().amax(-1, keepdim=True)
    if granularity in ("tensor", "row"):
        torch.testing.assert_close(each, torch.tensor(448.0) / largest, rtol=0, atol=0)
    return near and codes(saturated(x, each).to(E4M3)).tolist() == result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("granularity", "shape"), [(name, shape) for name, shapes in SHAPES.items() for shape, _ in shapes]
)
def test_codes_and_scales_are_those_of_the_formula(interpreted, granularity, shape, dtype):
    assert interpreted(as_formula_has_it, shape, granularity, dtype)


@pytest.mark.parametrize(
    ("granularity", "shape", "scale"), [(n, shape, scale) for n, shapes in SHAPES.items() for shape, scale in shapes]
)
def test_scales_have_the_shape_of_their_granularity(interpreted, granularity, shape, scale):
    assert interpreted(of_granularity, shape, granularity, torch.float32)[0] == scale


def test_every_form_of_the_kernel_gives_the_same_codes(interpreted):
    forms = [
        {"BLOCK_SIZE": block, "ROWS": rows, "num_warps": 1} for block, rows in ((64, 1), (128, 1), (128, 4), (512, 1))
    ]
    result = [interpreted(of_granularity, (3, 300), "block", torch.float32, form)[2:] for form in forms]
    assert all(each == result[0] for each in result)


def extremes():
    rows = [
        [math.nan, 1.0, -2.0], [math.inf, 1.0, -2.0], [-math.inf, math.nan, 0.0], [0.0, -0.0, 0.0],
        [1e-42, -1e-42, 0.0], [3e38, -3e38, 1.0],
    ]  # fmt: skip
    result, scale = quantize_fp8(torch.tensor(rows), granularity="row")
    return result.float().tolist(), scale.flatten().tolist()


def test_nan_and_infinity_become_nan_and_count_for_no_scale(interpreted):
    result, scale = interpreted(extremes)
    assert math.isnan(result[0][0])
    assert result[0][1:] == [224.0, -448.0]
    assert math.isnan(result[1][0])
    assert result[1][1:] == [224.0, -448.0]
    assert all(math.isnan(value) for value in result[2][:2])
    assert result[3] == [0.0, -0.0, 0.0]
    assert result[5] == [448.0, -448.0, 0.0]
    assert scale[2:4] == [1.0, 1.0]
    assert scale[4] == pytest.approx(3.4028235e38)


def saturating():
    result, _ = quantize_fp8(torch.tensor([1.0, 500.0, -1e30, 2.0]), torch.tensor(1e10))
    return result.float().tolist()


def test_finite_values_beyond_a_given_scale_are_cut_off(interpreted):
    assert interpreted(saturating) == [448.0, 448.0, -448.0, 448.0]


@pytest.mark.parametrize("granularity", ["tensor", "row", "block"])
@pytest.mark.parametrize("shape", [(0, 128), (3, 0)])
def test_empty_tensors_stay_empty_with_scales_of_one(interpreted, shape, granularity):
    result = interpreted(of_empty, shape, granularity)
    assert result[0] == shape
    assert result[1]


def of_empty(shape, granularity):
    result, scale = quantize_fp8(torch.zeros(shape), granularity=granularity)
    return tuple(dequantize_fp8(result, scale).shape) if scale.numel() == 1 else tuple(result.shape), bool(
        (scale == 1).all()
    )


def halved():
    x = torch.tensor([1.0, -2.0, 4.0])
    _, fits = quantize_fp8_with_overflow_handling(x)
    result, third = quantize_fp8_with_overflow_handling(x, torch.tensor(400.0))
    return fits.item(), third.item(), result.float().tolist()


def test_a_scale_that_is_too_large_is_halved_until_all_fits(interpreted):
    assert interpreted(halved) == (112.0, 100.0, [96.0, -192.0, 384.0])  # 100 lies halfway between 96 and 104


def overflowing(value):
    try:
        quantize_fp8_with_overflow_handling(torch.tensor([1.0, value]), torch.tensor(1e3), max_attempts=2)
    except NumericalOverflowError as error:
        return type(error).__name__, error.scale, error.attempts, error.max_value == value


@pytest.mark.parametrize("value", [1e4, math.inf])
def test_values_that_fit_no_scale_are_an_overflow(interpreted, value):
    assert interpreted(overflowing, value) == ("NumericalOverflowError", 500.0, 2, True)


GROUPS = [(128, 128), (1, 128), (1, 300), (12, 300), (7, 100), (1, 64)]
BLOCKS = [(64, 4), (128, 1), (256, 2), (512, 1)]  # parts of a group, whole groups, and several of them


def reference_errors():
    """The errors of each way in which scales lie over a matrix of 12 by 300, for tiles of several widths."""
    result = []
    for group in GROUPS:
        problem = dequantize_operation.problem((12, 300, *group), "float32")
        values = dequantize_operation.materialise(problem, "cpu")
        right = dequantize_operation.reference(**widened(values.keyword))
        for block, rows in BLOCKS:
            values.keyword["out"].fill_(math.nan)
            form = Config(BLOCK_SIZE=block, ROWS=rows, num_warps=1)
            dequantize_operation.kernel.executable(form).launch(values)
            result.append(off([values.keyword["out"]], [right]))
    return result


def test_operation_of_restoring_agrees_with_its_reference(interpreted):
    errors = interpreted(reference_errors)
    assert len(errors) == len(GROUPS) * len(BLOCKS)
    assert max(errors) <= 1e-6


X = torch.zeros(4, 256)
ERRORS = {
    "dtype": ((X.int(),), {}, "UnsupportedDtypeError", "tensor"),
    "scale's dtype": ((X, torch.ones(1).half()), {}, "UnsupportedDtypeError", "scale"),
    "layout": ((X.t(),), {}, "ShapeMismatchError", "tensor"),
    "scale's shape": ((X, torch.ones(3)), {}, "ShapeMismatchError", "scale"),
    "granularity": ((X,), {"granularity": "column"}, "SettingsError", None),
    "tile of a batch": ((X[None],), {"granularity": "tile"}, "ShapeMismatchError", "tensor"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_bad_inputs_are_refused(interpreted, what):
    given, more, error, name = ERRORS[what]
    assert interpreted(error_of, quantize_fp8, *given, **more) == (error, name)


DEQUANTIZE_ERRORS = {
    "dtype": ((X, torch.ones(())), "UnsupportedDtypeError", "tensor"),
    "codes": ((X.to(torch.uint8), torch.ones(())), "UnsupportedDtypeError", "tensor"),
    "output": ((X.to(E4M3), torch.ones(()), torch.float64), "UnsupportedDtypeError", "output_dtype"),
    "scale": ((X.to(E4M3), torch.ones(2, 2)), "ShapeMismatchError", "scale"),
}


@pytest.mark.parametrize("what", DEQUANTIZE_ERRORS)
def test_what_cannot_be_restored_is_refused(interpreted, what):
    assert interpreted(refused, what) == DEQUANTIZE_ERRORS[what][1:]


def refused(what):
    """In the other process, since torch does not pickle 8-bit floats."""
    return error_of(dequantize_fp8, *DEQUANTIZE_ERRORS[what][0])


@pytest.mark.parametrize(
    ("given", "error"), [((X, torch.ones(4, 1)), "ShapeMismatchError"), ((X, None, 0), "SettingsError")]
)
def test_overflow_handling_refuses_what_does_not_fit(interpreted, given, error):
    assert interpreted(error_of, quantize_fp8_with_overflow_handling, *given)[0] == error


def test_cpu_tensors_are_a_device_error():
    with pytest.raises(DeviceError, match="tensor is on cpu"):
        quantize_fp8(X)


def test_format_has_the_numbers_of_torchs():
    info = torch.finfo(E4M3)
    assert (FP8Format.max_value, FP8Format.min_value) == (info.max, info.min)
    assert (FP8Format.min_normal, FP8Format.min_subnormal) == (info.smallest_normal, info.smallest_normal / 8)


def test_scales_of_the_format():
    x = torch.tensor([[1.0, -4.0], [0.0, math.inf], [math.nan, 0.5]])
    assert FP8Format.compute_scale(x).item() == 112.0
    assert FP8Format.compute_scale_per_channel(x).tolist() == [[112.0], [1.0], [896.0]]
    assert FP8Format.compute_scale_per_channel(x, dim=1).tolist() == [[448.0, 112.0]]
    assert FP8Format.compute_scale(torch.zeros(0)).item() == 1.0
    assert FP8Format.is_in_range(x[0], 112.0)
    assert not FP8Format.is_in_range(x[0], 113.0)
    assert not FP8Format.is_in_range(x[2], 1.0)


def test_the_format_takes_floats_only():
    with pytest.raises(KernelTypeError, match="no tensor of floats"):
        FP8Format.compute_scale(torch.zeros(3, dtype=torch.int32))
    with pytest.raises(ShapeMismatchError, match="no values along axis 2"):
        FP8Format.compute_scale_per_channel(X, dim=2)
    with pytest.raises(ShapeMismatchError, match="no values along axis '0'"):
        FP8Format.compute_scale_per_channel(X, dim="0")
    for helper in (FP8Format.compute_scale, FP8Format.compute_scale_per_channel):
        with pytest.raises(KernelTypeError, match="a str is no tensor of floats"):
            helper("x")


@pytest.mark.parametrize("rows", [1, 3, 2**20])
def test_applying_scales_has_one_axis_of_programs_however_wide_a_row_is(rows):
    """The other axes of a grid end at 65,535 programs, which a row of 2^27 elements has more of."""
    (programs,) = rescale_grid({"rows": rows, "columns": 2**29 + 1, "ROWS": 1, "BLOCK_SIZE": 1024})
    assert programs == rows * (2**19 + 1)
