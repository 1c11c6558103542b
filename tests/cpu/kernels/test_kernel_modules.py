"""The modules in what models do with them, and that no kernel and no module ever tunes by itself."""

import copy
import gc
import io
import random
import tempfile
import threading
from collections import Counter
from dataclasses import replace

import pytest
import torch
from benchmarks.correctness.random_shapes import INTERPRETED, drawn_shape

import triton_ops
import triton_ops_kernels as kernels
from tests.near import drawn, error_of
from triton_ops import (
    FP8Linear,
    FusedGatedMLP,
    FusedRMSNormRoPE,
    dequantize_fp8,
    fp8_gemm,
    fused_gated_mlp,
    fused_rmsnorm_rope,
    launches,
    layer_norm,
    matmul,
    quantize_fp8,
    softmax,
)
from triton_ops.dispatch import operations
from triton_ops.dispatch.decision import forget_decisions
from triton_ops.exceptions import DeviceError, MissingDependencyError
from triton_ops.tuner import RequestedTune
from triton_ops.values import KernelMetrics
from triton_ops_kernels import modules as linear
from triton_ops_kernels.modules import copies

pytestmark = pytest.mark.triton


def error(layer, x):
    """How far an `FP8Linear` is from the linear layer with its weight, relative to that."""
    right = torch.nn.functional.linear(x, layer.weight, layer.bias)
    return float((layer(x) - right).norm() / right.norm())


def parameters_in_turn():
    """Errors of a layer whose weight gives way to others, one of which may lie where an earlier one lay."""
    layer, x, result = FP8Linear(32, 16), drawn(5, 32), []
    for _ in range(8):
        for _ in range(2):
            layer.weight = torch.nn.Parameter(torch.randn(16, 32))
        result.append(error(layer, x))
    return max(result)


def test_another_parameter_in_the_place_of_the_weight_is_quantised(interpreted):
    assert interpreted(parameters_in_turn) < 0.1


def changes_of_a_layer():
    """Errors after each thing that changes a weight."""
    layer, other, x = FP8Linear(32, 16, bias=True), FP8Linear(32, 16, bias=True), drawn(5, 32)
    error(layer, x)
    result = {}
    with torch.no_grad():
        layer.weight.mul_(-2)
        result["in place"] = error(layer, x)
    layer.load_state_dict(other.state_dict())
    result["load_state_dict"] = error(layer, x)
    layer.load_state_dict(FP8Linear(32, 16, bias=True).state_dict(), assign=True)
    result["assigned"] = error(layer, x)
    layer(x).square().sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.01).step()
    result["optimiser"] = error(layer, x)
    swapped = torch.func.functional_call(layer, {"weight": other.weight, "bias": other.bias}, (x,))
    result["functional_call"] = float((swapped - torch.nn.functional.linear(x, other.weight, other.bias)).norm()) / 10
    with torch.inference_mode():
        result["inference"] = error(layer, x)
    layer.half()
    result["half"] = error(layer, x.half())
    copied = copy.deepcopy(layer)
    with torch.no_grad():
        copied.weight.fill_(0.5)
    result["deepcopy"] = max(error(copied, x.half()), error(layer, x.half()))
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    result["saved"] = error(torch.load(file, weights_only=False), x.half())
    return result


def test_the_weight_is_quantised_anew_whatever_changes_it(interpreted):
    result = interpreted(changes_of_a_layer)
    assert {name: each for name, each in result.items() if not each < 0.1} == {}


def moved():
    """Whether a layer that is converted keeps nothing of its old weight."""
    layer = FP8Linear(32, 16)
    layer(drawn(5, 32))
    kept = layer.weight in copies()
    layer.to(torch.float16)
    return kept, layer.weight in copies()


def test_a_layer_that_is_converted_keeps_no_quantised_weight(interpreted):
    assert interpreted(moved) == (True, False)


def left_over():
    """How many quantised weights there are more than before, with a layer and without it."""
    gc.collect()
    before, layer = len(copies()), FP8Linear(32, 16)
    layer(drawn(5, 32))
    with_it = len(copies()) - before
    del layer
    gc.collect()
    return with_it, len(copies()) - before


def test_a_quantised_weight_ends_with_its_weight(interpreted):
    assert interpreted(left_over) == (1, 0)


def captured(where):
    """Whether a call in a graph's memory uses what is kept, what it leaves behind, and the error of a call after it."""
    patch = pytest.MonkeyPatch()
    layer, x = FP8Linear(32, 16), drawn(5, 32)
    layer(x)
    kept = copies()[layer.weight][1].data_ptr()
    patch.setattr(linear, where, lambda *_weight: True)
    inside = linear.quantised_weight(layer.weight)[0].data_ptr()
    layer(x)
    left = layer.weight in copies()
    patch.undo()
    return inside == kept, left, error(layer, x)


@pytest.mark.parametrize("where", ["capturing", "_warming_up"])
def test_a_capture_uses_and_leaves_no_quantised_weight(interpreted, where):
    used, left, after = interpreted(captured, where)
    assert (used, left) == (False, False)
    assert after < 0.1


def refused_by_a_layer():
    layer, elsewhere = FP8Linear(32, 16), FP8Linear(32, 16, device="meta")
    inputs = [1.0], drawn(5, 31), torch.ones(5, 32, dtype=torch.int32)
    return [*(error_of(layer, given) for given in inputs), error_of(elsewhere, drawn(5, 32))]


def test_a_layer_says_what_does_not_fit(interpreted):
    assert interpreted(refused_by_a_layer) == [
        ("KernelTypeError", None), ("ShapeMismatchError", "x"), ("UnsupportedDtypeError", "x"),
        ("DeviceError", "weight"),
    ]  # fmt: skip


def test_a_layer_on_a_cpu_names_its_input():
    with pytest.raises(DeviceError, match="x is on cpu") as raised:
        FP8Linear(32, 16)(drawn(5, 32))
    assert raised.value.tensor_name == "x"


def in_autocast():
    """Dtypes of results after a product in float16, and of the gradients of float32 weights."""
    x, result = drawn(2, 5, 32), {}
    modules = {"mlp": FusedGatedMLP(32, 48), "norm": FusedRMSNormRoPE(32, 8), "fp8": FP8Linear(32, 16)}
    angles = [drawn(5, 8), drawn(5, 8)]
    for name, module in modules.items():
        with torch.autocast("cpu", dtype=torch.float16):
            half = torch.nn.functional.linear(x, torch.eye(32))
            out = module(half, *angles) if name == "norm" else module(half)
        out.float().square().sum().backward()
        result[name] = out.dtype, {each.grad.dtype for each in module.parameters()}
    with torch.autocast("cpu", dtype=torch.float16):
        result["wide input"] = modules["mlp"](x).dtype, set()
    result["outside"] = modules["mlp"](x).dtype, set()
    return result


def test_modules_take_part_in_autocast(interpreted):
    half, single = torch.float16, {torch.float32}
    assert interpreted(in_autocast) == {
        "mlp": (half, single), "norm": (half, single), "fp8": (half, single), "wide input": (half, set()),
        "outside": (torch.float32, set()),
    }  # fmt: skip


def copied_and_converted():
    """Whether modules give the same bits after a copy and a state_dict, and results of their dtype after `half`."""
    x, angles = drawn(2, 5, 32), (drawn(5, 8), drawn(5, 8))
    result = []
    for made, further in ((lambda: FusedGatedMLP(32, 48, "gelu"), ()), (lambda: FusedRMSNormRoPE(32, 8), angles)):
        module, other = made(), made()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_()
        other.load_state_dict(module.state_dict())
        right = module(x, *further)
        same = right.equal(other(x, *further)) and right.equal(copy.deepcopy(module)(x, *further))
        result.append((same, module.half()(x.half(), *(each.half() for each in further)).dtype))
    return result


@pytest.mark.parametrize(
    "make",
    [
        lambda device: FusedRMSNormRoPE(32, 8, device=device),
        lambda device: FusedGatedMLP(32, 64, device=device),
        lambda device: FP8Linear(32, 16, True, device=device),
    ],
)
def test_a_module_that_was_made_without_memory_is_initialised_later(make):
    later = make("meta").to_empty(device="cpu")
    for weight in later.parameters():
        torch.nn.init.constant_(weight, torch.nan)
    torch.manual_seed(3)
    later.reset_parameters()
    torch.manual_seed(3)
    for name, weight in make("cpu").named_parameters():
        assert torch.equal(later.get_parameter(name), weight)


def test_modules_are_copied_loaded_and_converted(interpreted):
    assert interpreted(copied_and_converted) == [(True, torch.float16)] * 2


def launched_so_far():
    """Kernel and rung of each launched config, with the number of its launches."""
    result = Counter()
    for row in launches():
        result[row.kernel, row.rung] += row.launches
    return result


def tuned_before():
    """The rung of a call of an operation that is tuned first, as an earlier test in this process may have done."""
    operation = kernels.load("softmax")
    with triton_ops.on_miss("tune"), tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_OPS_CACHE_DIR", folder)
        patch.setattr(
            operations,
            "tune",
            lambda *_args, **_options: triton_ops.TuningResult(
                dict(operation.space_for(operation.problem((4, 32), "float32")).default_config), KernelMetrics(1.0)
            ),
        )
        operation(**dict(operation.materialise(operation.problem((4, 32), "float32"), "cpu").keyword))
    return {rung for kernel, rung in launched_so_far() if kernel == "softmax"}


def everything_called():
    """The rungs of all that runs when every function, module and operation is called; a tune is an error."""

    def tuned(*_args, **_kwargs):
        raise AssertionError("something tuned")

    patch = pytest.MonkeyPatch()
    patch.setattr(operations, "tune", tuned)
    patch.setattr(RequestedTune, "result", tuned)
    forget_decisions()
    before = launched_so_far()  # other tests launch in this process, too
    x, angles = drawn(2, 5, 32).requires_grad_(), (drawn(5, 8), drawn(5, 8))
    weight, gate = drawn(32).requires_grad_(), drawn(24, 32).requires_grad_()
    flat = x.detach().view(10, 32)
    made = [
        softmax(x), layer_norm(x, weight, weight), fused_rmsnorm_rope(x, weight, *angles),
        fused_gated_mlp(x, gate, gate), FusedGatedMLP(32, 48)(x), FusedRMSNormRoPE(32, 8)(x, *angles),
        FP8Linear(32, 16, bias=True)(x),
    ]  # fmt: skip
    sum(each.sum() for each in made).backward()
    matmul(flat.half(), flat.half().t())
    for granularity in ("tensor", "row", "block", "tile"):
        dequantize_fp8(*quantize_fp8(flat, granularity=granularity))
    fp8_gemm(flat, gate.detach().t())
    rng, sizes = random.Random(2), replace(INTERPRETED, side=40, row=200, elements=300, tokens=8)
    for name in kernels.names():
        operation = kernels.load(name)
        problem = operation.problem(drawn_shape(operation, rng, sizes), operation.dtypes[-1])
        operation(**dict(operation.materialise(problem, "cpu").keyword))
    result = set(launched_so_far() - before)
    patch.undo()
    forget_decisions()
    return result


def test_no_function_no_module_and_no_operation_tunes_by_itself(interpreted):
    assert "tuned" in interpreted(tuned_before)
    result = interpreted(everything_called)
    assert {kernel for kernel, _ in result} >= set(kernels.names())
    assert {rung for kernel, rung in result if kernel in kernels.names()} <= {"default", "record", "borrowed"}


def test_a_base_class_of_what_is_missing_can_be_derived_from_and_not_made():
    assert linear.base_class("threading", "Thread", "a test") is threading.Thread
    stand_in = linear.base_class("no_such_package.part", "Base", "a test")
    derived = type("Derived", (stand_in,), {})
    assert stand_in.__name__ == "Base"
    with pytest.raises(MissingDependencyError, match="needed for a test, and is not installed") as caught:
        derived(1, two=2)
    assert caught.value.hint == "pip install no_such_package"
