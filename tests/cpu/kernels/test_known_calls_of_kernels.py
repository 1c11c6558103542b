"""A known call of a shipped function launches what the first one did, and refuses what the first one refuses."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import triton_ops  # noqa: E402
from tests.launches import cpu_as_gpu, launches_that_do_nothing, ordinary_launches  # noqa: E402
from triton_ops import (  # noqa: E402
    flash_attention,
    fp8_gemm,
    fused_gated_mlp,
    fused_rmsnorm_rope,
    grouped_matmul,
    layer_norm,
    matmul,
    softmax,
)
from triton_ops.backend.callables import Source  # noqa: E402
from triton_ops.dispatch.decision import forget_decisions  # noqa: E402
from triton_ops_kernels.fp8_quantize import dequantize_fp8, quantize_fp8  # noqa: E402

pytestmark = pytest.mark.triton
HALF = torch.float16


@pytest.fixture(scope="module")
def launched():
    with launches_that_do_nothing() as launches, cpu_as_gpu():
        forget_decisions()
        yield launches
        forget_decisions()


def flat(launches, results, given):
    """The launches; addresses that are not of tensors that are `given` by the order in which they are met."""
    places = {each.data_ptr(): each.data_ptr() for each in given}
    places |= {each.data_ptr(): f"result {nth}" for nth, each in enumerate(results)}

    def part(value):
        if hasattr(value, "block_shape"):
            return ("described", part(value.base), list(value.shape), list(value.strides), list(value.block_shape))
        address = value.data_ptr() if hasattr(value, "data_ptr") else value
        if type(address) is not int or address < 1 << 32:
            return address
        return places.setdefault(address, f"new {len(places)}")

    return [
        (name, grid, stream, device, [part(value) for value in args]) for name, grid, stream, device, args in launches
    ]


def launched_by(call, launched, given):
    launched.made.clear()
    results = call()
    results = results if isinstance(results, tuple) else (results,)
    facts = [(each.shape, each.stride(), each.dtype, each.requires_grad) for each in results]
    return flat(launched.made, results, given), facts


def check_alike(call, launched, *given):
    first = launched_by(call, launched, given)
    assert launched_by(call, launched, given) == first
    with ordinary_launches() as ordinary:
        known = launched_by(call, launched, given)
    assert not ordinary
    assert known == first


@pytest.mark.processes
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_products_of_random_patterns_are_launched_alike(launched, data):
    m, n, k = (data.draw(st.sampled_from([16, 24, 64])) for _ in range(3))
    a, b = (
        torch.zeros(rows, columns + pad, dtype=HALF)[:, :columns]
        for rows, columns, pad in (
            (m, k, data.draw(st.sampled_from([0, 8]))),
            (k, n, data.draw(st.sampled_from([0, 8]))),
        )
    )
    if data.draw(st.booleans()):
        b = torch.zeros(n, k, dtype=HALF).t()
    options = {
        "bias": torch.zeros(n, dtype=HALF) if data.draw(st.booleans()) else None,
        "activation": data.draw(st.sampled_from(["none", "relu"])),
    }
    if data.draw(st.booleans()):
        options["out"] = torch.empty(m, n, dtype=HALF)
    forget_decisions()
    check_alike(lambda: matmul(a, b, **options), launched, a, b, *filter(torch.is_tensor, options.values()))


@pytest.mark.processes
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_of_random_patterns_are_launched_alike(launched, data):
    shape = data.draw(st.sampled_from([(4, 64), (2, 3, 64), (64,), (5, 100)]))
    x = torch.zeros(shape, dtype=data.draw(st.sampled_from([HALF, torch.float32])))
    x.requires_grad_(data.draw(st.booleans()))
    weight = torch.zeros(shape[-1]).requires_grad_(data.draw(st.booleans())) if data.draw(st.booleans()) else None
    eps = data.draw(st.sampled_from([1e-5, 0.5]))
    forget_decisions()
    given = [x] if weight is None else [x, weight]
    check_alike(lambda: layer_norm(x, weight, eps=eps), launched, *given)
    check_alike(lambda: softmax(x), launched, x)
    check_alike(lambda: quantize_fp8(x.detach(), granularity="row"), launched, x)


def test_gradients_are_launched_alike(launched):
    x, weight = torch.zeros(8, 64, dtype=HALF).requires_grad_(), torch.zeros(64).requires_grad_()
    grad = torch.ones(8, 64, dtype=HALF)
    forget_decisions()

    def back():
        return torch.autograd.grad(layer_norm(x, weight), (x, weight), grad)

    check_alike(back, launched, x, weight, grad)


def said(call):
    try:
        call()
    except triton_ops.TritonKernelError as error:
        return type(error).__name__, str(error)
    return None


A, B = torch.zeros(32, 32, dtype=HALF), torch.zeros(32, 32, dtype=HALF)
X, W = torch.zeros(4, 64), torch.zeros(64)
BAD = {
    "another shape": lambda: matmul(A, B[:16]),
    "another dtype": lambda: matmul(A, B.float()),
    "no tensor": lambda: matmul(A, 3),
    "a gradient": lambda: matmul(A.clone().requires_grad_(), B),
    "a gradient of the second": lambda: matmul(A, B.clone().requires_grad_()),
    "an activation": lambda: matmul(A, B, activation="none "),
    "an output over an input": lambda: matmul(A, B, out=A),
    "an output that is expanded": lambda: matmul(A, B, out=torch.zeros(1, 32, dtype=HALF).expand(32, 32)),
    "a bool for a number": lambda: layer_norm(X, W, None, True),
    "a number that is not finite": lambda: layer_norm(X, W, None, float("nan")),
    "a text for a number": lambda: layer_norm(X, W, None, "1"),
    "no neighbours": lambda: softmax(X[:, ::2]),
    "sparse": lambda: softmax(X.to_sparse()),
    "without memory": lambda: softmax(X.to("meta")),
    "negated": lambda: softmax(torch._neg_view(X)),
    "an option": lambda: softmax(X, tune=1),
    "a config": lambda: softmax(X, config={"BLOCK_SIZE": 64, "ROWS": True, "num_warps": 4}),
    "a config that is none": lambda: softmax(X, config=[1]),
    "no scale": lambda: fp8_gemm(A.to(torch.float8_e4m3fn), B.to(torch.float8_e4m3fn)),
    "another activation": lambda: fused_gated_mlp(X.view(1, 4, 64), torch.zeros(8, 64), torch.zeros(8, 64), "relu"),
}  # fmt: skip


def test_bad_input_is_refused_after_good_calls_as_before(launched):
    forget_decisions()
    before = {name: said(call) for name, call in BAD.items()}
    scale = torch.ones(())
    good = [
        lambda: matmul(A, B), lambda: matmul(A, B, activation="none"), lambda: matmul(A, B, out=torch.empty_like(A)),
        lambda: layer_norm(X, W, None, 1), lambda: layer_norm(X, W, None, 1.0), lambda: softmax(X),
        lambda: softmax(X, tune=False), lambda: softmax(X, config={"BLOCK_SIZE": 64, "ROWS": 1, "num_warps": 4}),
        lambda: fp8_gemm(A.to(torch.float8_e4m3fn), B.to(torch.float8_e4m3fn), scale, scale),
    ]  # fmt: skip
    for call in (*good, *good, *good):
        call()
    assert {name: said(call) for name, call in BAD.items()} == before
    assert all(before.values())


TOKENS, TABLE, CODES = torch.zeros(1, 2, 64), torch.zeros(2, 16), torch.zeros(32, 32).to(torch.float8_e4m3fn)
OF_EACH = {
    matmul: (A, B),
    softmax: (X,),
    layer_norm: (X, W, W),
    flash_attention: (A.view(1, 2, 16, 32),) * 3,
    fused_gated_mlp: (TOKENS, torch.zeros(8, 64), torch.zeros(8, 64)),
    fused_rmsnorm_rope: (TOKENS, W, TABLE, TABLE),
    grouped_matmul: (A, torch.zeros(1, 32, 16, dtype=HALF), torch.tensor([32])),
    fp8_gemm: (CODES, CODES.t(), torch.ones(()), torch.ones(())),
    quantize_fp8: (X,),
    dequantize_fp8: (CODES, torch.ones(())),
}


@pytest.mark.parametrize("function", OF_EACH, ids=lambda function: function.__name__)
def test_a_call_by_names_is_known(launched, function):
    named = dict(zip(inspect.signature(function).parameters, OF_EACH[function], strict=False))
    forget_decisions()
    for _ in range(3):
        function(**named)
    launched.made.clear()
    with ordinary_launches() as ordinary:
        function(**named)
    assert launched.made
    assert not ordinary


def test_a_config_that_is_changed_in_place_counts_at_the_next_call(launched):
    config = {"BLOCK_SIZE": 64, "ROWS": 1, "num_warps": 4}
    forget_decisions()
    grids = []
    for rows in (1, 1, 1, 2, 2, 1):
        config["ROWS"] = rows
        launched.made.clear()
        softmax(X, config=config)
        grids.append(launched.made[-1][1][0])
    assert grids == [4, 4, 4, 2, 2, 4]


def test_the_precision_of_products_counts_at_the_next_call(launched):
    x, weight = torch.zeros(1, 16, 32), torch.zeros(16, 32)
    forget_decisions()
    asked = []
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "highest", "high", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            launched.made.clear()
            fused_gated_mlp(x, weight, weight)
            asked += [value for value in launched.made[-1][4] if value in ("ieee", "tf32")]
    finally:
        torch.set_float32_matmul_precision(before)
    assert asked == ["ieee", "ieee", "tf32", "tf32", "ieee"]


def test_an_output_in_an_input_is_refused_though_the_pattern_is_known(launched):
    whole, b = torch.zeros(96, 32, dtype=HALF), torch.zeros(32, 32, dtype=HALF)
    for _ in range(3):
        matmul(whole[:32], b, out=whole[64:])
    with pytest.raises(triton_ops.TritonKernelError, match="reaches into the memory"):
        matmul(whole[:32], b, out=whole[16:48])


def test_a_tensor_that_is_given_twice_stands_for_no_other_one(launched):
    q, k, v = (torch.zeros(1, 1, 16, 16, dtype=HALF) for _ in range(3))
    forget_decisions()
    for own in ((q, q, q), (q, q, q), (q, k, v), (q, k, v), (q, k, k), (q, q, q)):
        launched.made.clear()
        flash_attention(*own)
        places = [each.data_ptr() if torch.is_tensor(each) else each for each in launched.made[-1][4][:3]]
        assert places == [each.data_ptr() for each in own]


def test_a_call_that_launches_nothing_is_known_too(launched):
    empty = torch.zeros(0, 64, requires_grad=True)
    for _ in range(3):
        launched.made.clear()
        assert softmax(empty).shape == (0, 64)
        assert layer_norm(empty.detach(), W).shape == (0, 64)
        assert fused_gated_mlp(torch.zeros(0, 4, 64), torch.zeros(8, 64), torch.zeros(8, 64)).shape == (0, 4, 8)
        assert not launched.made


def test_a_fake_tensor_is_traced(launched):
    softmax(X)
    softmax(X)
    launched.made.clear()
    with FakeTensorMode() as mode:
        out = softmax(mode.from_tensor(X))
    assert out.shape == X.shape
    assert not launched.made


def test_results_of_inference_mode_are_those_of_inference(launched):
    softmax(X)
    with torch.inference_mode():
        assert softmax(X).is_inference()
        assert softmax(X).is_inference()
    assert not softmax(X).is_inference()


def test_transforms_of_functions_are_as_at_a_first_call(launched):
    def transformed():
        try:
            return torch.func.vmap(softmax)(torch.zeros(2, 4, 64)).shape
        except Exception as error:  # noqa: BLE001 - alike is what counts
            return type(error), str(error)

    forget_decisions()
    first = transformed()
    for _ in range(3):
        softmax(X)
    assert transformed() == first


def test_a_weight_that_changes_is_quantised_again(launched):
    linear = triton_ops.FP8Linear(64, 32, dtype=HALF).requires_grad_(False)
    x, counts = torch.zeros(8, 64, dtype=HALF), []
    for change in (None, None, None, lambda: linear.weight.add_(1), None, None, linear.refresh, None, None):
        if change is not None:
            change()
        launched.made.clear()
        linear(x)
        counts.append(len(launched.made))
    assert counts == [3, 2, 2, 3, 2, 2, 3, 2, 2]


def test_known_patterns_are_bounded(launched, monkeypatch):
    monkeypatch.setattr(softmax.calls, "_most", 8)
    forget_decisions()
    for rows in range(1, 30):
        softmax(torch.zeros(rows, 64))
    assert len(softmax.calls) <= 8


def caller(x):
    return softmax(x) + 0


@pytest.mark.parametrize("function", [caller, softmax, fp8_gemm])
def test_a_shipped_function_is_the_same_one_after_calls(launched, function):
    forget_decisions()
    before = Source.of(function)
    softmax(X)
    softmax(X)
    assert Source.of(function) == before
    assert before.unknown is None
