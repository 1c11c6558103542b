"""What every public function of the shipped kernels refuses alike: kinds of tensors, options, memory, gradients."""

from __future__ import annotations

import warnings

import pytest
import torch

import triton_ops
from tests.near import drawn, error_of
from triton_ops_kernels.fp8_gemm import fp8_gemm
from triton_ops_kernels.layer_norm import layer_norm
from triton_ops_kernels.matmul import matmul
from triton_ops_kernels.softmax import softmax

pytestmark = pytest.mark.triton

TILE = {"BM": 64, "BN": 128, "BK": 64, "num_warps": 4, "num_stages": 2}


def half(*shape):
    return drawn(*shape).half()


def product(**config):
    return matmul(half(64, 64), half(64, 128), config={**TILE, **config})


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        return softmax(torch.nested.nested_tensor([drawn(3), drawn(4)]))


def inside(rows):
    """A product of the upper half of a tensor, written from a row of the same tensor on."""
    whole = torch.zeros(64, 64).half()
    return matmul(whole[:32, :32], half(32, 64), out=whole[rows : rows + 32])


REFUSED = {
    "sparse": (lambda: softmax(drawn(3, 4).to_sparse()), "KernelTypeError", "x is of layout torch.sparse_coo"),
    "nested": (nested, "KernelTypeError", "x is nested"),
    "meta": (lambda: softmax(drawn(3, 4).to("meta")), "DeviceError", "x is on meta"),
    "config that is no mapping": (lambda: layer_norm(drawn(3, 4), config=3), "ConfigValueError", "config is 3"),
    "tune that is no bool": (lambda: softmax(drawn(3, 4), tune="yes"), "SettingsError", "tune is 'yes'"),
    "tile": (lambda: product(BM=24), "ConfigValueError", "BM is 24"),
    "no stage": (lambda: product(num_stages=0), "ConfigValueError", "num_stages is 0"),
    "flag": (lambda: product(SWAPPED=1), "ConfigValueError", "SWAPPED is 1"),
    "algorithm": (lambda: product(ALGORITHM="x"), "ConfigValueError", "it must be one of tiles, persistent"),
    "transposed halves": (
        lambda: product(LOADS="host", HALVES=True, SWAPPED=True), "ConfigValueError", "HALVES is for results that"
    ),
    "result over an input": (lambda: inside(31), "KernelTypeError", "out reaches into the memory of a"),
    "expanded result": (
        lambda: matmul(half(4, 8), half(8, 4), out=half(1, 4).expand(4, 4)), "ShapeMismatchError", "share memory"
    ),
    "gradient of a product": (
        lambda: matmul(half(4, 8).requires_grad_(), half(8, 4)), "KernelTypeError", "matmul does not compute"
    ),
    "gradient of a product in 8 bits": (
        lambda: fp8_gemm(half(4, 16), half(16, 4).requires_grad_()), "KernelTypeError", "fp8_gemm does not compute"
    ),
    "dtype by name": (
        lambda: fp8_gemm(half(4, 16), half(16, 4), output_dtype="float16"), "UnsupportedDtypeError", "'float16'"
    ),
}  # fmt: skip


def said(call):
    """The kind and the text of the error that a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the test names what it should be
        return type(error).__name__, str(error)
    return "nothing", ""


def refused():
    return {what: said(call) for what, (call, *_) in REFUSED.items()}


def test_what_no_kernel_takes_is_a_typed_error_before_any_launch(interpreted):
    result = interpreted(refused)
    for what, (_, kind, text) in REFUSED.items():
        assert result[what][0] == kind, what
        assert text in result[what][1], what


def taken():
    """A result beside its input in one tensor, and a product of parameters where torch does not record."""
    with torch.no_grad():
        matmul(half(4, 8).requires_grad_(), half(8, 4))
    return inside(32).shape


def test_a_result_may_lie_beside_an_input_and_parameters_may_be_multiplied_without_recording(interpreted):
    assert tuple(interpreted(taken)) == (32, 64)


def test_no_other_error_is_needed_on_a_cpu():
    assert error_of(softmax, drawn(3, 4)) == ("DeviceError", "x")


def of_bfloat16(*shape):
    return torch.ones(shape, dtype=torch.bfloat16)


def products_of_bfloat16():
    one = of_bfloat16(16, 16)
    calls = {
        "matmul": lambda: matmul(one, one),
        "grouped_matmul": lambda: triton_ops.grouped_matmul(one, one[None], torch.tensor([16], dtype=torch.int32)),
        "fused_gated_mlp": lambda: triton_ops.fused_gated_mlp(one[None], one, one),
        "flash_attention": lambda: triton_ops.flash_attention(*[one[None, None]] * 3),
    }
    others = [
        triton_ops.softmax(one), triton_ops.layer_norm(one, one[0], one[0]),
        fp8_gemm(half(16, 16), half(16, 16), output_dtype=torch.bfloat16),
    ]  # fmt: skip
    return {name: said(call) for name, call in calls.items()}, all(each.isfinite().all() for each in others)


def test_an_interpreted_product_of_bfloat16_is_refused_since_the_interpreter_multiplies_bits(interpreted):
    errors, others_ran = interpreted(products_of_bfloat16)
    for name, (kind, text) in errors.items():
        assert kind == "UnsupportedDtypeError", (name, text)
        assert "multiplies the bits of bfloat16 as whole numbers" in text
    assert others_ran
