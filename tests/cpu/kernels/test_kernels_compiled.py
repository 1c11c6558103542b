"""The shipped kernels inside torch.compile and torch.export: operators with shapes, gradients and configs."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.near import drawn
from triton_ops import FP8Linear, FusedGatedMLP, FusedRMSNormRoPE
from triton_ops_kernels import (
    dequantize_fp8,
    flash_attention,
    flash_attention_with_lse,
    fused_gated_mlp,
    fused_rmsnorm_rope,
    quantize_fp8,
    quantize_fp8_with_overflow_handling,
)
from triton_ops_kernels.fp8_gemm import fp8_gemm
from triton_ops_kernels.grouped_matmul import grouped_matmul
from triton_ops_kernels.layer_norm import layer_norm
from triton_ops_kernels.matmul import matmul
from triton_ops_kernels.modules import copies
from triton_ops_kernels.softmax import operation as softmax_operation
from triton_ops_kernels.softmax import softmax

pytestmark = pytest.mark.triton


def angles(seq, head):
    turned = torch.outer(torch.arange(seq).float(), 0.1 ** torch.arange(head // 2))
    return torch.cat([turned.cos()] * 2, -1), torch.cat([turned.sin()] * 2, -1)


def rope_of(x, weight):
    cos, sin = angles(x.shape[1], 8)
    return fused_rmsnorm_rope(x, weight, cos, sin, 1e-5)


def heads_of(x):
    return x.view(1, -1, 2, 16).transpose(1, 2)


WITH_GRADIENTS = {
    "flash_attention": (
        lambda q, k, v: flash_attention(q, k, v, True, 0.5),
        [(1, 4, 6, 8), (1, 2, 9, 8), (1, 2, 9, 8)], [(2, 4, 7, 8), (2, 2, 9, 8), (2, 2, 9, 8)],
    ),
    "flash_attention_with_lse": (
        lambda q, k, v: flash_attention_with_lse(q, k, v)[0], [(1, 2, 6, 8)] * 3, [(1, 2, 7, 8)] * 3
    ),
    "softmax": (softmax, [(5, 24)], [(7, 24)]),
    "softmax with a config": (
        lambda x: softmax(x, config={"BLOCK_SIZE": 32, "ROWS": 1, "num_warps": 1}), [(5, 24)], [(7, 24)]
    ),
    "layer_norm": (lambda x, w, b: layer_norm(x, w, b, 1e-3), [(6, 24), (24,), (24,)], [(3, 24), (24,), (24,)]),
    "layer_norm without weights": (layer_norm, [(6, 24)], [(3, 24)]),
    "rmsnorm_rope": (rope_of, [(2, 6, 16), (16,)], [(3, 6, 16), (16,)]),
    "gated_mlp": (fused_gated_mlp, [(2, 8, 32), (48, 32), (48, 32)], [(2, 9, 32), (48, 32), (48, 32)]),
}  # fmt: skip


WITHOUT = {
    "flash_attention": lambda x: flash_attention(heads_of(x), heads_of(x), heads_of(x), True),
    "flash_attention_with_lse": lambda x: flash_attention_with_lse(heads_of(x), heads_of(x), heads_of(x), scale=0.5),
    "matmul": lambda x: matmul(x.half(), x.half().t()),
    "matmul into a tensor": lambda x: matmul(x.half(), x.half().t(), out=x.new_zeros(len(x), len(x)).half()) + 1,
    "grouped_matmul": lambda x: grouped_matmul(x, x.t()[None], torch.tensor([len(x)])),
    "grouped_matmul by index": lambda x: grouped_matmul(x, x.t()[None], torch.tensor([3]), torch.tensor([2, 0, 2])),
    "quantize_fp8": lambda x: [each.float() for each in quantize_fp8(x)],
    "quantize_fp8 by row": lambda x: [each.float() for each in quantize_fp8(x, granularity="row")],
    "quantize_fp8 with a scale": lambda x: [each.float() for each in quantize_fp8(x, x.new_full((), 3.0))],
    "quantize_fp8 until it fits": lambda x: [
        each.float() for each in quantize_fp8_with_overflow_handling(x, x.new_full((), 450.0))
    ],
    "dequantize_fp8": lambda x: dequantize_fp8(x.to(torch.float8_e4m3fn), x.new_ones(()), torch.float32),
    "fp8_gemm": lambda x: fp8_gemm(x, x.t().contiguous(), output_dtype=torch.float32, bias=x.new_ones(len(x))),
}


def results(function, inputs):
    """What a call returns, and the gradients of its inputs."""
    own = [each.clone().requires_grad_() for each in inputs]
    result = function(*own)
    result.backward(drawn(*result.shape, shift=0.5))
    return [result.detach(), *(each.grad for each in own)]


def differences(name, dynamic):
    """Whether each result of compiled code has the bits of that outside; for two shapes in turn."""
    torch._dynamo.reset()
    function, *shapes = WITH_GRADIENTS[name]
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    told = []
    for each in shapes:
        inputs = [drawn(*shape) for shape in each]
        pairs = zip(results(function, inputs), results(compiled, inputs), strict=True)
        told += [torch.equal(mine, theirs) for mine, theirs in pairs]
        with torch.no_grad():
            told.append(torch.equal(function(*inputs), compiled(*inputs)))
    return told


def plain_differences(name):
    torch._dynamo.reset()
    function = WITHOUT[name]
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    told = []
    for rows in (32, 48):
        mine, theirs = function(drawn(rows, 32)), compiled(drawn(rows, 32))
        told += [torch.equal(*pair) for pair in zip(mine, theirs, strict=True)]
    return told


def operators_of_export():
    """The operators in an exported module, and whether it gives what the function gives for another number of rows."""

    class Module(torch.nn.Module):
        def forward(self, x):
            return softmax(layer_norm(x))

    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(Module(), (drawn(6, 24),), dynamic_shapes={"x": {0: rows}})
    x = drawn(17, 24)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    return targets, torch.equal(program.module()(x), Module()(x))


def checked():
    """What torch's own check of operators says of them, by the names of its parts."""
    torch.compile(softmax, backend="eager")(drawn(4, 8))
    torch.compile(layer_norm, backend="eager")(drawn(4, 8))
    arguments = (drawn(4, 8).requires_grad_(), drawn(8).requires_grad_(), None)
    return [
        torch.library.opcheck(torch.ops.triton_ops.softmax.default, (drawn(4, 8).requires_grad_(),)),
        torch.library.opcheck(torch.ops.triton_ops.layer_norm.default, arguments),
    ]


def called_operation():
    """Whether an operation that is called inside a compiled function computes what it should; for two shapes."""
    warnings.simplefilter("ignore")  # what torch says of functions that it does not trace

    def function(x):
        out = torch.empty_like(x)
        softmax_operation(x=x, out=out, rows=x.shape[0], COLUMNS=x.shape[1])
        return out + 1

    compiled = torch.compile(function, backend="aot_eager")
    return [torch.allclose(compiled(drawn(*shape)), drawn(*shape).softmax(-1) + 1) for shape in [(4, 32), (8, 16)]]


def error_in_compiled_code():
    try:
        torch.compile(softmax, backend="eager", fullgraph=True)(drawn(8, 6).t())
    except Exception as error:  # noqa: BLE001 - the test names what it should be
        return str(error)
    return ""


MODULES = {
    "FP8Linear": (lambda: FP8Linear(32, 16, bias=True, fast_accum=True), ()),
    "FusedGatedMLP": (lambda: FusedGatedMLP(32, 48, "gelu"), ()),
    "FusedRMSNormRoPE": (lambda: FusedRMSNormRoPE(32, 8), None),
}


def module_differences(name):
    """Whether a compiled module gives the bits of the module, before and after its weights change, and in autocast."""
    torch._dynamo.reset()
    make, further = MODULES[name]
    module, told = make(), []
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for seq, modes in ((5, (False, True)), (6, (False,))):
        given = angles(seq, 8) if further is None else further
        for half in modes:
            pairs = []
            for each in (module, compiled):
                x = drawn(2, seq, 32).requires_grad_()
                module.zero_grad()
                with torch.autocast("cpu", dtype=torch.float16, enabled=half):
                    result = each(x, *given)
                    with torch.no_grad():
                        again = each(x, *given)
                result.float().square().sum().backward()  # as torch advises: outside of autocast
                pairs.append([result, again, x.grad, *(parameter.grad.clone() for parameter in module.parameters())])
            told += [torch.equal(*pair) for pair in zip(*pairs, strict=True)]
        torch.optim.SGD(module.parameters(), lr=0.5).step()
    return told


def kept_in_compiled_code():
    """Whether compiled code quantises a weight once while it does not change, with gradients and without."""
    torch._dynamo.reset()
    module, x, seen = FP8Linear(32, 16), drawn(5, 32), []
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for grads in (True, False):
        for _ in range(2):
            with torch.set_grad_enabled(grads):
                compiled(x)
            seen.append(copies()[module.weight][1].data_ptr())
    with torch.no_grad():
        module.weight.mul_(2)
        compiled(x)
    return len(set(seen)), torch.equal(compiled(x), module(x))


def exported_layer():
    """The operators of an exported layer, and whether it gives the layer's bits for another number of rows."""
    module, rows = FP8Linear(32, 16, bias=True), torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(module, (drawn(6, 32),), dynamic_shapes={"x": {0: rows}})
    x = drawn(17, 32)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    return targets, torch.equal(program.module()(x), module(x))


@pytest.mark.processes
@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_one_graph_with_the_bits_of_the_module(interpreted, name):
    assert all(interpreted(module_differences, name))


def test_compiled_code_keeps_a_quantised_weight(interpreted):
    assert interpreted(kept_in_compiled_code) == (1, True)


def test_an_exported_layer_is_one_operator(interpreted):
    assert interpreted(exported_layer) == (["triton_ops.fp8_linear.default"], True)


LONG = pytest.param("flash_attention", marks=pytest.mark.processes)


@pytest.mark.parametrize("name", [LONG if name == "flash_attention" else name for name in WITH_GRADIENTS])
def test_results_and_gradients_have_the_bits_of_those_outside(interpreted, name):
    assert all(interpreted(differences, name, name != "softmax"))


@pytest.mark.parametrize("name", WITHOUT)
def test_functions_without_gradients_give_the_same(interpreted, name):
    assert all(interpreted(plain_differences, name))


def test_an_exported_program_keeps_them_as_operators_with_dynamic_rows(interpreted):
    targets, equal = interpreted(operators_of_export)
    assert targets == ["triton_ops.layer_norm.default", "triton_ops.softmax.default"]
    assert equal


def test_torch_s_own_check_of_operators_finds_nothing(interpreted):
    for message in interpreted(checked):
        assert len(message) >= 3
        assert {*message.values()} == {"SUCCESS"}


def test_an_argument_that_does_not_fit_is_told_while_torch_traces(interpreted):
    assert "x is not contiguous" in interpreted(error_in_compiled_code)


def test_an_operation_called_inside_a_compiled_function_runs_outside_of_the_graph(interpreted):
    assert interpreted(called_operation) == [True, True]
