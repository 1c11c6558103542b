"""The checks of numbers and of the shipped kernels' arguments, by their documented import path."""

import math
import subprocess
import sys

import pytest
import torch

from tests.near import error_of
from triton_ops import validation
from triton_ops.exceptions import SettingsError, ShapeMismatchError
from triton_ops_kernels import validate_eps, validate_head_dim, validate_positive_dimensions


def test_sizes_are_whole_numbers_from_one():
    validate_positive_dimensions(M=1, N=2)
    for bad in (0, -1, 2.0, True, "3", None):
        with pytest.raises(ShapeMismatchError, match="N is") as raised:
            validate_positive_dimensions(M=1, N=bad)
        assert raised.value.tensor_name == "N"


def test_heads_are_even_and_fill_the_hidden_size():
    validate_head_dim(80, 2560)
    for bad in ((3,), (0,), (64, 100)):
        with pytest.raises(ShapeMismatchError):
            validate_head_dim(*bad)


def test_eps_is_finite_and_not_negative():
    validate_eps(0)
    for bad in (-1e-9, math.nan, math.inf, "1", None, True):
        with pytest.raises(SettingsError, match="eps is"):
            validate_eps(bad)


def found_on_cpu():
    x, weight, angles = torch.zeros(2, 3, 96), torch.zeros(96), torch.zeros(3, 48)
    return {
        "attention": validation.validate_attention_inputs(x[None], x[None], x[None], 0.5),
        "rmsnorm_rope": validation.validate_rmsnorm_rope_inputs(x, weight, angles, angles),
        "gated_mlp": validation.validate_gated_mlp_inputs(x, torch.zeros(5, 96), torch.zeros(5, 96)),
        "grouped_matmul": validation.validate_grouped_matmul_inputs(x[0], x[:1].mT, torch.tensor([3])),
        "fp8_gemm": validation.validate_fp8_gemm_inputs(torch.zeros(4, 6), torch.zeros(6, 8)),
        "fp8_quantize": validation.validate_fp8_quantize_inputs(x, torch.ones(())),
    }


@pytest.mark.triton
def test_contracts_return_the_extents(interpreted):
    assert interpreted(found_on_cpu) == {
        "attention": (1, 2, 2, 3, 3, 96, 96),
        "rmsnorm_rope": (2, 3, 96, 48, 2),
        "gated_mlp": (2, 3, 96, 5),
        "grouped_matmul": (3, 3, 96, 1),
        "fp8_gemm": (4, 8, 6),
        "fp8_quantize": None,
    }


@pytest.mark.triton
@pytest.mark.parametrize(("name", "count"), [
    ("attention", 3), ("fp8_gemm", 2), ("fp8_quantize", 2), ("gated_mlp", 3), ("grouped_matmul", 3),
    ("rmsnorm_rope", 4),
])  # fmt: skip
def test_placement_comes_first(name, count):
    check = getattr(validation, f"validate_{name}_inputs")
    wrong = [torch.zeros(2, dtype=torch.int8) for _ in range(count)]
    assert error_of(check, *wrong[: 1 if "quantize" in name else None])[0] == "DeviceError"


def test_names_are_those_that_are_documented():
    assert set(validation.__all__) == {
        "validate_attention_inputs", "validate_eps", "validate_fp8_gemm_inputs", "validate_fp8_quantize_inputs",
        "validate_gated_mlp_inputs", "validate_grouped_matmul_inputs", "validate_head_dim",
        "validate_positive_dimensions", "validate_rmsnorm_rope_inputs",
    }  # fmt: skip
    with pytest.raises(AttributeError, match="no attribute 'validate_nothing'"):
        validation.validate_nothing  # noqa: B018 - the look-up is what raises


@pytest.mark.processes
def test_import_loads_neither_torch_nor_triton():
    code = "import sys, triton_ops.validation, triton_ops.models\nassert not {'torch', 'triton'} & set(sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
