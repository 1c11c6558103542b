"""The documented path to the result types, and the inputs that specs make."""

import subprocess
import sys

import pytest
import torch

from triton_ops import models
from triton_ops.device import gpu_missing
from triton_ops.exceptions import DeviceError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.models import FP8GEMMInput, GatedMLPInput, RMSNormRoPEInput
from triton_ops.values import TensorSpec, tensors, trial

INPUTS = {
    "rmsnorm_rope": RMSNormRoPEInput.from_shapes(batch_size=2, seq_len=3, hidden_dim=16, head_dim=8),
    "gated_mlp": GatedMLPInput.from_shapes(batch_size=2, seq_len=3, hidden_dim=16, intermediate_dim=24),
    "fp8_gemm": FP8GEMMInput.from_shapes(M=4, N=6, K=8),
}


def test_the_documented_types_are_those_of_their_modules():
    assert models.KernelMetrics is trial.KernelMetrics
    assert models.TuningResult is trial.TuningResult
    assert models.TensorSpec is tensors.TensorSpec


@pytest.mark.processes
def test_import_needs_no_torch():
    code = "import sys, triton_ops.models; print({'torch', 'triton'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "set()\n"


def test_rmsnorm_rope_shapes():
    made = RMSNormRoPEInput.from_shapes(2, 3, 16, 8, dtype="bf16")
    table = TensorSpec((3, 8), "bfloat16")
    assert (made.x, made.weight) == (TensorSpec((2, 3, 16), "bfloat16"), TensorSpec((16,), "bfloat16"))
    assert (made.cos, made.sin) == (table, table)


def test_gated_mlp_shapes():
    made = GatedMLPInput.from_shapes(2, 3, 16, 24, "float32")
    assert made.x == TensorSpec((2, 3, 16), "float32")
    assert made.gate_weight == made.up_weight == TensorSpec((24, 16), "float32")


def test_fp8_gemm_shapes():
    made = FP8GEMMInput.from_shapes(4, 6, 8)
    assert (made.a, made.b) == (TensorSpec((4, 8), "fp8"), TensorSpec((8, 6), "fp8"))
    assert made.a_scale == made.b_scale == TensorSpec((), "float32")


@pytest.mark.parametrize("name", INPUTS)
def test_tensors_have_their_specs_and_are_neither_zero_nor_equal(name):
    made = INPUTS[name].create_tensors(device="cpu")
    for field, tensor in made.items():
        assert getattr(INPUTS[name], field).validate(tensor)
        assert tensor.double().abs().max() <= 1
        assert tensor.double().abs().sum() > 0
    drawn = [tensor for tensor in made.values() if tensor.ndim > 0]
    same = [(a, b) for a in drawn for b in drawn if a is not b and a.shape == b.shape]
    assert not any(torch.equal(a, b) for a, b in same)


@pytest.mark.parametrize("name", INPUTS)
def test_seed_decides_the_values(name):
    first, again, other = (INPUTS[name].create_tensors("cpu", seed) for seed in (1, 1, 2))
    key = next(iter(first))
    assert torch.equal(first[key].float(), again[key].float())
    assert not torch.equal(first[key].float(), other[key].float())


def test_scales_leave_the_stored_values_as_they_are():
    made = INPUTS["fp8_gemm"].create_tensors("cpu")
    assert made["a_scale"].item() == made["b_scale"].item() == 1.0


def test_specs_are_frozen():
    with pytest.raises(AttributeError):
        INPUTS["fp8_gemm"].a = TensorSpec((1,), "float32")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RMSNormRoPEInput.from_shapes(2, 3, 16, 5), "head_dim is 5"),
        (lambda: RMSNormRoPEInput.from_shapes(2, 3, 16, 6), "hidden_dim 16 is no multiple of head_dim 6"),
        (lambda: RMSNormRoPEInput.from_shapes(2, 0, 16, 8), "seq_len is 0"),
        (lambda: GatedMLPInput.from_shapes(2, 3, 16, -1), "intermediate_dim is -1"),
        (lambda: FP8GEMMInput.from_shapes(4, 6, 0), "K is 0"),
        (lambda: GatedMLPInput.from_shapes(2, 3, 16.0, 8), "hidden_dim is 16.0; it must be a whole number"),
        (lambda: GatedMLPInput.from_shapes("2", 3, 16, 8), "batch_size is '2'; it must be a whole number"),
        (lambda: FP8GEMMInput.from_shapes(True, 6, 8), "M is True; it must be a whole number"),
    ],
)
def test_extents_that_fit_no_kernel_are_refused(make, message):
    with pytest.raises(ShapeMismatchError, match=message):
        make()


def test_extents_of_numpy_are_whole_numbers():
    numpy = pytest.importorskip("numpy")
    extents = numpy.array([2, 3, 16, 8])
    assert RMSNormRoPEInput.from_shapes(*extents) == RMSNormRoPEInput.from_shapes(2, 3, 16, 8)


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
@pytest.mark.parametrize("name", INPUTS)
def test_tensors_for_a_gpu_that_is_not_there_are_refused(name):
    with pytest.raises(DeviceError, match="device cuda cannot be used"):
        INPUTS[name].create_tensors()


def test_unknown_dtype():
    with pytest.raises(UnsupportedDtypeError):
        FP8GEMMInput.from_shapes(4, 6, 8, dtype="int3")
