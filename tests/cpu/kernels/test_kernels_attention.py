"""Attention: numbers from Triton's interpreter beside float64, gradients, extremes, its spaces, work and errors."""

import json
import math
import re

import pytest
import torch

from tests.launches import ttgir_of
from tests.near import drawn, error_of, off, widened
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.benchmark import CorrectnessVerifier
from triton_ops.cost_model import Model
from triton_ops.device import DeviceSpec, Machine, Target
from triton_ops.dispatch import Gradient
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.space import Config
from triton_ops_kernels import flash_attention, flash_attention_with_lse
from triton_ops_kernels.attention import _forward, gradient, operation, problems
from triton_ops_kernels.attention import gradient_operation as backward_operation
from triton_ops_kernels.attention.kernel import parts_of
from triton_ops_kernels.attention.problems import (
    are_summed,
    attention_reference,
    default_config,
    seen_pairs,
)

pytestmark = pytest.mark.triton

SMALL = {"BLOCK_M": 16, "BLOCK_N": 32, "num_warps": 4, "num_stages": 2}
FORMS = {
    "default": None,
    "small": SMALL,
    "heads in turn": {**SMALL, "GROUP_HEADS": 2},
    "parts": {**SMALL, "SPLITS": 2},
    "descriptors": {**SMALL, "DESCRIPTORS": True},
    "parts by descriptors": {**SMALL, "SPLITS": 4, "DESCRIPTORS": True},
    "roles of warps": {**SMALL, "BLOCK_M": 128, "DESCRIPTORS": True, "WARP_SPECIALIZE": True},
}
ROUNDING = {"float32": 1e-5, "float16": 2**-9}  # of float16 the weights are rounded, and the result
SHAPES = {
    "one of each": (1, 1, 1, 1, 1, 1, 1),
    "heads that are no power of two": (1, 6, 2, 5, 70, 24, 20),
    "fewer keys than queries": (1, 2, 1, 40, 20, 8, 8),
    "one query": (2, 6, 2, 1, 90, 16, 16),
    "no query": (1, 2, 1, 0, 8, 8, 8),
    "no key": (1, 2, 2, 3, 0, 8, 8),
}


def inputs(shape, dtype="float32"):
    batch, heads, kv_heads, queries, keys, size, value_size = shape
    kind = getattr(torch, dtype)
    q, k = drawn(batch, heads, queries, size, dtype=kind), drawn(batch, kv_heads, keys, size, dtype=kind)
    return 4 * q, 4 * k, drawn(batch, kv_heads, keys, value_size, dtype=kind, shift=0.1)


def seen(queries, keys, causal):
    last = torch.arange(queries)[:, None] + keys - queries if causal else keys
    return torch.arange(keys)[None, :].expand(queries, -1) <= last


def expected(q, k, v, causal, scale=None):
    """The result and the logarithms in float64, by softmax's definition."""
    q, k, v = (each.double() for each in (q, k, v))
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~seen(q.shape[2], k.shape[2], causal), -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0) @ v, torch.logsumexp(scores, -1)


def forward_errors(shape, chosen, dtype="float32"):
    """The errors with and without a mask."""
    given, result = inputs(shape, dtype), []
    for causal in (False, True):
        out = flash_attention(*given, causal, config=chosen)
        assert (tuple(out.shape), out.dtype) == ((*shape[:2], shape[3], shape[6]), given[0].dtype)
        result.append(off([out], [expected(*given, causal)[0]]))
    return max(result)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_that_of_float64(interpreted, form, dtype):
    # 19 queries of two heads and 75 keys are no multiples of tiles; rows of 16 start where descriptors need them to.
    assert interpreted(forward_errors, (1, 2, 1, 19, 75, 16, 16), FORMS[form], dtype) <= ROUNDING[dtype]


@pytest.mark.parametrize(("queries", "splits", "size"), [(1, 67, 256), (9, 3, 40)])
def test_parts_that_are_read_at_once_or_piece_by_piece_add_up(interpreted, queries, splits, size):
    shape = (1, 2, 1, queries, 32 * splits - 5, 16, size)  # of values of 256 elements 64 parts are read at once
    assert interpreted(forward_errors, shape, {**SMALL, "SPLITS": splits}) <= ROUNDING["float32"]


@pytest.mark.parametrize("form", FORMS)
def test_a_head_in_two_parts_is_that_of_float64(interpreted, form):
    assert parts_of(48) == (32, 16)
    assert interpreted(forward_errors, (1, 2, 1, 20, 75, 48, 24), FORMS[form]) <= ROUNDING["float32"]


@pytest.mark.parametrize(
    ("size", "parts"),
    [(1, (16, 0)), (16, (16, 0)), (24, (32, 0)), (80, (64, 16)), (96, (64, 32)), (112, (128, 0)), (192, (128, 64)),
     (256, (256, 0))],
)  # fmt: skip
def test_a_head_is_held_by_powers_of_two(size, parts):
    assert parts_of(size) == parts


@pytest.mark.parametrize("form", ["default", "parts"])
@pytest.mark.parametrize("shape", SHAPES)
def test_odd_sizes_are_those_of_float64(interpreted, shape, form):
    assert interpreted(forward_errors, SHAPES[shape], FORMS[form]) <= ROUNDING["float32"]


def verdicts(fill):
    """What the rule for verdicts says of two forms, and of a wrong scale."""
    problem = operation.problem((1, 2, 1, 20, 70, 32, 32, 2), "float16")
    values = dict(operation.materialise(problem, "cpu").keyword)
    for name in ("q", "k", "v"):
        spec = problem.specs[name]
        values[name] = type(spec)(spec.shape, spec.dtype, fill=fill).create_tensor("cpu", len(name))
    message = []
    for factor, forms in ((1.0, [SMALL, FORMS["parts by descriptors"]]), (1.05, [SMALL])):
        for form in forms:
            operation.kernel.forms["triton"].launch(**{**values, "scale": factor * values["scale"]}, **form)
            message.append(
                CorrectnessVerifier().verify_by_rule(
                    values["out"], operation.reference, kwargs=values, outputs=("out",)
                )[0]
            )
    return message


@pytest.mark.parametrize("fill", ["uniform", "outliers"])
def test_forms_are_right_by_the_rule_and_a_wrong_scale_is_not(interpreted, fill):
    assert interpreted(verdicts, fill) == [True, True, False]


def layout_errors():
    """Positions outside of heads, and a slice of one tensor of all three; with the layouts of the results."""
    q, k, v = inputs((2, 4, 2, 5, 5, 16, 16))
    outside = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v)]
    packed = torch.cat([q, k, v], 1).transpose(1, 2).contiguous().transpose(1, 2)
    right = [expected(q, k, v, True)[0]]
    result = [flash_attention(*outside, True), flash_attention(packed[:, :4], packed[:, 4:6], packed[:, 6:], True)]
    plain = flash_attention(q, k, v, True)
    return max(off([each], right) for each in (*result, plain)), [
        each.transpose(1, 2).is_contiguous() for each in (*result, plain)
    ]


def test_positions_may_be_outside_of_heads(interpreted):
    error, outside = interpreted(layout_errors)
    assert error <= ROUNDING["float32"]
    assert outside == [True, True, False]


def logarithm_errors(chosen):
    """Of the logarithms, and of a result that is merged from those over two parts of the keys."""
    q, k, v = inputs((1, 2, 1, 7, 50, 16, 16))
    right, logarithms = expected(q, k, v, False)
    result = flash_attention_with_lse(q, k, v, config=chosen)
    parts = [flash_attention_with_lse(q, k[:, :, s], v[:, :, s], config=chosen) for s in (slice(20), slice(20, 50))]
    largest = torch.maximum(parts[0][1], parts[1][1])
    weights = [torch.exp(each - largest)[..., None] for _, each in parts]
    merged = sum(w * each for w, (each, _) in zip(weights, parts, strict=True)) / sum(weights)
    return off([*result, merged], [right, logarithms, right])


@pytest.mark.parametrize("form", ["default", "parts"])
def test_logarithms_merge_results_over_parts_of_the_keys(interpreted, form):
    assert interpreted(logarithm_errors, FORMS[form]) <= ROUNDING["float32"]


def blind_rows(chosen):
    q, k, v = inputs((1, 2, 1, 40, 20, 8, 8))
    out, logarithms = flash_attention_with_lse(q, k, v, True, config=chosen)
    return out[:, :, :20].abs().max().item(), set(logarithms[:, :, :20].flatten().tolist()), logarithms.dtype


@pytest.mark.parametrize("form", ["default", "parts"])
def test_queries_that_see_no_key_get_zeros(interpreted, form):
    assert interpreted(blind_rows, FORMS[form]) == (0.0, {-math.inf}, torch.float32)


def spoilt(name, value, chosen):
    """Which queries are not finite after key or query 20 of 40 got a value."""
    given = dict(zip("qkv", inputs((1, 2, 2, 40, 40, 16, 16)), strict=True))
    given[name][0, 0, 20, 3] = value
    out = flash_attention(*given.values(), True, config=chosen)
    assert out[0, 1].isfinite().all()
    return (~out[0, 0].isfinite().all(-1)).nonzero().flatten().tolist()


@pytest.mark.parametrize("form", ["default", "parts"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_reach_the_queries_that_see_them(interpreted, value, form):
    assert interpreted(spoilt, "q", value, FORMS[form]) == [20]
    reached = interpreted(spoilt, "k", math.nan, FORMS[form])
    assert reached == list(range(20, 40))
    assert set(interpreted(spoilt, "v", value, FORMS[form])) >= set(range(20, 40))


def blind_beside_infinity(value, chosen):
    """What queries get that see no key, and their gradients, where every value is one number."""
    q, k, v = inputs((1, 2, 1, 40, 20, 8, 8))
    v[:] = value
    given = [each.requires_grad_() for each in (q, k, v)]
    out = flash_attention(*given, True, config=chosen)
    out.sum().backward()
    right = attention_reference(*(each.detach() for each in given), out, None, 0.3, True)
    blind = [out[:, :, :20], q.grad[:, :, :20], right[:, :, :20]]
    return [each.eq(0).all().item() for each in blind], out[:, :, 20:].isfinite().any().item()


@pytest.mark.parametrize("form", ["default", "parts", "descriptors"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_queries_that_see_no_key_get_zeros_whatever_the_values_hold(interpreted, value, form):
    assert interpreted(blind_beside_infinity, value, FORMS[form]) == ([True, True, True], False)


def gradients_beside_nan():
    """Whether NaN in a value comes through in all gradients that it has a part in, and in no other head."""
    given = [each.requires_grad_() for each in inputs((1, 2, 2, 40, 40, 16, 16))]
    with torch.no_grad():
        given[2][0, 0, 0, 3] = math.nan
    flash_attention(*given, True).sum().backward()
    reached = [each.grad[0, 0].isnan().all().item() for each in given[:2]]
    return reached, all(each.grad[0, 1].isfinite().all().item() for each in given)


def test_nan_of_a_value_reaches_the_gradients(interpreted):
    assert interpreted(gradients_beside_nan) == ([True, True], True)


def gradients_beside_an_infinite_key():
    """Which gradients are finite, and whether that of the infinite key's value is 0, since no query gives it weight.

    There are 9 rows, which fill no tile: rows that do not exist must not make NaN of 0 times infinity.
    """
    q, k, v = (each.abs() for each in inputs((1, 1, 1, 9, 2, 16, 16)))
    k[0, 0, 1] = -math.inf
    given = [each.requires_grad_() for each in (q, k, v)]
    flash_attention(*given).sum().backward()
    finite = [each.grad[0, 0, 0].isfinite().all().item() for each in given[1:]]
    return finite, given[2].grad[0, 0, 1].eq(0).all().item()


def test_rows_that_do_not_exist_spoil_no_gradient_of_an_infinite_key(interpreted):
    assert interpreted(gradients_beside_an_infinite_key) == ([True, True], True)


def extreme_errors():
    """Of scores near float32's end, of one that takes all weight, of zeros, and of float16's smallest numbers."""
    q, k, v = inputs((1, 1, 1, 20, 40, 16, 16))
    cases = [(1e15 * q, 1e15 * k, v), (q, 100 * k, v), (0 * q, k, v)]
    small = [(2**-24 * torch.ones_like(each)).half() for each in (q, k, v)]
    result = [off([flash_attention(*case)], [expected(*case, False)[0]]) for case in (*cases, small)]
    assert flash_attention(*(0 * each for each in (q, k, v))).eq(0).all()
    return max(result)


def test_extreme_values_are_those_of_float64(interpreted):
    assert interpreted(extreme_errors) <= 1e-4


def constant_error(chosen):
    q, k, _ = inputs((1, 4, 2, 20, 45, 16, 16), "float16")
    v = torch.full((1, 2, 45, 16), 3.0, dtype=torch.float16)
    return (flash_attention(q, k, v, True, config=chosen) - 3).abs().max().item()


@pytest.mark.parametrize("form", FORMS)
def test_equal_values_are_found_whatever_the_weights(interpreted, form):
    assert interpreted(constant_error, FORMS[form]) <= 2**-8


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 4, 2, 33, 50, 16, 8), (1, 3, 3, 20, 20, 8, 8)])
def test_reference_is_that_of_torch(shape, causal):
    q, k, v = inputs(shape)
    mask = seen(shape[3], shape[4], causal)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)
    out, lse = torch.empty_like(right), torch.empty(right.shape[:3])
    result = attention_reference(q, k, v, out, lse, 0.3, causal)
    torch.testing.assert_close(result[0], right)
    torch.testing.assert_close(result[1].double(), expected(q, k, v, causal, 0.3)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extents", [(5, 5), (3, 8), (8, 3), (1, 9), (7, 1)])
def test_work_counts_what_is_seen(extents):
    pairs = seen(*extents, True).sum().item()
    assert seen_pairs(*extents, True) == pairs
    assert seen_pairs(*extents, False) == math.prod(extents)
    problem = operation.problem((2, 4, 2, *extents, 16, 8, 2), "float16")
    assert operation.work(problem).flops == 2 * 2 * 4 * pairs * (16 + 8)
    assert operation.work(problem).bytes == 2 * 2 * (4 * extents[0] + 2 * extents[1]) * (16 + 8)


def gradient_errors(shape, dtype, causal):
    given = [each.requires_grad_() for each in inputs(shape, dtype)]
    weights = drawn(*shape[:2], shape[3], shape[6], dtype=given[0].dtype)
    (flash_attention(*given, causal) * weights).sum().backward()
    wide = [each.detach().double().requires_grad_() for each in given]
    (expected(*wide, causal)[0] * weights.double()).sum().backward()
    return off([each.grad for each in given], [each.grad for each in wide])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 2, 1, 40, 75, 16, 16), "float32"),
        ((1, 2, 1, 20, 75, 16, 16), "float16"),
        ((2, 6, 2, 5, 70, 24, 20), "float32"),
        ((1, 2, 1, 40, 20, 8, 8), "float32"),
        ((1, 2, 2, 1, 9, 8, 8), "float32"),
        ((1, 2, 2, 3, 0, 8, 8), "float32"),
    ],
)
def test_gradients_are_those_of_float64(interpreted, shape, dtype, causal):
    assert interpreted(gradient_errors, shape, dtype, causal) <= 4 * ROUNDING[dtype]


def checked_gradient(causal):
    """The kernels compute in float64 where tensors are float64, which the public function does not take."""
    given = [drawn(1, *shape).double().requires_grad_() for shape in ((2, 2, 2), (1, 3, 2), (1, 3, 2))]

    def found(*tensors):
        names = ("q", "k", "v")
        described = Gradient(
            inputs=names, function=gradient, values="bool causal, float? scale", kept=names, results=(0, 1)
        )
        inputs = {**dict(zip(names, tensors, strict=True)), "causal": causal, "scale": 0.7}
        return described.attached(inputs, _forward(tensors, causal, 0.7, True, SMALL, False))[0]

    return torch.autograd.gradcheck(found, given)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_pass_gradcheck_in_float64(interpreted, causal):
    assert interpreted(checked_gradient, causal)


def gradients_of_logarithms():
    """Gradients flow through the result of both functions alike, and not through the logarithms."""
    given = [each.requires_grad_() for each in inputs((1, 2, 1, 5, 9, 8, 8))]
    result, logarithms = flash_attention_with_lse(*given, True)
    first = torch.autograd.grad(result.sum(), given)
    second = torch.autograd.grad(flash_attention(*given, True).sum(), given)
    return logarithms.requires_grad, all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_logarithms_have_no_gradient(interpreted):
    assert interpreted(gradients_of_logarithms) == (False, True)


def backward_errors():
    """Of two configs, beside the reference."""
    values = backward_operation.materialise(backward_operation.problem((1, 4, 2, 40, 70, 16, 8, 2), "float32"), "cpu")
    right, result = backward_operation.reference(**widened(values.keyword)), []
    for config in (
        {"Q_ROWS": 32, "Q_KEYS": 64, "K_KEYS": 32, "K_ROWS": 64, "num_warps": 4, "num_stages": 1},
        {"Q_ROWS": 64, "Q_KEYS": 32, "K_KEYS": 64, "K_ROWS": 32, "num_warps": 4, "num_stages": 1},
    ):
        backward_operation.kernel.launch(**values.keyword, **config)
        result.append(off([values.keyword[name] for name in ("dq", "dk", "dv")], right))
    return max(result)


def test_operation_of_the_gradient_agrees_with_its_reference(interpreted):
    assert interpreted(backward_errors) <= ROUNDING["float32"]


def with_roles(problem):
    return operation.space_for(problem).with_values({"WARP_SPECIALIZE": [False, True]})


def why_not(shape, **values):
    space = with_roles(operation.problem(shape, "bfloat16"))
    return (space.why_not(Config({**space.default_config, **values})) or "").partition(":")[0]


PREFILL, DECODE = (4, 32, 8, 4096, 4096, 128, 128, 2), (16, 32, 8, 1, 8192, 128, 128, 2)


def test_roles_of_warps_are_in_no_space_but_may_be_asked_for():
    problem = operation.problem(PREFILL, "bfloat16")
    assert not any(config["WARP_SPECIALIZE"] for config in operation.space_for(problem))
    assert any(config["WARP_SPECIALIZE"] for config in with_roles(problem))


@pytest.mark.parametrize("mask", [1, 2])
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (5, 12), (12, 5)])
def test_the_reference_gives_the_same_in_pieces(monkeypatch, queries, keys, mask):
    values = operation.materialise(operation.problem((2, 4, 2, queries, keys, 8, 6, mask), "float32"), "cpu").keyword
    whole = attention_reference(**{**values, "lse": torch.empty(2, 4, queries)})
    monkeypatch.setattr(problems, "_SCORES", 3 * keys)
    pieces = attention_reference(**{**values, "lse": torch.empty(2, 4, queries)})
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(attention_reference(**values), pieces[0])


def test_space_says_why_a_config_is_left_out():
    assert why_not(PREFILL) == why_not(DECODE) == why_not(DECODE, SPLITS=8) == ""
    assert why_not(PREFILL, SPLITS=2) == "split"
    assert why_not(PREFILL, BLOCK_M=32) == why_not(PREFILL, BLOCK_M=64) == "groups"
    assert why_not(DECODE, BLOCK_M=32) == "rows"
    assert why_not(DECODE, GROUP_HEADS=8) == "walk"
    assert why_not((1, 1, 1, 1, 64, 64, 64, 1), SPLITS=2, BLOCK_N=64) == "parts"
    assert why_not((1, 1, 1, 1, 40, 64, 64, 1), BLOCK_N=128, SPLITS=1) == ""
    assert why_not((1, 1, 1, 1, 20, 64, 64, 1), BLOCK_N=128, SPLITS=1) == "keys"
    assert why_not(PREFILL, num_warps=4, BLOCK_M=256) == "registers"
    assert why_not((1, 1, 1, 64, 64, 33, 33, 1), DESCRIPTORS=True) == "descriptors"
    assert why_not(PREFILL, WARP_SPECIALIZE=True, num_warps=4) == "specialised"
    assert why_not(PREFILL, WARP_SPECIALIZE=True, DESCRIPTORS=True, num_warps=4, num_stages=3) == "specialised"
    assert why_not(PREFILL, WARP_SPECIALIZE=True, DESCRIPTORS=True, num_warps=4, num_stages=2) == ""


@pytest.mark.parametrize(
    ("shape", "splits", "step"),
    [
        ((1, 16, 4, 1, 31_088, 80, 80, 1), 32, 128),
        ((1, 8, 8, 1, 4096, 128, 128, 2), 16, 64),
        ((1, 8, 1, 1, 100_000, 128, 128, 2), 128, 64),
        ((1, 4, 4, 1, 2000, 64, 64, 2), 32, 64),  # a step for each part
        ((2, 64, 8, 1, 20_000, 128, 128, 2), 16, 64),  # so long parts that a multiprocessor takes two
        ((12, 16, 16, 1, 1600, 80, 80, 1), 1, 128),
    ],
)
def test_few_queries_split_long_keys_until_programs_fill_a_device(shape, splits, step):
    space = operation.space_for(operation.problem(shape, "bfloat16"))
    config = space.default_config
    assert (config["BLOCK_M"], config["SPLITS"], config["BLOCK_N"]) == (16, splits, step)
    assert space.why_not(config) is None


GLUON = {
    "FORM": "gluon", "BLOCK_M": 128, "BLOCK_N": 128, "DESCRIPTORS": True, "num_warps": 4, "num_stages": 2
}  # fmt: skip


def test_the_form_in_gluon_is_for_what_it_computes_rightly():
    assert why_not(PREFILL, **GLUON) == why_not(PREFILL, **GLUON, GROUP_HEADS=8) == ""
    for name, value in {"BLOCK_M": 64, "BLOCK_N": 64, "DESCRIPTORS": False, "num_stages": 3, "SPLITS": 2}.items():
        assert why_not(PREFILL, **{**GLUON, name: value}) in (f"gluon_{name.lower()}", "split")
    wrong = [DECODE, (1, 2, 2, 128, 128, 80, 64, 1), (1, 2, 2, 128, 128, 128, 256, 1)]
    reasons = {why_not(shape, **GLUON, GROUP_HEADS=1) for shape in wrong}
    assert reasons <= {"gluon", "rows", "keys", "registers", "specialised"}
    problem = operation.problem((1, 2, 2, 128, 128, 64, 64, 1), "float32")
    assert operation.space_for(problem).why_not({**operation.space_for(problem).default_config, **GLUON})
    assert not any(config["FORM"] == "gluon" for config in operation.space_for(problem))


@pytest.mark.parametrize("device", ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"])
def test_long_prompts_have_the_form_in_gluon_untuned_on_hopper_unless_small_heads_are_causal(monkeypatch, device):
    monkeypatch.setattr(problems, "probe", lambda: DeviceSpec.named(device))
    few, image, causal = (
        (1, 8, 8, 512, 512, 128, 128, 2),
        (8, 16, 16, 577, 577, 64, 64, 1),
        (8, 16, 16, 577, 577, 64, 64, 2),
    )
    shapes = PREFILL, image, few, causal, DECODE
    spaces = [operation.space_for(operation.problem(shape, "bfloat16")) for shape in shapes]
    defaults = [space.default_config for space in spaces]
    first = "gluon" if "H100" in device else "triton"
    assert [config["FORM"] for config in defaults] == [first, first, "triton", "triton", "triton"]
    assert all(space.why_not(config) is None for space, config in zip(spaces, defaults, strict=True))


@pytest.mark.parametrize(
    ("shape", "sides"),
    [
        ((12, 128, 16, 1408, 1408, 64, 64, 2), (64, 64, 8)),
        ((3, 4, 4, 700, 700, 64, 64, 1), (64, 64, 8)),
        ((13, 4, 4, 2272, 2272, 80, 80, 2), (128, 32, 8)),
        ((1, 2, 2, 64, 64, 64, 64, 2), (64, 64, 1)),
        (DECODE, (16, 64, 1)),
    ],
)
def test_programs_walk_through_several_heads_before_the_next_tile_of_queries_untuned(shape, sides):
    space = operation.space_for(operation.problem(shape, "bfloat16"))
    assert tuple(space.default_config[name] for name in ("BLOCK_M", "BLOCK_N", "GROUP_HEADS")) == sides
    assert space.why_not(space.default_config) is None


MEASURED = {  # ms of the form in Gluon on an H200
    "llama-8b-prefill": 0.835, "llama-8b-long": 3.06, "llama-70b-chunk": 0.193, "flux-dev-image": 0.390,
    "whisper-large": 0.426,
}  # fmt: skip


def expected_of_forms(problem, device):
    """What the model expects of each form: the time of its best config."""
    model = Model(operation.work(problem), Machine.of(DeviceSpec.named(device)))
    best = {}
    for config in operation.space_for(problem):
        best[config["FORM"]] = min(best.get(config["FORM"], math.inf), model.expected_ms(config))
    return best


def test_a_model_expects_of_the_form_in_gluon_what_it_takes_on_hopper():
    for name, measured_ms in MEASURED.items():
        best = expected_of_forms(operation.problem(*operation.problems[name]), "NVIDIA H200")
        assert measured_ms / 1.2 <= best["gluon"] <= 1.2 * measured_ms
        assert best["gluon"] < best["triton"] or name == "whisper-large"
    best = expected_of_forms(operation.problem(PREFILL, "bfloat16"), "NVIDIA A100-SXM4-80GB")
    assert best["triton"] < best["gluon"]


COMPILED = {
    "many queries": (PREFILL, {}),
    "one query": (DECODE, {}),
    "descriptors": (PREFILL, {"DESCRIPTORS": True}),
    "roles of warps": (PREFILL, {"DESCRIPTORS": True, "WARP_SPECIALIZE": True, "num_warps": 4, "num_stages": 2}),
    "heads in two parts": ((1, 128, 128, 4096, 4096, 192, 128, 2), {"DESCRIPTORS": True}),
    "large heads": ((2, 8, 1, 4096, 4096, 256, 256, 2), {}),
    "Gluon": (PREFILL, GLUON),
    "Gluon, small heads": ((1, 2, 2, 128, 128, 64, 64, 1), {**GLUON, "GROUP_HEADS": 1}),
    "one row of one head, in parts": ((1, 1, 1, 1, 4096, 64, 1, 1), {"SPLITS": 8}),
}


@pytest.mark.parametrize("what", COMPILED)
def test_forms_compile_for_hopper_and_fit(cli, shared_fork_server, what):
    shape, values = COMPILED[what]
    space = operation.space_for(operation.problem(shape, "bfloat16"))
    config = {**space.default_config, **values}
    result = compiled(cli, operation, shape, config, "sm_90", "bfloat16")
    assert result["status"] == "ok"
    assert result["spill_bytes"] <= 64
    assert config["FORM"] != "gluon" or not result["serialised"]
    assert result["mma"] == ("mma.sync" if config["BLOCK_M"] < 64 else "wgmma")


def compiled(cli, of, shape, config, target, dtype):
    """What `triton-ops compile` says of one config."""
    words = [word for name, value in config.items() for word in ("--space", f"{name}={str(value).lower()}")]
    extents = "x".join(map(str, shape))
    options = ("--timeout", "600", "--json")  # other programs may leave a compiler a tenth of a CPU
    ran = cli("compile", of.name, "--gpu", target, "--shape", extents, "--dtype", dtype, *options, *words)
    assert ran.code == 0, ran.err
    (result,) = json.loads(ran.out)["items"]
    return result


@pytest.mark.parametrize("of", [operation, backward_operation], ids=lambda each: each.name)
def test_wide_heads_of_float32_fit_devices_of_100_kb_untuned(cli, shared_fork_server, of):
    shape = (1, 4, 2, 515, 777, 256, 256, 2)
    config = of.space_for(of.problem(shape, "float32")).default_config
    result = compiled(cli, of, shape, config, "sm_120", "float32")
    assert (result["status"], result["mma"]) == ("ok", "none")
    assert result["spill_bytes"] <= 64


def beginnings_of_second_halves(text):
    """The operations that make the numbers from which rows 64 to 127 of a tile are counted."""
    for part in re.split(r"^ +partition\d+\(.*$", text, flags=re.MULTILINE)[1:]:
        operations = dict(re.findall(r"(%\S+) = (\S+ [^{\n]*)", part))
        for name, message in re.findall(r"(%\S+) = tt\.make_range (.*)", part):
            if "start = 64" in message:
                added = [line for line in operations.values() if line.startswith("arith.addi") and f"{name} " in line]
                for line in added:
                    splat = operations[re.search(r"addi (%\w+),", line)[1]]
                    yield operations[re.search(r"tt\.splat (%\w+)", splat)[1]].partition(" ")[0]


@pytest.mark.parametrize("shape", [PREFILL, (1, 4, 4, 1024, 1000, 64, 64, 1)])
def test_only_a_load_is_moved_for_the_second_group_of_warps(shape):
    # Triton 3.6 moves whatever shares the number at which the load begins: the rows that are written were moved twice.
    space = operation.space_for(operation.problem(shape, "bfloat16"))
    values = {
        "BLOCK_M": 128,
        "BLOCK_N": 32,
        "DESCRIPTORS": True,
        "WARP_SPECIALIZE": True,
        "num_warps": 4,
        "num_stages": 2,
    }
    given = Arguments(keyword=dict(operation.problem(shape, "bfloat16").arguments)).described()
    config = Config({**space.default_config, **values})
    text = ttgir_of(TritonCompiler(operation.kernel, given, Target.named("sm_90")), config)
    if "ttg.warp_specialize" not in text:
        pytest.skip("this Triton gives these warps no roles")
    assert {*beginnings_of_second_halves(text)} == {"arith.muli"}  # and no arith.addi of half a tile before
    columns = re.findall(r"async_tma_copy_global_to_local \S+\[%\S+, (%\w+)\]", text)
    assert len(columns) >= 4
    assert all(re.search(rf"{column} = arith\.constant 0 : i32", text) for column in columns)


def test_space_of_the_gradient_leaves_out_what_registers_cannot_hold():
    space = backward_operation.space_for(backward_operation.problem())
    large = {"Q_ROWS": 128, "Q_KEYS": 128, "K_KEYS": 128, "K_ROWS": 128}
    few = {**space.default_config, "num_warps": 4}
    assert space.why_not({**few, **large}).startswith("dq: ")
    assert space.why_not({**few, "K_KEYS": 128}).startswith("dk and dv: ")
    assert backward_operation.work(backward_operation.problem((1, 2, 1, 3, 4, 8, 16, 2))).flops == 2 * 2 * 9 * 56


@pytest.mark.parametrize("head", [16, 64, 80, 128, 256])
def test_products_that_are_summed_term_by_term_have_small_tiles(head):
    """Float32 without TF32: compilers take minutes for larger ones."""
    shape = (2, 16, 4, 300, 2000, head, head, 2)
    space = operation.space_for(operation.problem(shape, "float32"))
    large = {**space.default_config, "BLOCK_M": 64, "BLOCK_N": 128, "num_warps": 4}
    assert space.why_not(space.default_config) is None
    assert (space.why_not(large) or "").startswith("terms: 64 by 128 ") == (head > 16)
    assert space.why_not({**large, "BLOCK_M": 16, "BLOCK_N": 32, "num_warps": 8}) is None  # no instruction wants rows
    space = backward_operation.space_for(backward_operation.problem(shape, "float32"))
    sides = {"Q_ROWS": 16, "Q_KEYS": 16, "K_KEYS": 16, "K_ROWS": 16}
    assert space.why_not(space.default_config) is space.why_not({**space.default_config, **sides}) is None
    most = {**space.default_config, "num_warps": 8, **sides}
    if head > 64:
        assert space.why_not({**most, "Q_ROWS": 64, "Q_KEYS": 64}).startswith("terms of dq: 64 by 64 ")
        assert space.why_not({**most, "K_KEYS": 64, "K_ROWS": 64}).startswith("terms of dk and dv: 64 by 64 ")


def test_tiles_of_tf32_are_those_of_matrix_instructions():
    shape = (2, 16, 4, 300, 2000, 128, 128, 2)
    given = backward_operation.problem(shape, "float32")
    assert given["PRECISION"] == "ieee"
    assert are_summed(given)
    assert not are_summed(backward_operation.problem(shape, "bfloat16"))
    assert default_config(1200, 2000, 8, 128, "float32", False)["BLOCK_M"] == 64
    assert default_config(1200, 2000, 8, 128, "float32", True)["BLOCK_M"] == 16


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(ShapeMismatchError, match="3 heads are no multiple of 2"):
        operation.problem((1, 3, 2, 4, 4, 8, 8, 1), "float16")
    with pytest.raises(ShapeMismatchError, match="mask is 3"):
        operation.problem((1, 2, 2, 4, 4, 8, 8, 3), "float16")


Q, K = torch.zeros(2, 4, 3, 8), torch.zeros(2, 2, 5, 8)
ERRORS = {
    "dtype of q": ((Q.int(), K, K), UnsupportedDtypeError, "q"),
    "dtype of k": ((Q, K.half(), K), UnsupportedDtypeError, "k"),
    "rank": ((Q[0], K, K), ShapeMismatchError, "q"),
    "layout": ((Q, K.mT.contiguous().mT, K), ShapeMismatchError, "k"),
    "batch": ((Q, K[:1], K), ShapeMismatchError, "k"),
    "head size": ((Q, torch.zeros(2, 2, 5, 7), K), ShapeMismatchError, "k"),
    "keys": ((Q, K, torch.zeros(2, 2, 4, 8)), ShapeMismatchError, "v"),
    "heads": ((Q, torch.zeros(2, 3, 5, 8), torch.zeros(2, 3, 5, 8)), ShapeMismatchError, "k"),
    "large heads": ((torch.zeros(1, 1, 1, 257),) * 3, ShapeMismatchError, "q"),
    "scale": ((Q, K, K, False, 0.0), SettingsError, None),
    "scale that is no number": ((Q, K, K, False, math.nan), SettingsError, None),
    "scale beyond float32": ((Q, K, K, False, 1e300), SettingsError, None),
    "negative scale": ((Q, K, K, False, -1.0), SettingsError, None),
    "mask by a text": ((Q, K, K, "no"), SettingsError, None),
    "mask by a tensor": ((Q, K, K, torch.tensor(True)), SettingsError, None),
    "negated view": ((torch._neg_view(Q), K, K), KernelTypeError, None),
}


@pytest.mark.parametrize("what", ERRORS)
def test_bad_inputs_are_refused(interpreted, what):
    given, error, name = ERRORS[what]
    assert interpreted(error_of, flash_attention, *given) == (error.__name__, name)


CONFIGS = {
    "no part": {"SPLITS": 0},
    "less than no part": {"SPLITS": -2},
    "half a part": {"SPLITS": 1.5},
    "no head in turn": {"GROUP_HEADS": 0},
    "a text for a flag": {"DESCRIPTORS": "no"},
    "roles of warps without descriptors": {"WARP_SPECIALIZE": True},
    "roles of warps of few rows": {"WARP_SPECIALIZE": True, "DESCRIPTORS": True},
    "another form": {"FORM": "cuda"},
    "groups of few rows": {"FORM": "gluon"},
    "groups for few queries": GLUON,
}


@pytest.mark.parametrize("what", CONFIGS)
def test_configs_that_would_compute_something_else_are_refused(interpreted, what):
    chosen = {**SMALL, **CONFIGS[what]}
    assert interpreted(error_of, flash_attention, Q, K, K, config=chosen) == ("ConfigValueError", None)


@pytest.mark.parametrize(
    "key",
    [
        torch.zeros(1, 1, 5, 7),
        torch.zeros(40)[1:].as_strided((1, 1, 4, 8), (32, 32, 8, 1)),
        torch.zeros(1, 1, 5, 9)[..., :8],
    ],
)
def test_descriptors_of_tensors_that_cannot_have_them_are_refused(interpreted, key):
    chosen = {**SMALL, "DESCRIPTORS": True}
    assert interpreted(error_of, flash_attention, key, key, key, config=chosen) == ("ConfigValueError", None)


def test_cpu_tensors_are_a_device_error():
    with pytest.raises(DeviceError, match="q is on cpu"):
        flash_attention(Q, K, K)
