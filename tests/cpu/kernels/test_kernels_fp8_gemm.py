"""The product of 8-bit floats: numbers from Triton's interpreter beside float64, its space, module and errors."""

import copy
import functools
import io
import math

import pytest
import torch

from tests.near import drawn, error_of, off
from triton_ops.backend import Arguments
from triton_ops.benchmark import FP8_GEMM_CONFIGS, generate_configs, get_default_config
from triton_ops.exceptions import DeviceError, ShapeMismatchError
from triton_ops.space import Config
from triton_ops_kernels import FP8Linear, dequantize_fp8, quantize_fp8
from triton_ops_kernels import modules as linear
from triton_ops_kernels.fp8_gemm import fp8_gemm, operation
from triton_ops_kernels.fp8_gemm.problems import as_its_form, fp8_gemm_reference

pytestmark = pytest.mark.triton

SMALL = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2}
FORMS = {
    "default": None,
    "small": SMALL,
    "grouped": {**SMALL, "GROUP_SIZE_M": 2},
    "promoted": {**SMALL, "PROMOTE": 32},
    "host": {**SMALL, "LOADS": "host"},
    "programs": {**SMALL, "PROGRAMS": 1},
    "both": {**SMALL, "LOADS": "host", "PROGRAMS": 2},
    "halves": {**SMALL, "LOADS": "host", "HALVES": True},
    "swapped": {**SMALL, "SWAPPED": True},
    "swapped descriptors": {**SMALL, "SWAPPED": True, "LOADS": "host", "PROGRAMS": 1},
    "halves ahead": {**SMALL, "LOADS": "host", "BLOCK_N": 64, "PROGRAMS": 1, "HALVES": True, "AHEAD": True},
    "swapped ahead": {**SMALL, "SWAPPED": True, "AHEAD": True},
    "scales ahead": {**SMALL, "LOADS": "host", "AHEAD": 2},
    "scales far ahead": {**SMALL, "SWAPPED": True, "AHEAD": 4},
    "named": {**SMALL, "FORM": "triton", "BUFFERS": 0, "APART": False},
    "wide": {**SMALL, "BLOCK_N": 256, "BLOCK_K": 128},
}
PARTS = {**SMALL, "FORM": "parts", "BLOCK_N": 8, "BLOCK_K": 128}
FEW_ROWS = {
    "parts": PARTS,
    "a sum for each warp": {**PARTS, "BLOCK_N": 32, "BLOCK_K": 256, "SUMS": 8, "num_warps": 8},
    "several sums for a warp": {**PARTS, "BLOCK_M": 32, "BLOCK_K": 512, "SUMS": 16},
}
SCALINGS = ["tensor", "row", "block"]


@functools.cache
def stored(shape, scaling):
    """Both factors in 8 bits with their scales, the second one column-major; quantised once, which takes a while."""
    M, N, K = shape
    a, b = drawn(M, K), drawn(N, K).flip(0)
    b_scaling = "tile" if scaling == "block" else scaling
    a, a_scale = quantize_fp8(a, granularity=scaling)
    b, b_scale = quantize_fp8(b.contiguous(), granularity=b_scaling)
    return a, b.t(), a_scale, b_scale if scaling == "tensor" else b_scale.t()


def right_of(a, b, a_scale, b_scale, bias=None):
    matrices = [scale if scale.ndim else scale.reshape(1, 1) for scale in (a_scale, b_scale)]
    c = torch.empty(0, dtype=torch.float64)
    wide = None if bias is None else bias.double()
    return fp8_gemm_reference(a.double(), b.double(), c, *(scale.double() for scale in matrices), wide)


def product_error(shape, scaling, config=None, dtype=torch.float32, fast=False):
    given = stored(shape, scaling)
    result = fp8_gemm(*given, dtype, config=config, fast_accum=fast)
    assert (tuple(result.shape), result.dtype) == (shape[:2], dtype)
    return off([result], [right_of(*given)])


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_that_of_float64(interpreted, form, scaling):
    # 272 terms are more than two blocks of 128, and rows of 272 bytes allow descriptors. Three rows of two tiles each
    # are a whole group and a short one, and no size is that of whole tiles.
    assert interpreted(product_error, (35, 40, 272), scaling, FORMS[form]) <= 1e-5


def few_rows_error(shape, scaling, config):
    given, bias = stored(shape, scaling), drawn(shape[1])
    result = fp8_gemm(*given, torch.float32, bias=bias, config=config)
    return off([result], [right_of(*given, bias)])


@pytest.mark.parametrize("scaling", ["tensor", "row"])
@pytest.mark.parametrize("shape", [(1, 40, 800), (31, 70, 1300)])
@pytest.mark.parametrize("form", FEW_ROWS)
def test_the_form_of_parts_is_that_of_float64(interpreted, form, shape, scaling):
    assert interpreted(few_rows_error, shape, scaling, FEW_ROWS[form]) <= 1e-5


def refused_parts():
    few, many, block = (
        stored(shape, by) for shape, by in (((20, 64, 512), "row"), ((64, 64, 512), "row"), ((20, 64, 512), "block"))
    )
    asked = [
        (many, PARTS), (block, PARTS), (few, {**PARTS, "BLOCK_K": 64}), (few, {**PARTS, "SUMS": 2}),
        (few, {**PARTS, "LOADS": "host"}), (few, {**PARTS, "BUFFERS": 4}), (few, {**SMALL, "SUMS": 2}),
    ]  # fmt: skip
    return [error_of(fp8_gemm, *given, torch.float16, config=config)[0] for given, config in asked]


def test_the_form_of_parts_is_refused_where_it_is_wrong(interpreted):
    assert interpreted(refused_parts) == ["ConfigValueError"] * 7


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 130), (33, 129, 65), (3, 4, 0), (0, 4, 8)])
def test_odd_sizes_are_those_of_float64(interpreted, shape, scaling):
    if shape[2] == 0 and scaling == "block":
        return  # no terms, and no scales
    assert interpreted(product_error, shape, scaling) <= 1e-5


@pytest.mark.parametrize(("dtype", "most"), [(torch.float16, 2**-10), (torch.float32, 1e-5)])
def test_the_result_is_rounded_once_to_its_dtype(interpreted, dtype, most):
    assert interpreted(product_error, (20, 40, 70), "row", None, dtype) <= most


def documented_errors():
    tiles = [config for config in generate_configs(FP8_GEMM_CONFIGS) if config["num_stages"] == 3]
    given = stored((5, 40, 70), "tensor")
    result = [fp8_gemm(*given, torch.float32, config=config) for config in tiles if config["num_warps"] == 4]
    return [off([one], [right_of(*given)]) for one in result]


def test_every_documented_tile_drives_the_kernel(interpreted):
    errors = interpreted(documented_errors)
    assert len(errors) == 36  # warps and stages are nothing to the interpreter
    assert max(errors) <= 1e-5


def quantised_on_the_way():
    a, b = drawn(20, 48), drawn(48, 30)
    result = fp8_gemm(a, b, output_dtype=torch.float32)
    (qa, sa), (qb, sb) = quantize_fp8(a), quantize_fp8(b)
    mixed = fp8_gemm(qa, b.t().contiguous().t(), sa, output_dtype=torch.float32)
    right = right_of(qa, qb, sa, sb)
    return off([result, mixed], [right, right]), off([result], [(a.double() @ b.double())])


def test_wider_floats_are_quantised_with_one_scale(interpreted):
    exact, near = interpreted(quantised_on_the_way)
    assert exact <= 1e-5
    assert near <= 0.05


def biased():
    given, bias = stored((9, 20, 40), "row"), drawn(20, dtype=torch.float16)
    return off([fp8_gemm(*given, torch.float32, bias=bias)], [right_of(*given, bias)])


def test_a_bias_is_added_before_rounding(interpreted):
    assert interpreted(biased) <= 1e-5


def spoiled(value):
    a, b = drawn(4, 40), drawn(40, 8)
    a[1, 3] = value
    result = fp8_gemm(a, b, output_dtype=torch.float32)
    return result.isfinite().all(1).tolist()


def wrong_tunables():
    given = stored((4, 8, 40), "tensor")
    return [
        error_of(fp8_gemm, *given, config={**SMALL, **wrong}) for wrong in ({"SUMS": 3}, {"SUMS": True}, {"AHEAD": -1})
    ]


def test_sums_are_one_or_two_and_ahead_is_a_number_of_steps(interpreted):
    assert [name for name, *_ in interpreted(wrong_tunables)] == ["ConfigValueError"] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_spoil_their_own_row_only(interpreted, value):
    assert interpreted(spoiled, value) == [True, False, True, True]


def overflowing():
    ones = torch.full((2, 256), 448.0).to(torch.float8_e4m3fn)
    one = torch.ones(())
    return fp8_gemm(ones, ones.t(), one, one).tolist(), fp8_gemm(ones, ones.t(), one, one, torch.float32).tolist()


def test_float16_overflows_to_infinity_and_wider_results_do_not(interpreted):
    narrow, wide = interpreted(overflowing)
    assert narrow == [[math.inf] * 2] * 2
    assert wide == [[448.0**2 * 256] * 2] * 2


def test_space_holds_the_documented_one_but_for_steps_of_32():
    problem = operation.problem((4096, 4096, 4096, 1), "bfloat16")
    space = operation.space_for(problem)
    for config in generate_configs(FP8_GEMM_CONFIGS):
        full = {**space.default_config, **config}
        reason = space.why_not(full)
        assert reason is None or config["BLOCK_K"] == 32 or reason.startswith("accumulator: ")
    operation.kernel.check(get_default_config("fp8_gemm"), Arguments(keyword=dict(problem.arguments)))


def test_space_says_why_a_config_is_left_out():
    tensor, block = (operation.space_for(operation.problem((512, 512, 512, n), "bfloat16")) for n in (1, 3))
    assert tensor.why_not({**tensor.default_config, "PROMOTE": 128}).startswith("promotion: ")
    assert tensor.why_not({**tensor.default_config, "PROMOTE": 64}) is None
    assert block.why_not({**block.default_config, "PROMOTE": 64}).startswith("promotion: ")
    assert block.why_not({**block.default_config, "BLOCK_K": 256}).startswith("blocks: ")
    odd = operation.space_for(operation.problem((512, 512, 511, 1), "bfloat16"))
    assert odd.why_not({**odd.default_config, "LOADS": "host"}).startswith("descriptors: ")


def test_work_counts_products_and_bytes():
    work = operation.work(operation.problem((64, 48, 32, 2), "float16"))
    assert work.flops == 2 * 64 * 48 * 32
    assert work.bytes == 64 * 32 + 32 * 48 + 2 * 64 * 48 + 4 * (64 + 48)


def test_scaling_of_a_shape_is_one_of_four_of_which_the_last_has_fast_sums():
    with pytest.raises(ShapeMismatchError, match="scaling is 5"):
        operation.problem((64, 48, 32, 5), "float16")
    assert [operation.problem((64, 48, 32, n), "float16")["FAST"] for n in (1, 2, 3, 4)] == [False, False, False, True]


def test_scales_by_block_are_read_ahead_as_far_as_there_is_room():
    slow, block = (operation.space_for(operation.problem((512, 512, 512, n), "bfloat16")) for n in (1, 3))
    assert slow.why_not({**slow.default_config, "SUMS": 2}).startswith("sums: ")
    one = {**slow.default_config, "LOADS": "host", "AHEAD": 1}
    assert slow.why_not(one).startswith("ahead: ")
    assert block.why_not(one) is None
    far = {**one, "AHEAD": 4}
    assert block.why_not(far) is None
    assert block.why_not({**far, "num_stages": 5}).startswith("ahead: ")
    assert block.why_not({**far, "PROGRAMS": 1}).startswith("ahead: ")


GLUON = {
    "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128, "num_warps": 4, "num_stages": 4, "FORM": "gluon", "BUFFERS": 4,
}  # fmt: skip


def refused_forms():
    """Own configs that ask for the form in Gluon where it would be wrong, and some that are right but run as Python."""
    plain, block = stored((256, 256, 256), "row"), stored((256, 256, 256), "block")
    half, wide = torch.bfloat16, torch.float32
    without = {name: value for name, value in GLUON.items() if name != "BUFFERS"}
    other = {**without, "FORM": "triton", "num_warps": 8}
    asked = [
        (plain, half, {**GLUON, "FORM": "cuda"}), (plain, half, {**GLUON, "BUFFERS": 0}), (plain, wide, GLUON),
        (plain, half, {**GLUON, "BLOCK_N": 128}), (plain, half, {**GLUON, "LOADS": "pointers"}), (block, half, GLUON),
        (plain, half, {**other, "BUFFERS": 4}), (plain, half, {**other, "APART": True}),
        (plain, half, {"FORM": "gluon"}),
        (plain, half, GLUON), (plain, half, without), (plain, wide, without),
    ]  # fmt: skip
    return [error_of(fp8_gemm, *given, dtype, config=config)[0] for given, dtype, config in asked]


def test_the_form_in_gluon_is_refused_where_it_is_wrong_or_cannot_run(interpreted):
    result = interpreted(refused_forms)
    assert result[:8] == ["ConfigValueError"] * 8
    assert result[8] == "UnknownTunableError"
    assert result[9:] == ["CandidateError"] * 3  # nothing in Gluon runs as Python


def test_an_own_config_has_the_buffers_that_its_result_leaves_room_for():
    own = Config({name: value for name, value in GLUON.items() if name != "BUFFERS"})
    for dtype, buffers in (("bfloat16", 4), ("float32", 3)):
        space = operation.space_for(operation.problem((256, 256, 256, 1), dtype))
        assert as_its_form(own, lambda space=space: space) == Config({**own, "BUFFERS": buffers})


A, ONE = torch.zeros(4, 6), torch.ones(())
STORED = A.to(torch.float8_e4m3fn)
ERRORS = {
    "dtype": ((A.int(), A.t()), {}, "UnsupportedDtypeError", "a"),
    "codes": ((STORED.view(torch.uint8), A.t()), {}, "UnsupportedDtypeError", "a"),
    "no scale": ((STORED, A.t()), {}, "KernelTypeError", None),
    "no second scale": ((STORED, STORED.t(), ONE), {}, "KernelTypeError", None),
    "output": ((A, A.t(), None, None, torch.float64), {}, "UnsupportedDtypeError", "output_dtype"),
    "rank": ((A[0], A.t()), {}, "ShapeMismatchError", "a"),
    "inner": ((A, A), {}, "ShapeMismatchError", "b"),
    "scale of a": ((STORED, STORED.t(), torch.ones(3, 1), ONE), {}, "ShapeMismatchError", "a_scale"),
    "scale of b": ((STORED, STORED.t(), ONE, torch.ones(4, 1)), {}, "ShapeMismatchError", "b_scale"),
    "scale's dtype": ((STORED, STORED.t(), ONE.half(), ONE), {}, "UnsupportedDtypeError", "a_scale"),
    "bias": ((A, A.t()), {"bias": torch.zeros(3)}, "ShapeMismatchError", "bias"),
}


def refused(what):
    """In the other process, since torch does not pickle 8-bit floats."""
    given, more, *_ = ERRORS[what]
    return error_of(fp8_gemm, *given, **more)


@pytest.mark.parametrize("what", ERRORS)
def test_bad_inputs_are_refused(interpreted, what):
    assert interpreted(refused, what) == ERRORS[what][2:]


def test_cpu_tensors_are_a_device_error():
    with pytest.raises(DeviceError, match="a is on cpu"):
        fp8_gemm(A, A.t())


def layer():
    torch.manual_seed(0)
    return FP8Linear(48, 20, bias=True)


def linear_error(module, x):
    right = torch.nn.functional.linear(x, module.weight, module.bias)
    return off([module(x)], [right.double()])


def weight_refreshed():
    module, x = layer(), drawn(2, 3, 48)
    errors, kept = [linear_error(module, x)], [linear.copies()[module.weight][1]]
    module(x)
    kept.append(linear.copies()[module.weight][1])
    torch.optim.SGD(module.parameters(), lr=1.0).zero_grad()
    (module(x) * drawn(2, 3, 20)).sum().backward()
    torch.optim.SGD(module.parameters(), lr=50.0).step()
    errors.append(linear_error(module, x))
    kept.append(linear.copies()[module.weight][1])
    module.load_state_dict(layer().state_dict())
    errors.append(linear_error(module, x))
    module.weight.data.copy_(torch.ones(20, 48))
    module.refresh()
    errors.append(linear_error(module, x))
    return errors, kept[0] is kept[1], kept[1] is kept[2]


def test_the_weight_is_quantised_once_and_again_when_it_has_changed(interpreted):
    errors, same, unchanged = interpreted(weight_refreshed)
    assert max(errors) <= 0.05
    assert same
    assert not unchanged


def gradient_errors():
    module, x = layer(), drawn(2, 3, 48).requires_grad_()
    weights = drawn(2, 3, 20)
    (module(x) * weights).sum().backward()
    wide = [each.detach().double().requires_grad_() for each in (x, module.weight, module.bias)]
    (torch.nn.functional.linear(*wide) * weights).sum().backward()
    return off([x.grad, module.weight.grad, module.bias.grad], [each.grad for each in wide])


def test_gradients_go_straight_through_the_quantisation(interpreted):
    assert interpreted(gradient_errors) <= 1e-5


def copies():
    module, x = layer(), drawn(3, 48)
    right, file = module(x), io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    others = [copy.deepcopy(module), torch.load(file, weights_only=False)]
    return all(torch.equal(other(x), right) for other in others), sorted(module.state_dict()), repr(module)


def test_module_is_copied_and_saved_without_its_quantised_weight(interpreted):
    equal, names, shown = interpreted(copies)
    assert equal
    assert names == ["bias", "weight"]
    assert shown == "FP8Linear(in_features=48, out_features=20, bias=True)"


def test_module_refuses_sizes_below_one():
    with pytest.raises(ShapeMismatchError, match="out_features is 0"):
        FP8Linear(3, 0)


def restored_error():
    x = drawn(9, 300)
    codes, scale = quantize_fp8(x, granularity="block")
    return off([dequantize_fp8(codes, scale, torch.float32)], [x.double()])


def test_what_is_quantised_by_block_comes_back_within_a_sixteenth(interpreted):
    assert interpreted(restored_error) <= 1 / 16
